//! A whole join against a platform that speaks TLS, in a folder that stands for a machine; cut after each step and gone on with.

pub(in crate::node) mod platform;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use super::journal::{self, Made};
use super::*;
use crate::domain::ManualClock;
use crate::domain::cluster::Addon;
use crate::domain::join::{Joined, JoinedCluster, ProgramFile, TunnelEndpoint};
use crate::domain::{Ambient, ClusterId, KubernetesVersion, NodeId};
use crate::node::machine::fixtures::Fixture;
use crate::node::preflight::Finding;
use platform::Platform;

/// A platform's answer.
pub(in crate::node) fn joined(programs: Vec<ProgramFile>) -> Joined {
    let ambient = Ambient::system();
    Joined {
        node_id: NodeId::generate(&ambient),
        name: "node-1".into(),
        address: "192.168.1.10".parse().unwrap(),
        address_assigned: false,
        certificate_pem: String::new(),
        cluster: JoinedCluster {
            id: ClusterId::generate(&ambient),
            name: "demo".into(),
            label: "demo-abc234".into(),
            kubernetes_version: KubernetesVersion::new(1, 36, 3),
            server_ca_pem: "server".into(),
            client_ca_pem: "client".into(),
            tunnel_name: "demo-abc234-node.kubebyon.internal".into(),
            tunnel_endpoints: vec![TunnelEndpoint { host: "203.0.113.7".into(), port: 443 }],
            api_local_address: "198.51.100.1".parse().unwrap(),
            api_port: 6443,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            dns_address: "10.96.0.10".parse().unwrap(),
            dns_domain: "cluster.local".into(),
            cni: Addon::Default,
            kube_proxy: Addon::Default,
            pause_image: "registry.k8s.io/pause:3.10".into(),
        },
        programs,
        images: Vec::new(),
    }
}

/// Tells a test when a step begins.
#[derive(Default)]
struct Steps {
    /// The step at which the join is cut.
    cut: Option<usize>,
    seen: std::sync::Mutex<Vec<String>>,
    notes: std::sync::Mutex<Vec<String>>,
    reached: Notify,
}

impl Show for Steps {
    fn step(&self, step: &str, _message: &str) {
        let mut seen = self.seen.lock().unwrap();
        seen.push(step.to_owned());
        if self.cut == Some(seen.len()) {
            self.reached.notify_one();
        }
    }
    fn note(&self, message: &str) {
        self.notes.lock().unwrap().push(message.to_owned());
    }
    fn finding(&self, _finding: &Finding) {}
    fn transfer(&self, _label: &str, _done: u64, _total: u64) {}
}

/// A machine that joins.
pub(in crate::node) struct Joining {
    pub(in crate::node) fixture: Fixture,
    pub(in crate::node) options: Options,
    ambient: Ambient,
}

impl Joining {
    pub(in crate::node) fn new(platform: &Platform) -> Self {
        let fixture = Fixture::debian();
        let ambient = Ambient { clock: platform.clock(), ..Ambient::system() };
        let options = Options {
            token: platform.token(),
            name: Some("node-1".into()),
            labels: [("team".to_owned(), "web".to_owned())].into(),
            taints: Vec::new(),
            node_ip: None,
            registry_mirrors: BTreeMap::new(),
            replace: false,
            containerd_socket: None,
            service: false,
            bundle: None,
            packages: false,
            verify: false,
        };
        // Without nft among the programs and without packages, preflight would stop.
        fixture.put("usr/sbin/nft", "");
        Self { fixture, options, ambient }
    }

    /// Joins; `cut` ends it as the step of that number begins. Gives how it ended and the steps.
    pub(in crate::node) async fn join(&self, cut: Option<usize>) -> (Option<anyhow::Result<End>>, Vec<String>) {
        let steps = Steps { cut, ..Steps::default() };
        let layout = self.fixture.layout();
        let ended = tokio::select! {
            biased;
            () = steps.reached.notified() => None,
            ended = run(&self.options, &layout, &self.ambient, &steps) => Some(ended),
        };
        (ended, steps.seen.into_inner().unwrap())
    }

    pub(in crate::node) async fn joined(&self) -> Vec<String> {
        let (ended, steps) = self.join(None).await;
        assert!(matches!(ended.unwrap().unwrap(), End::Installed { .. }));
        steps
    }

    /// Every path with what it holds; keys and what tells of this very root are left out.
    pub(in crate::node) fn listing(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        list(self.fixture.path(), self.fixture.path(), &mut found);
        found
    }
}

fn list(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let what = if path.is_symlink() {
            format!("-> {}", std::fs::read_link(&path).unwrap().display()).replace(&root.display().to_string(), "")
        } else if path.is_dir() {
            list(root, &path, found);
            "folder".to_owned()
        } else if name.contains("/pki/") || name.ends_with("made.json") {
            "private".to_owned()
        } else {
            hex::encode(Sha256::digest(std::fs::read(&path).unwrap()))
        };
        found.insert(name, what);
    }
}

