//! The local engine: real upstream programs as processes of this host.
//!
//! | file | what is in it |
//! | --- | --- |
//! | [`crate::process`] | a program as a process; finding those that an earlier daemon started |
//! | [`supervise`] | one control plane's programs: order, restarts, health |
//! | [`confine`] | address, uid, mounts, nftables, cgroups, claims |
//! | [`materialise`] | keys, certificates and configurations on the tmpfs |
//! | [`bring_up`], [`ready`], [`take_down`] | the steps from a row to a running control plane, and back |
//! | [`resume`] | what a new daemon finds: adopted, started, ended |
//! | [`plane`], [`watch`], [`nodes`] | a control plane that runs here, its upkeep, and that of its nodes |
//! | [`capacity`], [`logs`], [`status`] | how many fit; component logs; conditions |
//!
//! Guarantees: every step is idempotent, so a daemon that is killed anywhere goes on where it was when the job runs again; the programs
//! outlive the daemon and are adopted with their pids; what is not confined is said.
//! May import: `domain`, `store`, `pki`, `tunnel`, and the common plan.

mod bring_up;
pub mod capacity;
pub mod confine;
mod kubernetes;
pub mod logs;
mod materialise;
mod nodes;
mod plane;
mod ready;
mod resume;
mod status;
pub mod supervise;
mod take_down;
#[cfg(test)]
pub(super) mod tests;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use ipnet::Ipv4Net;
use tokio_util::task::AbortOnDropHandle;

use super::plan::{self, COMPONENTS};
use super::{Engine, EngineError, IssuedToken, LogQuery, LogStream, Progress, TokenRequest};
use crate::domain::access::Addressing;
use crate::domain::cluster::{Cluster, ClusterStatus};
use crate::domain::kubeconfig::ClusterRole;
use crate::domain::{Ambient, ClusterId, KubernetesVersion};
use crate::pki::sealing::SealingKey;
use crate::store::Store;
use confine::Confinement;
use plane::Plane;

/// Where the engine gets the programs of a version.
#[async_trait]
pub trait Programs: Send + Sync {
    /// The file of a program of that Kubernetes version, verified and executable. Several names may lead to one multi-call file, which goes by
    /// `argv[0]`. The time of change of the file tells whether it is another one.
    async fn program(&self, version: KubernetesVersion, name: &str) -> anyhow::Result<PathBuf>;
}

/// How the local engine runs on this host.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The daemon's data folder; clusters lie in `clusters/<id>`.
    pub data_dir: PathBuf,
    /// The folder for what must not outlive a restart of the host; absent: [`confine::RUN_DIR`], without root `$XDG_RUNTIME_DIR/kubebyon`.
    pub run_dir: Option<PathBuf>,
    /// The name of this host in clusters' rows.
    pub host: String,
    /// The installation's id: marks processes and claims.
    pub installation: String,
    /// Where clusters' addresses come from; part of 127.0.0.0/8.
    pub address_range: Ipv4Net,
    /// Where clusters' uids come from.
    pub uid_range: std::ops::RangeInclusive<u32>,
    /// What a control plane's programs may spend.
    pub limits: plan::Limits,
    /// Memory that a whole control plane may take, in bytes; beyond it the kernel ends one of its programs.
    pub memory_limit: u64,
    /// Memory that one is expected to take, in bytes: decides whether another may be made.
    pub memory_estimate: u64,
    /// How long the control planes' own certificates are good for.
    pub leaf_ttl: Duration,
    /// What clusters' nodes get.
    pub nodes: NodeOptions,
}

/// What clusters' nodes get of the platform.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The image of CoreDNS, by reference.
    pub coredns_image: String,
    /// The image of the pod that verifies a node, as nodes import it when they join.
    pub verify_image: String,
    /// Names that API servers may reach through nodes (`egress.public_hosts`), in lower case.
    pub public_hosts: std::collections::BTreeSet<String>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            coredns_image: "registry.k8s.io/coredns/coredns:v1.13.1".to_owned(),
            verify_image: format!("kubebyon.internal/verify:{}", env!("CARGO_PKG_VERSION")),
            public_hosts: std::collections::BTreeSet::new(),
        }
    }
}

