//! The VirtualMachines behind the VMIs of this node, each read once.
//!
//! A VM carries no label that tells its node, so they can be neither listed nor watched for one node alone. Where
//! several of a namespace are wanted, one page of that namespace is read; what is not on it is read by name. So a node
//! with a hundred VMs costs a few requests, and a cluster with ten thousand is never read as a whole.

use super::Scene;
use super::backoff::Backoff;
use crate::agent::ports::Clock;
use crate::cluster::collection::{Collection, first_page};
use crate::cluster::fault;
use crate::cluster::types::machine::Machine;
use crate::cluster::types::{Guarded, Thin};
use crate::drain::action::{Fault, FaultClass};
use crate::drain::world::{ObjectRef, VmName, VmView};
use futures_util::{StreamExt, stream};
use kube::api::GetParams;
use kube::core::Request;
use std::collections::BTreeMap;
use tokio::time::{sleep, timeout};

/// So many of one namespace are worth a page of it.
const WORTH_A_PAGE: usize = 4;
/// Read by name at the same time.
const AT_ONCE: usize = 4;

impl<C: Clock> Scene<C> {
    /// Reads them for ever, whenever a VMI shows up whose VM is not known.
    pub(super) async fn read_machines(&self) {
        let timing = &self.timing;
        let salt = format!("{} virtualmachines", self.node);
        let mut retry = Backoff::new(timing.retry_first, timing.retry_most, 2, &salt);
        let mut refused = Backoff::new(timing.refused_first, timing.refused_most, 4, &salt);
        loop {
            let wanted = self.board.machines_wanted();
            if wanted.is_empty() {
                self.board.vmis_changed().await;
                continue;
            }
            match self.read_all(wanted).await {
                Ok(()) => {
                    retry.reset();
                    refused.reset();
                }
                Err(fault) => {
                    let denied = matches!(fault.class, FaultClass::Denied);
                    self.machines_unread(&fault, denied);
                    sleep(if denied {
                        refused.pause()
                    } else {
                        retry.pause()
                    })
                    .await;
                }
            }
        }
    }

    /// Reads those that are wanted now, once; what cannot be seen says so in the picture.
    pub(super) async fn read_machines_once(&self) {
        let wanted = self.board.machines_wanted();
        if wanted.is_empty() {
            return;
        }
        if let Err(fault) = self.read_all(wanted).await {
            self.machines_unread(&fault, fault.class == FaultClass::Denied);
        }
    }

    async fn read_all(&self, wanted: Vec<VmName>) -> Result<(), Fault> {
        let mut spaces: BTreeMap<String, Vec<VmName>> = BTreeMap::new();
        for vm in wanted {
            spaces.entry(vm.namespace.clone()).or_default().push(vm);
        }
        for (space, mut wanted) in spaces {
            if wanted.len() >= WORTH_A_PAGE {
                let collection = Collection::machines(&space);
                let now = self.clock.now();
                let door = self.doors.enter().await;
                let page = first_page::<Machine>(&self.connection, &collection, &self.timing, now);
                let page = page.await;
                drop(door);
                for object in page? {
                    let is_it = |vm: &VmName| vm.name == object.at.name;
                    if let Some(at) = wanted.iter().position(is_it) {
                        wanted.swap_remove(at);
                        self.machine_read(&object);
                    }
                }
                wanted.sort();
            }
            let one = |vm: VmName| async move { self.read_machine(&vm).await };
            let mut read = std::pin::pin!(stream::iter(wanted).map(one).buffered(AT_ONCE));
            while let Some(object) = read.next().await {
                self.machine_read(&object?);
            }
        }
        Ok(())
    }

    /// One by name. One that is gone counts as read: its VMI has outlived it.
    async fn read_machine(&self, vm: &VmName) -> Result<Guarded<VmView>, Fault> {
        let what = format!("read virtualmachine {vm}");
        let path = Collection::machines(&vm.namespace).path().to_owned();
        let request = Request::new(path)
            .get(&vm.name, &GetParams::default())
            .map_err(|error| fault::fault(FaultClass::Fatal, &what, &fault::plain(&error)))?;
        let door = self.doors.enter().await;
        let sent = self.connection.send(&what, self.clock.now(), request);
        let limit = self.timing.request;
        let answer = timeout(limit, sent)
            .await
            .unwrap_or_else(|_| Err(fault::timed_out(&what, limit.as_secs_f64())))?;
        drop(door);
        if answer.code == 404 {
            return Ok(gone(vm));
        }
        if !answer.is_success() {
            return Err(fault::from_reply(&what, &answer.reply()));
        }
        let value = serde_json::from_slice(&answer.body).map_err(|error| {
            let why = format!("the server's answer cannot be read: {error}");
            fault::fault(FaultClass::Transient, &what, &why)
        })?;
        let mut read = Guarded::of::<Machine>(&value);
        // Filed under the name that was asked for, whatever the object says.
        read.at.namespace.clone_from(&vm.namespace);
        read.at.name.clone_from(&vm.name);
        Ok(read)
    }

    fn machine_read(&self, object: &Guarded<VmView>) {
        let now = self.clock.now();
        self.board.edit(|slots| slots.machines.apply(object, now));
    }

    fn machines_unread(&self, fault: &Fault, denied: bool) {
        tracing::debug!(what = Machine::RESOURCE, why = %fault.text, "cannot be seen");
        let (now, keep) = (self.clock.now(), self.timing.keep);
        self.board.edit(|slots| {
            if denied {
                let why = "no right to get and list virtualmachines; rbac/reads.yaml gives it to this node";
                slots.machines.forbidden(why.to_owned())
            } else {
                slots.machines.failed(fault.text.clone(), now, keep)
            }
        });
    }
}

fn gone(vm: &VmName) -> Guarded<VmView> {
    Guarded {
        at: ObjectRef {
            namespace: vm.namespace.clone(),
            name: vm.name.clone(),
            uid: String::new(),
        },
        version: String::new(),
        labels: BTreeMap::new(),
        view: Ok(VmView {
            vm: vm.clone(),
            ..VmView::default()
        }),
    }
}
