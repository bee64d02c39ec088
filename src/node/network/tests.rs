//! Nodes, switches, routers and pods in network namespaces; all of it real but for the machines. They need root, `ip` and `nft`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::join::{JoinedCluster, Trust};
use crate::domain::{Ambient, ClusterId, NodeId};
use crate::node::layout::Layout;
use crate::node::membership::Membership;
use crate::routes::namespace::Namespace;
use crate::tunnel::protocol::{NodeState, Peer};

use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The longest that anything may take to come about.
const PATIENCE: Duration = Duration::from_secs(20);

fn membership(node: NodeId, address: IpAddr) -> Membership {
    Membership {
        server: "https://192.0.2.250".into(),
        trust: Trust::System,
        node_id: node,
        name: "node".into(),
        address,
        address_assigned: false,
        cluster: JoinedCluster {
            id: ClusterId::generate(&Ambient::system()),
            name: "demo".into(),
            label: "demo-abcdef".into(),
            kubernetes_version: "1.36.3".parse().unwrap(),
            server_ca_pem: String::new(),
            client_ca_pem: String::new(),
            tunnel_name: String::new(),
            tunnel_endpoints: Vec::new(),
            api_local_address: "198.51.100.1".parse().unwrap(),
            api_port: 6443,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            dns_address: "10.96.0.10".parse().unwrap(),
            dns_domain: "cluster.local".into(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            pause_image: String::new(),
        },
        options: crate::node::membership::Options::default(),
    }
}

/// The node role's network on a thread inside a machine's namespace.
struct Running {
    network: Arc<Network>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// A machine that is a node.
struct Machine {
    namespace: Namespace,
    root: tempfile::TempDir,
    number: u8,
    membership: Membership,
    running: Option<Running>,
}

impl Machine {
    /// A machine whose `eth0` is plugged into a switch (`br0` of that namespace), with that address.
    fn new(number: u8, switch: &Namespace, address: &str) -> Self {
        let namespace = Namespace::new();
        // The strictest that a distribution sets.
        namespace.sysctl("ipv4/conf/all/rp_filter", "1");
        // Addresses that become usable in their own time would differ in listings.
        namespace.sysctl("ipv6/conf/default/disable_ipv6", "1");
        let port = format!("port{number}");
        namespace.cable("eth0", switch, &port);
        switch.ip(&format!("link set {port} master br0"));
        namespace.ip(&format!("addr add {address} dev eth0"));
        let node = NodeId::from(uuid::Uuid::from_u128(u128::from(number)));
        let address = address.split_once('/').unwrap().0.parse().unwrap();
        Self { namespace, root: tempfile::tempdir().unwrap(), number, membership: membership(node, address), running: None }
    }

    fn layout(&self) -> Layout {
        Layout::below(self.root.path())
    }

    fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    fn peer(&self) -> Peer {
        Peer {
            node: self.membership.node_id,
            address: self.membership.address,
            underlay: vec![self.membership.address],
            pod_cidr: Some(self.pods().parse().unwrap()),
        }
    }

    /// Starts the network and tells it of the others.
    fn start(&mut self, others: &[&Peer]) {
        let (started, network) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (path, membership, layout) = (self.namespace.path(), self.membership.clone(), self.layout());
        let thread = std::thread::spawn(move || {
            nix::sched::setns(std::fs::File::open(path).unwrap(), nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                started.send(Arc::new(Network::start(&membership, &layout, &Ambient::system()).unwrap())).unwrap();
                let _ = stopped.await;
            });
        });
        let network = network.recv().unwrap();
        network.apply(&NodeState {
            tunnel_endpoints: Vec::new(),
            address: self.membership.address,
            pod_cidr: Some(self.pods().parse().unwrap()),
            peers: others.iter().copied().cloned().collect(),
            probe_key: KEY.into(),
        });
        self.running = Some(Running { network, stop: Some(stop), thread: Some(thread) });
    }

    /// Waits until the pod network is said to be like that.
    fn wait(&self, reason: &str) -> String {
        let mut status = self.running.as_ref().unwrap().network.status();
        let waited = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let met = status.wait_for(|status| status.pod_network.as_ref().is_some_and(|aspect| aspect.reason == reason));
            tokio::time::timeout(PATIENCE, met).await.map(|status| status.unwrap().pod_network.clone().unwrap().message)
        });
        let said = || self.running.as_ref().unwrap().network.status().borrow().clone();
        waited.unwrap_or_else(|_| panic!("node {}: no {reason}, but {:?}\n{}", self.number, said(), self.namespace.ip("route")))
    }

    fn wait_for(&self, reason: &str, words: &str) {
        let mut status = self.running.as_ref().unwrap().network.status();
        let waited = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let met =
                |status: &Status| status.pod_network.as_ref().is_some_and(|said| said.reason == reason && said.message.contains(words));
            tokio::time::timeout(PATIENCE, status.wait_for(met)).await.map(drop)
        });
        let said = || self.running.as_ref().unwrap().network.status().borrow().clone();
        assert!(waited.is_ok(), "node {}: no {reason} with {words:?}, but {:?}\n{}", self.number, said(), self.namespace.ip("route"));
    }

    fn routes(&self) -> String {
        self.namespace.ip("route show proto 186")
    }

    /// A pod: a namespace on the bridge, as the plugins make them.
    fn pod(&self, host: u8) -> Namespace {
        let pod = Namespace::new();
        let port = format!("veth{host}");
        self.namespace.cable(&port, &pod, "eth0");
        self.namespace.ip(&format!("link set {port} master cni0"));
        self.namespace.sysctl(&format!("ipv4/conf/{port}/rp_filter"), "0");
        pod.ip(&format!("addr add 10.244.{}.{host}/24 dev eth0", self.number));
        pod.ip(&format!("route add default via 10.244.{}.1", self.number));
        pod
    }

    fn listing(&self) -> [String; 5] {
        let ruleset = self.namespace.run("nft", &["list", "ruleset"]);
        let files = std::process::Command::new("find").arg(self.root.path()).output().unwrap();
        let of = |line: &str| self.namespace.ip(line);
        [of("-o -br link"), of("-o -br addr"), of("route show table all"), ruleset, String::from_utf8(files.stdout).unwrap()]
    }
}

