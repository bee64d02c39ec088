//! Where tunnels arrive: TLS with a client certificate, then a node's first words.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Proven, admit};
use super::api::ToApi;
use super::control::{Control, tell_end};
use super::link::{Link, Links};
use super::reach::NodeTargets;
use super::{NodeDesk, NodeOptions, NodeTable, TunnelTls};
use crate::domain::{Ambient, ClusterId};
use crate::tunnel::frame::{self, Frames, MAX_FROM_NODE, MAX_OPENING};
use crate::tunnel::protocol::{ALPN, FromNode, Hello, Opening};
use crate::tunnel::relay::enliven;
use crate::tunnel::session::{Inbound, Session, Side, TunnelStream, session};

/// The most connections of one terminator at a time, of nodes and of those that are not known yet.
pub const MAX_CONNECTIONS: usize = 2048;
/// The most connections with one certificate.
pub const MAX_OF_A_CERTIFICATE: usize = 4;
/// The most connections that have not proven themselves.
const MAX_STRANGERS: usize = 128;
/// How long a TLS handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a node's first words may take.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// What one cluster's tunnels share.
pub(super) struct Shared {
    pub(super) cluster: ClusterId,
    pub(super) table: tokio::sync::watch::Receiver<Arc<NodeTable>>,
    pub(super) desk: Arc<dyn NodeDesk>,
    pub(super) links: Arc<Links>,
    pub(super) ambient: Ambient,
    pub(super) stopped: CancellationToken,
    to_api: ToApi,
    tls: ArcSwap<ServerConfig>,
    of_a_certificate: Mutex<HashMap<String, usize>>,
}

/// Accepts the tunnels of a cluster's nodes.
pub(in crate::tunnel::terminator) struct Listener {
    shared: Arc<Shared>,
    socket: TcpListener,
    address: SocketAddr,
    api_local_address: IpAddr,
}

impl Listener {
    /// Binds the address.
    ///
    /// # Errors
    /// A certificate that does not fit its key, or an address that cannot be bound.
    pub(in crate::tunnel::terminator) fn bind(
        cluster: ClusterId,
        options: NodeOptions,
        stopped: CancellationToken,
    ) -> anyhow::Result<Self> {
        let NodeOptions { listen, tls, table, desk, api_server, api_local_address, ambient } = options;
        let tls = ArcSwap::from(server_config(&tls)?);
        let listener = (|| {
            let listener = std::net::TcpListener::bind(listen)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        })()
        .with_context(|| format!("the address of the nodes' tunnels, {listen}, cannot be bound"))?;
        let address = listener.local_addr().context("a socket has no address")?;
        let shared = Shared {
            cluster,
            table,
            desk,
            links: Arc::default(),
            ambient,
            stopped,
            to_api: ToApi { api_server, buffers: Arc::default() },
            tls,
            of_a_certificate: Mutex::default(),
        };
        let shared = Arc::new(shared);
        Ok(Self { shared, socket: listener, address, api_local_address })
    }

    /// A handle on the tunnels.
    pub(in crate::tunnel::terminator) fn tunnels(&self) -> Tunnels {
        Tunnels { shared: Arc::clone(&self.shared), address: self.address }
    }

    /// Streams to what is in the cluster's network.
    pub(in crate::tunnel::terminator) fn targets(&self) -> NodeTargets {
        NodeTargets { table: self.shared.table.clone(), links: Arc::clone(&self.shared.links), api_local: self.api_local_address }
    }

    /// Accepts until it is stopped.
    pub(in crate::tunnel::terminator) async fn serve(self, tasks: TaskTracker) {
        let Self { shared, socket: listener, .. } = self;
        let (room, strangers) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), Arc::new(Semaphore::new(MAX_STRANGERS)));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shared.stopped.cancelled() => return,
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    // Out of descriptors or memory: others free theirs meanwhile.
                    tracing::warn!(cluster = %shared.cluster, %error, "a node's connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let permits = (Arc::clone(&room).try_acquire_owned(), Arc::clone(&strangers).try_acquire_owned());
            let (Ok(permit), Ok(stranger)) = permits else {
                tracing::debug!(cluster = %shared.cluster, "too many connections of nodes: one more is closed");
                continue;
            };
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                let _permit = permit;
                let connected = async {
                    enliven(&socket)?;
                    Arc::clone(&shared).converse(socket, stranger).await
                };
                if let Err(error) = connected.await {
                    tracing::debug!(cluster = %shared.cluster, error = format!("{error:#}"), "a connection of a node was refused");
                }
            });
        }
    }
}

