//! Facts of machines that are folders.

use std::os::unix::fs::symlink;

use super::fixtures::Fixture;
use super::*;
use crate::node::machine::kernel::MODULES;

#[test]
fn a_machine_is_read_from_its_files() {
    let facts = Fixture::debian().facts();
    assert_eq!((facts.os.id.as_str(), facts.os.packages()), ("debian", PackageTool::Apt));
    assert_eq!((facts.kernel.version, facts.hostname.as_str()), (Some((6, 1)), "Worker-1"));
    assert!(MODULES.iter().all(|name| facts.kernel.module(name) == ModuleState::Loadable), "{:?}", facts.kernel.modules);
    assert_eq!((facts.cgroups.version, facts.cgroups.has("memory")), (2, true));
    assert_eq!((facts.routes.len(), facts.listeners.len(), facts.resolvers.len()), (2, 1, 1));
    assert_eq!(facts.memory >> 20, 3933);
    assert!(facts.systemd && facts.has("mount") && !facts.has("nft"));
    assert_eq!(facts.sysctls["fs.inotify.max_user_instances"], "128");
}

#[test]
fn what_is_particular_to_machines_is_seen() {
    let facts = Fixture::ubuntu().facts();
    assert_eq!(facts.kernel.module("overlay"), ModuleState::Present);
    assert_eq!((facts.kernel.module("veth"), facts.kernel.module("vxlan")), (ModuleState::Loadable, ModuleState::Missing));
    assert_eq!(facts.resolvers, ["10.96.0.53".parse::<IpAddr>().unwrap()]);
    assert!(facts.ufw && facts.running.docker && facts.swap == ["/swap.img"]);
    let facts = Fixture::rocky().facts();
    assert_eq!((facts.os.packages(), facts.selinux, facts.running.firewalld), (PackageTool::Dnf, SeLinux::Enforcing, true));
    let facts = Fixture::raspberry_pi().facts();
    assert!(facts.is_raspberry_pi() && !facts.cgroups.has("memory"));
}

#[test]
fn a_kubelet_of_ours_is_no_stranger() {
    let fixture = Fixture::debian();
    fixture.put("proc/100/comm", "kubelet\n");
    symlink("/opt/kubebyon/bin/kubernetes", fixture.path().join("proc/100/exe")).unwrap();
    let facts = fixture.facts();
    assert!(facts.running.own_kubelet && facts.running.kubernetes.is_empty());
    fixture.put("proc/101/comm", "k3s-agent\n");
    fixture.put("var/lib/kubelet/config.yaml", "x");
    let facts = fixture.facts();
    assert_eq!(facts.running.kubernetes, ["k3s-agent"]);
    assert_eq!(facts.other_kubernetes.len(), 1);
}

#[test]
fn an_empty_folder_is_a_machine_of_which_nothing_is_known() {
    let root = tempfile::tempdir().unwrap();
    let facts = Facts::read(&Layout::below(root.path()), Probed::default());
    assert_eq!(facts.kernel.module("overlay"), ModuleState::Unknown);
    assert!(!facts.systemd && facts.routes.is_empty() && facts.kernel.at_least(5, 13));
}

#[test]
fn files_of_garbage_harm_nobody() {
    let fixture = Fixture::debian();
    for path in [
        "proc/net/route",
        "proc/net/tcp",
        "proc/net/tcp6",
        "etc/resolv.conf",
        "etc/os-release",
        "proc/meminfo",
        "proc/swaps",
        "proc/cgroups",
    ] {
        fixture.put(path, "\u{0}=é:\n:::: 0A 0A\nx\tFFFFFFFFFFF\té\té\té\té\té\té\té\t\n é:é é 0A\n");
    }
    let facts = fixture.facts();
    assert!(facts.routes.is_empty() && facts.listeners.is_empty() && facts.memory == 0);
}

#[test]
fn firewalls_and_chains_are_read() {
    assert!(system::ufw_enabled("ENABLED=yes\n") && !system::ufw_enabled("#ENABLED=yes\nENABLED=no\n"));
    let zone =
        "<zone target=\"ACCEPT\"><source address=\"10.244.0.0/16\"/><source ipset=\"x\"/>\n<source address=\"10.96.0.0/16\"/></zone>";
    assert_eq!(system::zone_sources(zone).len(), 2);
    assert!(probe::drops_forwarded("\t\ttype filter hook forward priority filter; policy drop;\n"));
    assert!(!probe::drops_forwarded("\t\ttype filter hook forward priority filter; policy accept;\n"));
}
