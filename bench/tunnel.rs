//! The tunnel by itself: what it adds to a round trip and takes from a stream's throughput, and what 500 of them hold.
//!
//! Terminator and nodes are in processes of their own, as they are in life: the nodes are this program, started once more.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubebyon::domain::cluster::Addon;
use kubebyon::domain::join::TunnelEndpoint;
use kubebyon::domain::node::{KUBELET_GROUP, Machine, kubelet_user};
use kubebyon::domain::{Ambient, ClusterId, NodeId};
use kubebyon::pki::{Authority, ClusterPki, LeafOptions, LeafProfile, control_plane_leaves, files};
use kubebyon::tunnel::node::proxy::Proxies;
use kubebyon::tunnel::node::{NodeTunnel, NodeTunnelOptions, Reach};
use kubebyon::tunnel::protocol::{Answer, Ask, Hello, Report};
use kubebyon::tunnel::terminator::nodes::{NodeDesk, NodeEntry, NodeTable, Steps};
use kubebyon::tunnel::terminator::targets::NoNodes;
use kubebyon::tunnel::{CLUSTER_SOCKET, NodeOptions, Terminator, TerminatorOptions, TerminatorTls, TunnelTls};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::measure::{cpu_seconds, median, pss_kib};

/// Set where this program is to be nodes; it holds the path of a [`Fleet`].
pub const FLEET: &str = "KUBEBYON_BENCH_FLEET";
const NAME: &str = "demo-node.kubebyon.internal";
const TUNNELS: usize = 500;
const ROUND_TRIPS: usize = 4000;
const BYTES: usize = 1 << 30;

/// What the nodes' process is to know.
#[derive(Serialize, Deserialize)]
struct Fleet {
    server_ca_pem: String,
    terminator: SocketAddr,
    nodes: Vec<(NodeId, IpAddr, PathBuf)>,
}

struct Silent;

#[async_trait::async_trait]
impl NodeDesk for Silent {
    async fn connected(&self, _: NodeId, _: Hello) {}
    async fn disconnected(&self, _: NodeId) {}
    async fn reported(&self, _: NodeId, _: Report) {}
    async fn ask(&self, _: NodeId, _: Ask, _: Steps) -> Result<Answer, String> {
        Ok(Answer::Done)
    }
}

