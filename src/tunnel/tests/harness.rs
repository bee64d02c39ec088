//! A terminator with nodes, an API server that echoes, and a desk that keeps what it hears.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::domain::cluster::Addon;
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::{Fate, KUBELET_GROUP, Machine, kubelet_user};
use crate::domain::{Ambient, ClusterId, NodeId};
use crate::pki::{Authority, CertificateAuthority, ClusterPki, Issued, LeafOptions, LeafProfile, control_plane_leaves, files};
use crate::tunnel::frame::{self, MAX_FROM_NODE, MAX_OPENING};
use crate::tunnel::node::proxy::Proxies;
use crate::tunnel::node::{NodeTunnel, NodeTunnelOptions, Reach, Status};
use crate::tunnel::protocol::{ALPN, Answer, Ask, FromNode, Hello, Opening, Report};
use crate::tunnel::session::{Inbound, Session, Side, TunnelStream, session};
use crate::tunnel::terminator::nodes::{NodeDesk, NodeEntry, NodeOptions, NodeTable, Steps, TunnelTls};
use crate::tunnel::terminator::targets::NoNodes;
use crate::tunnel::{CLUSTER_SOCKET, Terminator, TerminatorOptions, TerminatorTls};

/// The name of the tunnel.
pub(super) const NAME: &str = "demo-node.kubebyon.internal";
/// How long anything is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What the desk heard.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Heard {
    Connected(NodeId, Hello),
    Disconnected(NodeId),
    Reported(NodeId, Report),
    Asked(NodeId, Ask),
}

pub(super) struct Desk(mpsc::UnboundedSender<Heard>);

#[async_trait]
impl NodeDesk for Desk {
    async fn connected(&self, node: NodeId, hello: Hello) {
        let _ = self.0.send(Heard::Connected(node, hello));
    }
    async fn disconnected(&self, node: NodeId) {
        let _ = self.0.send(Heard::Disconnected(node));
    }
    async fn reported(&self, node: NodeId, report: Report) {
        let _ = self.0.send(Heard::Reported(node, report));
    }
    async fn ask(&self, node: NodeId, ask: Ask, steps: Steps) -> Result<Answer, String> {
        let _ = self.0.send(Heard::Asked(node, ask.clone()));
        match ask {
            Ask::KubeProxyToken => Ok(Answer::Token { token: "t".into(), seconds: 600 }),
            Ask::Verify => {
                steps("PodRuns", "a pod runs");
                steps("Exec", "exec answers");
                Ok(Answer::Verified { steps: Vec::new() })
            }
            // It never comes to an end.
            Ask::Leave { drain_seconds: 0 } => std::future::pending().await,
            Ask::Leave { .. } => Err("not now".into()),
        }
    }
}

/// A cluster's terminator and what stands around it.
pub(super) struct World {
    pub(super) ambient: Ambient,
    pub(super) pki: ClusterPki,
    pub(super) files: BTreeMap<String, String>,
    pub(super) folder: tempfile::TempDir,
    pub(super) table: watch::Sender<Arc<NodeTable>>,
    pub(super) heard: mpsc::UnboundedReceiver<Heard>,
    desk: Arc<Desk>,
    api_server: SocketAddr,
    /// An address of this machine that is no loopback one, and a port there that echoes.
    pub(super) here: SocketAddr,
    pub(super) terminator: Option<Terminator>,
    pub(super) address: SocketAddr,
}

/// A machine that is a node.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) id: NodeId,
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) pem: PathBuf,
}

/// An address of this machine that others could reach.
pub(super) fn own_address() -> IpAddr {
    let found = nix::ifaddrs::getifaddrs().unwrap().find_map(|interface| {
        let address = IpAddr::from(interface.address?.as_sockaddr_in()?.ip());
        let IpAddr::V4(v4) = address else { return None };
        (!v4.is_loopback() && !v4.is_link_local()).then_some(address)
    });
    found.expect("these tests need an interface with an address beside the loopback")
}

/// Echoes each connection to its end.
pub(super) async fn echo(address: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = socket.split();
                if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                    let _ = writer.shutdown().await;
                }
            });
        }
    });
    address
}

