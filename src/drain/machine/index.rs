//! One picture, made quick to look things up in: a thousand VMs cost no more than a thousand look-ups each.

use crate::drain::judge::{Case, ended_by_kubelet};
use crate::drain::track::Track;
use crate::drain::world::{MigrationView, Picture, PodView, VmName, VmView, VmiView};
use std::collections::{BTreeMap, BTreeSet};

/// Look-ups over a [`Picture`].
#[derive(Debug)]
pub(super) struct Index<'a> {
    pods: BTreeMap<&'a str, &'a PodView>,
    /// `None` where VMIs cannot be seen.
    vmis: Option<Vmis<'a>>,
    vms: BTreeMap<&'a VmName, &'a VmView>,
    /// VMIMs of each VM, oldest first.
    migrations: BTreeMap<&'a VmName, Vec<&'a MigrationView>>,
    malformed_vmis: BTreeSet<&'a str>,
    /// VMIs, by UID, that have no guest any more whatever they say.
    ended: BTreeMap<&'a str, &'a VmName>,
}

#[derive(Debug, Default)]
struct Vmis<'a> {
    by_uid: BTreeMap<&'a str, &'a VmiView>,
    by_name: BTreeMap<(&'a str, &'a str), &'a VmiView>,
}

impl<'a> Index<'a> {
    pub(super) fn of(picture: &'a Picture) -> Self {
        let pods = picture.pods.seen().into_iter().flatten();
        let migrations = picture.migrations.seen().into_iter().flatten();
        let mut index = Self {
            pods: pods.map(|p| (p.pod.uid.as_str(), p)).collect(),
            vmis: picture.vmis.seen().map(|vmis| Vmis {
                by_uid: vmis.iter().map(|v| (v.vmi.uid.as_str(), v)).collect(),
                by_name: vmis.iter().map(|v| (full_name(v), v)).collect(),
            }),
            vms: picture
                .vms
                .seen()
                .into_iter()
                .flatten()
                .map(|v| (&v.vm, v))
                .collect(),
            migrations: BTreeMap::new(),
            malformed_vmis: picture
                .malformed
                .iter()
                .filter(|m| m.resource == "virtualmachineinstances")
                .map(|m| m.object.as_str())
                .collect(),
            ended: ended_by_kubelet(picture),
        };
        for m in migrations {
            index.migrations.entry(&m.vm).or_default().push(m);
        }
        for of_one in index.migrations.values_mut() {
            // Of one second, the unfinished one is the newest.
            of_one.sort_by_key(|m| (m.created, !m.is_final(), &m.migration.name));
        }
        index
    }

    /// The pod of this track, where it is in the picture.
    pub(super) fn pod_of(&self, track: &Track) -> Option<&'a PodView> {
        self.pods.get(track.pod.uid.as_str()).copied()
    }

    /// The kubelet has ended the guest of this VMI.
    pub(super) fn is_ended(&self, vmi_uid: &str) -> bool {
        self.ended.contains_key(vmi_uid)
    }

    /// Whether VMIs can be seen at all.
    pub(super) fn sees_vmis(&self) -> bool {
        self.vmis.is_some()
    }

    /// The VMI of this track: by UID, or by name where the UID is not known.
    pub(super) fn vmi_of(&self, track: &Track) -> Option<&'a VmiView> {
        let vmis = self.vmis.as_ref()?;
        if track.vmi_uid.is_empty() {
            let name = (track.vm.namespace.as_str(), track.vm.name.as_str());
            return vmis.by_name.get(&name).copied();
        }
        vmis.by_uid.get(track.vmi_uid.as_str()).copied()
    }

    /// The VirtualMachine of this name, where it was read.
    pub(super) fn vm_of(&self, vm: &VmName) -> Option<&'a VmView> {
        self.vms.get(vm).copied()
    }

    /// VMIMs of one VM, oldest first.
    pub(super) fn migrations_of(&self, vm: &VmName) -> &[&'a MigrationView] {
        self.migrations.get(vm).map_or(&[], Vec::as_slice)
    }

    /// A VMIM of this VM is not over.
    pub(super) fn is_moving(&self, vm: &VmName) -> bool {
        self.migrations_of(vm).iter().any(|m| !m.is_final())
    }

    /// Everything the verdict on one track needs.
    pub(super) fn case<'c>(&'c self, track: &'c Track) -> Case<'c> {
        let malformed = !self.malformed_vmis.is_empty()
            && self.malformed_vmis.contains(track.vm.to_string().as_str());
        Case {
            pod: self.pod_of(track),
            vmi: self.vmi_of(track),
            vmis_seen: self.sees_vmis(),
            vmi_malformed: malformed,
            migrations: self.migrations_of(&track.vm),
            track,
            stop: None,
        }
    }
}

fn full_name(vmi: &VmiView) -> (&str, &str) {
    (&vmi.vmi.namespace, &vmi.vmi.name)
}