/// A terminator here and nodes in another process.
struct Stand {
    folder: tempfile::TempDir,
    terminator: Terminator,
    nodes: Child,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = self.nodes.kill();
        let _ = self.nodes.wait();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

/// An address of this machine that is no loopback one: a node dials none.
fn own_address() -> IpAddr {
    let found = nix::ifaddrs::getifaddrs().unwrap().find_map(|interface| {
        let v4 = interface.address?.as_sockaddr_in()?.ip();
        (!v4.is_loopback() && !v4.is_link_local()).then_some(IpAddr::from(v4))
    });
    found.expect("the bench needs an interface with an address beside the loopback")
}

async fn stand(count: usize, between: impl FnOnce()) -> Stand {
    let ambient = Ambient::system();
    let cluster = ClusterId::generate(&ambient);
    let pki = ClusterPki::create(&ambient, cluster).unwrap();
    let options = LeafOptions {
        address: "127.0.0.1".parse().unwrap(),
        api_server_sans: Vec::new(),
        tunnel_name: NAME.into(),
        ttl: Duration::from_secs(3600),
    };
    let mut text = pki.lasting_files();
    text.extend(kubebyon::pki::leaves::leaf_files(&control_plane_leaves(&pki, &ambient, &options).unwrap()));
    let folder = tempfile::tempdir().unwrap();
    let (mut entries, mut machines) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (id, name) = (NodeId::generate(&ambient), format!("n{number}"));
        let profile = LeafProfile {
            common_name: kubelet_user(&name),
            organizations: vec![KUBELET_GROUP.into()],
            sans: Vec::new(),
            server_auth: false,
            client_auth: true,
            ttl: Duration::from_secs(3600),
        };
        let issued = pki.authority(Authority::Client).issue(&ambient, &profile).unwrap();
        let pem = folder.path().join(format!("{name}.pem"));
        std::fs::write(&pem, format!("{}{}", issued.cert_pem, issued.key_pem)).unwrap();
        let address = if number == 0 { own_address() } else { IpAddr::from([10, 200, (number / 250) as u8, (number % 250) as u8 + 1]) };
        let pod_cidr = format!("10.244.{}.0/24", number % 250).parse().ok();
        entries.push(NodeEntry { id, name, address, underlay: vec![address], pod_cidr, fingerprints: [issued.fingerprint].into() });
        machines.push((id, address, pem));
    }
    let table = NodeTable {
        nodes: entries,
        ended: Vec::new(),
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        service_cidr: "10.96.0.0/16".parse().unwrap(),
        cni: Addon::Default,
        public_hosts: BTreeSet::new(),
        tunnel_endpoints: Vec::new(),
        probe_key: "0".repeat(44),
    };
    let take = |path: &str| text[path].clone();
    // Dropping the sender is the end of the platform to a terminator.
    let table = Box::leak(Box::new(watch::Sender::new(Arc::new(table)))).subscribe();
    let terminator = Terminator::start(TerminatorOptions {
        cluster,
        run_dir: folder.path().to_owned(),
        gid: None,
        tls: TerminatorTls {
            ca_pem: take(files::TERMINATOR_CA),
            cert_pem: take(files::TERMINATOR_CERT),
            key_pem: take(files::TERMINATOR_KEY),
        },
        revocations: watch::channel(Arc::default()).1,
        targets: Arc::new(NoNodes),
        nodes: Some(NodeOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            tls: TunnelTls { client_ca_pem: take(files::CLIENT_CA), cert_pem: take(files::TUNNEL_CERT), key_pem: take(files::TUNNEL_KEY) },
            table,
            desk: Arc::new(Silent),
            api_server: "127.0.0.1:1".parse().unwrap(),
            api_local_address: "198.51.100.1".parse().unwrap(),
            ambient,
        }),
    })
    .unwrap();
    let tunnels = terminator.tunnels().unwrap().clone();
    let fleet = Fleet { server_ca_pem: take(files::SERVER_CA), terminator: tunnels.address(), nodes: machines };
    let path = folder.path().join("fleet.json");
    std::fs::write(&path, serde_json::to_vec(&fleet).unwrap()).unwrap();
    between();
    let nodes = Command::new(std::env::current_exe().unwrap()).env(FLEET, path).stdin(Stdio::null()).spawn().unwrap();
    let stand = Stand { folder, terminator, nodes };
    let deadline = Instant::now() + Duration::from_secs(60);
    while tunnels.connected() < count {
        assert!(Instant::now() < deadline, "{} of {count} tunnels are up", tunnels.connected());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stand
}

/// Is the nodes, until it is killed.
pub fn be_fleet(path: &Path) {
    let fleet: Fleet = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    runtime().block_on(async {
        let tunnels: Vec<_> = fleet
            .nodes
            .iter()
            .map(|(id, address, pem)| {
                let hello = Hello { node: *id, machine: Machine::default(), underlay: vec![*address] };
                NodeTunnel::start(NodeTunnelOptions {
                    node: *id,
                    tunnel_name: NAME.into(),
                    endpoints: vec![TunnelEndpoint { host: fleet.terminator.ip().to_string(), port: fleet.terminator.port() }],
                    server_ca_pem: fleet.server_ca_pem.clone(),
                    client_pem: pem.clone(),
                    hello: Arc::new(move || hello.clone()),
                    reach: Reach {
                        address: *address,
                        pod_cidr: "10.244.0.0/16".parse().unwrap(),
                        service_cidr: "10.96.0.0/16".parse().unwrap(),
                        api_local_address: "198.51.100.1".parse().unwrap(),
                    },
                    proxies: Proxies::default(),
                    ambient: Ambient::system(),
                })
                .unwrap()
            })
            .collect();
        std::future::pending::<()>().await;
        drop(tunnels);
    });
}

