//! What is found on machines that are folders, and what would be done there: as snapshots for each distribution, and fault by fault.

use std::fmt::Write as _;
use std::time::Duration;

use super::*;
use crate::node::join::plan;
use crate::node::layout::Layout;
use crate::node::machine::fixtures::Fixture;

fn ranges() -> Ranges {
    Ranges {
        cluster: "demo".into(),
        pods: "10.244.0.0/16".parse().unwrap(),
        services: "10.96.0.0/16".parse().unwrap(),
        api: ("198.51.100.1".parse().unwrap(), 6443),
        own_network: true,
    }
}

fn wanted(facts: &Facts) -> Wanted {
    Wanted { name: facts.hostname.to_lowercase(), cluster: Some(ranges()), service: true, packages: true, ..Wanted::default() }
}

/// What a dry run says of a machine.
fn said(fixture: &Fixture) -> String {
    let facts = fixture.facts();
    let wanted = wanted(&facts);
    let mut text = String::new();
    for finding in judge(&facts, &wanted) {
        let _ = writeln!(text, "{:?} {}: {}\n    {}", finding.severity, finding.check, finding.message, finding.remedy);
    }
    for step in plan(&facts, &wanted, &Layout::default()) {
        let _ = writeln!(text, "{}: {step}", step.name());
    }
    text
}

#[test]
fn debian_12() {
    insta::assert_snapshot!(said(&Fixture::debian()));
}

#[test]
fn ubuntu_24_04() {
    insta::assert_snapshot!(said(&Fixture::ubuntu()));
}

#[test]
fn rocky_9() {
    insta::assert_snapshot!(said(&Fixture::rocky()));
}

#[test]
fn raspberry_pi_os() {
    insta::assert_snapshot!(said(&Fixture::raspberry_pi()));
}

/// The checks that stop a join, and those that do not.
fn found(facts: &Facts, wanted: &Wanted) -> (Vec<&'static str>, Vec<&'static str>) {
    let findings = judge(facts, wanted);
    assert!(findings.iter().all(|finding| !finding.remedy.is_empty()));
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).map(|finding| finding.check).collect();
    (of(Severity::Error), of(Severity::Warning))
}

#[test]
fn a_machine_that_is_fit_has_nothing_to_find() {
    let facts = Fixture::debian().facts();
    assert_eq!(found(&facts, &wanted(&facts)), (vec![], vec![]));
}

#[test]
fn what_was_mended_is_found_no_more() {
    let pi = Fixture::raspberry_pi();
    pi.put("proc/cgroups", "memory\t0\t60\t1\n");
    pi.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    let facts = pi.facts();
    assert_eq!(found(&facts, &wanted(&facts)), (vec![], vec!["swap"]));
    let rocky = Fixture::rocky();
    rocky.put("etc/firewalld/zones/trusted.xml", "<source address=\"10.244.0.0/16\"/><source address=\"10.96.0.0/12\"/>");
    let facts = rocky.facts();
    assert_eq!(found(&facts, &wanted(&facts)), (vec![], vec!["selinux"]));
}

type Change = fn(&mut Facts, &mut Wanted);

