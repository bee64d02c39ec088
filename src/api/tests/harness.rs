//! A platform in a temporary folder, and a client that speaks to its router.
#![allow(clippy::needless_pass_by_value, reason = "calls read better without borrows of json!")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use base64::Engine as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use zeroize::Zeroizing;

use crate::api::auth::{Peer, Secret, SecretKind};
use crate::api::problem::MEDIA_TYPE;
use crate::api::state::{
    Addresses, ApiState, ByteStream, Capacity, Catalogue, CatalogueEntry, Credentials, FixedSetting, Identity, JoinTrust, KubeconfigParts,
    LogRequest, LogSource, NodeFile, NodeFiles, NodeSet, Options, Ports, Proof, SettingsFixed,
};
use crate::domain::access::Addressing;
use crate::domain::cluster::{Cluster, Phase};
use crate::domain::join::{ProgramFile, Trust};
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::user::Role;
use crate::domain::work::{self, SignRequest, SignResult};
use crate::domain::{Ambient, ClusterId, KubeconfigId, KubernetesVersion, ManualClock, ProjectId, SystemEntropy, Timestamp};
use crate::queue::{self, Context, Handler, JobError};
use crate::store::{self, Store, jobs::Leased};

/// What the parts beside the API say in a test.
#[derive(Default)]
pub struct Parts {
    pub full: Mutex<Option<String>>,
    pub fixed: Mutex<BTreeMap<String, FixedSetting>>,
    /// How the platform is known; by an authority when nothing is said.
    pub trust: Mutex<Option<Result<JoinTrust, String>>>,
    /// What machines can fetch, by its path below `/assets/`; the program of kubebyon is among it.
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// What is missing of the programs for nodes.
    pub missing: Mutex<Option<String>>,
}

#[async_trait]
impl LogSource for Parts {
    async fn logs(&self, request: &LogRequest) -> anyhow::Result<Option<ByteStream>> {
        if request.component == "etcd" {
            return Ok(None);
        }
        let line = Ok(bytes::Bytes::from(format!("{} tail={:?}\n", request.component, request.tail)));
        let lines = futures_util::stream::once(async { line });
        if request.follow {
            return Ok(Some(Box::pin(futures_util::StreamExt::chain(lines, futures_util::stream::pending()))));
        }
        Ok(Some(Box::pin(lines)))
    }
}

#[async_trait]
impl Catalogue for Parts {
    async fn versions(&self) -> anyhow::Result<Vec<CatalogueEntry>> {
        let entry = |minor, patch, installed| CatalogueEntry { version: KubernetesVersion::new(1, minor, patch), installed };
        Ok(vec![entry(34, 4, true), entry(35, 1, false), entry(36, 3, true)])
    }
    fn default_version(&self) -> KubernetesVersion {
        KubernetesVersion::new(1, 34, 4)
    }
}

