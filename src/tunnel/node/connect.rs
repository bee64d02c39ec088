//! Making a connection to the terminator: the way there, TLS, first words.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::NodeTunnelOptions;
use super::proxy::{Proxies, Proxy};
use super::verify::{Remembering, explain};
use crate::domain::join::TunnelEndpoint;
use crate::tunnel::frame::{self, Frames, MAX_FROM_NODE, MAX_FROM_PLATFORM, MAX_OPENING};
use crate::tunnel::protocol::{ALPN, FromNode, FromPlatform, Hello, Opening};
use crate::tunnel::relay::enliven;
use crate::tunnel::session::{Inbound, Session, Side, TunnelStream, session};
use crate::tunnel::terminator::targets::Stream;

/// How long one address may take to accept.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the platform's first word may take.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How many addresses of one name are tried.
const MAX_ADDRESSES: usize = 4;

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// A sentence.
    pub(super) error: String,
    /// Whether the platform was reached and turned this node away.
    pub(super) refused: bool,
}

impl Failure {
    fn unreached(error: impl Into<String>) -> Self {
        Self { error: error.into(), refused: false }
    }
}

/// A connection whose other side has answered.
pub(super) struct Established {
    /// Where it leads.
    pub(super) endpoint: String,
    pub(super) session: Session,
    pub(super) inbound: Inbound,
    pub(super) frames: Frames<tokio::io::ReadHalf<TunnelStream>>,
    pub(super) writer: tokio::io::WriteHalf<TunnelStream>,
    /// What the platform said first.
    pub(super) first: FromPlatform,
}

/// What a file was like when it was read.
pub(super) type Stamp = Option<(SystemTime, u64, PathBuf)>;

/// Makes connections.
pub(super) struct Connector {
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
    name_text: String,
    client_pem: PathBuf,
    proxies: Proxies,
}

impl Connector {
    pub(super) fn new(options: &NodeTunnelOptions) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        let authority =
            CertificateDer::from_pem_slice(options.server_ca_pem.as_bytes()).context("the cluster's authority is no PEM certificate")?;
        roots.add(authority).context("the cluster's authority is damaged")?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let name = ServerName::try_from(options.tunnel_name.clone())
            .with_context(|| format!("the tunnel's name {:?} is no DNS name", options.tunnel_name))?;
        Ok(Self {
            verifier,
            name,
            name_text: options.tunnel_name.clone(),
            client_pem: options.client_pem.clone(),
            proxies: options.proxies.clone(),
        })
    }

    /// What the client certificate's file is like; it differs when the kubelet has renewed it.
    pub(super) fn stamp(&self) -> Stamp {
        let file = std::fs::canonicalize(&self.client_pem).ok()?;
        let found = std::fs::metadata(&file).ok()?;
        Some((found.modified().ok()?, found.len(), file))
    }

    /// Tries the endpoints in order until one answers.
    pub(super) async fn connect(&self, endpoints: &[TunnelEndpoint], hello: &Hello) -> Result<Established, Failure> {
        let mut failures: Vec<Failure> = Vec::new();
        for endpoint in endpoints {
            match self.connect_one(endpoint, hello).await {
                Ok(established) => return Ok(established),
                Err(failure) => failures.push(failure),
            }
        }
        if failures.is_empty() {
            return Err(Failure::unreached("no endpoint of the tunnel is known"));
        }
        let refused = failures.iter().any(|failure| failure.refused);
        failures.dedup();
        let errors: Vec<_> = failures.into_iter().map(|failure| failure.error).collect();
        Err(Failure { error: errors.join("; "), refused })
    }

    async fn connect_one(&self, endpoint: &TunnelEndpoint, hello: &Hello) -> Result<Established, Failure> {
        let TunnelEndpoint { host, port } = endpoint;
        let place = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let remembering = Arc::new(Remembering::new(Arc::clone(&self.verifier)));
        let config = client_config(&self.client_pem, Arc::clone(&remembering)).map_err(|error| Failure::unreached(format!("{error:#}")))?;
        let socket = match self.proxies.to(host, *port) {
            None => reach(host, *port).await.map(|socket| Box::new(socket) as Box<dyn Stream>),
            Some(proxy) => through(proxy, host, *port).await,
        };
        let socket = socket.map_err(|error| Failure::unreached(format!("the platform cannot be reached at {place}: {error}")))?;
        let handshake = timeout(HANDSHAKE_DEADLINE, TlsConnector::from(config).connect(self.name.clone(), socket)).await;
        let tls = handshake
            .map_err(|_| Failure::unreached(format!("{place} did not finish its TLS handshake in time")))?
            .map_err(|error| self.failure(&place, &error, remembering.refused_issuer().as_deref()))?;
        if tls.get_ref().1.alpn_protocol() != Some(ALPN) {
            return Err(Failure::unreached(format!("{place} speaks no version of the tunnel's protocol that this node knows")));
        }
        let (session, inbound, driver) = session(tls, Side::Node);
        let driver = tokio::spawn(driver.run());
        match timeout(HELLO_DEADLINE, greet(&session, hello)).await {
            Ok(Ok((frames, writer, first))) => Ok(Established { endpoint: place, session, inbound, frames, writer, first }),
            Ok(Err(error)) => {
                session.close();
                Err(self.lost(&place, driver, &error).await)
            }
            Err(_) => {
                session.close();
                Err(Failure::unreached(format!("{place} did not answer in time")))
            }
        }
    }

    /// Why a connection ended in its first words: with TLS 1.3 only then a client learns that its certificate is refused.
    async fn lost(&self, place: &str, driver: JoinHandle<io::Result<()>>, error: &anyhow::Error) -> Failure {
        match driver.await {
            Ok(Err(cause)) if tls_error(&cause).is_some() => self.failure(place, &cause, None),
            _ => Failure::unreached(format!("{place} closed the tunnel: {error:#}")),
        }
    }

    fn failure(&self, place: &str, error: &io::Error, issuer: Option<&str>) -> Failure {
        let name = &self.name_text;
        match tls_error(error) {
            Some(rustls::Error::InvalidCertificate(why)) => Failure::unreached(explain(why, place, name, issuer)),
            Some(rustls::Error::AlertReceived(AlertDescription::InternalError)) => {
                Failure::unreached(format!("{place} cannot reach the tunnel {name} at present: the cluster's control plane does not run"))
            }
            Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => {
                Failure { error: format!("{place} does not know the tunnel {name}: the cluster may be gone"), refused: true }
            }
            Some(rustls::Error::AlertReceived(AlertDescription::CertificateExpired)) => {
                Failure { error: format!("{place} says that this node's certificate has ended, or that its clock is wrong"), refused: true }
            }
            Some(rustls::Error::AlertReceived(alert)) => {
                Failure { error: format!("{place} refuses this node's certificate for {name} ({alert:?})"), refused: true }
            }
            _ => Failure::unreached(format!("{place} did not agree on TLS for {name}: {error}")),
        }
    }
}

