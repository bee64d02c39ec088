use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::Path;

use async_trait::async_trait;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::targets::NoNodes;
use super::*;
use crate::domain::Ambient;
use crate::pki::{Authority, CertificateAuthority, ClusterPki, LeafOptions, control_plane_leaves, files};
use crate::tunnel::CREDENTIAL_ID;

struct Stand {
    folder: tempfile::TempDir,
    pki: ClusterPki,
    files: std::collections::BTreeMap<String, String>,
    revoked: watch::Sender<Arc<BTreeSet<String>>>,
    terminator: Terminator,
}

fn tls(files: &std::collections::BTreeMap<String, String>) -> TerminatorTls {
    TerminatorTls {
        ca_pem: files[files::TERMINATOR_CA].clone(),
        cert_pem: files[files::TERMINATOR_CERT].clone(),
        key_pem: files[files::TERMINATOR_KEY].clone(),
    }
}

fn leaves(pki: &ClusterPki) -> Vec<crate::pki::Leaf> {
    let options = LeafOptions {
        address: "127.64.0.1".parse().unwrap(),
        api_server_sans: Vec::new(),
        tunnel_name: "demo-node.kubebyon.internal".to_owned(),
        ttl: Duration::from_secs(3600),
    };
    control_plane_leaves(pki, &Ambient::system(), &options).unwrap()
}

fn stand(targets: Arc<dyn Targets>) -> Stand {
    let ambient = Ambient::system();
    let cluster = ClusterId::generate(&ambient);
    let pki = ClusterPki::create(&ambient, cluster).unwrap();
    let mut files = pki.lasting_files();
    files.extend(crate::pki::leaves::leaf_files(&leaves(&pki)));
    let folder = tempfile::tempdir().unwrap();
    let (revoked, revocations) = watch::channel(Arc::new(BTreeSet::new()));
    let terminator = Terminator::start(TerminatorOptions {
        cluster,
        run_dir: folder.path().to_owned(),
        gid: None,
        tls: tls(&files),
        revocations,
        targets,
        nodes: None,
    })
    .unwrap();
    Stand { folder, pki, files, revoked, terminator }
}

impl Stand {
    async fn connect(&self, socket: &str, target: &str) -> (String, UnixStream) {
        let mut stream = UnixStream::connect(self.folder.path().join(socket)).await.unwrap();
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).await.unwrap();
        (read_head(&mut stream).await, stream)
    }

    /// A TLS connection to the webhook as a client with this certificate.
    async fn webhook(&self, cert_pem: &str, key_pem: &str) -> std::io::Result<tokio_rustls::client::TlsStream<UnixStream>> {
        let (head, stream) = self.connect(CONTROL_PLANE_SOCKET, "revocation.invalid:443").await;
        assert_eq!(head, "HTTP/1.1 200 Connection established\r\n\r\n");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.files[files::TERMINATOR_CA].as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert_pem.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap(),
            )
            .unwrap();
        let name = ServerName::try_from("revocation.invalid").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn api_server(&self) -> tokio_rustls::client::TlsStream<UnixStream> {
        self.webhook(&self.files[files::API_SERVER_TERMINATOR_CLIENT_CERT], &self.files[files::API_SERVER_TERMINATOR_CLIENT_KEY])
            .await
            .unwrap()
    }
}

async fn read_head(stream: &mut UnixStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap() == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

async fn post(stream: &mut tokio_rustls::client::TlsStream<UnixStream>, body: &str) -> (u16, String) {
    let head = format!("POST /?timeout=3s HTTP/1.1\r\nHost: revocation.invalid\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    let _ = stream.write_all(body.as_bytes()).await;
    let _ = stream.flush().await;
    let mut received = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&received).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
            if body.len() >= length {
                return (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned());
            }
        }
        assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "closed after {text:?}");
    }
}

fn review_of(id: &str) -> String {
    serde_json::json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"extra": {CREDENTIAL_ID: [id]}}})
        .to_string()
}