/// A handle on the tunnels of a cluster's nodes.
#[derive(Clone)]
pub struct Tunnels {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Tunnels {
    /// Uses a renewed certificate for connections from here on.
    ///
    /// # Errors
    /// It does not fit its key; the present one is kept.
    pub fn renew(&self, tls: &TunnelTls) -> anyhow::Result<()> {
        self.shared.tls.store(server_config(tls)?);
        Ok(())
    }

    /// How many nodes are connected.
    pub fn connected(&self) -> usize {
        self.shared.links.count()
    }

    /// Where tunnels arrive.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

fn server_config(tls: &TunnelTls) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.client_ca_pem.as_bytes()).context("the client authority is no PEM certificate")?)?;
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build()?;
    let chain = CertificateDer::pem_slice_iter(tls.cert_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .context("the tunnel's certificate is no PEM")?;
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).context("the tunnel's key is no PEM")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .context("the tunnel's certificate does not fit its key")?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Each connection proves itself anew: a resumed one would not.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

impl Shared {
    async fn converse(self: Arc<Self>, socket: TcpStream, stranger: tokio::sync::OwnedSemaphorePermit) -> anyhow::Result<()> {
        let acceptor = TlsAcceptor::from(self.tls.load_full());
        let tls = timeout(HANDSHAKE_DEADLINE, acceptor.accept(socket)).await.context("the TLS handshake took too long")?;
        let tls = tls.context("the TLS handshake failed")?;
        let (_, connection) = tls.get_ref();
        anyhow::ensure!(connection.alpn_protocol() == Some(ALPN), "it speaks no version of the tunnel's protocol");
        let certificate = connection.peer_certificates().and_then(<[_]>::first).context("it has no certificate")?;
        let proven = Proven::by(certificate).context("its certificate names nobody")?;
        let _counted = Counted::of(&self, &proven.fingerprint).context("too many connections have this certificate")?;

        let (session, mut inbound, driver) = session(tls, Side::Platform);
        let driver = tokio::spawn(driver.run());
        let closing = CloseOnDrop(session.clone());
        let (control, hello) = timeout(HELLO_DEADLINE, greet(&mut inbound)).await.context("it did not say who it is")??;
        drop(stranger);

        let admitted = admit(&self.table.borrow(), &proven, hello.node).map(|member| member.name.clone());
        match admitted {
            Err((fate, message)) => {
                tracing::info!(cluster = %self.cluster, node = %hello.node, fate = fate.as_str(), "a machine that is no member was turned away");
                let (_, mut writer) = control;
                tell_end(&mut writer, fate, message).await;
            }
            Ok(name) => {
                let link = Link::new(hello.node, &name, session.clone());
                self.links.insert(&link);
                tracing::info!(cluster = %self.cluster, node = name, "a node is connected");
                let cut = CancellationToken::new();
                let streams = tokio::spawn(self.to_api.clone().serve(inbound, Arc::clone(&link), cut.clone()));
                Control { shared: &self, link: &link, proven, cut: cut.clone() }.run(control, hello).await;
                cut.cancel();
                drop(streams.await);
            }
        }
        drop(closing);
        if let Ok(Err(error)) = driver.await {
            tracing::debug!(cluster = %self.cluster, %error, "a node's connection was lost");
        }
        Ok(())
    }
}

/// Closes a session when it is dropped.
struct CloseOnDrop(Session);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A node's control stream.
pub(super) type ControlStream = (Frames<tokio::io::ReadHalf<TunnelStream>>, tokio::io::WriteHalf<TunnelStream>);

/// Reads the first words of a connection.
async fn greet(inbound: &mut Inbound) -> anyhow::Result<(ControlStream, Hello)> {
    let mut stream = inbound.next().await.context("it closed")?;
    let opening: Opening = frame::read(&mut stream, MAX_OPENING).await?;
    anyhow::ensure!(opening == Opening::Control, "its first stream is not the control stream");
    let (reader, writer) = tokio::io::split(stream);
    let mut frames = Frames::new(reader, MAX_FROM_NODE);
    match frames.next().await? {
        Some(FromNode::Hello(hello)) => Ok(((frames, writer), hello)),
        _ => anyhow::bail!("it does not say who it is"),
    }
}

/// One of the connections with a certificate; counted until it is dropped.
struct Counted {
    shared: Arc<Shared>,
    fingerprint: String,
}

impl Counted {
    fn of(shared: &Arc<Shared>, fingerprint: &str) -> Option<Self> {
        let mut counts = shared.of_a_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(fingerprint.to_owned()).or_default();
        (*count < MAX_OF_A_CERTIFICATE).then(|| {
            *count += 1;
            Self { shared: Arc::clone(shared), fingerprint: fingerprint.to_owned() }
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.shared.of_a_certificate.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.fingerprint) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.fingerprint);
            }
        }
    }
}