fn noted(machine: &Joining) -> Vec<String> {
    let root = machine.fixture.path().display().to_string();
    let mut noted: Vec<String> =
        journal::read(&machine.fixture.layout()).unwrap().iter().map(|made| format!("{made:?}").replace(&root, "")).collect();
    noted.sort();
    noted
}

#[tokio::test]
async fn a_join_installs_a_node_and_again_changes_nothing() {
    let platform = Platform::start().await;
    let machine = Joining::new(&platform);
    let steps = machine.joined().await;
    assert_eq!(steps, ["Asking", "Signed", "Modules", "Sysctls", "Programs", "Images", "Installed"]);
    let layout = machine.fixture.layout();
    let kept = membership::read(&layout).unwrap().unwrap();
    assert_eq!((kept.name.as_str(), kept.cluster.label.as_str(), &kept.options.labels["team"][..]), ("node-1", "demo-abc234", "web"));
    let bin = layout.bin_dir();
    assert_eq!(std::fs::read(bin.join("kubelet")).unwrap(), platform::KUBERNETES);
    assert_eq!(std::fs::read_link(bin.join("kube-proxy")).unwrap(), Path::new("kubernetes"));
    assert_eq!(std::fs::read(layout.cni_bin_dir().join("bridge")).unwrap(), platform::BRIDGE);
    assert_eq!(std::fs::read_to_string(machine.fixture.path().join("proc/sys/net/ipv4/ip_forward")).unwrap(), "1\n");
    assert!(layout.kubelet_client().exists() && images_dir(&layout).join("pause.tar").exists());
    assert!(noted(&machine).contains(&"Sysctl { name: \"net.ipv4.ip_forward\", former: \"0\" }".to_owned()));
    assert!(noted(&machine).contains(&"Sysctl { name: \"vm.overcommit_memory\", former: \"0\" }".to_owned()));
    let (before, fetched) = (machine.listing(), platform.fetched());
    machine.joined().await;
    assert_eq!(machine.listing(), before);
    assert_eq!((platform.fetched(), platform.keys()), (fetched, 1));
    assert!(platform.reports().iter().any(|report| report.step == "Programs" && !report.failed));
}

#[tokio::test]
async fn a_join_that_is_cut_at_any_step_goes_on_to_the_same_end() {
    let platform = Platform::start().await;
    let whole = Joining::new(&platform);
    let steps = whole.joined().await.len();
    for cut in 1..=steps {
        let platform = platform.again();
        let machine = Joining::new(&platform);
        let (ended, _) = machine.join(Some(cut)).await;
        assert!(ended.is_none(), "cut at step {cut}");
        machine.joined().await;
        assert_eq!(machine.listing(), whole.listing(), "cut at step {cut}");
        assert_eq!(noted(&machine), noted(&whole), "cut at step {cut}");
        assert_eq!(platform.keys(), 1, "cut at step {cut}: a retry is the same machine");
    }
}

#[tokio::test]
async fn what_is_fetched_goes_on_where_it_was_cut() {
    let platform = Platform::start().await;
    let machine = Joining::new(&platform);
    platform.break_off(platform::KUBERNETES.len() / 2, 2);
    machine.joined().await;
    assert_eq!(std::fs::read(machine.fixture.layout().bin_dir().join("kubernetes")).unwrap(), platform::KUBERNETES);
    assert!(platform.ranges() >= 1, "the second request asked for the rest");
}

#[tokio::test]
async fn another_content_than_was_promised_is_not_installed() {
    let platform = Platform::start().await;
    platform.tamper();
    let machine = Joining::new(&platform);
    let said = format!("{:#}", machine.join(None).await.0.unwrap().unwrap_err());
    assert!(said.contains("not what the platform promised"), "{said}");
    assert!(!machine.fixture.layout().bin_dir().join("kubernetes").exists());
    assert!(platform.reports().iter().any(|report| report.failed));
}

#[tokio::test]
async fn a_bundle_stands_for_the_platform() {
    let platform = Platform::start().await;
    let mut machine = Joining::new(&platform);
    let bundle = machine.fixture.path().join("bundle.tar");
    std::fs::write(&bundle, platform.bundle()).unwrap();
    machine.options.bundle = Some(bundle);
    machine.joined().await;
    assert_eq!(platform.fetched(), 0);
    assert_eq!(std::fs::read(machine.fixture.layout().bin_dir().join("kubelet")).unwrap(), platform::KUBERNETES);
}

