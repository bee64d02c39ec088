//! What keeps a control plane going, over the real programs: space in etcd, and certificates.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};

use super::*;

fn config_map(name: &str, bytes: usize) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(std::iter::once(("fill".to_owned(), "x".repeat(bytes))).collect()),
        ..ConfigMap::default()
    }
}

/// Takes some minutes.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_full_takes_writes_again() {
    let mut bench = Bench::new();
    bench.options.limits.etcd_quota_bytes = 24 << 20;
    let engine = bench.engine().await;
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    let (cluster, _) = bench.reconcile(&engine, id).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(engine.inner.client(&cluster).await.unwrap());
    let full = |c: &Cluster| c.status.condition("EtcdSpace").is_some_and(|c| !c.status);
    let begun = std::time::Instant::now();
    let (mut nth, mut refused) = (0, 0);
    // What only gaps filled is freed and takes more; in the end there is nothing left to free.
    while !full(&bench.find(id).await) {
        match maps.create(&PostParams::default(), &config_map(&format!("fill-{nth}"), 300_000)).await {
            Ok(_) => nth += 1,
            Err(error) => {
                assert!(error.to_string().contains("space exceeded"), "{error}");
                refused += 1;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "{nth} were taken and {refused} refused, and no condition says so");
    }
    assert!(refused > 0);
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    bench.until(id, |c| !full(c)).await;
    maps.create(&PostParams::default(), &config_map("after", 10)).await.unwrap();
    engine.delete(&bench.find(id).await, &bring_up::Silent).await.unwrap();
}

/// Takes four minutes: that is how long the certificates live that must have been renewed.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_renewed_under_running_programs() {
    let mut bench = Bench::new();
    bench.options.leaf_ttl = Duration::from_secs(200);
    let engine = bench.engine().await;
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    let (before, _) = bench.reconcile(&engine, id).await;
    // The first certificates end, and the programs must have taken up their successors by themselves.
    tokio::time::sleep(Duration::from_secs(240)).await;
    let after = bench.find(id).await;
    assert_eq!((pids(&after), after.status.phase), (pids(&before), Phase::Ready));
    let fresh = crate::engine::health::TIMEOUT;
    for name in COMPONENTS {
        let asked = engine.inner.plane(id).unwrap().asked.clone();
        tokio::time::timeout(fresh * 2, supervise::Probes::probe(&*asked, name)).await.unwrap().unwrap();
    }
    let ledger = store::certificates::list(&mut *bench.tools.store.read().await.unwrap(), Some(id)).await.unwrap();
    assert!(ledger.iter().filter(|r| r.purpose == "kube-apiserver").count() >= 2);
    engine.delete(&after, &bring_up::Silent).await.unwrap();
}
