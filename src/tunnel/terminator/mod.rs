//! The platform's half of the tunnel: for each API server two egress sockets, the revocation webhook, and the tunnels of its nodes.
//!
//! Guarantees: it dials nothing by itself (streams of `cluster` go where [`targets::Targets`] leads, those of `controlplane` to
//! the webhook alone); every CONNECT is answered or closed within ten seconds; connections and buffers are bounded.
pub mod nodes;
mod socket;
pub mod targets;
mod webhook;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::nodes::{Listener, NodeOptions, Tunnels};
use self::socket::{ANSWER_DEADLINE, Opened, Route, Serve, Socket};
use self::targets::{Refusal, Stream, Targets};
use super::connect::{Host, Target};
use super::{CLUSTER_SOCKET, CONTROL_PLANE_SOCKET};
use crate::domain::ClusterId;
use crate::pki::leaves::REVOCATION_HOST;

/// The revoked credential ids of a cluster, as they change.
pub type Revocations = watch::Receiver<Arc<BTreeSet<String>>>;

/// Refusals are logged at most this often for each socket; those between are counted.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// What the webhook proves itself with and whom it trusts.
#[derive(Clone)]
pub struct TerminatorTls {
    /// The terminator authority's certificate (PEM): clients are to come from it.
    pub ca_pem: String,
    /// The certificate for [`REVOCATION_HOST`] (PEM).
    pub cert_pem: String,
    /// Its key (PKCS #8 PEM).
    pub key_pem: String,
}

/// What a terminator needs.
pub struct TerminatorOptions {
    /// The cluster it belongs to; for logs.
    pub cluster: ClusterId,
    /// The folder of the sockets.
    pub run_dir: PathBuf,
    /// The group that may connect, that is the API server's.
    pub gid: Option<u32>,
    /// The webhook's certificate and authority.
    pub tls: TerminatorTls,
    /// What is revoked.
    pub revocations: Revocations,
    /// Where streams into the cluster's network lead when `nodes` is `None`.
    pub targets: Arc<dyn Targets>,
    /// The nodes' tunnels: streams into the cluster's network lead there.
    pub nodes: Option<NodeOptions>,
}

/// A running terminator. Dropping it closes its sockets and streams; [`Self::stop`] waits for that.
pub struct Terminator {
    tls: Arc<ArcSwap<ServerConfig>>,
    tunnels: Option<Tunnels>,
    stopped: CancellationToken,
    tasks: TaskTracker,
}

impl Terminator {
    /// Binds both sockets (in the place of what a killed daemon left), and the address of the nodes' tunnels if there are any, and serves
    /// them. All or none.
    ///
    /// # Errors
    /// A certificate that does not fit its key, or a socket or an address that cannot be bound.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(options: TerminatorOptions) -> anyhow::Result<Self> {
        let TerminatorOptions { cluster, run_dir, gid, tls, revocations, targets, nodes } = options;
        let tls = Arc::new(ArcSwap::from(server_config(&tls)?));
        let cluster_socket = Socket::bind(&run_dir.join(CLUSTER_SOCKET), gid)?;
        let control_plane_socket = Socket::bind(&run_dir.join(CONTROL_PLANE_SOCKET), gid)?;