#[tokio::test]
async fn refusals_and_strangers_change_nothing() {
    let platform = Platform::start().await;
    let failed = async |machine: &Joining| format!("{:#}", machine.join(None).await.0.unwrap().unwrap_err());
    let machine = Joining::new(&platform);
    platform.refuse("name-taken", "a node named node-1 is Ready in cluster demo");
    assert!(failed(&machine).await.contains("is Ready in cluster demo"));
    assert!(!machine.fixture.layout().node_yaml().exists());

    let other = Platform::start().await;
    let mut machine = Joining::new(&platform);
    let before = machine.listing();
    machine.options.token.trust = other.token().trust;
    let said = failed(&machine).await;
    assert!(said.contains("is not the platform of the token") && said.contains("CN=kubebyon test authority"), "{said}");
    assert_eq!(machine.listing(), before);
}

#[tokio::test]
async fn a_node_of_one_cluster_joins_no_other() {
    let platform = Platform::start().await;
    let mut machine = Joining::new(&platform);
    machine.joined().await;
    let before = machine.listing();
    machine.options.token.cluster = "other-abc234".into();
    let said = format!("{:#}", machine.join(None).await.0.unwrap().unwrap_err());
    assert!(said.contains("kubebyon leave"), "{said}");
    assert_eq!(machine.listing(), before);
}

#[tokio::test]
async fn an_unfit_machine_is_left_as_it_is() {
    let platform = Platform::start().await;
    let machine = Joining::new(&platform);
    machine.fixture.put("proc/net/tcp", "  sl  local_address rem_address   st\n   0: 00000000:280A 00000000:0000 0A 0\n");
    let before = machine.listing();
    let error = machine.join(None).await.0.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<Unfit>().unwrap().findings[0].check, "ports");
    assert_eq!((machine.listing(), platform.keys()), (before, 0));
    // What only the cluster's ranges tell is found before anything is installed, and costs no second use.
    machine.fixture.put("proc/net/tcp", "");
    machine.fixture.put("etc/resolv.conf", "nameserver 10.96.0.53\n");
    let error = machine.join(None).await.0.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<Unfit>().unwrap().findings[0].check, "resolvers");
    assert!(!machine.fixture.layout().node_yaml().exists() && !machine.fixture.layout().bin_dir().exists());
    machine.fixture.put("etc/resolv.conf", "nameserver 192.168.1.1\n");
    machine.joined().await;
    assert_eq!(platform.keys(), 1);
}

#[tokio::test]
async fn a_clock_that_is_off_is_told() {
    let platform = Platform::start().await;
    let mut machine = Joining::new(&platform);
    let clock = Arc::new(ManualClock::new(Ambient::system().now().plus(Duration::from_secs(600))));
    machine.ambient = Ambient { clock, ..Ambient::system() };
    let error = machine.join(None).await.0.unwrap().unwrap_err();
    assert_eq!(error.downcast_ref::<Unfit>().unwrap().findings[0].check, "clock");
}

#[tokio::test]
async fn a_file_that_stood_there_is_kept() {
    let platform = Platform::start().await;
    let machine = Joining::new(&platform);
    machine.fixture.put("opt/cni/bin/bridge", "a stranger's");
    machine.joined().await;
    let made = journal::read(&machine.fixture.layout()).unwrap();
    let kept = made.iter().find_map(|made| if let Made::Replaced { kept, .. } = made { Some(kept.clone()) } else { None });
    assert_eq!(std::fs::read_to_string(kept.unwrap()).unwrap(), "a stranger's");
    assert!(!made.contains(&Made::Tree(machine.fixture.path().join("opt/cni"))));
}

#[test]
fn a_full_disk_is_told_and_room_lets_the_join_go_on() {
    use nix::mount::{MsFlags, mount};
    // In a mount namespace of a thread's own, whose threads inherit it.
    let work = || {
        let none: Option<&str> = None;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let platform = Platform::start().await;
            let machine = Joining::new(&platform);
            let (programs, images) = (machine.fixture.path().join("opt"), machine.fixture.path().join("var/lib/kubebyon-node/images"));
            for (at, size) in [(&programs, "size=100k"), (&images, "size=12k")] {
                std::fs::create_dir_all(at).unwrap();
                mount(Some("none"), at, Some("tmpfs"), MsFlags::empty(), Some(size)).unwrap();
            }
            let failed = async || format!("{:#}", machine.join(None).await.0.unwrap().unwrap_err());
            let said = failed().await;
            assert!(said.starts_with("step Programs: the disk of") && said.contains("run the same command again"), "{said}");
            mount(none, &programs, none, MsFlags::MS_REMOUNT, Some("size=10m")).unwrap();
            let said = failed().await;
            assert!(said.starts_with("step Images: cannot write") && said.contains("the disk is full: make room"), "{said}");
            mount(none, &images, none, MsFlags::MS_REMOUNT, Some("size=10m")).unwrap();
            machine.joined().await;
            assert_eq!(platform.keys(), 1);
        });
    };
    std::thread::spawn(work).join().unwrap();
}
