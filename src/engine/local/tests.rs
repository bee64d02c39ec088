//! The engine over the real programs of `make assets`. These tests need root and nft, and fail without. What takes minutes is compiled with
//! the feature `soak` alone.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

mod nodes;
#[cfg(feature = "soak")]
mod upkeep;

use futures_util::StreamExt;

use super::*;
use crate::assets::{Arch, Assets, Mirror};
use crate::domain::ProjectId;
use crate::domain::cluster::{Addon, ClusterSpec, EngineKind, LocalAllotment, Phase, PublicAccessMode};
use crate::domain::kubeconfig::Kubeconfig;
use crate::store;

const FIRST: KubernetesVersion = KubernetesVersion::new(1, 34, 4);
const SECOND: KubernetesVersion = KubernetesVersion::new(1, 36, 3);

/// A cluster's row in a project of its own.
pub(crate) async fn row(store: &Store, ambient: &Ambient, host: &str) -> Cluster {
    let mut tx = store.begin().await.unwrap();
    let project = store::projects::create(&mut tx, ambient, &format!("p-{}", hex::encode(ambient.random::<4>()))).await.unwrap();
    let cluster = store::clusters::create(&mut tx, ambient, new_cluster(project.id, host)).await.unwrap();
    tx.commit().await.unwrap();
    cluster
}

fn new_cluster(project_id: ProjectId, host: &str) -> store::clusters::NewCluster {
    store::clusters::NewCluster {
        project_id,
        name: "demo".into(),
        labels: std::collections::BTreeMap::new(),
        host: Some(host.to_owned()),
        spec: ClusterSpec {
            kubernetes_version: FIRST,
            engine: EngineKind::Local,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            api_local_address: "198.51.100.1".parse().unwrap(),
            public_access_mode: PublicAccessMode::Nodeport,
            control_plane_host: None,
        },
    }
}

/// The programs that `make assets` put into the cache.
struct Cached(Assets);

impl Cached {
    fn new() -> Self {
        let cache = std::env::var_os("KUBEBYON_CACHE").map(PathBuf::from);
        let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/kubebyon"));
        Self(Assets::open(cache.join("assets"), Arch::host(), Mirror::upstream()))
    }
}

#[async_trait]
impl Programs for Cached {
    async fn program(&self, version: KubernetesVersion, name: &str) -> anyhow::Result<PathBuf> {
        Ok(self.0.programs(version)?.path(name).unwrap())
    }
}

#[derive(Default)]
struct Steps(Mutex<Vec<String>>);

#[async_trait]
impl Progress for Steps {
    async fn step(&self, reason: &str, _: &str) {
        locked(&self.0).push(reason.to_owned());
    }
}

struct Bench {
    folder: tempfile::TempDir,
    options: LocalOptions,
    tools: LocalTools,
}

impl Bench {
    fn new() -> Self {
        let _ = tracing_subscriber::fmt().with_env_filter("kubebyon=info").with_test_writer().try_init();
        let folder = tempfile::tempdir().unwrap();
        let ambient = Ambient::system();
        let installation = format!("test-{}", hex::encode(ambient.random::<6>()));
        let mut options = LocalOptions::new(folder.path().join("data"), "here".into(), installation);
        options.run_dir = Some(folder.path().join("run"));
        std::fs::create_dir(&options.data_dir).unwrap();
        let addressing = || Addressing {
            base_domain: "kubebyon.internal".into(),
            base_domain_is_public: false,
            control_plane_host: "127.0.0.1".into(),
            advertised: ("127.0.0.1".into(), 8443),
            join: None,
            platform_names: vec![],
        };
        let tools = LocalTools {
            store: Store::new(store::sqlite::temporary().unwrap()),
            programs: Arc::new(Cached::new()),
            tenant_key: Arc::new(SealingKey::load_or_create(&folder.path().join("tenant.key"), &ambient).unwrap()),
            ambient,
            addressing: Arc::new(addressing),
        };
        Self { folder, options, tools }
    }

    async fn engine(&self) -> Arc<LocalEngine> {
        LocalEngine::start(self.options.clone(), self.tools.clone()).await.unwrap()
    }

    async fn find(&self, id: ClusterId) -> Cluster {
        store::clusters::find(&mut *self.tools.store.read().await.unwrap(), id).await.unwrap().unwrap()
    }