#[tokio::test]
async fn the_webhook_denies_from_the_moment_of_a_revocation() {
    let stand = stand(Arc::new(NoNodes));
    let mut stream = stand.api_server().await;
    let (status, body) = post(&mut stream, &review_of("JTI=1")).await;
    assert_eq!((status, body.contains(r#""denied":false"#)), (200, true), "{body}");

    stand.revoked.send_replace(Arc::new(BTreeSet::from(["JTI=1".to_owned()])));
    let (status, body) = post(&mut stream, &review_of("JTI=1")).await;
    assert_eq!((status, body.contains(r#""denied":true"#)), (200, true), "{body}");
    let (_, body) = post(&mut stream, &review_of("JTI=2")).await;
    assert!(body.contains(r#""denied":false"#), "{body}");
    let (status, _) = post(&mut stream, "{}").await;
    assert_eq!(status, 400);
    let (status, _) = post(&mut stream, &"x".repeat(webhook::MAX_REVIEW_BYTES + 1)).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn the_webhook_answers_clients_of_its_authority_alone() {
    let stand = stand(Arc::new(NoNodes));
    let stranger = CertificateAuthority::create(&Ambient::system(), Authority::Terminator, "stranger").unwrap();
    let profile = crate::pki::LeafProfile {
        common_name: "kube-apiserver".to_owned(),
        organizations: Vec::new(),
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl: Duration::from_secs(60),
    };
    let foreign = stranger.issue(&Ambient::system(), &profile).unwrap();
    let scheduler = (stand.files[files::SCHEDULER_CERT].clone(), stand.files[files::SCHEDULER_KEY].clone());
    let server = (stand.files[files::TERMINATOR_CERT].clone(), stand.files[files::TERMINATOR_KEY].clone());
    for (cert, key) in [(foreign.cert_pem, foreign.key_pem), scheduler, server] {
        // In TLS 1.3 the client learns of a refusal when it first reads.
        if let Ok(mut stream) = stand.webhook(&cert, &key).await {
            let _ = stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").await;
            assert!(stream.read(&mut [0; 16]).await.is_err());
        }
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_then_on() {
    let stand = stand(Arc::new(NoNodes));
    let mut old = stand.api_server().await;
    let before = old.get_ref().1.peer_certificates().unwrap()[0].clone();
    let mismatched = TerminatorTls { key_pem: stand.pki.service_account_key_pem.clone(), ..tls(&stand.files) };
    assert!(stand.terminator.renew(&mismatched).is_err());

    let renewed = crate::pki::leaves::leaf_files(&leaves(&stand.pki));
    stand.terminator.renew(&tls(&stand.pki.lasting_files().into_iter().chain(renewed.clone()).collect())).unwrap();
    let new = stand.api_server().await.get_ref().1.peer_certificates().unwrap()[0].clone();
    assert_ne!(new, before);
    assert_eq!(new, CertificateDer::from_pem_slice(renewed[files::TERMINATOR_CERT].as_bytes()).unwrap());
    assert_eq!(post(&mut old, &review_of("x")).await.0, 200, "open connections go on");
}

#[tokio::test]
async fn the_control_plane_reaches_nothing_else() {
    // A listener on the host that must not be dialled.
    let bait = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = bait.local_addr().unwrap().port();
    let stand = stand(Arc::new(NoNodes));
    for target in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        "revocation.invalid:80".to_owned(),
        "revocation.invalid.example:443".to_owned(),
    ] {
        let (head, _) = stand.connect(CONTROL_PLANE_SOCKET, &target).await;
        assert!(head.starts_with("HTTP/1.1 403 the control plane reaches no address"), "{target}: {head}");
        let (head, _) = stand.connect(CLUSTER_SOCKET, &target).await;
        assert!(head.starts_with("HTTP/1.1 502 no node of this cluster is connected\r\n"), "{target}: {head}");
    }
    assert!(futures_util::FutureExt::now_or_never(bait.accept()).is_none());
}

#[tokio::test]
async fn other_requests_are_refused() {
    let stand = stand(Arc::new(NoNodes));
    for (sent, status) in [("GET / HTTP/1.1\r\n\r\n", "400"), ("\x16\x03\x01", "400"), ("CONNECT nowhere HTTP/1.1\r\n\r\n", "400")] {
        let mut stream = UnixStream::connect(stand.folder.path().join(CLUSTER_SOCKET)).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{sent:?}: {head}");
    }
}

struct Silent;
#[async_trait]
impl Targets for Silent {
    async fn open(&self, _: &Target) -> Result<Box<dyn Stream>, Refusal> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_the_deadline() {
    let stand = stand(Arc::new(Silent));
    let began = Instant::now();
    let mut half = UnixStream::connect(stand.folder.path().join(CLUSTER_SOCKET)).await.unwrap();
    half.write_all(b"CONNECT a:1 HT").await.unwrap();
    let head = read_head(&mut half).await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    let (head, _) = stand.connect(CLUSTER_SOCKET, "a:1").await;
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert!(began.elapsed() <= 2 * ANSWER_DEADLINE + Duration::from_secs(1));
}

struct Echo;
#[async_trait]
impl Targets for Echo {
    async fn open(&self, _: &Target) -> Result<Box<dyn Stream>, Refusal> {
        let (near, far) = tokio::io::duplex(64);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(far);
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
            let _ = writer.shutdown().await;
        });
        Ok(Box::new(near))
    }
}

#[tokio::test]
async fn a_granted_stream_carries_bytes_that_came_with_the_request() {
    let stand = stand(Arc::new(Echo));
    let mut stream = UnixStream::connect(stand.folder.path().join(CLUSTER_SOCKET)).await.unwrap();
    stream.write_all(b"CONNECT 10.0.0.1:10250 HTTP/1.1\r\n\r\nearly").await.unwrap();
    assert_eq!(read_head(&mut stream).await, "HTTP/1.1 200 Connection established\r\n\r\n");
    stream.write_all(b" and late").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut echoed = String::new();
    stream.read_to_string(&mut echoed).await.unwrap();
    assert_eq!(echoed, "early and late");
}

#[tokio::test]
async fn too_many_streams_are_refused_at_once() {
    let stand = stand(Arc::new(Echo));
    let mut open = Vec::new();
    for _ in 0..socket::MAX_CONNECTIONS {
        open.push(stand.connect(CLUSTER_SOCKET, "a:1").await);
    }
    assert!(open.iter().all(|(head, _)| head.starts_with("HTTP/1.1 200 ")));
    let mut one_more = UnixStream::connect(stand.folder.path().join(CLUSTER_SOCKET)).await.unwrap();
    assert!(read_head(&mut one_more).await.starts_with("HTTP/1.1 503 "));
    assert_eq!(post(&mut stand.api_server().await, &review_of("x")).await.0, 200, "the webhook has room of its own");
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

#[tokio::test]
async fn sockets_are_private_replace_stale_ones_and_are_removed() {
    let stand = stand(Arc::new(Echo));
    let (cluster, control_plane) = (stand.folder.path().join(CLUSTER_SOCKET), stand.folder.path().join(CONTROL_PLANE_SOCKET));
    for path in [&cluster, &control_plane] {
        assert!(is_socket(path));
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o660);
    }
    let (_, mut open) = stand.connect(CLUSTER_SOCKET, "a:1").await;
    let Stand { folder, files, revoked, terminator, .. } = stand;
    terminator.stop().await;
    assert_eq!(open.read(&mut [0]).await.unwrap(), 0, "open streams end");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    // What a killed daemon leaves: a socket file that nobody listens on.
    drop(std::os::unix::net::UnixListener::bind(&cluster).unwrap());
    let options = |run_dir: &Path| TerminatorOptions {
        cluster: ClusterId::generate(&Ambient::system()),
        run_dir: run_dir.to_owned(),
        gid: None,
        tls: tls(&files),
        revocations: revoked.subscribe(),
        targets: Arc::new(NoNodes),
        nodes: None,
    };
    let first = Terminator::start(options(folder.path())).unwrap();
    assert!(UnixStream::connect(&cluster).await.is_ok());
    let second = Terminator::start(options(folder.path())).unwrap();
    first.stop().await;
    assert!(UnixStream::connect(&cluster).await.is_ok(), "the first takes only its own files away");
    second.stop().await;

    std::fs::write(&control_plane, "x").unwrap();
    let Err(refused) = Terminator::start(options(folder.path())) else { panic!("a file is in the way") };
    assert!(refused.to_string().contains("in the way"), "{refused}");
    tokio::task::yield_now().await;
    assert!(!cluster.exists(), "both sockets or none");
    assert!(Terminator::start(options(&folder.path().join("x".repeat(100)))).is_err());
}

#[tokio::test(start_paused = true)]
async fn refusals_are_logged_now_and_then() {
    let log = RefusalLog::new(ClusterId::generate(&Ambient::system()), "cluster");
    let start = Instant::now();
    assert_eq!(log.due(start), Some(0));
    assert_eq!(log.due(start + LOG_INTERVAL / 2), None);
    assert_eq!(log.due(start + LOG_INTERVAL / 2), None);
    assert_eq!(log.due(start + LOG_INTERVAL), Some(2));
    assert_eq!(log.due(start + LOG_INTERVAL * 2), Some(0));
}
