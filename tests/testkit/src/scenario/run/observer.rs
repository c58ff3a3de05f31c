//! What became of each VM? Follows the store from the first moment, because the objects themselves are gone at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::api::{Change, ChangeKind};
use crate::scenario::expect::Fate;

/// (namespace, name)
pub type Key = (String, String);

/// Annotation on a VMIM that evacuates a node.
pub const EVACUATES: &str = "kubevirt.io/evacuationMigration";
/// Label of launcher pods.
pub const LAUNCHER: &str = "virt-launcher";

/// A VM since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// UID of its first VMI.
    pub first_uid: String,
    /// Where that ran first.
    pub first_node: String,
    /// UID of the newest VMI.
    pub uid: String,
    /// Node of the newest VMI.
    pub node: String,
    /// Phase of the newest VMI; empty when there is none.
    pub phase: String,
    /// A guest of it ended in order.
    pub ended_well: bool,
    /// A guest of it was killed, and how.
    pub killed: Option<String>,
    /// The mark on the newest VMI.
    pub mark: Option<String>,
    /// Since when the mark is there.
    pub marked_since: Option<Duration>,
    /// UIDs of VMIMs that evacuated the host.
    pub attempts: BTreeSet<String>,
    /// VMIMs that are not final.
    pub migrating: BTreeSet<String>,
}

impl Story {
    /// How it has fared so far; `None` when it neither runs nor ended.
    pub fn fate(&self) -> Option<Fate> {
        if self.killed.is_some() {
            return Some(Fate::Killed);
        }
        if self.phase != "Running" {
            return self.ended_well.then_some(Fate::ShutDown);
        }
        if self.uid != self.first_uid {
            return Some(Fate::Restarted);
        }
        Some(if self.node == self.first_node {
            Fate::Left
        } else {
            Fate::Migrated
        })
    }
}

/// A launcher pod since the beginning.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// Its name with namespace.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its labels say that it is a launcher.
    pub launcher: bool,
    /// Its VM.
    pub vm: Key,
    /// The container `compute` runs.
    pub guest: bool,
    /// It is gone or final.
    pub over: bool,
    /// Annotation that tells of an eviction in progress.
    pub evicting_since: Option<Duration>,
    /// It is a static pod's mirror.
    pub mirror: bool,
    /// The object is gone.
    pub gone: bool,
    /// The first of its name that was on the host.
    pub first_here: bool,
    /// Kind of the owner that controls it; empty: none.
    pub owner: String,
    /// It has an emptyDir volume.
    pub empty_dir: bool,
}

/// Follows the changes.
#[derive(Debug, Default)]
pub struct Observer {
    host: String,
    /// All VMs.
    pub vms: BTreeMap<Key, Story>,
    /// All pods by UID.
    pub pods: BTreeMap<String, Pod>,
    /// `spec.unschedulable` of the host's node.
    pub cordoned: bool,
    /// Our marker is on it.
    pub ours: bool,
    /// It was cordoned without our marker, the last time that it was cordoned.
    pub foreign_cordon: bool,
    /// Since when no container `compute` runs on the host; `None`: one does, or none ever did.
    pub emptied: Option<Duration>,
    occupied: bool,
}

impl Observer {
    /// An observer of a host.
    pub fn new(host: &str) -> Self {
        Self {
            host: host.into(),
            ..Self::default()
        }
    }

    /// Takes in one change.
    pub fn change(&mut self, change: &Change, now: Duration) {
        let gone = change.kind == ChangeKind::Deleted;
        match change.resource.as_str() {
            "virtualmachineinstances" => self.vmi(&change.object, gone, now),
            "virtualmachineinstancemigrations" => self.migration(&change.object, gone),
            "pods" => {
                self.pod(&change.object, gone, now);
                self.count(now);
            }
            "nodes" if text(&change.object, &["metadata", "name"]) == self.host && !gone => {
                self.node(&change.object);
            }
            _ => {}
        }
    }

    /// A guest was killed.
    pub fn killed(&mut self, vm: &Key, how: &str) {
        let story = self.vms.entry(vm.clone()).or_default();
        story.killed.get_or_insert_with(|| how.to_owned());
    }

    /// Launcher pods on the host in which a guest runs; one whose guest has moved away does not count.
    pub fn guests_here(&self) -> impl Iterator<Item = &Pod> {
        let moved = |pod: &Pod| {
            let story = self.vms.get(&pod.vm);
            story.is_some_and(|story| story.phase == "Running" && story.node != self.host)
        };
        self.pods
            .values()
            .filter(|pod| pod.launcher && pod.guest && !pod.over && pod.node == self.host)
            .filter(move |pod| !moved(pod))
    }