    /// What the reconcile job does around the engine.
    async fn reconcile(&self, engine: &LocalEngine, id: ClusterId) -> (Cluster, Vec<String>) {
        let steps = Steps::default();
        let cluster = self.find(id).await;
        let mut status = engine.reconcile(&cluster, &steps).await.unwrap();
        (status.phase, status.observed_generation) = (Phase::Ready, cluster.generation);
        let mut tx = self.tools.store.begin().await.unwrap();
        store::clusters::set_status(&mut tx, id, &status).await.unwrap();
        tx.commit().await.unwrap();
        (self.find(id).await, std::mem::take(&mut *locked(&steps.0)))
    }

    async fn until(&self, id: ClusterId, what: impl Fn(&Cluster) -> bool) -> Cluster {
        let mut changes = self.tools.store.changes();
        let end = tokio::time::Instant::now() + Duration::from_secs(120);
        loop {
            let now = self.find(id).await;
            if what(&now) {
                return now;
            }
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            assert!(tokio::time::timeout(left, changes.recv()).await.is_ok(), "stays at {:?}", now.status);
        }
    }

    /// Asserts that nothing is left of a cluster.
    async fn nothing_is_left(&self, id: ClusterId, local: &LocalAllotment) {
        assert!(crate::process::adopt::scan(&self.options.installation).unwrap().iter().all(|f| f.cluster != id), "processes are left");
        let text = id.to_string();
        let mounts = confine::mounts::mounted().unwrap();
        assert!(!mounts.iter().any(|m| m.point.to_string_lossy().contains(&text)), "mounts are left");
        assert!(!confine::nftables::present(id).await.unwrap(), "an nft table is left");
        for root in ["memory", "pids", "cpu", "unified", "."] {
            assert!(!Path::new("/sys/fs/cgroup").join(root).join("kubebyon").join(&text).exists(), "a cgroup is left");
        }
        assert!(!self.options.data_dir.join("clusters").join(&text).exists(), "data is left");
        assert!(!self.folder.path().join("run").join(&text).exists(), "keys are left");
        let claims = Path::new(confine::RUN_DIR).join("claims");
        assert!(!claims.join(format!("address-{}", local.address)).exists(), "a claim is left");
        assert!(!claims.join(format!("uid-{}", local.uid.unwrap())).exists(), "a claim is left");
    }
}

impl Drop for Bench {
    /// A test that failed leaves nothing behind either.
    fn drop(&mut self) {
        if let Ok(found) = crate::process::adopt::scan(&self.options.installation) {
            for one in found {
                let _ = one.process.signal(rustix::process::Signal::KILL);
            }
        }
        if let Ok(claims) = confine::claims::Claims::open(Path::new(confine::RUN_DIR).join("claims"), &self.options.installation) {
            for cluster in claims.clusters().unwrap_or_default() {
                let _ = claims.release(cluster);
                let _ = std::process::Command::new("nft").args(["delete", "table", "inet", &confine::nftables::table(cluster)]).status();
            }
        }
        for error in confine::mounts::unmount_below(self.folder.path()) {
            eprintln!("{error:#}");
        }
    }
}

fn pids(cluster: &Cluster) -> Vec<i32> {
    cluster.status.components.iter().filter_map(|c| c.pid).collect()
}

fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_cluster() {
    let bench = Bench::new();
    let engine = bench.engine().await;
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    let begun = std::time::Instant::now();
    let (created, steps) = bench.reconcile(&engine, id).await;
    eprintln!("ready after {:?}", begun.elapsed());
    assert_eq!(
        steps.iter().filter(|s| *s != "RolesBound").collect::<Vec<_>>(),
        [
            "AddressAllotted",
            "CertificatesIssued",
            "EtcdStarted",
            "ApiServerStarted",
            "ApiServerReady",
            "ControllerManagerStarted",
            "SchedulerStarted"
        ]
    );
    assert!(steps.contains(&"RolesBound".to_owned()));
    let local = created.local.clone().unwrap();
    for kind in ["EtcdHealthy", "ApiServerHealthy", "ControllerManagerHealthy", "SchedulerHealthy", "Confined"] {
        let condition = created.status.condition(kind).unwrap();
        assert!(condition.status, "{condition:?}");
    }
    for pid in pids(&created) {
        assert_eq!(std::fs::metadata(format!("/proc/{pid}")).unwrap().uid(), local.uid.unwrap());
    }

    // Run again, nothing changes, and nothing is told but what is.
    let (again, steps) = bench.reconcile(&engine, id).await;
    assert_eq!(pids(&again), pids(&created));
    assert_eq!(steps, Vec::<String>::new());

    // Another daemon takes it up with the same pids.
    drop(engine);
    let engine = bench.engine().await;
    let (adopted, steps) = bench.reconcile(&engine, id).await;
    assert_eq!(pids(&adopted), pids(&created));
    assert_eq!(steps, Vec::<String>::new());

    // Each child killed comes back, and the cluster says which was down.
    for (nth, name) in COMPONENTS.into_iter().enumerate() {
        kill(pids(&bench.find(id).await)[nth]);
        let down = bench.until(id, |c| c.status.phase == Phase::Degraded).await;
        assert!(down.status.condition("Ready").unwrap().message.contains(name), "{:?}", down.status.condition("Ready"));
        bench.until(id, |c| c.status.phase == Phase::Ready && pids(c).len() == 4).await;
    }

    // Logs.
    for component in ["etcd", "kube-apiserver", "audit"] {
        let query = LogQuery { component: component.into(), tail: Some(3), follow: false };
        let lines: Vec<_> = engine.logs(id, &query).await.unwrap().collect().await;
        assert!(component == "etcd" || lines.len() == 3, "{component}: {lines:?}");
    }
    let unknown = LogQuery { component: "kubelet".into(), tail: None, follow: false };
    assert!(engine.logs(id, &unknown).await.err().unwrap().to_string().contains("there is no component"));

    upgrade_and_revoke(&bench, &engine, id).await;

    let gone = bench.find(id).await;
    engine.delete(&gone, &bring_up::Silent).await.unwrap();
    engine.delete(&gone, &bring_up::Silent).await.unwrap();
    bench.nothing_is_left(id, &local).await;
    assert!(!bench.folder.path().join("run/programs").exists(), "programs are left");
}

async fn upgrade_and_revoke(bench: &Bench, engine: &LocalEngine, id: ClusterId) {
    let before = bench.find(id).await;
    let mut spec = before.spec.clone();
    spec.kubernetes_version = SECOND;
    spec.control_plane_host = Some("cluster.example".into());
    let mut tx = bench.tools.store.begin().await.unwrap();
    store::clusters::update(&mut tx, id, None, &spec, &before.labels).await.unwrap();
    tx.commit().await.unwrap();
    let (after, steps) = bench.reconcile(engine, id).await;
    assert!(steps.contains(&"CertificatesIssued".to_owned()), "the new name is not in the certificate: {steps:?}");
    assert_eq!(pids(&after)[0], pids(&before)[0], "etcd is the same, and was restarted");
    let version = engine.inner.client(&after).await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, format!("v{SECOND}"));

    let mut tx = bench.tools.store.begin().await.unwrap();
    let now = bench.tools.ambient.now();
    let kubeconfig = Kubeconfig {
        id: crate::domain::KubeconfigId::generate(&bench.tools.ambient),
        cluster_id: id,
        owner: "someone".into(),
        role: ClusterRole::Admin,
        namespace: None,
        service_account: None,
        credential_id: format!("X509SHA256={}", "ab".repeat(32)),
        created_at: now,
        expires_at: now.plus(Duration::from_secs(3600)),
        revoked_at: None,
    };
    store::kubeconfigs::insert(&mut tx, &kubeconfig).await.unwrap();
    store::kubeconfigs::revoke(&mut tx, kubeconfig.id, now).await.unwrap();
    tx.commit().await.unwrap();
    let begun = std::time::Instant::now();
    engine.apply_revocations(&after).await.unwrap();
    eprintln!("revocation in force after {:?}", begun.elapsed());
}

