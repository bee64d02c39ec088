//! Reads of the API a second, with 1,000 cluster rows, over TLS through the front door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubebyon::domain::cluster::{Addon, ClusterSpec, EngineKind, PublicAccessMode};
use kubebyon::domain::{Ambient, KubernetesVersion};
use kubebyon::store::{self, clusters::NewCluster};
use serde_json::{Value, json};

use crate::harness::Platform;
use crate::measure::cpu_seconds;

const ROWS: usize = 1_000;
const CLIENTS: usize = 8;
const SECONDS: u64 = 10;

pub fn reads() -> Value {
    let mut platform = Platform::start();
    platform.stop();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(fill(&platform));
    platform.boot();
    let secret =
        platform.json(&["api-token", "create", "bench", "--user", "admin", "--role", "admin"])["secret"].as_str().unwrap().to_owned();
    let page = runtime.block_on(load(&platform, &secret, "/api/v1/clusters?limit=100"));
    let id = platform.json(&["cluster", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    let one = runtime.block_on(load(&platform, &secret, &format!("/api/v1/clusters/{id}")));
    // The rows are of a host that never was: nobody would delete them.
    platform.stop();
    json!({ "rows": ROWS, "clients": CLIENTS, "page_of_100": page, "one": one })
}

/// Rows of a host that is not this one, so that nobody starts them.
async fn fill(platform: &Platform) {
    let database = std::fs::read_dir(platform.data_dir())
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "db" || e == "sqlite"))
        .unwrap();
    let store = store::Store::new(store::sqlite::open(&database).unwrap());
    let ambient = Ambient::system();
    let project = store::projects::find_by_name(&mut *store.read().await.unwrap(), "default").await.unwrap().unwrap();
    let mut tx = store.begin().await.unwrap();
    for i in 0..ROWS {
        let spec = ClusterSpec {
            kubernetes_version: KubernetesVersion::new(1, 36, 3),
            engine: EngineKind::Local,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            api_local_address: "198.51.100.1".parse().unwrap(),
            public_access_mode: PublicAccessMode::Domain,
            control_plane_host: None,
        };
        let new = NewCluster {
            project_id: project.id,
            name: format!("row-{i}"),
            labels: [("n".to_owned(), i.to_string())].into(),
            host: Some("elsewhere".into()),
            spec,
        };
        store::clusters::create(&mut tx, &ambient, new).await.unwrap();
    }
    tx.commit().await.unwrap();
}

async fn load(platform: &Platform, secret: &str, path: &str) -> Value {
    let url = format!("https://127.0.0.1:{}{path}", platform.port);
    let served = Arc::new(AtomicU64::new(0));
    let before = cpu_seconds(platform.pid());
    let started = Instant::now();
    let deadline = started + Duration::from_secs(SECONDS);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (url, secret, served) = (url.clone(), secret.to_owned(), Arc::clone(&served));
        clients.push(tokio::spawn(async move {
            let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).build().unwrap();
            let mut latencies = Vec::new();
            while Instant::now() < deadline {
                let at = Instant::now();
                let response = client.get(&url).bearer_auth(&secret).send().await.unwrap();
                assert!(response.status().is_success());
                response.bytes().await.unwrap();
                latencies.push(at.elapsed().as_secs_f64() * 1000.0);
                served.fetch_add(1, Ordering::Relaxed);
            }
            latencies
        }));
    }
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.await.unwrap());
    }
    let seconds = started.elapsed().as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    let requests = served.load(Ordering::Relaxed) as f64;
    json!({
        "requests_each_second": requests / seconds,
        "daemon_cpu_us_each_request": (cpu_seconds(platform.pid()) - before) / requests * 1e6,
        "p99_ms": latencies[latencies.len() * 99 / 100],
    })
}