impl LocalOptions {
    /// With the usual ranges and limits.
    pub fn new(data_dir: PathBuf, host: String, installation: String) -> Self {
        Self {
            data_dir,
            run_dir: None,
            host,
            installation,
            address_range: "127.64.0.0/10".parse().expect("a constant"),
            uid_range: 900_000..=965_535,
            limits: plan::Limits {
                etcd_quota_bytes: 2 << 30,
                max_requests_inflight: 400,
                max_mutating_requests_inflight: 200,
                audit_max_size_mb: 20,
                audit_max_files: 3,
            },
            memory_limit: 1 << 30,
            memory_estimate: capacity::MEMORY_OF_A_CLUSTER,
            leaf_ttl: crate::pki::leaves::LEAF_LIFE,
            nodes: NodeOptions::default(),
        }
    }
}

/// What the engine works with.
#[derive(Clone)]
pub struct LocalTools {
    /// Where clusters are kept.
    pub store: Store,
    /// Clock and random source.
    pub ambient: Ambient,
    /// Where programs come from.
    pub programs: Arc<dyn Programs>,
    /// Seals clusters' authorities.
    pub tenant_key: Arc<SealingKey>,
    /// The platform's addresses as they are at the time of the call.
    pub addressing: Arc<dyn Fn() -> Addressing + Send + Sync>,
}

/// The local engine of one host. Dropping it leaves the control planes running.
pub struct LocalEngine {
    inner: Arc<Inner>,
    _resuming: AbortOnDropHandle<()>,
}

struct Inner {
    options: LocalOptions,
    tools: LocalTools,
    confinement: Confinement,
    planes: Mutex<HashMap<ClusterId, Arc<Plane>>>,
    /// Processes of an earlier daemon that no plane has taken over yet.
    orphans: Mutex<HashMap<ClusterId, Vec<crate::process::adopt::Found>>>,
    /// Held through every change of a cluster's control plane.
    locks: Mutex<HashMap<ClusterId, Arc<tokio::sync::Mutex<()>>>>,
    /// New control planes whose memory is not taken yet.
    starting: AtomicU32,
    /// Read-held from where programs are exposed until their plane counts as running, so that none is hidden in between.
    exposing: tokio::sync::RwLock<()>,
}

/// A lock that a panicking holder leaves usable: what it guards is whole between statements.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn lock_of(&self, cluster: ClusterId) -> Arc<tokio::sync::Mutex<()>> {
        locked(&self.locks).entry(cluster).or_default().clone()
    }

    fn plane(&self, cluster: ClusterId) -> Option<Arc<Plane>> {
        locked(&self.planes).get(&cluster).cloned()
    }

    /// The running control plane of a cluster, or why there is none.
    fn running(&self, cluster: &Cluster) -> Result<Arc<Plane>, EngineError> {
        self.plane(cluster.id).ok_or_else(|| {
            EngineError::Retry(anyhow!("the control plane of {} does not run on this host ({}) yet", cluster.name, self.options.host))
        })
    }
}

impl LocalEngine {
    /// Takes up the clusters of this host: adopts what runs, starts what should run, ends what belongs to no cluster any more. Returns once
    /// it can take orders; control planes come up behind it, a few at a time.
    ///
    /// # Errors
    /// A host on which it cannot work, such as one whose tmpfs cannot be mounted.
    pub async fn start(options: LocalOptions, tools: LocalTools) -> anyhow::Result<Arc<Self>> {
        let confinement = Confinement::open(&options.data_dir, options.run_dir.clone(), &options.installation)?;
        let inner = Arc::new(Inner {
            options,
            tools,
            confinement,
            planes: Mutex::default(),
            orphans: Mutex::default(),
            locks: Mutex::default(),
            starting: AtomicU32::new(0),
            exposing: tokio::sync::RwLock::default(),
        });
        let resuming = resume::all(&inner).await?;
        Ok(Arc::new(Self { inner, _resuming: resuming }))
    }