/// What a shell of that uid gets when it opens a TCP connection.
async fn dials(uid: u32, host: &str, port: u16) -> bool {
    let script = format!("exec 3<>/dev/tcp/{host}/{port}");
    let mut command = tokio::process::Command::new("timeout");
    command.args(["5", "bash", "-c", &script]).uid(uid).gid(uid).stderr(std::process::Stdio::null());
    command.status().await.unwrap().success()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_reaches_its_own_endpoints_alone() {
    let bench = Bench::new();
    let engine = bench.engine().await;
    let ids =
        [row(&bench.tools.store, &bench.tools.ambient, "here").await.id, row(&bench.tools.store, &bench.tools.ambient, "here").await.id];
    let mut locals = Vec::new();
    for id in ids {
        locals.push(bench.reconcile(&engine, id).await.0.local.unwrap());
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = listener.local_addr().unwrap().port();
    let (uid, own, other) = (locals[0].uid.unwrap(), locals[0].address.to_string(), locals[1].address.to_string());
    assert!(dials(uid, &own, plan::ports::API_SERVER).await);
    assert!(dials(uid, &own, plan::ports::ETCD_CLIENT).await);
    assert!(dials(0, "127.0.0.1", elsewhere).await);
    for (host, port) in [("127.0.0.1", elsewhere), (&*other, plan::ports::API_SERVER), (&*other, plan::ports::ETCD_CLIENT)] {
        assert!(!dials(uid, host, port).await, "{host}:{port} was reached");
    }
    assert!(!dials(965_530, &own, plan::ports::ETCD_CLIENT).await, "etcd was reached by another uid");
    let run = bench.options.run_dir.clone().unwrap();
    let looks = |uid: u32, path: PathBuf| async move {
        tokio::process::Command::new("cat")
            .arg(path)
            .uid(uid)
            .gid(uid)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .await
            .unwrap()
            .success()
    };
    let key = |id: ClusterId| run.join(id.to_string()).join("pki/apiserver.key");
    assert!(looks(uid, key(ids[0])).await);
    assert!(!looks(uid, key(ids[1])).await, "one cluster reads another's keys");
    for id in ids {
        engine.delete(&bench.find(id).await, &bring_up::Silent).await.unwrap();
    }
    for (id, local) in ids.into_iter().zip(&locals) {
        bench.nothing_is_left(id, local).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cut_off_anywhere_ends_as_it_was_asked() {
    let bench = Bench::new();
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    for cut in [5, 40, 120, 400, 900, 1800, 3200] {
        let engine = bench.engine().await;
        let cluster = bench.find(id).await;
        let _ = tokio::time::timeout(Duration::from_millis(cut), engine.reconcile(&cluster, &bring_up::Silent)).await;
    }
    let engine = bench.engine().await;
    let (up, _) = bench.reconcile(&engine, id).await;
    assert_eq!(pids(&up).len(), 4);
    let ours = crate::process::adopt::scan(&bench.options.installation).unwrap();
    assert_eq!(ours.len(), 4, "processes beside those that are supervised: {:?}", ours.iter().map(|f| &f.component).collect::<Vec<_>>());
    drop(engine);

    // All programs gone, as after a restart of the host: the start alone brings them back.
    for one in crate::process::adopt::scan(&bench.options.installation).unwrap() {
        one.process.stop(Duration::from_secs(1)).await.unwrap();
    }
    confine::mounts::unmount_below(bench.options.run_dir.as_deref().unwrap());
    confine::nftables::remove(id).await.unwrap();
    let engine = bench.engine().await;
    let back = bench.until(id, |c| c.status.phase == Phase::Ready && pids(c).len() == 4 && pids(c) != pids(&up)).await;
    assert!(confine::nftables::present(id).await.unwrap());
    assert_eq!(back.local, up.local);
    drop(engine);

    for cut in [1, 30, 200, 700] {
        let engine = bench.engine().await;
        let cluster = bench.find(id).await;
        let _ = tokio::time::timeout(Duration::from_millis(cut), engine.delete(&cluster, &bring_up::Silent)).await;
    }
    let engine = bench.engine().await;
    engine.delete(&bench.find(id).await, &bring_up::Silent).await.unwrap();
    bench.nothing_is_left(id, &back.local.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_row_knows_is_ended_and_its_data_stays() {
    let bench = Bench::new();
    let engine = bench.engine().await;
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    bench.reconcile(&engine, id).await;
    drop(engine);
    let mut tx = bench.tools.store.begin().await.unwrap();
    store::clusters::remove(&mut tx, id, Ambient::system().now()).await.unwrap();
    tx.commit().await.unwrap();
    let engine = bench.engine().await;
    while !crate::process::adopt::scan(&bench.options.installation).unwrap().is_empty() || confine::nftables::present(id).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(engine.inner.confinement.data_dir(id).join("etcd").exists());
}