#[test]
fn each_fault_of_the_system_is_found() {
    let facts = Fixture::debian().facts();
    let good = wanted(&facts);
    let errors: [(&str, Change); 14] = [
        ("privileges", |facts, _| facts.probed.root = false),
        ("architecture", |facts, _| facts.probed.architecture = "riscv64".into()),
        ("name", |_, wanted| wanted.name = "localhost".into()),
        ("service", |facts, _| facts.systemd = false),
        ("kernel", |facts, _| facts.kernel.version = Some((4, 18))),
        ("modules", |facts, _| _ = facts.kernel.modules.insert("overlay", crate::node::machine::ModuleState::Missing)),
        ("cgroups", |facts, _| _ = facts.cgroups.controllers.remove("pids")),
        ("programs", |_, wanted| wanted.packages = false),
        ("memory", |facts, _| facts.memory = 256 << 20),
        ("disk", |facts, _| facts.probed.disk_free = Some(900 << 20)),
        ("kubernetes", |facts, _| facts.running.kubernetes.push("k3s".into())),
        ("kubernetes", |facts, _| facts.other_kubernetes.push("/etc/kubernetes/kubelet.conf".into())),
        ("address", |facts, _| facts.probed.address = None),
        ("address", |_, wanted| wanted.node_ip = Some([203, 0, 113, 99].into())),
    ];
    for (check, change) in errors {
        let (mut facts, mut wanted) = (facts.clone(), good.clone());
        change(&mut facts, &mut wanted);
        assert_eq!(found(&facts, &wanted).0, [check]);
    }
    let warnings: [(&str, Change); 7] = [
        ("kernel", |facts, _| facts.kernel.version = Some((5, 10))),
        ("modules", |facts, _| _ = facts.kernel.modules.insert("vxlan", crate::node::machine::ModuleState::Missing)),
        ("cgroups", |facts, _| facts.cgroups.version = 1),
        ("swap", |facts, _| facts.swap.push("/dev/sda2".into())),
        ("memory", |facts, _| facts.memory = 512 << 20),
        ("container", |facts, _| facts.container = Some("lxc".into())),
        ("forwarding", |facts, _| facts.probed.forward_drop = Some(true)),
    ];
    for (check, change) in warnings {
        let (mut facts, mut wanted) = (facts.clone(), good.clone());
        change(&mut facts, &mut wanted);
        assert_eq!(found(&facts, &wanted), (vec![], vec![check]));
    }
}

#[test]
fn clocks_may_be_two_minutes_apart() {
    let facts = Fixture::debian().facts();
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    for (apart, errors) in [(119, 0), (121, 1)] {
        let apart = Duration::from_secs(apart);
        for clocks in [(now, now.plus(apart)), (now.plus(apart), now)] {
            let wanted = Wanted { clocks: Some(clocks), ..wanted(&facts) };
            assert_eq!(found(&facts, &wanted).0.len(), errors);
        }
    }
}

#[test]
fn ranges_that_mean_something_here_already_are_found() {
    let facts = Fixture::debian().facts();
    let good = wanted(&facts);
    let route = |to: &str, dev: &str| crate::node::machine::NetRoute { to: to.parse().unwrap(), dev: dev.into() };
    for (to, dev, expected) in [
        ("10.244.7.0/24", "wg0", vec!["ranges"]),
        ("10.0.0.0/8", "eth0", vec!["ranges", "ranges"]),
        ("198.51.100.0/24", "eth1", vec!["api-address"]),
        ("0.0.0.0/1", "tun0", vec![]),
        ("10.244.3.0/24", "cni0", vec![]),
    ] {
        let mut facts = facts.clone();
        facts.routes.push(route(to, dev));
        assert_eq!(found(&facts, &good).0, expected, "{to}");
        assert_eq!(found(&facts, &Wanted { member: true, ..good.clone() }).0, [""; 0], "a node has such routes itself");
    }
    let mut resolver = facts.clone();
    resolver.resolvers.push("10.96.0.10".parse().unwrap());
    assert_eq!(found(&resolver, &good).0, ["resolvers"]);
    let mut holder = facts.clone();
    holder.probed.addresses.push(("eth1".into(), "198.51.100.1".parse().unwrap()));
    assert_eq!(found(&holder, &good).0, ["api-address"]);
    let server = Wanted { server: Some("10.244.0.9".parse().unwrap()), ..good };
    assert_eq!(found(&facts, &server).0, ["ranges"]);
}

#[test]
fn ports_that_are_taken_are_found_unless_it_is_by_our_own() {
    let facts = Fixture::debian().facts();
    let good = wanted(&facts);
    let listener = |address: &str, port| crate::node::machine::Listener { address: address.parse().unwrap(), port };
    for (address, port, count) in [
        ("127.0.0.1", 10248, 1),
        ("::", 10250, 1),
        ("0.0.0.0", 6443, 1),
        ("198.51.100.1", 6443, 1),
        ("192.168.1.10", 6443, 0),
        ("0.0.0.0", 80, 0),
    ] {
        let mut facts = facts.clone();
        facts.listeners.push(listener(address, port));
        assert_eq!(found(&facts, &good).0.len(), count, "{address}:{port}");
        facts.running.own_kubelet = true;
        assert!(found(&facts, &good).0.is_empty());
    }
}