/// What 500 idle tunnels hold, on both sides.
pub fn tunnels() -> Value {
    runtime().block_on(async {
        let own = std::process::id() as i32;
        let mut before = 0;
        let stand = stand(TUNNELS, || before = pss_kib(own)).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        let (after, nodes) = (pss_kib(own), stand.nodes.id() as i32);
        let cpu = || (cpu_seconds(own), cpu_seconds(nodes));
        let (platform, fleet) = cpu();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let each_second = |now: f64, then: f64| (now - then) / 60.0 * 1000.0;
        let still_up = stand.terminator.tunnels().unwrap().connected();
        json!({
            "tunnels": still_up,
            "kib_each_at_the_terminator": (after - before) as f64 / TUNNELS as f64,
            "kib_each_at_the_node": pss_kib(nodes) as f64 / TUNNELS as f64,
            "idle_cpu_ms_each_second_at_the_terminator": each_second(cpu().0, platform),
            "idle_cpu_ms_each_second_at_the_nodes": each_second(cpu().1, fleet),
        })
    })
}

/// One stream through a tunnel beside a direct connection to the same server.
pub fn stream() -> Value {
    runtime().block_on(async {
        let server = serve().await;
        let stand = stand(1, || ()).await;
        let socket = stand.folder.path().join(CLUSTER_SOCKET);
        let (mut direct, mut tunnelled) = (Vec::new(), Vec::new());
        let (mut direct_rate, mut tunnelled_rate) = (Vec::new(), Vec::new());
        let cpu = || cpu_seconds(std::process::id() as i32) + cpu_seconds(stand.nodes.id() as i32);
        let (mut direct_cpu, mut tunnelled_cpu) = (0.0, 0.0);
        for _ in 0..super::ROUNDS {
            let plain = || async {
                let stream = TcpStream::connect(server).await.unwrap();
                stream.set_nodelay(true).unwrap();
                stream
            };
            direct.push(round_trip(plain().await).await);
            tunnelled.push(round_trip(connect(&socket, server).await).await);
            let start = cpu();
            direct_rate.push(throughput(plain().await).await);
            let between = cpu();
            tunnelled_rate.push(throughput(connect(&socket, server).await).await);
            (direct_cpu, tunnelled_cpu) = (direct_cpu + between - start, tunnelled_cpu + cpu() - between);
        }
        let (direct, tunnelled) = (median(&mut direct), median(&mut tunnelled));
        let (direct_rate, tunnelled_rate) = (median(&mut direct_rate), median(&mut tunnelled_rate));
        let gib = super::ROUNDS as f64 * BYTES as f64 / f64::from(1 << 30);
        json!({
            "round_trip_us": tunnelled,
            "direct_round_trip_us": direct,
            "added_us": tunnelled - direct,
            "mib_each_second": tunnelled_rate,
            "direct_mib_each_second": direct_rate,
            "cpu_seconds_each_gib": tunnelled_cpu / gib,
            "direct_cpu_seconds_each_gib": direct_cpu / gib,
            "goal": "adds at most 1000 us",
        })
    })
}

/// Answers `e` with an echo and `d` with [`BYTES`] bytes.
async fn serve() -> SocketAddr {
    let listener = TcpListener::bind((own_address(), 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                if stream.read_u8().await.unwrap() == b'e' {
                    let (mut reader, mut writer) = stream.split();
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                    return;
                }
                let chunk = vec![7; 64 * 1024];
                for _ in 0..BYTES / chunk.len() {
                    stream.write_all(&chunk).await.unwrap();
                }
            });
        }
    });
    address
}

async fn connect(socket: &Path, server: SocketAddr) -> UnixStream {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The median time of a small message's way there and back, in microseconds.
async fn round_trip(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> f64 {
    stream.write_u8(b'e').await.unwrap();
    let mut message = [1; 64];
    let mut took = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        stream.write_all(&message).await.unwrap();
        stream.read_exact(&mut message).await.unwrap();
        took.push(start.elapsed().as_secs_f64() * 1e6);
    }
    median(&mut took)
}

/// MiB in a second that come out of a stream.
async fn throughput(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> f64 {
    let start = Instant::now();
    stream.write_u8(b'd').await.unwrap();
    let (mut buffer, mut left) = (vec![0; 64 * 1024], BYTES);
    while left > 0 {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "{left} bytes are missing");
        left -= count;
    }
    BYTES as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64()
}
