//! Disruption budgets: KubeVirt's own until 1.5, and those of users (control-plane.md 6.c).

use super::*;
use crate::kubevirt::fields::{condition, label};
use crate::world::{Pairs, PdbSpec};

fn budgets(bench: &Bench) -> Vec<Value> {
    bench.cluster.server.store.list(kind::PDBS)
}

#[tokio::test(start_paused = true)]
async fn every_vmi_has_one_until_1_5() {
    for (minor, wanted) in [(4, 1), (5, 1), (6, 0), (7, 0)] {
        let bench = Bench::new(Settings::of(1, minor), &fleet(1, 5.0), 1);
        bench.sleep(5.0).await;
        assert_eq!(budgets(&bench).len(), wanted, "1.{minor}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_protects_two_pods_during_a_migration() {
    let bench = Bench::new(Settings::of(1, 5), &fleet(1, 5.0), 1);
    bench.sleep(5.0).await;
    let status = &budgets(&bench)[0]["status"];
    assert_eq!(
        (
            &status["expectedPods"],
            &status["currentHealthy"],
            &status["disruptionsAllowed"]
        ),
        (&json!(1), &json!(1), &json!(0))
    );
    bench.cordon("n1");
    bench.evict(&bench.pod_of("v0", "n1").unwrap()).await;
    bench
        .until(5.0, "two protected", |bench| {
            budgets(bench)[0]["spec"]["minAvailable"] == 2
        })
        .await;
    assert!(
        bench
            .pod_of("v0", "n2")
            .or(bench.pod_of("v0", "n3"))
            .is_none(),
        "the target pod came before the budget"
    );
    assert!(
        label(&budgets(&bench)[0], "kubevirt.io/migrationName").starts_with("kubevirt-evacuation-")
    );
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(5.0).await;
    let pdb = &budgets(&bench)[0];
    assert_eq!(
        (
            &pdb["spec"]["minAvailable"],
            label(pdb, "kubevirt.io/migrationName")
        ),
        (&json!(1), "")
    );
    bench.check();
}

fn guarded(min: Option<&str>, max: Option<&str>, before_pods: bool) -> Inventory {
    let mut inventory = fleet(4, 5.0);
    for vm in &mut inventory.vms {
        vm.eviction_strategy = Some("None".to_owned());
        vm.labels.insert("app".to_owned(), "db".to_owned());
    }
    let selector: Pairs = [("app".to_owned(), "db".to_owned())].into();
    inventory.pdbs.push(PdbSpec {
        min_available: min.map(str::to_owned),
        max_unavailable: max.map(str::to_owned),
        selector,
        before_pods,
        ..PdbSpec::new("b1")
    });
    inventory
}

#[tokio::test(start_paused = true)]
async fn a_number_works_and_shares_do_not() {
    let bench = Bench::new(Settings::default(), &guarded(Some("3"), None, false), 1);
    bench.sleep(2.0).await;
    assert_eq!(budgets(&bench)[0]["status"]["disruptionsAllowed"], 1);
    assert_eq!(bench.evict(&bench.pod_of("v0", "n1").unwrap()).await.0, 201);
    assert_eq!(bench.evict(&bench.pod_of("v1", "n1").unwrap()).await.0, 429);
    for (min, max) in [(None, Some("1")), (Some("75%"), None), (None, Some("25%"))] {
        let bench = Bench::new(Settings::default(), &guarded(min, max, false), 1);
        bench.sleep(2.0).await;
        let pdb = budgets(&bench)[0].clone();
        assert_eq!(
            (
                &pdb["status"]["disruptionsAllowed"],
                &pdb["status"]["observedGeneration"]
            ),
            (&json!(0), &Value::Null)
        );
        let found = condition(&pdb, "DisruptionAllowed").unwrap();
        assert_eq!(
            (text(found, "reason"), text(found, "message")),
            (
                "SyncFailed",
                "virtualmachineinstances.kubevirt.io does not implement the scale subresource"
            )
        );
        assert_eq!(bench.evict(&bench.pod_of("v0", "n1").unwrap()).await.0, 429);
    }
    let bench = Bench::new(Settings::default(), &guarded(None, Some("1"), true), 1);
    bench.sleep(2.0).await;
    assert_eq!(budgets(&bench)[0]["status"]["observedGeneration"], 1);
}
