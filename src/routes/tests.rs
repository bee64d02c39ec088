//! Passes against the kernel, in network namespaces. They need root.

use std::time::Duration;

use super::namespace::Namespace;
use super::*;

fn machine() -> Namespace {
    let namespace = Namespace::new();
    namespace.ip("link add up0 type bridge");
    namespace.ip("addr add 192.0.2.5/24 dev up0");
    namespace.ip("addr add fd00::5/64 dev up0 nodad");
    namespace.ip("link set up0 up");
    namespace
}

fn to(dst: &str, via: &str, dev: Option<&str>) -> Wanted {
    Wanted { dst: dst.parse().unwrap(), via: Some(via.parse().unwrap()), dev: dev.map(str::to_owned), onlink: false, source: None }
}

fn pass(namespace: &Namespace, wanted: &[Wanted]) -> Pass {
    namespace.block_on(|| async { reconcile(&Netlink::open().unwrap(), &Ownership::default(), wanted).await.unwrap() })
}

fn counts(pass: &Pass) -> (usize, usize, usize, usize, usize) {
    (pass.added, pass.replaced, pass.deleted, pass.conflicts.len(), pass.failures.len())
}

/// The main table's routes of a protocol, one a line, without what differs from run to run.
fn listed(namespace: &Namespace, family: &str, protocol: &str) -> Vec<String> {
    let listing = namespace.ip(&format!("{family} route show proto {protocol}"));
    let mut lines: Vec<_> = listing.lines().map(|line| line.replace(" linkdown", "").trim().to_owned()).collect();
    lines.sort();
    lines
}

#[test]
fn routes_come_change_and_go_and_a_second_pass_does_nothing() {
    let namespace = machine();
    let mut wanted = vec![
        to("10.1.0.0/24", "192.0.2.1", Some("up0")),
        to("10.2.0.0/24", "192.0.2.1", None),
        to("fd00:1::/64", "fd00::1", Some("up0")),
        Wanted { onlink: true, source: Some("192.0.2.5".parse().unwrap()), ..to("10.3.0.0/24", "10.3.0.0", Some("up0")) },
        Wanted { via: None, ..to("10.4.0.0/24", "10.4.0.0", Some("up0")) },
    ];
    assert_eq!(counts(&pass(&namespace, &wanted)), (5, 0, 0, 0, 0));
    assert_eq!(counts(&pass(&namespace, &wanted)), (0, 0, 0, 0, 0));
    let expected = [
        "10.1.0.0/24 via 192.0.2.1 dev up0",
        "10.2.0.0/24 via 192.0.2.1 dev up0",
        "10.3.0.0/24 via 10.3.0.0 dev up0 src 192.0.2.5 onlink",
        "10.4.0.0/24 dev up0 scope link",
    ];
    assert_eq!(listed(&namespace, "-4", "186"), expected);
    assert_eq!(listed(&namespace, "-6", "186"), ["fd00:1::/64 via fd00::1 dev up0 metric 1024 pref medium"]);
    wanted[0].via = Some("192.0.2.9".parse().unwrap());
    wanted[2].via = Some("fd00::9".parse().unwrap());
    wanted.remove(1);
    assert_eq!(counts(&pass(&namespace, &wanted)), (0, 2, 1, 0, 0));
    assert_eq!(counts(&pass(&namespace, &wanted)), (0, 0, 0, 0, 0));
    assert_eq!(listed(&namespace, "-4", "186")[0], "10.1.0.0/24 via 192.0.2.9 dev up0");
    assert_eq!(counts(&pass(&namespace, &[])), (0, 0, 4, 0, 0));
}