fn switch() -> Namespace {
    let namespace = Namespace::new();
    namespace.ip("link add br0 type bridge");
    namespace.ip("link set br0 up");
    namespace
}

/// Sends from one namespace to an address in another, and back; returns whom the other side saw.
fn talk(from: &Namespace, to: &Namespace, address: &str) -> Option<IpAddr> {
    let at: SocketAddr = format!("{address}:7777").parse().unwrap();
    let server = to.inside(|| UdpSocket::bind(at).unwrap());
    let client = from.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    }
    let mut buffer = [0; 1500];
    for _ in 0..6 {
        // As large as fits through the overlay.
        if client.send_to(&[7; 1400], at).is_err() {
            continue;
        }
        let Ok((length, source)) = server.recv_from(&mut buffer) else { continue };
        server.send_to(&buffer[..length], source).unwrap();
        if client.recv_from(&mut buffer).is_ok() {
            return Some(source.ip());
        }
    }
    None
}

fn start_all(machines: &mut [&mut Machine]) {
    let peers: Vec<Peer> = machines.iter().map(|machine| machine.peer()).collect();
    for machine in machines {
        let others: Vec<_> = peers.iter().filter(|peer| peer.node != machine.membership.node_id).collect();
        machine.start(&others);
    }
}

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

#[test]
fn pods_on_one_subnet_reach_each_other_directly_and_the_world_by_their_nodes_address() {
    let switch = switch();
    switch.ip("addr add 192.0.2.200/24 dev br0");
    let (mut a, mut b) = (Machine::new(1, &switch, "192.0.2.1/24"), Machine::new(2, &switch, "192.0.2.2/24"));
    a.namespace.ip("route add default via 192.0.2.200");
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "directly");
    b.wait_for("PeersReachable", "directly");
    assert!(a.routes().contains("10.244.2.0/24 via 192.0.2.2 dev eth0"), "{}", a.routes());
    let (here, there) = (a.pod(10), b.pod(20));
    assert_eq!(talk(&here, &there, "10.244.2.20"), Some(ip("10.244.1.10")));
    assert_eq!(talk(&there, &here, "10.244.1.10"), Some(ip("10.244.2.20")));
    assert_eq!(talk(&here, &switch, "192.0.2.200"), Some(ip("192.0.2.1")));
    let configuration = std::fs::read_to_string(a.layout().cni_conf_dir().join("10-kubebyon.conflist")).unwrap();
    assert!(configuration.contains("10.244.1.0/24") && configuration.contains("1450"), "{configuration}");
    assert_eq!(a.running.as_ref().unwrap().network.status().borrow().underlay, [a.membership.address]);
}