#[async_trait]
impl Capacity for Parts {
    async fn admit(&self) -> Result<(), String> {
        self.full.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

impl Addresses for Parts {
    fn current(&self) -> Addressing {
        Addressing {
            base_domain: "kubebyon.internal".into(),
            base_domain_is_public: false,
            control_plane_host: "203.0.113.7".into(),
            advertised: ("203.0.113.7".into(), 8443),
            join: None,
            platform_names: vec!["203.0.113.7".into(), "localhost".into(), "fd00::7".into()],
        }
    }
}

impl Identity for Parts {
    fn trust(&self, _: &str) -> Result<JoinTrust, String> {
        let known = JoinTrust { trust: Trust::Authority("ab".repeat(32)), pin: Some("cGlu".into()) };
        self.trust.lock().unwrap().clone().unwrap_or(Ok(known))
    }
}

impl Parts {
    /// Every file as a machine is told of it.
    fn program_files(&self) -> Vec<ProgramFile> {
        let files = self.files.lock().unwrap();
        let file = |(path, content): (&String, &Vec<u8>)| ProgramFile {
            kind: path.split('/').next().unwrap().to_owned(),
            version: "1".into(),
            name: path.rsplit('/').next().unwrap().to_owned(),
            path: format!("/assets/{path}"),
            size: content.len() as u64,
            sha256: hex::encode(Sha256::digest(content)),
        };
        files.iter().map(file).collect()
    }
}

#[async_trait]
impl NodeFiles for Parts {
    async fn set(&self, _: KubernetesVersion, architecture: &str) -> anyhow::Result<Result<NodeSet, String>> {
        if let Some(missing) = self.missing.lock().unwrap().clone() {
            return Ok(Err(missing));
        }
        let of = format!("/{architecture}/");
        let files = self.program_files().into_iter().filter(|file| file.path.contains(&of));
        let (images, programs) = files.partition(|file| file.kind == "images");
        Ok(Ok(NodeSet { programs, images }))
    }

    async fn kubebyon(&self, architecture: &str) -> anyhow::Result<Result<ProgramFile, String>> {
        let of = format!("/{architecture}/");
        let found = self.program_files().into_iter().find(|file| file.kind == "kubebyon" && file.path.contains(&of));
        Ok(found.ok_or_else(|| format!("there is none for {architecture}")))
    }

    async fn open(&self, path: &str) -> anyhow::Result<Option<NodeFile>> {
        let Some(content) = self.files.lock().unwrap().get(path).cloned() else { return Ok(None) };
        let mut file = tempfile::tempfile()?;
        std::io::Write::write_all(&mut file, &content)?;
        std::io::Seek::rewind(&mut file)?;
        Ok(Some(NodeFile { file, size: content.len() as u64, sha256: hex::encode(Sha256::digest(&content)) }))
    }
}

impl SettingsFixed for Parts {
    fn fixed(&self) -> BTreeMap<String, FixedSetting> {
        self.fixed.lock().unwrap().clone()
    }
}

impl Credentials for Parts {
    fn key_and_csr(&self, common_name: &str) -> anyhow::Result<(String, String)> {
        Ok((format!("key of {common_name}"), format!("csr of {common_name}")))
    }
    fn kubeconfig(&self, parts: &KubeconfigParts) -> String {
        let proof = match &parts.proof {
            Proof::Certificate { cert_pem, key_pem } => format!("{cert_pem}+{key_pem}"),
            Proof::Token(token) => token.clone(),
        };
        format!("{} {} {} {proof}", parts.name, parts.server, parts.ca_pem)
    }
    fn open_sealed(&self, context: &str, sealed: &[u8]) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        let text = std::str::from_utf8(sealed)?;
        let plain = text.strip_prefix(&format!("{context}:")).ok_or_else(|| anyhow::anyhow!("sealed for something else"))?;
        Ok(Zeroizing::new(plain.as_bytes().to_vec()))
    }
}

/// A platform and its client.
pub struct Api {
    pub state: ApiState,
    pub parts: Arc<Parts>,
    pub clock: Arc<ManualClock>,
    pub router: Router,
    pub default_project: ProjectId,
    pub other_project: ProjectId,
    worker: Option<tokio::task::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
        }
    }
}