impl World {
    pub(super) async fn new() -> Self {
        let ambient = Ambient::system();
        let cluster = ClusterId::generate(&ambient);
        let pki = ClusterPki::create(&ambient, cluster).unwrap();
        let mut files = pki.lasting_files();
        files.extend(crate::pki::leaves::leaf_files(&leaves(&pki)));
        let (heard, hears) = mpsc::unbounded_channel();
        let table = NodeTable {
            nodes: Vec::new(),
            ended: Vec::new(),
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            public_hosts: BTreeSet::new(),
            tunnel_endpoints: Vec::new(),
            probe_key: "key".into(),
        };
        let mut world = Self {
            ambient,
            pki,
            files,
            folder: tempfile::tempdir().unwrap(),
            table: watch::Sender::new(Arc::new(table)),
            heard: hears,
            desk: Arc::new(Desk(heard)),
            api_server: echo("127.0.0.1".parse().unwrap()).await,
            here: echo(own_address()).await,
            terminator: None,
            address: "127.0.0.1:0".parse().unwrap(),
        };
        world.start();
        world
    }

    /// Starts the terminator, where it was before if it was.
    pub(super) fn start(&mut self) {
        let text = |path: &str| self.files[path].clone();
        let terminator = Terminator::start(TerminatorOptions {
            cluster: ClusterId::generate(&self.ambient),
            run_dir: self.folder.path().to_owned(),
            gid: None,
            tls: TerminatorTls {
                ca_pem: text(files::TERMINATOR_CA),
                cert_pem: text(files::TERMINATOR_CERT),
                key_pem: text(files::TERMINATOR_KEY),
            },
            revocations: watch::channel(Arc::new(BTreeSet::new())).1,
            targets: Arc::new(NoNodes),
            nodes: Some(NodeOptions {
                listen: self.address,
                tls: self.tunnel_tls(),
                table: self.table.subscribe(),
                desk: Arc::clone(&self.desk) as Arc<dyn NodeDesk>,
                api_server: self.api_server,
                api_local_address: "198.51.100.1".parse().unwrap(),
                ambient: self.ambient.clone(),
            }),
        })
        .unwrap();
        self.address = terminator.tunnels().unwrap().address();
        self.terminator = Some(terminator);
    }

    pub(super) fn tunnel_tls(&self) -> TunnelTls {
        let text = |path: &str| self.files[path].clone();
        TunnelTls { client_ca_pem: text(files::CLIENT_CA), cert_pem: text(files::TUNNEL_CERT), key_pem: text(files::TUNNEL_KEY) }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut NodeTable)) {
        self.table.send_modify(|table| change(Arc::make_mut(table)));
    }

    /// A certificate for a kubelet of that name by this cluster's authority.
    pub(super) fn certificate(&self, name: &str) -> Issued {
        kubelet_certificate(self.pki.authority(Authority::Client), name)
    }

    /// A machine whose certificate the table knows.
    pub(super) fn member(&self, name: &str, address: IpAddr) -> Member {
        let issued = self.certificate(name);
        let machine = self.machine(name, address, &issued);
        self.change(|table| {
            table.nodes.push(NodeEntry {
                id: machine.id,
                name: name.into(),
                address,
                underlay: vec![address],
                pod_cidr: None,
                fingerprints: [issued.fingerprint].into(),
            });
        });
        machine
    }

    /// A machine with this certificate, which nobody knows yet.
    pub(super) fn machine(&self, name: &str, address: IpAddr, issued: &Issued) -> Member {
        let id = NodeId::generate(&self.ambient);
        let pem = self.folder.path().join(format!("{id}.pem"));
        std::fs::write(&pem, format!("{}{}", issued.cert_pem, issued.key_pem)).unwrap();
        Member { id, name: name.into(), address, pem }
    }

    pub(super) fn options(&self, machine: &Member) -> NodeTunnelOptions {
        let hello = hello(machine);
        NodeTunnelOptions {
            node: machine.id,
            tunnel_name: NAME.into(),
            endpoints: vec![endpoint(self.address)],
            server_ca_pem: self.files[files::SERVER_CA].clone(),
            client_pem: machine.pem.clone(),
            hello: Arc::new(move || hello.clone()),
            reach: Reach {
                address: machine.address,
                pod_cidr: "10.244.0.0/16".parse().unwrap(),
                service_cidr: "10.96.0.0/16".parse().unwrap(),
                api_local_address: "198.51.100.1".parse().unwrap(),
            },
            proxies: Proxies::default(),
            ambient: self.ambient.clone(),
        }
    }

    /// The tunnel of a machine, once it is up.
    pub(super) async fn connected(&mut self, machine: &Member) -> NodeTunnel {
        let tunnel = NodeTunnel::start(self.options(machine)).unwrap();
        wait(&tunnel, |status| matches!(status, Status::Connected { .. })).await;
        assert_eq!(self.next().await, Heard::Connected(machine.id, hello(machine)));
        tunnel
    }

    /// What the desk hears next.
    pub(super) async fn next(&mut self) -> Heard {
        timeout(PATIENCE, self.heard.recv()).await.expect("the desk hears something").unwrap()
    }

    /// A CONNECT of the API server: the answer's first line, and the stream.
    pub(super) async fn dial(&self, target: impl std::fmt::Display) -> (String, UnixStream) {
        dial(self.folder.path().join(CLUSTER_SOCKET), target.to_string()).await
    }

    /// A TLS connection to the terminator with some certificate.
    pub(super) async fn tls(&self, issued: &Issued, alpn: &[u8]) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.files[files::SERVER_CA].as_bytes()).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(issued.key_pem.as_bytes()).unwrap(),
            )
            .unwrap();
        config.alpn_protocols = vec![alpn.to_vec()];
        let socket = TcpStream::connect(self.address).await.unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), socket).await
    }

    /// Reads a machine's certificate back.
    pub(super) async fn tls_of(&self, machine: &Member) -> tokio_rustls::client::TlsStream<TcpStream> {
        let pem = std::fs::read_to_string(&machine.pem).unwrap();
        let mut issued = self.certificate(&machine.name);
        (issued.cert_pem, issued.key_pem) = (pem.clone(), pem);
        self.tls(&issued, ALPN).await.unwrap()
    }
}

