//! What the API works with: the store, and small ports to the parts it may not import. `cli` gives the ports.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::assets::Downloads;
use super::auth::{Passwords, Throttle};
use super::events::Slots;
use super::join::Limits;
use crate::domain::access::Addressing;
use crate::domain::join::{ProgramFile, Trust};
use crate::domain::{Ambient, ClusterId, EngineKind, KubernetesVersion};
use crate::store::Store;

/// Bytes as they come.
pub type ByteStream = futures_util::stream::BoxStream<'static, std::io::Result<bytes::Bytes>>;

/// Which lines of which log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// The cluster.
    pub cluster: ClusterId,
    /// One of [`super::v1::logs::COMPONENTS`].
    pub component: String,
    /// Only so many of the last lines.
    pub tail: Option<usize>,
    /// Go on as lines come.
    pub follow: bool,
}

/// Where logs of control planes come from.
#[async_trait]
pub trait LogSource: Send + Sync {
    /// The lines asked for; `Ok(None)` when the component has no log (yet).
    async fn logs(&self, request: &LogRequest) -> anyhow::Result<Option<ByteStream>>;
}

/// A Kubernetes version that clusters may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogueEntry {
    /// The version.
    pub version: KubernetesVersion,
    /// Whether its programs are on this machine.
    pub installed: bool,
}

/// The Kubernetes versions that clusters may have.
#[async_trait]
pub trait Catalogue: Send + Sync {
    /// Every one, oldest first.
    async fn versions(&self) -> anyhow::Result<Vec<CatalogueEntry>>;
    /// The one that a cluster gets when nothing is said.
    fn default_version(&self) -> KubernetesVersion;
}

/// Whether the machine bears another cluster.
#[async_trait]
pub trait Capacity: Send + Sync {
    /// `Err`: no, with what is short and what to do, as a sentence.
    async fn admit(&self) -> Result<(), String>;
}

/// The platform's addresses.
pub trait Addresses: Send + Sync {
    /// As they are at the time of the call.
    fn current(&self) -> Addressing;
}

/// A setting that the configuration gives, so that it is fixed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedSetting {
    /// Its value.
    pub value: String,
    /// Where it stands: a file, an environment variable or a flag.
    pub source: String,
}

/// What the configuration says of settings.
pub trait SettingsFixed: Send + Sync {
    /// The settings that it gives, by key.
    fn fixed(&self) -> BTreeMap<String, FixedSetting>;
}

/// What the client of a kubeconfig proves itself with.
#[derive(Clone)]
pub enum Proof {
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The certificate.
        cert_pem: String,
        /// Its key.
        key_pem: String,
    },
    /// A bearer token.
    Token(String),
}

/// What a kubeconfig is to say.
#[derive(Clone)]
pub struct KubeconfigParts {
    /// The name of its cluster, user and context.
    pub name: String,
    /// The API server's URL.
    pub server: String,
    /// The name to verify where it is not the URL's host.
    pub tls_server_name: Option<String>,
    /// The authority to trust (PEM).
    pub ca_pem: String,
    /// The namespace of the context.
    pub namespace: Option<String>,
    /// What the client proves itself with.
    pub proof: Proof,
}

/// Keys and kubeconfig files.
pub trait Credentials: Send + Sync {
    /// A new key and a request for a certificate of it: (key PEM, CSR PEM).
    fn key_and_csr(&self, common_name: &str) -> anyhow::Result<(String, String)>;
    /// The YAML of a kubeconfig.
    fn kubeconfig(&self, parts: &KubeconfigParts) -> String;
    /// Opens what a worker sealed with the platform's key under `context`.
    fn open_sealed(&self, context: &str, sealed: &[u8]) -> anyhow::Result<Zeroizing<Vec<u8>>>;
}

/// How machines that join know the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinTrust {
    /// What their tokens say.
    pub trust: Trust,
    /// SHA-256 of the SubjectPublicKeyInfo of the served certificate, base64: what curl pins before there is a kubebyon on the
    /// machine. Absent: every machine trusts the certificate.
    pub pin: Option<String>,
}

/// The platform's own certificate.
pub trait Identity: Send + Sync {
    /// How the platform is known at a host.
    ///
    /// # Errors
    /// It cannot be known there: why and what to do, a sentence.
    fn trust(&self, host: &str) -> Result<JoinTrust, String>;
}

