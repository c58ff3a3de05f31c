//! Which stories can a real control plane tell? Decided by what a story says, never by its name.

use std::collections::BTreeSet;
use std::time::Duration;

use super::owners;
use crate::plane::Version;
use crate::scenario::Scenario;
use crate::scenario::event::Do;
use crate::scenario::event::api::ApiDo;
use crate::scenario::event::cluster::{PodDo, VmDo, VmSet};
use crate::scenario::expect::{Fate, What, When};
use crate::scenario::words::{Outcome, PodOwner, Recreated, VmOwner};
use crate::scenario::world::{EvictionStrategy, Pod, Vm};

/// No story is waited for longer than this, in its own time: real controllers do not run faster than time.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Why not; empty: it can be played.
pub fn unfit(scenario: &Scenario, version: Version) -> Vec<String> {
    let mut reasons = BTreeSet::new();
    let mut no = |reason: &str| {
        reasons.insert(reason.to_owned());
    };
    let named = scenario.kubevirt.version;
    if scenario.kubevirt.version_named && named.minor != version.minor() {
        no(&format!("it is about KubeVirt {named}"));
    }
    if scenario.kubevirt.priority_queue && version < Version::V1_7 {
        no("this KubeVirt has no gate MigrationPriorityQueue");
    }
    if length(scenario) > LONGEST {
        no("it lasts longer than 15 minutes, and real controllers run no faster");
    }
    for vm in &scenario.vms {
        vm_unfit(vm, &mut no);
    }
    if let Some(node) = overfull(scenario) {
        no(&format!(
            "its VMs do not fit on {node}, and the real scheduler counts"
        ));
    }
    for pod in &scenario.pods {
        pod_unfit(pod, &mut no);
    }
    let mut volumes = scenario.volume_attachments.iter();
    if volumes.any(|volume| volume.detaches.after().is_some()) {
        no("nobody detaches volumes");
    }
    let unmarks = |what: &What| matches!(what, What::Vm(vm) if vm.marked == Some(false) && vm.outcome != Some(Fate::Migrated));
    let mut looks = scenario.expectations.iter();
    if version < Version::V1_7 && looks.any(|expect| unmarks(&expect.what)) {
        no("nobody can take a mark away before KubeVirt 1.7");
    }
    for event in &scenario.timeline {
        event_unfit(&event.what, version, &mut no);
        if away(event.time.0, &event.what) {
            no(
                "the API server is away for so long that the host acts alone, and its containers are not played here",
            );
        }
        if chooses(&event.what) && scenario.nodes.len() > 2 && version < Version::V1_7 {
            no("this KubeVirt lets nobody choose the target of a migration");
        }
    }
    reasons.into_iter().collect()
}

/// Whether the story makes the API server slow, so that the agent's own patience is part of it.
pub fn hangs(scenario: &Scenario) -> bool {
    let mut events = scenario.timeline.iter();
    events.any(|event| matches!(event.what, Do::Api(ApiDo::Hang(_) | ApiDo::Delay(_))))
}

/// Until its last event and expectation.
fn length(scenario: &Scenario) -> Duration {
    let events = scenario.timeline.iter().map(|event| event.time.0);
    let looks = scenario
        .expectations
        .iter()
        .map(|expect| match expect.when {
            When::At(at) | When::By(at) | When::NeverBefore(at) => at,
            When::Always | When::End => Duration::ZERO,
        });
    events.chain(looks).max().unwrap_or_default()
}

/// A node whose VMs need more memory than it has, with what KubeVirt adds to each.
fn overfull(scenario: &Scenario) -> Option<&str> {
    const ADDED: u64 = 320 << 20;
    let used = |node: &str| -> u64 {
        let here = scenario
            .vms
            .iter()
            .filter(|vm| vm.node.as_deref() == Some(node));
        here.map(|vm| u64::from(vm.count) * (vm.memory.0 + ADDED))
            .sum()
    };
    let mut nodes = scenario.nodes.iter();
    nodes
        .find(|node| used(&node.name) > node.memory.0)
        .map(|node| node.name.as_str())
}

fn vm_unfit(vm: &Vm, no: &mut impl FnMut(&str)) {
    match &vm.owner {
        VmOwner::Vm(_) | VmOwner::Nobody => {}
        VmOwner::Other(_) => no("the real garbage collector takes VMIs whose owner is made up"),
        VmOwner::ReplicaSet | VmOwner::Pool => {
            no("a real replica set or pool names its VMs by chance");
        }
    }
    if !vm.priority.is_empty() {
        no("a priority class of the story's own");
    }
    if vm.dedicated_cpus > 0 {
        no("no played node has a CPU manager for dedicated CPUs");
    }
    if vm.hotplug_disks > 0 {
        no("real hotplugged disks need volumes");
    }
    if vm.eviction_strategy == EvictionStrategy::Unset {
        no("virt-api fills in a strategy that is not named");
    }
    for outcome in &vm.migration {
        if matches!(outcome, Outcome::Unschedulable(_)) {
            no("the simulated scheduler's own message");
        }
    }
}