#[test]
fn pods_are_wrapped_where_their_addresses_are_dropped() {
    let switch = switch();
    switch.nft("table bridge guard { chain forward { type filter hook forward priority 0; ip saddr 10.244.0.0/16 drop; }; }");
    let (mut a, mut b) = (Machine::new(1, &switch, "192.0.2.1/24"), Machine::new(2, &switch, "192.0.2.2/24"));
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "VXLAN");
    b.wait_for("PeersReachable", "VXLAN");
    let (here, there) = (a.pod(10), b.pod(20));
    assert_eq!(talk(&here, &there, "10.244.2.20"), Some(ip("10.244.1.10")));
    assert_eq!(talk(&there, &here, "10.244.1.10"), Some(ip("10.244.2.20")));
    assert_eq!(talk(&a.namespace, &there, "10.244.2.20"), Some(ip("10.244.1.0")), "the machine itself, by its overlay address");
}

#[test]
fn one_way_that_is_dropped_in_one_direction_alone_is_not_taken_in_either() {
    let switch = switch();
    switch.nft("table bridge guard { chain forward { type filter hook forward priority 0; ip saddr 10.244.2.0/24 drop; }; }");
    let (mut a, mut b) = (Machine::new(1, &switch, "192.0.2.1/24"), Machine::new(2, &switch, "192.0.2.2/24"));
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "VXLAN");
    b.wait_for("PeersReachable", "VXLAN");
    assert_eq!(talk(&a.pod(10), &b.pod(20), "10.244.2.20"), Some(ip("10.244.1.10")));
}

#[test]
fn nodes_of_routed_subnets_use_the_overlay_and_strangers_are_kept_out_of_it() {
    let (left, right) = (switch(), switch());
    let router = Namespace::new();
    router.sysctl("ipv4/ip_forward", "1");
    for (side, name, address) in [(&left, "left", "192.0.2.254/24"), (&right, "right", "203.0.113.254/24")] {
        router.cable(name, side, "uplink");
        side.ip("link set uplink master br0");
        router.ip(&format!("addr add {address} dev {name}"));
    }
    let (mut a, mut b) = (Machine::new(1, &left, "192.0.2.1/24"), Machine::new(2, &right, "203.0.113.2/24"));
    a.namespace.ip("route add default via 192.0.2.254");
    b.namespace.ip("route add default via 203.0.113.254");
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "VXLAN");
    b.wait_for("PeersReachable", "VXLAN");
    let (here, there) = (a.pod(10), b.pod(20));
    assert_eq!(talk(&here, &there, "10.244.2.20"), Some(ip("10.244.1.10")));
    // A machine that is no node wraps packets just as that node would.
    let mac = links::overlay_mac(a.membership.node_id).map(|byte| format!("{byte:02x}")).join(":");
    left.ip("addr add 192.0.2.66/24 dev br0");
    left.ip(&format!("link add vx type vxlan id {VNI} dstport {VXLAN_PORT} nolearning"));
    left.ip("addr add 10.244.2.0/32 dev vx");
    left.ip("link set vx up");
    left.ip(&format!("neigh add 10.244.1.0 lladdr {mac} dev vx"));
    left.run("bridge", &["fdb", "add", &mac, "dev", "vx", "dst", "192.0.2.1"]);
    left.ip("route add 10.244.1.0/24 via 10.244.1.0 dev vx onlink");
    let listen = here.inside(|| UdpSocket::bind("10.244.1.10:7777").unwrap());
    listen.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let send = || left.inside(|| UdpSocket::bind("10.244.2.0:0").unwrap().send_to(b"hello", "10.244.1.10:7777").unwrap());
    send();
    assert!(listen.recv(&mut [0; 9]).is_err(), "a stranger's packet came through");
    a.namespace.nft("flush chain ip kubebyon prerouting");
    send();
    assert_eq!(listen.recv(&mut [0; 9]).unwrap(), 5, "it would have without the rule");
}