#[test]
fn what_is_not_ours_stays_and_what_bears_our_number_goes() {
    let namespace = machine();
    for route in [
        "10.1.0.0/24 via 192.0.2.7 proto static",
        "10.2.0.0/24 via 192.0.2.7 proto dhcp metric 100",
        "blackhole 10.5.0.0/24 proto static",
        "10.6.0.0/24 via 192.0.2.7 proto 186 table 100",
        "10.7.0.0/24 via 192.0.2.7 proto 186",
        "10.7.1.0/24 proto 186 nexthop via 192.0.2.7 nexthop via 192.0.2.8",
        "10.7.2.0/24 via 192.0.2.7 proto 186 mtu 1300 metric 9",
        "blackhole 10.7.3.0/24 proto 186",
        "10.8.0.0/24 via 192.0.2.7 proto 186 metric 5",
        "10.8.0.0/24 via 192.0.2.7 proto static metric 6",
    ] {
        namespace.ip(&format!("route add {route}"));
    }
    namespace.ip("-6 route add fd00:7::/64 proto 186 nexthop via fd00::7 nexthop via fd00::8");
    namespace.ip("-6 route add fd00:8::/64 via fd00::7 proto static");
    let others = |namespace: &Namespace| {
        [("-4", "static"), ("-4", "dhcp"), ("-4", "kernel"), ("-6", "static"), ("-6", "kernel")]
            .map(|(family, protocol)| listed(namespace, family, protocol))
    };
    let before = others(&namespace);
    let wanted = ["10.1.0.0/24", "10.2.0.0/24", "10.5.0.0/24", "10.8.0.0/24", "192.0.2.0/24"].map(|dst| to(dst, "192.0.2.1", Some("up0")));
    let found = pass(&namespace, &wanted);
    assert_eq!(counts(&found), (0, 0, 6, 5, 0), "{found:?}");
    assert_eq!(others(&namespace), before);
    assert!(listed(&namespace, "-4", "186").is_empty() && listed(&namespace, "-6", "186").is_empty());
    assert!(namespace.ip("route show table 100").contains("10.6.0.0/24"));
    // The holder goes: the route comes.
    namespace.ip("route del 10.1.0.0/24");
    assert_eq!(counts(&pass(&namespace, &wanted)), (1, 0, 0, 4, 0));
}

#[test]
fn a_link_that_flaps_or_is_made_anew_gets_its_routes_back_on_its_event() {
    let namespace = machine();
    let wanted = [to("10.1.0.0/24", "192.0.2.1", Some("up0"))];
    let ip = |line: &'static str| namespace.ip(line);
    let route = || listed(&namespace, "-4", "186");
    namespace.block_on(|| async {
        let (netlink, mut watch) = (Netlink::open().unwrap(), Watch::open().unwrap());
        let own = Ownership::default();
        reconcile(&netlink, &own, &wanted).await.unwrap();
        assert_eq!(route(), ["10.1.0.0/24 via 192.0.2.1 dev up0"]);
        watch.changed().await;
        ip("link set up0 down");
        watch.changed().await;
        assert!(route().is_empty(), "the kernel took it, saying nothing");
        let failed = reconcile(&netlink, &own, &wanted).await.unwrap();
        assert_eq!(counts(&failed), (0, 0, 0, 0, 1));
        ip("link set up0 up");
        watch.changed().await;
        assert_eq!(counts(&reconcile(&netlink, &own, &wanted).await.unwrap()), (1, 0, 0, 0, 0));
        watch.changed().await;
        ip("link del up0");
        watch.changed().await;
        let waiting = reconcile(&netlink, &own, &wanted).await.unwrap();
        assert!(waiting.failures[0].to_string().contains("waits for the interface up0"));
        ip("link add up0 type bridge");
        ip("addr add 192.0.2.5/24 dev up0");
        ip("link set up0 up");
        watch.changed().await;
        assert_eq!(counts(&reconcile(&netlink, &own, &wanted).await.unwrap()), (1, 0, 0, 0, 0));
        let quiet = async {
            loop {
                watch.changed().await;
                assert!(!reconcile(&netlink, &own, &wanted).await.unwrap().changed());
            }
        };
        assert!(tokio::time::timeout(Duration::from_millis(900), quiet).await.is_err(), "comes to rest");
    });
}

#[test]
fn many_routes_while_others_change_theirs() {
    let namespace = machine();
    let wanted: Vec<_> = (0..2000_u32).map(|n| to(&format!("10.{}.{}.0/24", n / 250, n % 250), "192.0.2.1", Some("up0"))).collect();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                namespace.ip("route add 172.16.0.0/24 via 192.0.2.7 proto static");
                namespace.ip("route del 172.16.0.0/24");
                rounds += 1;
            }
            rounds
        });
        let found = pass(&namespace, &wanted);
        let again = pass(&namespace, &wanted[..1000]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(churn.join().unwrap() > 0);
        assert_eq!((counts(&found), counts(&again)), ((2000, 0, 0, 0, 0), (0, 0, 1000, 0, 0)));
    });
    assert_eq!(listed(&namespace, "-4", "186").len(), 1000);
}