        let (stopped, tasks) = (CancellationToken::new(), TaskTracker::new());
        let listener = nodes.map(|nodes| Listener::bind(cluster, nodes, stopped.clone())).transpose()?;
        let tunnels = listener.as_ref().map(Listener::tunnels);
        let targets = listener.as_ref().map_or(targets, |listener| Arc::new(listener.targets()));
        if let Some(listener) = listener {
            tasks.spawn(listener.serve(tasks.clone()));
        }
        let into_cluster = Arc::new(IntoCluster { targets, log: RefusalLog::new(cluster, "cluster") });
        let into_platform = Arc::new(ToWebhook { tls: Arc::clone(&tls), revocations, log: RefusalLog::new(cluster, "controlplane") });
        tasks.spawn(cluster_socket.serve(into_cluster, stopped.clone(), tasks.clone()));
        tasks.spawn(control_plane_socket.serve(into_platform, stopped.clone(), tasks.clone()));
        Ok(Self { tls, tunnels, stopped, tasks })
    }

    /// Uses a renewed certificate for connections from here on.
    pub fn renew(&self, tls: &TerminatorTls) -> anyhow::Result<()> {
        self.tls.store(server_config(tls)?);
        Ok(())
    }

    /// A handle on the nodes' tunnels, if there are any.
    pub const fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.as_ref()
    }

    /// Closes everything and removes the sockets; returns when that is done. Nodes that the table names as ended are told so first.
    pub async fn stop(self) {
        self.stopped.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Terminator {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}

fn server_config(tls: &TerminatorTls) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.ca_pem.as_bytes()).context("the terminator authority is no PEM certificate")?)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let chain = CertificateDer::pem_slice_iter(tls.cert_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .context("the terminator's certificate is no PEM")?;
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).context("the terminator's key is no PEM")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .context("the terminator's certificate does not fit its key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The selection `cluster`: whatever [`Targets`] grants.
struct IntoCluster {
    targets: Arc<dyn Targets>,
    log: RefusalLog,
}

#[async_trait::async_trait]
impl Route for IntoCluster {
    async fn open(&self, target: &Target) -> Result<Opened, Refusal> {
        self.targets.open(target).await.map(Opened::Forward)
    }
    fn refused(&self, target: Option<&Target>, refusal: &Refusal) {
        self.log.tell(target, refusal);
    }
}

/// The selection `controlplane`: the revocation webhook and nothing else. Webhooks given by URL come here too, and are refused.
struct ToWebhook {
    tls: Arc<ArcSwap<ServerConfig>>,
    revocations: Revocations,
    log: RefusalLog,
}

#[async_trait::async_trait]
impl Route for ToWebhook {
    async fn open(&self, target: &Target) -> Result<Opened, Refusal> {
        if target.port == 443 && target.host == Host::Name(REVOCATION_HOST.to_owned()) {
            let acceptor = TlsAcceptor::from(self.tls.load_full());
            return Ok(Opened::Serve(Box::new(Webhook { acceptor, revocations: self.revocations.clone() })));
        }
        Err(Refusal::new(403, "the control plane reaches no address outside its cluster: give a Service instead of a URL"))
    }
    fn refused(&self, target: Option<&Target>, refusal: &Refusal) {
        self.log.tell(target, refusal);
    }
}

struct Webhook {
    acceptor: TlsAcceptor,
    revocations: Revocations,
}

#[async_trait::async_trait]
impl Serve for Webhook {
    async fn serve(self: Box<Self>, stream: Box<dyn Stream>, stopped: CancellationToken) {
        match tokio::time::timeout(ANSWER_DEADLINE, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => webhook::serve(stream, self.revocations, stopped).await,
            Ok(Err(error)) => tracing::debug!(%error, "a client of the revocation webhook failed its TLS handshake"),
            Err(_) => tracing::debug!("a client of the revocation webhook was silent"),
        }
    }
}

/// Tells of refusals without letting a tenant fill the log.
struct RefusalLog {
    cluster: ClusterId,
    selection: &'static str,
    state: Mutex<(Option<Instant>, u64)>,
}

impl RefusalLog {
    fn new(cluster: ClusterId, selection: &'static str) -> Self {
        Self { cluster, selection, state: Mutex::new((None, 0)) }
    }

    fn tell(&self, target: Option<&Target>, refusal: &Refusal) {
        let Some(unsaid) = self.due(Instant::now()) else { return };
        let target = target.map_or_else(String::new, ToString::to_string);
        tracing::info!(
            cluster = %self.cluster, selection = self.selection, target, status = refusal.status, reason = refusal.reason, unsaid,
            "a stream of the API server was refused"
        );
    }

    /// Whether this refusal is to be logged, and then how many before it were not.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match state.0 {
            Some(last) if now.duration_since(last) < LOG_INTERVAL => {
                state.1 += 1;
                None
            }
            _ => {
                state.0 = Some(now);
                Some(std::mem::take(&mut state.1))
            }
        }
    }
}

#[cfg(test)]
mod tests;