/// A switch whose machines reach a backbone by a router that hides their addresses.
fn behind_nat(number: u8, backbone: &Namespace) -> (Namespace, Namespace) {
    let inside = switch();
    let router = Namespace::new();
    router.sysctl("ipv4/ip_forward", "1");
    router.cable("lan", &inside, "uplink");
    inside.ip("link set uplink master br0");
    router.ip("addr add 192.168.1.1/24 dev lan");
    let port = format!("router{number}");
    router.cable("wan", backbone, &port);
    backbone.ip(&format!("link set {port} master br0"));
    router.ip(&format!("addr add 198.18.0.{number}/24 dev wan"));
    router.nft("table ip nat { chain post { type nat hook postrouting priority srcnat; oifname \"wan\" masquerade; }; }");
    (inside, router)
}

#[test]
fn nodes_behind_different_nats_say_so_and_are_not_mistaken_for_each_other() {
    let backbone = switch();
    let ((left, _left_router), (right, _right_router)) = (behind_nat(1, &backbone), behind_nat(2, &backbone));
    // 1 and 3 share a network; 2 has the address of 1 in another.
    let mut a = Machine::new(1, &left, "192.168.1.10/24");
    let mut b = Machine::new(2, &right, "192.168.1.10/24");
    let mut c = Machine::new(3, &left, "192.168.1.11/24");
    for machine in [&a, &b, &c] {
        machine.namespace.ip("route add default via 192.168.1.1");
    }
    b.membership.address = "10.77.0.2".parse().unwrap();
    b.membership.address_assigned = true;
    let peers = [a.peer(), Peer { underlay: vec!["192.168.1.10".parse().unwrap()], ..b.peer() }, c.peer()];
    a.start(&[&peers[1], &peers[2]]);
    b.start(&[&peers[0], &peers[2]]);
    c.start(&[&peers[0], &peers[1]]);
    for machine in [&a, &c] {
        machine.wait_for("PeersUnreachable", "10.77.0.2");
    }
    b.wait_for("PeersUnreachable", "192.168.1.10, 192.168.1.11");
    assert!(b.wait("PeersUnreachable").contains("Services whose pods are on this node"));
    let (here, there) = (a.pod(10), c.pod(30));
    assert_eq!(talk(&here, &there, "10.244.3.30"), Some(ip("10.244.1.10")));
    assert!(!a.routes().contains("10.244.2.") && !c.routes().contains("10.244.2."), "{}\n{}", a.routes(), c.routes());
    assert_eq!(b.routes(), "");
}

