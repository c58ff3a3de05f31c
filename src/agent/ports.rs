//! What the driver needs from the world, as traits: the adapters implement them, tests replace them.

use crate::drain::action::{Fault, HoldView, LogindAnswer, Notice};
use crate::drain::answer::Reply;
use crate::drain::hooks::{Gate, Report, Run};
use crate::drain::local::{LocalGuest, LocalView};
use crate::drain::plan::Survey;
use crate::drain::record::Record;
use crate::drain::time::Mono;
use crate::drain::trigger::{Schedule, Shutdown, Then};
use crate::drain::world::{
    AttachedVolume, CordonNote, Fresh, NodeView, ObjectRef, Picture, VmName,
};
use std::collections::BTreeSet;
use std::future::Future;
use tokio::sync::{mpsc, watch};

/// The Kubernetes API. Every method is one request (or one bundle of reads) without hidden retry;
/// the driver puts a time limit around it.
pub trait Cluster: Send + Sync + 'static {
    /// Starts watching; pictures go to the returned channel, the newest wins. Dropping the
    /// receiver (or calling [`Cluster::unwatch`]) ends all watches.
    fn watch(&self) -> watch::Receiver<Picture>;
    /// The same, with the pods of this node that are no VM's.
    fn watch_all(&self) -> watch::Receiver<Picture>;
    /// The same for the own Node alone: everything else in the pictures stays unsettled.
    fn watch_node(&self) -> watch::Receiver<Picture>;
    /// Ends all watches: no request is made afterwards.
    fn unwatch(&self);
    /// A request of the drain follows soon: until what is returned is dropped, what can wait lets it go first.
    fn hurry(&self) -> Box<dyn Send> {
        Box::new(())
    }
    /// GET of the own Node.
    fn read_node(&self) -> impl Future<Output = Result<NodeView, Fault>> + Send;
    /// Merge patch: cordon, with our note when given.
    fn cordon(
        &self,
        resource_version: &str,
        note: Option<&CordonNote>,
    ) -> impl Future<Output = Result<NodeView, Fault>> + Send;
    /// Merge patch: uncordon and remove our note.
    fn uncordon(
        &self,
        resource_version: &str,
    ) -> impl Future<Output = Result<NodeView, Fault>> + Send;
    /// Merge patch: remove our note and leave the cordon as it is.
    fn unmark(
        &self,
        resource_version: &str,
    ) -> impl Future<Output = Result<NodeView, Fault>> + Send;
    /// Merge patch: write down which request on the Node was taken.
    fn acknowledge(
        &self,
        resource_version: &str,
        value: &str,
    ) -> impl Future<Output = Result<NodeView, Fault>> + Send;
    /// POST of an eviction.
    fn evict(
        &self,
        pod: &ObjectRef,
        dry_run: bool,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send;
    /// Volumes that are attached to this node.
    fn volumes(&self) -> impl Future<Output = Result<Vec<AttachedVolume>, Fault>> + Send;
    /// What the scheduler says against the target pod of this VMIM; `None`: nothing, or there is no such pod.
    fn target(
        &self,
        migration: &ObjectRef,
    ) -> impl Future<Output = Result<Option<String>, Fault>> + Send;
    /// Fresh quorum lists; `others`: also of the pods that are no VM's.
    fn confirm(&self, others: bool) -> impl Future<Output = Result<Fresh, Fault>> + Send;
    /// PUT evacuate/cancel for a VMI of this node.
    fn cancel_evacuation(
        &self,
        vmi: &ObjectRef,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send;
    /// DELETE of a VMIM.
    fn delete_migration(
        &self,
        migration: &ObjectRef,
    ) -> impl Future<Output = Result<Reply, Fault>> + Send;
    /// One look at everything that a plan needs, without watches. What cannot be seen says so in it.
    /// `others`: also at the pods that are no VM's.
    fn survey(&self, others: bool) -> impl Future<Output = Survey> + Send {
        let _ = others;
        std::future::ready(Survey::default())
    }
    /// PUT start of a VM that is stopped.
    fn start_vm(&self, vm: &VmName) -> impl Future<Output = Result<Reply, Fault>> + Send;
    /// DELETE of a launcher pod of this node, with its own grace period.
    fn stop_guest(&self, pod: &ObjectRef) -> impl Future<Output = Result<Reply, Fault>> + Send;
    /// A Kubernetes Event; best effort.
    fn event(&self, notice: &Notice) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// What the host tells the driver by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// `PrepareForShutdown(true)` from the owner of `org.freedesktop.login1`, confirmed by the property;
    /// also sent when the adapter starts late, inside somebody else's delay.
    Shutdown(Shutdown),
    /// A pending shutdown is no longer pending.
    ShutdownVanished {
        /// How it was noticed.
        why: String,
    },
    /// What is scheduled for later (`shutdown +10`): told at the first look, and whenever it has changed.
    Scheduled(Option<Schedule>),
    /// The lock or the limit changed.
    Hold(HoldView),
}

/// The host: logind and the delay lock. The adapter owns the file descriptor.
pub trait Host: Send + Sync + 'static {
    /// Connects, subscribes, takes the lock (or adopts one that was handed back), checks
    /// `PreparingForShutdown`; from then on sends events and keeps the lock alive over restarts of
    /// logind and of the bus.
    fn start(
        &self,
        events: mpsc::Sender<HostEvent>,
    ) -> impl Future<Output = Result<HoldView, String>> + Send;
    /// Takes the lock again.
    fn take_hold(&self) -> impl Future<Output = Result<HoldView, String>> + Send;
    /// Closes our copy (and the fd store's) and checks with logind that it is gone.
    fn release(&self) -> impl Future<Output = Result<HoldView, String>> + Send;
    /// Asks logind to go down.
    fn ask_logind(&self, then: Then) -> impl Future<Output = LogindAnswer> + Send;
    /// Gates of a drain that have hooks now.
    fn hooks(&self) -> BTreeSet<Gate> {
        BTreeSet::new()
    }
    /// Runs the hooks of a gate within the limits that stand in `run`.
    fn run_hooks(&self, run: &Run) -> impl Future<Output = Report> + Send {
        let _ = run;
        std::future::ready(Report::default())
    }
    /// Which `compute` containers of launcher pods run on this host.
    fn look_here(&self) -> impl Future<Output = Result<LocalView, String>> + Send {
        std::future::ready(Err("this host cannot be looked at".into()))
    }
    /// SIGTERM to the init process of one of them, and to no other process.
    fn tell_guest(&self, guest: &LocalGuest) -> impl Future<Output = Result<(), String>> + Send {
        let _ = guest;
        std::future::ready(Err("no process of this host can be told".into()))
    }
    /// `STATUS=` for `systemctl status`; nothing where there is no service manager.
    fn status_line(&self, text: &str);
}

/// Where the record is kept.
pub trait RecordStore: Send + Sync + 'static {
    /// The record of the last run. A damaged file is set aside and reported as `Err` with a sentence.
    fn load(&self) -> Result<Option<Record>, String>;
    /// Atomic: when it ends, another process finds this record. It need not have reached the disk.
    fn save(&self, record: Record) -> impl Future<Output = Result<(), String>> + Send;
    /// Removes it.
    fn forget(&self) -> impl Future<Output = Result<(), String>> + Send;
    /// When it ends, what was saved or forgotten outlives a power failure.
    fn sync(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// The only clock.
pub trait Clock: Send + Sync + 'static {
    /// Now, on `CLOCK_BOOTTIME`.
    fn now(&self) -> Mono;
    /// When this clock began, on the wall clock as it goes now: milliseconds since 1970.
    fn booted_at(&self) -> i64;
    /// Sleeps until then.
    fn sleep_until(&self, when: Mono) -> impl Future<Output = ()> + Send;
}