fn pod_unfit(pod: &Pod, no: &mut impl FnMut(&str)) {
    if matches!(&pod.owner, PodOwner::Controller(kind, _) if !owners::MADE.contains(&kind.as_str()))
    {
        no("a controller that the control plane does not run");
    }
    if pod.finished.is_some() {
        no("no played kubelet ends a pod by itself");
    }
    if pod.priority != 0 {
        no("a priority class of the story's own");
    }
    if pod
        .recreated
        .as_ref()
        .is_some_and(|again| *again != Recreated::Never)
    {
        no("only the simulated controllers make a pod anew as the story says");
    }
}

fn event_unfit(what: &Do, version: Version, no: &mut impl FnMut(&str)) {
    match what {
        Do::Vm(VmDo::Create(vm)) => {
            vm_unfit(vm, no);
            if vm.node.is_some() {
                no("the real scheduler chooses the node of a new VM");
            }
        }
        Do::Vm(VmDo::Set(set)) => set_unfit(set, version, no),
        Do::Pod(PodDo::Create(pod)) => {
            pod_unfit(pod, no);
            if matches!(pod.owner, PodOwner::Controller(..)) {
                no("an owner that comes later would make pods of its own");
            }
        }
        Do::Apply(_) => no("a real API server takes no malformed object, and none past its checks"),
        Do::Lease(_) => no("drain slots (leases) are not built yet"),
        Do::Host(_)
        | Do::Agent(_)
        | Do::Api(_)
        | Do::Virt(..)
        | Do::Vm(_)
        | Do::Node(_)
        | Do::Pod(_)
        | Do::Pdb(_) => {}
    }
}

/// Longer than the agent waits for it when little time is left.
fn away(since: Duration, what: &Do) -> bool {
    const LONG: Duration = Duration::from_secs(30);
    let Do::Api(ApiDo::Down(down)) = what else {
        return false;
    };
    down.until.is_none_or(|until| until.0 > since + LONG)
}

/// Somebody says where a VM is to go. Of two nodes it is always the other one.
fn chooses(what: &Do) -> bool {
    matches!(what, Do::Vm(VmDo::Migrate(it)) if it.to.is_some())
}

fn set_unfit(set: &VmSet, version: Version, no: &mut impl FnMut(&str)) {
    let spec = set.eviction_strategy.is_some() || set.memory.is_some() || set.rate.is_some();
    if spec {
        no("the spec of a running VMI cannot be changed");
    }
    if set.migratable.is_some() || set.condition.is_some() {
        no("only virt-handler tells whether a VMI can be migrated");
    }
    if set.marked == Some(false) && version < Version::V1_7 {
        no("nobody can take a mark away before KubeVirt 1.7");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn reasons(story: &str, version: Version) -> Vec<String> {
        let text = format!("name = \"x\"\n[[node]]\nname = \"n2\"\n{story}");
        let story = Scenario::parse(Path::new("x"), &text).unwrap();
        unfit(&story, version)
    }

    const VM: &str = "[[vm]]\nname = \"a\"\n";

    #[test]
    fn an_ordinary_story_fits_everywhere() {
        for version in Version::ALL {
            assert_eq!(reasons(VM, version), Vec::<String>::new());
        }
    }

    #[test]
    fn a_version_that_is_named_is_meant() {
        let story = format!("{VM}[kubevirt]\nversion = \"1.7\"\n");
        assert!(reasons(&story, Version::V1_7).is_empty());
        assert_eq!(reasons(&story, Version::V1_8), ["it is about KubeVirt 1.7"]);
    }

    #[test]
    fn a_mark_stays_before_1_7() {
        let story = format!("{VM}[[expect]]\nvm = \"a\"\nmarked = false\n");
        assert_eq!(reasons(&story, Version::V1_5).len(), 1);
        assert!(reasons(&story, Version::V1_7).is_empty());
    }

    #[test]
    fn where_there_is_a_choice_nobody_makes_it_before_1_7() {
        let two = format!(
            "{VM}node = \"n2\"\n[[at]]\ntime = \"0s\"\ndo = \"vm.migrate\"\nvm = \"a\"\nto = \"n1\"\n"
        );
        let three = format!("{two}[[node]]\nname = \"n3\"\n");
        assert_eq!(reasons(&two, Version::V1_5), Vec::<String>::new());
        assert_eq!(reasons(&three, Version::V1_5).len(), 1);
        assert!(reasons(&three, Version::V1_7).is_empty());
    }

    #[test]
    fn what_only_the_model_can_do() {
        let no = |story: &str| {
            let found = reasons(story, Version::V1_5);
            assert_eq!(found.len(), 1, "{found:?}");
        };
        no(&format!("{VM}owner = \"replica_set\"\n"));
        no(&format!("{VM}hotplug_disks = 1\n"));
        no(&format!("{VM}dedicated_cpus = 2\n"));
        no(&format!("{VM}migration = [\"unschedulable:no room\"]\n"));
        no(&format!("{VM}memory = \"300Gi\"\n"));
        no("[[pod]]\nname = \"w\"\nowner = \"Job/web\"\n");
        no("[[pod]]\nname = \"w\"\nfinished = true\n");
        no(&format!(
            "{VM}[[at]]\ntime = \"5s\"\ndo = \"api.down\"\nuntil = \"2m\"\n"
        ));
        no(&format!(
            "{VM}[[at]]\ntime = \"5s\"\ndo = \"vm.set\"\nvm = \"a\"\nmemory = \"16Gi\"\n"
        ));
        no(&format!("{VM}[[expect]]\nat = \"20m\"\nhold = true\n"));
    }
}