/// What a machine fetches to become a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSet {
    /// The programs.
    pub programs: Vec<ProgramFile>,
    /// Image archives.
    pub images: Vec<ProgramFile>,
}

/// A file that machines fetch, open at its beginning.
#[derive(Debug)]
pub struct NodeFile {
    /// The file; nobody else reads from this handle.
    pub file: std::fs::File,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content, in hex.
    pub sha256: String,
}

/// Files that machines fetch: below `/assets/`.
#[async_trait]
pub trait NodeFiles: Send + Sync {
    /// What a node with this version of Kubernetes fetches, on an architecture of [`crate::domain::join::ARCHITECTURES`]. The inner
    /// `Err`: something is missing here; what, and the command that brings it, as a sentence.
    async fn set(&self, version: KubernetesVersion, architecture: &str) -> anyhow::Result<Result<NodeSet, String>>;
    /// The kubebyon for an architecture; the inner `Err` as above.
    async fn kubebyon(&self, architecture: &str) -> anyhow::Result<Result<ProgramFile, String>>;
    /// The file at a path below `/assets/`; `None`: there is none that machines may have.
    async fn open(&self, path: &str) -> anyhow::Result<Option<NodeFile>>;
}

/// The parts that the API needs and may not import.
#[derive(Clone)]
pub struct Ports {
    /// Logs of control planes.
    pub logs: Arc<dyn LogSource>,
    /// Kubernetes versions.
    pub catalogue: Arc<dyn Catalogue>,
    /// Room for clusters.
    pub capacity: Arc<dyn Capacity>,
    /// The platform's addresses.
    pub addresses: Arc<dyn Addresses>,
    /// Settings that the configuration gives.
    pub fixed: Arc<dyn SettingsFixed>,
    /// Keys and kubeconfig files.
    pub credentials: Arc<dyn Credentials>,
    /// The platform's own certificate.
    pub identity: Arc<dyn Identity>,
    /// Files that machines fetch.
    pub node_files: Arc<dyn NodeFiles>,
}

/// What the configuration says of the API.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of this host, which runs the clusters of the local engine.
    pub host: String,
    /// The engine of clusters created without one.
    pub default_engine: EngineKind,
    /// The ports that clusters in `nodeport` mode get.
    pub nodeport_range: RangeInclusive<u16>,
    /// Whether the session cookie is for TLS only; false needs plain HTTP to work, as in development.
    pub cookie_secure: bool,
    /// How long a session lasts.
    pub session_ttl: Duration,
    /// How long a request may take; streams only until their first byte.
    pub request_timeout: Duration,
    /// How long a request waits for the job that it enqueued.
    pub job_wait: Duration,
    /// The image that holds a pod's namespaces on nodes, by reference.
    pub pause_image: String,
}

impl Options {
    /// The defaults, for a host of that name.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            default_engine: EngineKind::Local,
            nodeport_range: 30_000..=32_767,
            cookie_secure: true,
            session_ttl: Duration::from_secs(12 * 3600),
            request_timeout: Duration::from_secs(60),
            job_wait: Duration::from_secs(30),
            pause_image: "registry.k8s.io/pause:3.10.1".to_owned(),
        }
    }
}

/// What every handler works with; cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    /// The store.
    pub store: Store,
    /// Clock and randomness.
    pub ambient: Ambient,
    /// The other parts.
    pub ports: Ports,
    /// The configuration.
    pub options: Arc<Options>,
    /// Cancelled when the process drains: streams end, `/readyz` says no.
    pub draining: CancellationToken,
    pub(super) passwords: Arc<Passwords>,
    pub(super) throttle: Arc<Throttle>,
    pub(super) slots: Arc<Slots>,
    pub(super) joins: Arc<Limits>,
    pub(super) downloads: Arc<Downloads>,
}

impl ApiState {
    /// The state of an API over a store.
    pub fn new(store: Store, ambient: Ambient, ports: Ports, options: Options, draining: CancellationToken) -> Self {
        Self {
            store,
            passwords: Arc::new(Passwords::new(ambient.clone())),
            ambient,
            ports,
            options: Arc::new(options),
            draining,
            throttle: Arc::default(),
            slots: Arc::default(),
            joins: Arc::default(),
            downloads: Arc::default(),
        }
    }
}
