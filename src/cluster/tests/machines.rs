//! The VMs behind the VMIs of this node are read: few requests, each once, and what fails is told.

use super::fake::{Fake, Play, forbidden, fresh, listed, pass, status, until, vmi, with, world};
use crate::agent::ports::Cluster;
use crate::drain::world::{Picture, RunStrategy, Sight, VmName, VmView};
use serde_json::{Value, json};
use std::sync::Arc;

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/vms/virtualmachines";

fn owned(name: &str) -> Value {
    let owner = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": "u", "controller": true}]);
    with(vmi(name, "9"), "/metadata/ownerReferences", owner)
}

fn machine(name: &str, run: &str) -> Value {
    json!({
        "kind": "VirtualMachine",
        "metadata": {"namespace": "vms", "name": name, "uid": format!("vm-{name}"), "resourceVersion": "3",
            "annotations": {"vmdrain.io/policy": "leave", "vmdrain.io/deadline": "5m"}},
        "spec": {"runStrategy": run},
    })
}

/// These VMIs are here, and their VMs are read.
fn here(names: &[&str]) -> Arc<Fake> {
    let fake = world();
    fake.play(
        "list vmis here",
        [listed("10", names.iter().map(|n| owned(n)))],
    );
    fake
}

fn seen(picture: &Picture) -> &[VmView] {
    picture.vms.seen().map_or(&[], Vec::as_slice)
}

fn reads(fake: &Fake) -> Vec<String> {
    let of_vms = |key: &String| key.contains("/virtualmachines");
    fake.asked()
        .into_iter()
        .map(|a| a.key)
        .filter(of_vms)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn one_vm_is_read_by_name_and_once() {
    let fake = here(&["a"]);
    fake.play(
        &format!("GET {VMS}/a"),
        [Play::Say(200, machine("a", "Manual"))],
    );
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let picture = until(&mut pictures, 5, |p| !seen(p).is_empty()).await;
    assert_eq!(
        seen(&picture),
        [VmView {
            vm: VmName {
                namespace: "vms".into(),
                name: "a".into()
            },
            run: Some(RunStrategy::Manual),
            owner_kind: String::new(),
            policy: Some("leave".into()),
            deadline: Some("5m".into()),
        }]
    );
    assert!(fresh(&picture.vms).is_some());
    pass(600).await;
    assert_eq!(reads(&fake).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn several_of_a_namespace_are_read_by_a_page_and_the_rest_by_name() {
    let fake = here(&["a", "b", "c", "d", "e"]);
    let page = ["a", "b", "c", "z"].map(|name| machine(name, "Always"));
    fake.play(&format!("GET {VMS}"), [listed("10", page)]);
    fake.play(
        &format!("GET {VMS}/d"),
        [Play::Say(200, machine("d", "Once"))],
    );
    fake.play(
        &format!("GET {VMS}/e"),
        [Play::Say(404, status(404, "NotFound", "no"))],
    );
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let picture = until(&mut pictures, 5, |p| seen(p).len() == 5).await;
    let runs: Vec<_> = seen(&picture).iter().map(|vm| vm.run).collect();
    let always = Some(RunStrategy::Always);
    assert_eq!(
        runs,
        [always, always, always, Some(RunStrategy::Once), None]
    );
    assert_eq!(reads(&fake).len(), 3, "{:?}", reads(&fake));
    let list = fake
        .asked()
        .into_iter()
        .find(|a| a.key == format!("GET {VMS}"));
    assert!(list.is_some_and(|a| a.uri.contains("limit=250")));
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_and_not_asked_for_each_vm() {
    let fake = here(&["a", "b"]);
    fake.play(&format!("GET {VMS}/a"), [forbidden()]);
    fake.play(&format!("GET {VMS}/b"), [forbidden()]);
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let told = |p: &Picture| matches!(p.vms, Sight::Forbidden { .. });
    let picture = until(&mut pictures, 5, told).await;
    assert!(matches!(&picture.vms, Sight::Forbidden { why } if why.contains("rbac/reads.yaml")));
    assert!(reads(&fake).len() <= 2, "{:?}", reads(&fake));
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_repeated_and_a_damaged_vm_is_reported() {
    let fake = here(&["a"]);
    let damaged = with(machine("a", "Manual"), "/spec/runStrategy", json!(5));
    fake.play(
        &format!("GET {VMS}/a"),
        [
            Play::Say(503, status(503, "ServiceUnavailable", "later")),
            Play::Say(200, damaged),
        ],
    );
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    let picture = until(&mut pictures, 20, |p| !p.malformed.is_empty()).await;
    let bad = &picture.malformed[0];
    assert_eq!(
        (bad.resource.as_str(), bad.object.as_str()),
        ("virtualmachines", "vms/a")
    );
    assert!(bad.why.contains("spec.runStrategy"), "{}", bad.why);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_read_for_vmis_without_a_vm() {
    let fake = world();
    let cluster = fake.cluster();
    let mut pictures = cluster.watch();
    until(&mut pictures, 5, |p| p.vmis.settled()).await;
    pass(60).await;
    assert!(reads(&fake).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_started_by_its_subresource() {
    let fake = Fake::new();
    let key = "PUT /apis/subresources.kubevirt.io/v1/namespaces/vms/virtualmachines/a/start";
    fake.play(key, [Play::Text(202, "")]);
    let vm = VmName {
        namespace: "vms".into(),
        name: "a".into(),
    };
    assert_eq!(fake.cluster().start_vm(&vm).await.unwrap().code, 202);
    assert_eq!(fake.asked()[0].body, "{}");
}