    /// How many more clusters fit on this host, and what is the limit.
    pub fn capacity(&self) -> anyhow::Result<capacity::Capacity> {
        let running = locked(&self.inner.planes).len() as u32;
        let has = capacity::Resources::read(&self.inner.options.data_dir, running)?;
        Ok(capacity::capacity(&has, self.inner.options.memory_estimate))
    }

    /// Whether another cluster may be made; the error says what is short and what to do. Reads files: call it where blocking is allowed.
    pub fn admit(&self) -> anyhow::Result<()> {
        let options = &self.inner.options;
        let has = capacity::Resources::read(&options.data_dir, locked(&self.inner.planes).len() as u32)?;
        let starting = self.inner.starting.load(std::sync::atomic::Ordering::Relaxed);
        capacity::refusal(&has, options.memory_estimate, starting, &options.data_dir).map_or(Ok(()), |why| Err(anyhow!(why)))
    }
}

#[async_trait]
impl Engine for LocalEngine {
    async fn reconcile(&self, cluster: &Cluster, progress: &dyn Progress) -> Result<ClusterStatus, EngineError> {
        let lock = self.inner.lock_of(cluster.id);
        let _held = lock.lock().await;
        bring_up::reconcile(&self.inner, cluster, progress).await
    }

    async fn delete(&self, cluster: &Cluster, progress: &dyn Progress) -> Result<(), EngineError> {
        let lock = self.inner.lock_of(cluster.id);
        let held = lock.lock().await;
        take_down::delete(&self.inner, cluster, progress).await?;
        drop(held);
        locked(&self.inner.locks).remove(&cluster.id);
        Ok(())
    }

    async fn logs(&self, cluster: ClusterId, query: &LogQuery) -> Result<LogStream, EngineError> {
        let path = match query.component.as_str() {
            "audit" => self.inner.confinement.data_dir(cluster).join("audit/audit.log"),
            name if COMPONENTS.contains(&name) => self.inner.confinement.log_dir(cluster).join(format!("{name}.log")),
            other => {
                let known = COMPONENTS.join(", ");
                return Err(EngineError::Fatal(anyhow!("there is no component {other:?}; there are {known} and audit")));
            }
        };
        logs::stream(path, query.tail, query.follow).await.map_err(|error| EngineError::Retry(error.into()))
    }

    async fn apply_revocations(&self, cluster: &Cluster) -> Result<(), EngineError> {
        let lock = self.inner.lock_of(cluster.id);
        let _held = lock.lock().await;
        self.inner.apply_revocations(cluster).await
    }

    async fn bind_namespace_role(&self, cluster: &Cluster, role: ClusterRole, namespace: &str) -> Result<(), EngineError> {
        super::kubernetes::bind_namespace_role(&self.inner.client(cluster).await?, role, namespace).await
    }

    async fn service_account_token(&self, cluster: &Cluster, request: &TokenRequest) -> Result<IssuedToken, EngineError> {
        super::kubernetes::service_account_token(&self.inner.client(cluster).await?, request).await
    }

    async fn revoke_service_account_token(&self, cluster: &Cluster, namespace: &str, secret: &str) -> Result<(), EngineError> {
        super::kubernetes::revoke_service_account_token(&self.inner.client(cluster).await?, namespace, secret).await
    }

    async fn node_ready(&self, cluster: &Cluster, name: &str) -> Result<Option<bool>, EngineError> {
        super::kubernetes::nodes::registered::ready(&self.inner.client(cluster).await?, name).await
    }

    async fn remove_node(
        &self,
        cluster: &Cluster,
        node: &crate::domain::Node,
        drain: Duration,
        progress: &dyn Progress,
    ) -> Result<(), EngineError> {
        super::kubernetes::nodes::removal::remove(&self.inner.client(cluster).await?, &node.name, drain, progress).await
    }
}
