//! A front door, back ends and clients to test with.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::domain::{Ambient, ClusterId};
use crate::proxy::*;

/// Ends TLS and answers what it is sent until the client's end, behind "platform:".
struct Platform(Arc<PlatformTls>);

impl PlatformHandler for Platform {
    fn accept(&self, stream: PrefixedStream, _: SocketAddr) {
        let tls = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut stream = tls.accept(stream).await.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            stream.write_all(&[b"platform:", &said[..]].concat()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
    }
}

/// A self-signed certificate of some names, as a server and as its own root.
pub(super) struct Identity {
    pub(super) tls: Arc<PlatformTls>,
    pub(super) root: CertificateDer<'static>,
}

impl Identity {
    pub(super) fn new(names: &[&str]) -> Self {
        let made = rcgen::generate_simple_self_signed(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        let tls = PlatformTls::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
        Self { tls: Arc::new(tls), root: made.cert.der().clone() }
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Arc::new(
            ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth(),
        )
    }
}

/// A front door that serves, with the platform behind it.
pub(super) struct TestBed {
    pub(super) door: Arc<FrontDoor>,
    pub(super) address: SocketAddr,
    pub(super) platform: Identity,
    pub(super) shutdown: CancellationToken,
    pub(super) serving: JoinHandle<std::io::Result<Drained>>,
}

/// Options that let tests be quick and sources be one.
pub(super) fn options() -> FrontDoorOptions {
    FrontDoorOptions { max_per_source_before_routing: 100_000, drain_timeout: Duration::from_millis(300), ..FrontDoorOptions::default() }
}

pub(super) fn start(options: FrontDoorOptions) -> TestBed {
    let platform = Identity::new(&["platform.example", "127.0.0.1"]);
    let door = FrontDoor::new(options, Arc::new(Platform(Arc::clone(&platform.tls))));
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(Arc::clone(&door).serve(listener, shutdown.clone()));
    TestBed { door, address, platform, shutdown, serving }
}

impl TestBed {
    /// Routes exactly these names, and the platform's.
    pub(super) fn route(&self, routes: &[(&str, Backend)]) {
        let mut table: BTreeMap<_, _> =
            routes.iter().map(|(name, backend)| (HostName::parse(name).unwrap(), Route::Backend(*backend))).collect();
        table.insert(HostName::parse("platform.example").unwrap(), Route::Platform);
        self.door.hosts().replace(&table);
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Opens a connection, asks for `name` and nothing more.
    pub(super) async fn ask(&self, name: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&hello(name)).await.unwrap();
        stream
    }

    /// Sends `message` to `name` over TLS and gives what comes back until the end.
    pub(super) async fn converse(&self, config: Arc<ClientConfig>, name: &str, message: &[u8]) -> std::io::Result<Vec<u8>> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut stream = TlsConnector::from(config).connect(name, self.connect().await).await?;
        stream.write_all(message).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer)
    }

    pub(super) fn refused(&self, reason: Refusal) -> u64 {
        self.door.stats().refused(reason)
    }
}

/// A hello that asks for `name`.
pub(super) fn hello(name: &str) -> Vec<u8> {
    client_hello::tests::sample(name, |_| {})
}

/// A back end's address in a cluster of its own.
pub(super) fn backend(address: SocketAddr) -> Backend {
    Backend { cluster: ClusterId::generate(&Ambient::system()), address }
}

/// Listens, so that a test accepts by hand.
pub(super) async fn listen() -> (TcpListener, Backend) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, backend(address))
}

/// A back end that sends everything back.
pub(super) async fn echo() -> Backend {
    let (listener, backend) = listen().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
                drop(write.shutdown().await);
            });
        }
    });
    backend
}

/// A back end that ends TLS and sends everything back behind `greeting`.
pub(super) async fn tls_echo(identity: &Identity, greeting: &'static str) -> Backend {
    let (listener, backend) = listen().await;
    let tls = Arc::clone(&identity.tls);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = Arc::clone(&tls);
            tokio::spawn(async move {
                let Ok(mut stream) = tls.accept(stream).await else { return };
                let mut said = greeting.as_bytes().to_vec();
                stream.read_to_end(&mut said).await.unwrap();
                stream.write_all(&said).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    backend
}

/// Everything until the peer ends.
pub(super) async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// `count` bytes in which no stretch repeats soon.
pub(super) fn noise(count: usize) -> Vec<u8> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as u8).collect()
}

/// Waits for `condition`, which other tasks bring about.
pub(super) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    tokio::time::timeout(Duration::from_secs(10), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what} did not come about"));
}