impl Api {
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(store::sqlite::open(&folder.path().join("kubebyon.db")).unwrap());
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let ambient = Ambient { clock: clock.clone(), entropy: Arc::new(SystemEntropy) };
        let parts = Arc::new(Parts::default());
        let ports = Ports {
            logs: parts.clone(),
            catalogue: parts.clone(),
            capacity: parts.clone(),
            addresses: parts.clone(),
            fixed: parts.clone(),
            credentials: parts.clone(),
            identity: parts.clone(),
            node_files: parts.clone(),
        };
        let mut options = Options::new("host-a");
        options.nodeport_range = 30_000..=30_002;
        options.job_wait = Duration::from_secs(5);
        let mut tx = store.begin().await.unwrap();
        let default_project = store::projects::find_by_name(tx.sql(), "default").await.unwrap().unwrap().id;
        let other_project = store::projects::create(&mut tx, &ambient, "other").await.unwrap().id;
        tx.commit().await.unwrap();
        let state = ApiState::new(store, ambient, ports, options, CancellationToken::new());
        let router = crate::api::router(state.clone());
        Self { state, parts, clock, router, default_project, other_project, worker: None, _folder: folder }
    }

    /// Lets the given handlers do jobs.
    pub fn with_worker(mut self, handlers: Vec<Arc<dyn Handler>>) -> Self {
        let (store, ambient) = (self.state.store.clone(), self.state.ambient.clone());
        let transport = Arc::new(queue::Embedded::new(&store));
        let options = queue::WorkerOptions::new("host-a", &ambient);
        let worker = handlers.into_iter().fold(queue::Worker::new(store, ambient, transport, options), queue::Worker::with);
        self.worker = Some(tokio::spawn(worker.run(CancellationToken::new())));
        self
    }

    /// A user with a role in the default project, and the bearer secret of a session of it. The user has no password.
    pub async fn user(&self, name: &str, role: Option<Role>) -> String {
        self.user_with(name, false, role.map(|role| (self.default_project, role))).await
    }

    /// A platform administrator's bearer secret.
    pub async fn admin(&self) -> String {
        self.user_with("admin", true, None).await
    }

    pub async fn user_with(&self, name: &str, admin: bool, role: Option<(ProjectId, Role)>) -> String {
        let secret = Secret::generate(&self.state.ambient, SecretKind::Session);
        let mut tx = self.state.store.begin().await.unwrap();
        let user = store::users::create(&mut tx, &self.state.ambient, name, "!", admin).await.unwrap();
        if let Some((project, role)) = role {
            store::users::set_role(&mut tx, user.id, project, Some(role)).await.unwrap();
        }
        let ends = self.state.ambient.now().plus(Duration::from_secs(3600));
        store::sessions::create(&mut tx, &self.state.ambient, user.id, &secret.hash(), ends).await.unwrap();
        tx.commit().await.unwrap();
        secret.reveal().to_owned()
    }

    pub fn get(&self, path: &str) -> Call<'_> {
        self.call(Method::GET, path)
    }
    pub fn post(&self, path: &str, body: Value) -> Call<'_> {
        self.call(Method::POST, path).json(&body)
    }
    pub fn patch(&self, path: &str, body: Value) -> Call<'_> {
        self.call(Method::PATCH, path).json(&body)
    }
    pub fn put(&self, path: &str, body: Value) -> Call<'_> {
        self.call(Method::PUT, path).json(&body)
    }
    pub fn delete(&self, path: &str) -> Call<'_> {
        self.call(Method::DELETE, path)
    }
    pub fn call(&self, method: Method, path: &str) -> Call<'_> {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        Call { router: &self.router, request }
    }

    /// A cluster of the default project, made over the socket.
    pub async fn cluster(&self, name: &str) -> Cluster {
        let reply = self.post("/api/v1/clusters", json!({ "name": name })).local().send().await.expect(StatusCode::CREATED);
        serde_json::from_value(reply.json).unwrap()
    }

    /// What the worker does when a cluster is up.
    pub async fn make_ready(&self, id: ClusterId) {
        let mut tx = self.state.store.begin().await.unwrap();
        let cluster = store::clusters::find(tx.sql(), id).await.unwrap().unwrap();
        let mut status = cluster.status.clone();
        status.phase = Phase::Ready;
        status.endpoint = self.parts.current().endpoint(&cluster);
        store::clusters::set_status(&mut tx, id, &status).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// The jobs that there are, newest first: (kind, state).
    pub async fn jobs(&self) -> Vec<(String, String)> {
        let reply = self.get("/api/v1/jobs").local().send().await.expect(StatusCode::OK);
        let text = |job: &Value, key: &str| job[key].as_str().unwrap().to_owned();
        reply.json["items"].as_array().unwrap().iter().map(|job| (text(job, "kind"), text(job, "state"))).collect()
    }
}

/// A request that is being made.
pub struct Call<'a> {
    router: &'a Router,
    request: Request<Body>,
}

impl Call<'_> {
    pub fn bearer(self, secret: &str) -> Self {
        self.header("authorization", &format!("Bearer {secret}"))
    }
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().insert(name, value.parse().unwrap());
        self
    }
    pub fn peer(mut self, peer: Peer) -> Self {
        self.request.extensions_mut().insert(peer);
        self
    }
    /// From the Unix socket, as root.
    pub fn local(self) -> Self {
        self.peer(Peer::Local { uid: 0 })
    }
    pub fn json(mut self, body: &Value) -> Self {
        *self.request.body_mut() = Body::from(body.to_string());
        self.header("content-type", "application/json")
    }
    pub fn raw(mut self, body: impl Into<Body>) -> Self {
        *self.request.body_mut() = body.into();
        self
    }
    /// The response with its body unread.
    pub async fn open(self) -> axum::response::Response {
        self.router.clone().oneshot(self.request).await.unwrap()
    }
    pub async fn send(self) -> Reply {
        let response = self.open().await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Reply { status: parts.status, headers: parts.headers, json, text }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub json: Value,
    pub text: String,
}