pub(super) async fn dial(socket: PathBuf, target: String) -> (String, UnixStream) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let line = String::from_utf8(head).unwrap().lines().next().unwrap().strip_prefix("HTTP/1.1 ").unwrap().to_owned();
    (line, stream)
}

pub(super) fn kubelet_certificate(authority: &CertificateAuthority, name: &str) -> Issued {
    let profile = LeafProfile {
        common_name: kubelet_user(name),
        organizations: vec![KUBELET_GROUP.into()],
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl: Duration::from_secs(3600),
    };
    authority.issue(&Ambient::system(), &profile).unwrap()
}

pub(super) fn leaves(pki: &ClusterPki) -> Vec<crate::pki::Leaf> {
    let options = LeafOptions {
        address: "127.64.0.1".parse().unwrap(),
        api_server_sans: Vec::new(),
        tunnel_name: NAME.into(),
        ttl: Duration::from_secs(3600),
    };
    control_plane_leaves(pki, &Ambient::system(), &options).unwrap()
}

pub(super) fn hello(machine: &Member) -> Hello {
    let said = Machine { operating_system: "Debian 13".into(), ..Machine::default() };
    Hello { node: machine.id, machine: said, underlay: vec![machine.address] }
}

pub(super) fn endpoint(address: SocketAddr) -> TunnelEndpoint {
    TunnelEndpoint { host: address.ip().to_string(), port: address.port() }
}

/// Waits for a status.
pub(super) async fn wait(tunnel: &NodeTunnel, wanted: impl Fn(&Status) -> bool) -> Status {
    let mut status = tunnel.status();
    let found = timeout(PATIENCE, status.wait_for(|status| wanted(status))).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("it stays {:?}", tunnel.status().borrow()))
}

/// Waits until the platform turned the node away.
pub(super) async fn refused(tunnel: &NodeTunnel) -> String {
    match wait(tunnel, |status| matches!(status, Status::Disconnected { refused: 1.., .. })).await {
        Status::Disconnected { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

/// Waits until the tunnel is over.
pub(super) async fn ended(tunnel: &NodeTunnel) -> (Fate, String) {
    match wait(tunnel, |status| matches!(status, Status::Ended { .. })).await {
        Status::Ended { fate, message } => (fate, message),
        other => panic!("{other:?}"),
    }
}

pub(super) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Reads until the other side closes, in whatever way.
pub(super) async fn to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    while stream.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
}

/// A connection as a node of one's own making has it.
pub(super) fn over(tls: tokio_rustls::client::TlsStream<TcpStream>) -> (Session, Inbound) {
    let (session, inbound, driver) = session(tls, Side::Node);
    tokio::spawn(driver.run());
    (session, inbound)
}

/// A node of one's own making that has said who it is.
pub(super) async fn introduced(world: &mut World, machine: &Member) -> (Session, Inbound, TunnelStream) {
    let (session, inbound) = over(world.tls_of(machine).await);
    let mut control = session.open().await.unwrap();
    frame::write(&mut control, &Opening::Control, MAX_OPENING).await.unwrap();
    frame::write(&mut control, &FromNode::Hello(hello(machine)), MAX_FROM_NODE).await.unwrap();
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(machine)));
    (session, inbound, control)
}
