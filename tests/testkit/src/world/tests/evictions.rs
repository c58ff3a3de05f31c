//! What each kind of eviction answers, by version (control-plane.md 6.d, control-plane-versions.md 1).

use super::*;

const PREFIX: &str =
    "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: ";

fn one(strategy: Option<&str>, not_migratable: Option<&str>) -> Inventory {
    let mut inventory = fleet(1, 5.0);
    inventory.vms[0].eviction_strategy = strategy.map(str::to_owned);
    inventory.vms[0].not_migratable = not_migratable.map(str::to_owned);
    inventory.vms[0].guest_shutdown = Some(Duration::from_secs(4));
    inventory
}

async fn answer(settings: Settings, inventory: &Inventory) -> (u16, String) {
    let bench = Bench::new(settings, inventory, 1);
    bench.sleep(1.0).await;
    let (code, text) = bench.evict(&bench.pod_of("v0", "n1").unwrap()).await;
    let text = if code == 201 {
        ""
    } else {
        text.strip_prefix(PREFIX).unwrap_or(&text)
    };
    (code, text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn by_strategy() {
    let not = Some("DisksNotLiveMigratable");
    let triggered = "Eviction triggered evacuation of VMI \"default/v0\"";
    let cases = [
        (Some("LiveMigrate"), None, 429, triggered),
        (
            Some("LiveMigrate"),
            not,
            429,
            "VMI v0 is configured with an eviction strategy but is not live-migratable",
        ),
        (Some("LiveMigrateIfPossible"), None, 429, triggered),
        (Some("LiveMigrateIfPossible"), not, 201, ""),
        (Some("External"), not, 429, triggered),
        (Some("None"), None, 201, ""),
        (None, None, 201, ""),
    ];
    for version in [5, 6, 7, 8, 9] {
        for (strategy, not, code, text) in cases {
            assert_eq!(
                answer(Settings::of(1, version), &one(strategy, not)).await,
                (code, text.to_owned()),
                "1.{version} {strategy:?} {not:?}"
            );
        }
    }
    let cluster = Settings {
        cluster_eviction_strategy: "LiveMigrate".to_owned(),
        ..Settings::default()
    };
    assert_eq!(
        answer(cluster, &one(None, None)).await,
        (429, triggered.to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn the_second_one_and_those_after_the_flip() {
    let mut inventory = one(Some("LiveMigrate"), None);
    inventory.vms[0].source_pod_lingers = Some(Duration::from_secs(5));
    let bench = Bench::new(Settings::default(), &inventory, 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let source = bench.pod_of("v0", "n1").unwrap();
    bench.evict(&source).await;
    bench.sleep(1.0).await;
    let progress = format!(
        "{PREFIX}Evacuation in progress: Eviction triggered evacuation of VMI \"default/v0\""
    );
    assert_eq!(bench.evict(&source).await, (429, progress.clone()));
    let target = ["n2", "n3"]
        .iter()
        .find_map(|node| bench.pod_of("v0", node))
        .unwrap();
    assert_eq!(bench.evict(&target).await, (429, progress));
    bench
        .until(20.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    assert_eq!(
        bench.evict(&source).await,
        (429, format!("{PREFIX}Eviction request for target Pod"))
    );
    bench.sleep(6.0).await;
    assert_eq!(bench.evict(&source).await.0, 201);
    assert_eq!(bench.evict(&source).await.0, 404);
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn virt_api_down_and_hanging() {
    let bench = Bench::new(Settings::default(), &one(Some("None"), None), 1);
    bench.sleep(1.0).await;
    let pod = bench.pod_of("v0", "n1").unwrap();
    bench.cluster.world.virt_api.down(Duration::from_secs(20));
    let (code, text) = bench.evict(&pod).await;
    assert_eq!(code, 500);
    assert!(text.starts_with("Internal error occurred: failed calling webhook \"virt-launcher-eviction-interceptor.kubevirt.io\": failed to call webhook: Post \"https://virt-api.kubevirt.svc:443/pod-eviction-validate?timeout=10s\""), "{text}");
    assert!(text.ends_with("connect: connection refused"), "{text}");
    bench.sleep(20.0).await;
    bench.cluster.world.virt_api.hang(Duration::from_secs(100));
    let before = bench.now();
    let (code, text) = bench.evict(&pod).await;
    assert_eq!(code, 500);
    assert!(text.ends_with("context deadline exceeded"), "{text}");
    assert!((bench.now() - before - 10.0).abs() < 0.01);
}

/// Sixty at once on 1.5: about half are answered in time, the others 500 after ten seconds, and some of those are marked.
#[tokio::test(start_paused = true)]
async fn virt_api_1_5_answers_five_requests_a_second() {
    let bench = Bench::new(Settings::of(1, 5), &fleet(60, 5.0), 1);
    bench.sleep(1.0).await;
    let pods: Vec<String> = (0..60)
        .map(|index| bench.pod_of(&format!("v{index}"), "n1").unwrap())
        .collect();
    let answers = futures_util::future::join_all(pods.iter().map(|pod| bench.evict(pod))).await;
    let late = answers
        .iter()
        .filter(|(code, text)| *code == 500 && text.ends_with("context deadline exceeded"))
        .count();
    let in_time = answers.iter().filter(|(code, _)| *code == 429).count();
    assert_eq!(late + in_time, 60);
    assert!((30..60).contains(&late), "{late} late");
    assert!((bench.now() - 11.0).abs() < 0.5, "{}", bench.now());
    bench.sleep(60.0).await;
    let marked = bench
        .cluster
        .server
        .store
        .list(kind::VMIS)
        .iter()
        .filter(|vmi| {
            text(vmi, "status.evacuationNodeName") == "n1" || text(vmi, "status.nodeName") != "n1"
        })
        .count();
    assert!(marked > in_time, "{marked} marked, {in_time} answered");
}

#[tokio::test(start_paused = true)]
async fn hotplug_pods() {
    let mut inventory = fleet(1, 5.0);
    inventory.vms[0].hotplug_disks = 1;
    let disk = |bench: &Bench| {
        bench
            .cluster
            .server
            .store
            .list(kind::PODS)
            .iter()
            .map(|pod| name(pod).to_owned())
            .find(|name| name.starts_with("hp-volume-"))
    };
    let bench = Bench::new(Settings::of(1, 7), &inventory, 1);
    bench.sleep(1.0).await;
    let pod = disk(&bench).unwrap();
    let denied = format!(
        "admission webhook \"hotplug-pod-eviction-interceptor.kubevirt.io\" denied the request: cannot evict hotplug pod: {pod} associated with running vmi: v0 in namespace default"
    );
    assert_eq!(bench.evict(&pod).await, (429, denied));
    let bench = Bench::new(Settings::of(1, 5), &inventory, 1);
    bench.sleep(1.0).await;
    assert_eq!(bench.evict(&disk(&bench).unwrap()).await.0, 201);
    bench.sleep(2.0).await;
    assert_eq!(disk(&bench), None);
}

/// KubeVirt 1.4: virt-api down means that only the VMI's own budget refuses, and nothing is marked.
#[tokio::test(start_paused = true)]
async fn virt_api_down_on_1_4() {
    let bench = Bench::new(Settings::of(1, 4), &fleet(1, 5.0), 1);
    bench.sleep(2.0).await;
    bench.cluster.world.virt_api.down(Duration::from_secs(20));
    let pod = bench.pod_of("v0", "n1").unwrap();
    assert_eq!(
        bench.evict(&pod).await,
        (
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.".to_owned()
        )
    );
    assert_eq!(text(&bench.vmi("v0"), "status.evacuationNodeName"), "");
    bench.sleep(20.0).await;
    assert_eq!(
        bench.evict(&pod).await.1,
        format!("{PREFIX}Eviction triggered evacuation of VMI \"default/v0\"")
    );
    assert_eq!(
        bench.evict(&pod).await,
        (
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.".to_owned()
        )
    );
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn cancel() {
    let bench = Bench::new(Settings::default(), &fleet(1, 20.0), 1);
    bench.sleep(1.0).await;
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/v0/evacuate/cancel";
    let send = |body: &'static str| bench.send("PUT", path, body.as_bytes().to_vec());
    assert_eq!(
        send("{\"evacuationNodeName\":\"nowhere\"}").await,
        (200, String::new())
    );
    bench.evict(&bench.pod_of("v0", "n1").unwrap()).await;
    bench.sleep(1.0).await;
    assert_eq!(send("{\"evacuationNodeName\":\"n2\"}").await.0, 500);
    assert_eq!(send("").await.0, 500);
    assert_eq!(send("nonsense").await.0, 400);
    assert_eq!(
        send("{\"evacuationNodeName\":\"n1\",\"dryRun\":[\"All\"]}")
            .await
            .0,
        200
    );
    assert_eq!(text(&bench.vmi("v0"), "status.evacuationNodeName"), "n1");
    assert_eq!(
        send("{\"evacuationNodeName\":\"n1\"}").await,
        (200, String::new())
    );
    bench.sleep(1.0).await;
    let vmi = bench.vmi("v0");
    assert_eq!(
        (
            text(&vmi, "status.evacuationNodeName"),
            crate::kubevirt::fields::condition(&vmi, "EvictionRequested")
        ),
        ("", None)
    );
    let vmim = bench.cluster.server.store.list(kind::VMIMS)[0].clone();
    bench
        .cluster
        .server
        .store
        .delete(kind::VMIMS, "default", name(&vmim));
    bench.sleep(600.0).await;
    assert!(bench.is_on("v0", "n1"));
    assert!(bench.cluster.server.store.list(kind::VMIMS).is_empty());
    bench.check();
    let old = Bench::new(Settings::of(1, 6), &fleet(1, 20.0), 1);
    assert_eq!(
        old.send("PUT", path, b"{}".to_vec()).await,
        (404, "404: Page Not Found".to_owned())
    );
}
