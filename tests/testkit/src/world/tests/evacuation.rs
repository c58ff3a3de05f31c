//! A happy evacuation, and the order of what watchers see.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_settled_world_stays_as_it_is() {
    let bench = Bench::new(Settings::default(), &fleet(3, 4.0), 1);
    let begin = bench.cluster.server.store.revision();
    bench.sleep(3600.0).await;
    assert_eq!(bench.story(begin), Vec::<String>::new());
    bench.check();
}

#[tokio::test(start_paused = true)]
async fn one_vm_moves_in_the_order_of_the_notes() {
    let bench = Bench::new(Settings::default(), &fleet(1, 4.0), 1);
    bench.sleep(1.0).await;
    bench.cordon("n1");
    let begin = bench.cluster.server.store.revision();
    let pod = bench.pod_of("v0", "n1").unwrap();
    let (code, text) = bench.evict(&pod).await;
    assert_eq!(
        (code, text.as_str()),
        (
            429,
            "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\" denied the request: Eviction triggered evacuation of VMI \"default/v0\""
        )
    );
    bench
        .until(30.0, "moved", |bench| !bench.is_on("v0", "n1"))
        .await;
    bench.sleep(5.0).await;
    println!("{}", bench.story(begin).join("\n"));
    bench.check();
}