#[test]
fn a_link_that_flaps_gets_its_routes_back_and_a_foreign_route_stays() {
    let switch = switch();
    let (mut a, mut b) = (Machine::new(1, &switch, "192.0.2.1/24"), Machine::new(2, &switch, "192.0.2.2/24"));
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "directly");
    b.wait_for("PeersReachable", "directly");
    let (here, there) = (a.pod(10), b.pod(20));
    a.namespace.ip("link set eth0 down");
    assert!(!a.routes().contains("dev eth0"));
    a.namespace.ip("link set eth0 up");
    assert_eq!(talk(&here, &there, "10.244.2.20"), Some(ip("10.244.1.10")));
    a.wait_for("PeersReachable", "directly");
    // Somebody takes the prefix.
    a.namespace.ip("route del 10.244.2.0/24 proto 186");
    a.namespace.ip("route add 10.244.2.0/24 via 192.0.2.77 proto static");
    a.wait_for("RouteConflict", "10.244.2.0/24");
    assert!(a.namespace.ip("route").contains("10.244.2.0/24 via 192.0.2.77 dev eth0 proto static"));
    a.namespace.ip("route del 10.244.2.0/24 proto static");
    a.wait_for("PeersReachable", "directly");
    assert_eq!(talk(&here, &there, "10.244.2.20"), Some(ip("10.244.1.10")));
}

#[test]
fn a_restart_removes_nothing_and_clearing_removes_everything() {
    let switch = switch();
    switch.nft("table bridge guard { chain forward { type filter hook forward priority 0; ip saddr 10.244.0.0/16 drop; }; }");
    let (mut a, mut b) = (Machine::new(1, &switch, "192.0.2.1/24"), Machine::new(2, &switch, "192.0.2.2/24"));
    // Routes that another program made under our number, to elsewhere.
    a.namespace.ip("route add 172.31.0.0/24 via 192.0.2.9 proto 186");
    let before = a.listing();
    start_all(&mut [&mut a, &mut b]);
    a.wait_for("PeersReachable", "VXLAN");
    b.wait_for("PeersReachable", "VXLAN");
    let routes = a.routes();
    let monitored = a.namespace.inside(|| {
        let mut monitor = std::process::Command::new("ip");
        monitor.args(["-o", "monitor", "route", "link", "address"]).stdout(std::process::Stdio::piped()).spawn().unwrap()
    });
    a.running = None;
    assert_eq!(a.routes(), routes);
    a.start(&[&b.peer()]);
    a.wait_for("PeersReachable", "VXLAN");
    let mut monitored = monitored;
    monitored.kill().unwrap();
    let seen = String::from_utf8(monitored.wait_with_output().unwrap().stdout).unwrap();
    assert!(!seen.contains("Deleted"), "{seen}");
    assert_eq!(a.routes(), routes);
    a.running = None;
    let (membership, layout) = (a.membership.clone(), a.layout());
    for _ in 0..2 {
        let failures = a.namespace.block_on(|| async { clear(&membership, &layout).await });
        assert!(failures.is_empty(), "{failures:?}");
    }
    std::fs::remove_dir(a.layout().cni_conf_dir()).unwrap();
    std::fs::remove_dir(a.root.path().join("etc/cni")).unwrap();
    std::fs::remove_dir(a.root.path().join("etc")).unwrap();
    assert_eq!(a.listing(), before);
}

#[test]
fn a_cluster_with_a_network_of_its_owner_has_nothing_of_ours() {
    let switch = switch();
    let mut a = Machine::new(1, &switch, "192.0.2.1/24");
    a.membership.cluster.cni = Addon::None;
    let before = a.listing();
    let stale = a.layout().cni_conf_dir().join("10-kubebyon.conflist");
    std::fs::create_dir_all(stale.parent().unwrap()).unwrap();
    std::fs::write(&stale, "{}").unwrap();
    a.start(&[]);
    assert!(!stale.exists());
    assert_eq!(a.running.as_ref().unwrap().network.status().borrow().pod_network, None);
    assert_eq!(a.listing()[..4], before[..4]);
}