    fn vmi(&mut self, vmi: &Value, gone: bool, now: Duration) {
        let story = self.vms.entry(key(vmi)).or_default();
        let uid = text(vmi, &["metadata", "uid"]);
        let phase = text(vmi, &["status", "phase"]);
        if story.first_uid.is_empty() {
            uid.clone_into(&mut story.first_uid);
        }
        if story.uid != uid {
            uid.clone_into(&mut story.uid);
            story.marked_since = None;
        }
        let node = text(vmi, &["status", "nodeName"]);
        node.clone_into(&mut story.node);
        if story.first_node.is_empty() && story.first_uid == uid {
            node.clone_into(&mut story.first_node);
        }
        story.ended_well |= phase == "Succeeded";
        story.phase = if gone { String::new() } else { phase.into() };
        let mark = text(vmi, &["status", "evacuationNodeName"]);
        story.mark = (!mark.is_empty() && !gone).then(|| mark.to_owned());
        match (&story.mark, story.marked_since) {
            (Some(_), None) => story.marked_since = Some(now),
            (None, _) => story.marked_since = None,
            (Some(_), Some(_)) => {}
        }
    }

    fn migration(&mut self, migration: &Value, gone: bool) {
        let vm = (
            text(migration, &["metadata", "namespace"]).to_owned(),
            text(migration, &["spec", "vmiName"]).to_owned(),
        );
        let story = self.vms.entry(vm).or_default();
        let uid = text(migration, &["metadata", "uid"]).to_owned();
        if text(migration, &["metadata", "annotations", EVACUATES]) == self.host {
            story.attempts.insert(uid.clone());
        }
        let phase = text(migration, &["status", "phase"]);
        if gone || matches!(phase, "Succeeded" | "Failed") {
            story.migrating.remove(&uid);
        } else {
            story.migrating.insert(uid);
        }
    }

    fn pod(&mut self, pod: &Value, gone: bool, now: Duration) {
        let metadata = &pod["metadata"];
        let name = format!(
            "{}/{}",
            text(metadata, &["namespace"]),
            text(metadata, &["name"])
        );
        let first = text(pod, &["spec", "nodeName"]) == self.host
            && !self
                .pods
                .values()
                .any(|one| one.name == name && one.first_here);
        let seen = self
            .pods
            .entry(text(metadata, &["uid"]).to_owned())
            .or_default();
        seen.name = name;
        seen.gone = gone;
        seen.first_here |= first;
        let controller = metadata["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true);
        controller
            .map_or("", |owner| text(owner, &["kind"]))
            .clone_into(&mut seen.owner);
        seen.empty_dir = pod["spec"]["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|volume| volume["emptyDir"].is_object());
        text(pod, &["spec", "nodeName"]).clone_into(&mut seen.node);
        seen.launcher = text(metadata, &["labels", "kubevirt.io"]) == LAUNCHER;
        seen.mirror = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
        let owner = metadata["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|owner| owner["kind"] == "VirtualMachineInstance");
        seen.vm = (
            text(metadata, &["namespace"]).to_owned(),
            owner.map_or("", |owner| text(owner, &["name"])).to_owned(),
        );
        let phase = text(pod, &["status", "phase"]);
        seen.over = gone || matches!(phase, "Succeeded" | "Failed");
        seen.guest = pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|status| status["name"] == "compute" && status["state"]["running"].is_object());
        let evicting =
            metadata["annotations"]["descheduler.alpha.kubernetes.io/eviction-in-progress"]
                .is_string();
        seen.evicting_since = match seen.evicting_since {
            Some(since) if evicting => Some(since),
            _ => evicting.then_some(now),
        };
    }

    /// Containers count here, wherever the guest is: a drain is over when they have ended.
    fn count(&mut self, now: Duration) {
        let mut pods = self.pods.values();
        let runs = pods.any(|pod| pod.launcher && pod.guest && !pod.over && pod.node == self.host);
        if runs {
            self.emptied = None;
        } else if self.occupied {
            self.emptied = Some(now);
        }
        self.occupied = runs;
    }

    fn node(&mut self, node: &Value) {
        let cordoned = node["spec"]["unschedulable"] == true;
        self.ours = node["metadata"]["annotations"]["vmdrain.io/cordon"].is_string();
        if cordoned && !self.cordoned {
            self.foreign_cordon = !self.ours;
        }
        self.cordoned = cordoned;
    }
}

/// Namespace and name of an object.
pub fn key(object: &Value) -> Key {
    (
        text(object, &["metadata", "namespace"]).to_owned(),
        text(object, &["metadata", "name"]).to_owned(),
    )
}

/// A text somewhere in an object, empty when there is none.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter()
        .try_fold(object, |at, step| at.get(step))
        .and_then(Value::as_str)
        .unwrap_or_default()
}