/// What TLS said, wherever it stands in an error.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        return Some(found);
    }
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref).map(|inner| inner as &(dyn std::error::Error + 'static));
    inner.or_else(|| error.source()).and_then(tls_error)
}

fn client_config(client_pem: &Path, verifier: Arc<Remembering>) -> anyhow::Result<Arc<ClientConfig>> {
    let shown = client_pem.display();
    let pem = zeroize::Zeroizing::new(std::fs::read(client_pem).with_context(|| format!("the node's certificate {shown} cannot be read"))?);
    let chain = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.with_context(|| format!("{shown} holds no PEM certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&pem).with_context(|| format!("{shown} holds no PEM key"))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .with_context(|| format!("the certificate in {shown} does not fit its key"))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A TCP connection to a name or an address.
async fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let found = timeout(CONNECT_DEADLINE, tokio::net::lookup_host((host, port))).await;
    let found = found.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "its name was not resolved in time"))??;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in found.take(MAX_ADDRESSES) {
        match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                enliven(&socket)?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "it does not answer"),
        }
    }
    Err(last)
}

/// A connection by way of a proxy.
async fn through(proxy: &Proxy, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
    let socket = reach(&proxy.host, proxy.port).await;
    let place = format!("the proxy {}:{}", proxy.host, proxy.port);
    let mut socket = socket.map_err(|error| io::Error::new(error.kind(), format!("{place} cannot be reached: {error}")))?;
    if !proxy.tls {
        proxy.connect(&mut socket, host, port).await?;
        return Ok(Box::new(socket));
    }
    let verifier = rustls_platform_verifier::Verifier::new(Arc::new(rustls::crypto::ring::default_provider())).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    let name = ServerName::try_from(proxy.host.clone()).map_err(io::Error::other)?;
    let tls = timeout(HANDSHAKE_DEADLINE, TlsConnector::from(Arc::new(config)).connect(name, socket)).await;
    let mut tls =
        tls.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(|error| io::Error::other(format!("{place}: {error}")))?;
    proxy.connect(&mut tls, host, port).await?;
    Ok(Box::new(tls))
}

type Greeted = (Frames<tokio::io::ReadHalf<TunnelStream>>, tokio::io::WriteHalf<TunnelStream>, FromPlatform);

/// Says who this is, and waits for the platform's first word.
async fn greet(session: &Session, hello: &Hello) -> anyhow::Result<Greeted> {
    let mut stream = session.open().await?;
    frame::write(&mut stream, &Opening::Control, MAX_OPENING).await?;
    let (reader, mut writer) = tokio::io::split(stream);
    frame::write(&mut writer, &FromNode::Hello(hello.clone()), MAX_FROM_NODE).await?;
    let mut frames = Frames::new(reader, MAX_FROM_PLATFORM);
    let first = frames.next().await?.context("it said nothing")?;
    Ok((frames, writer, first))
}