impl Reply {
    #[track_caller]
    pub fn expect(self, status: StatusCode) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Checks that this is a problem of that type, whole in form.
    #[track_caller]
    pub fn problem(self, uri: &str) -> Self {
        assert_eq!(self.json["type"], format!("/problems/{uri}"), "{} {}", self.status, self.text);
        assert_eq!(self.json["status"], self.status.as_u16());
        assert_eq!(self.headers["content-type"], MEDIA_TYPE);
        assert!(!self.json["title"].as_str().unwrap().is_empty() && !self.json["detail"].as_str().unwrap().is_empty());
        self
    }

    /// The first field that a problem names.
    #[track_caller]
    pub fn field(&self) -> &str {
        self.json["errors"][0]["field"].as_str().unwrap_or_else(|| panic!("no field in {}", self.text))
    }

    pub fn id(&self) -> &str {
        self.json["id"].as_str().unwrap()
    }
}

/// Signs as the worker does: records a kubeconfig and gives a certificate.
pub struct Signer;

#[async_trait]
impl Handler for Signer {
    fn kind(&self) -> &'static str {
        work::SIGN
    }
    async fn run(&self, context: &Context, leased: &Leased) -> Result<Value, JobError> {
        let request: SignRequest = serde_json::from_value(leased.payload.clone()).unwrap();
        if request.namespace.as_deref() == Some("absent") {
            return Ok(json!({"refused": "there is no namespace \"absent\" in the cluster"}));
        }
        let expires_at = context.ambient.now().plus(Duration::from_secs(request.ttl_seconds));
        let record = Kubeconfig {
            id: KubeconfigId::generate(&context.ambient),
            cluster_id: leased.job.cluster_id.unwrap(),
            owner: request.owner.clone(),
            role: request.role,
            namespace: request.namespace,
            service_account: None,
            credential_id: format!("X509SHA256={}", leased.job.id),
            created_at: context.ambient.now(),
            expires_at,
            revoked_at: None,
        };
        let mut tx = context.store.begin().await?;
        store::kubeconfigs::insert(&mut tx, &record).await?;
        tx.commit().await?;
        let cert_pem = format!("cert for {}", request.csr_pem);
        Ok(serde_json::to_value(SignResult { kubeconfig_id: record.id, cert_pem, ca_pem: "ca".into(), expires_at }).unwrap())
    }
}

/// Makes ServiceAccount tokens as the worker does: sealed.
pub struct TokenMaker;

#[async_trait]
impl Handler for TokenMaker {
    fn kind(&self) -> &'static str {
        work::SERVICE_ACCOUNT_TOKEN
    }
    async fn run(&self, context: &Context, leased: &Leased) -> Result<Value, JobError> {
        let request: work::ServiceAccountTokenRequest = serde_json::from_value(leased.payload.clone()).unwrap();
        let expires_at = context.ambient.now().plus(Duration::from_secs(request.ttl_seconds));
        let record = Kubeconfig {
            id: KubeconfigId::from(leased.job.id.uuid()),
            cluster_id: leased.job.cluster_id.unwrap(),
            owner: request.owner,
            role: request.role,
            namespace: request.namespace,
            service_account: Some(format!("{}/{}", request.service_account_namespace, request.service_account_name)),
            credential_id: format!("JTI={}", leased.job.id),
            created_at: context.ambient.now(),
            expires_at,
            revoked_at: None,
        };
        let mut tx = context.store.begin().await?;
        store::kubeconfigs::insert(&mut tx, &record).await?;
        tx.commit().await?;
        let sealed = format!("{}:the-token", work::token_context(leased.job.id));
        let sealed_token = base64::engine::general_purpose::STANDARD.encode(sealed);
        let result = work::ServiceAccountTokenResult { kubeconfig_id: record.id, sealed_token, ca_pem: "ca".into(), expires_at };
        Ok(serde_json::to_value(result).unwrap())
    }
}

/// A job that ends at once, well or badly.
pub struct Ends(pub &'static str, pub Result<(), &'static str>);

#[async_trait]
impl Handler for Ends {
    fn kind(&self) -> &'static str {
        self.0
    }
    async fn run(&self, _: &Context, _: &Leased) -> Result<Value, JobError> {
        self.1.map(|()| Value::Null).map_err(|why| JobError::Fatal(anyhow::anyhow!(why)))
    }
}
