//! Two nodes and what is between them, simulated: time and packets are values.

use super::*;
use crate::node::network::probe::ProbeKey;

fn id(n: u128) -> NodeId {
    NodeId::from(uuid::Uuid::from_u128(n))
}

/// What the network does with a packet of that way from node 1 or 2: the source that the other sees, if it arrives.
type Wires<'a> = &'a dyn Fn(u128, Way) -> Option<Option<IpAddr>>;

struct Side {
    here: Here,
    peers: Peers,
}

impl Side {
    fn new(n: u8, now: Instant) -> Self {
        let address = |n: u8| Ipv4Addr::new(192, 0, 2, n);
        let underlay = Underlay { net: Ipv4Net::new(address(n), 24).unwrap(), dev: "eth0".into(), index: 2, mtu: 1500 };
        let here = Here { node: id(n.into()), pods: pods(n), underlay: vec![underlay], overlay: Some(9) };
        let other = 3 - n;
        let mut peers = Peers::default();
        let peer = Peer {
            node: id(other.into()),
            address: address(other).into(),
            underlay: vec![address(other).into()],
            pod_cidr: Some(pods(other).into()),
        };
        peers.set(&[peer], here.node, now, &Ambient::system());
        Self { here, peers }
    }

    fn path(&self) -> Path {
        self.peers.iter().next().unwrap().path(&self.here)
    }
}

fn pods(n: u8) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::new(10, 244, n, 0), 24).unwrap()
}

/// Lets time pass until `until`, carrying packets at once. Returns how many probes were sent.
fn run(sides: &mut [Side; 2], now: &mut Instant, until: Instant, wires: Wires) -> usize {
    let (key, ambient) = (ProbeKey::new(&[3; 32]), Ambient::system());
    let mut sent = 0;
    while *now < until {
        for n in [0_usize, 1] {
            let (here, there) = (n, 1 - n);
            let (packets, _) = {
                let side = &mut sides[here];
                side.peers.due(&side.here, *now, &ambient)
            };
            for packet in packets {
                sent += 1;
                let probe = Probe::decode(&packet.probe.encode(&key), &key).unwrap();
                let Some(changed) = wires(here as u128 + 1, probe.way) else { continue };
                let source = changed.unwrap_or_else(|| packet.source.unwrap_or(probe.reply_to).into());
                let node = sides[there].here.node;
                let Some(answer) = sides[there].peers.asked(&probe, source, node, *now) else { continue };
                assert_eq!((answer.to, answer.source, answer.dev), (probe.reply_to, None, None));
                if wires(there as u128 + 1, Way::Plain).is_some() {
                    let side = &mut sides[here];
                    side.peers.answered(&answer.probe, &side.here);
                }
            }
        }
        let next = sides.iter().filter_map(|side| side.peers.next(*now)).min().unwrap();
        *now = next.max(*now + Duration::from_millis(1));
    }
    sent
}

fn after(seconds: u64, wires: Wires) -> ([Side; 2], Instant) {
    let mut now = Instant::now();
    let mut sides = [Side::new(1, now), Side::new(2, now)];
    let until = now + Duration::from_secs(seconds);
    run(&mut sides, &mut now, until, wires);
    (sides, now)
}

fn direct(n: u8) -> Path {
    Path::Direct { via: Ipv4Addr::new(192, 0, 2, n), dev: "eth0".into() }
}

#[test]
fn all_ways_open_is_direct_within_seconds_and_then_quiet() {
    let (mut sides, mut now) = after(5, &|_, _| Some(None));
    assert_eq!((sides[0].path(), sides[1].path()), (direct(2), direct(1)));
    let until = now + Duration::from_secs(3600);
    let sent = run(&mut sides, &mut now, until, &|_, _| Some(None));
    assert!((2 * 3 * 8..=2 * 3 * 13).contains(&sent), "{sent} probes an hour");
}

#[test]
fn the_direct_way_is_taken_by_both_or_by_none() {
    let (sides, _) = after(20, &|from, way| (way != Way::Direct || from == 1).then_some(None));
    assert_eq!((sides[0].path(), sides[1].path()), (Path::Overlay, Path::Overlay));
}

#[test]
fn an_address_that_was_translated_on_the_way_does_not_count() {
    let translated = Some("203.0.113.9".parse().unwrap());
    for (way, expected) in [(Way::Direct, Path::Overlay), (Way::Overlay, direct(2)), (Way::Plain, Path::None)] {
        let (sides, _) = after(30, &|_, taken| Some(translated.filter(|_| taken == way)));
        assert_eq!(sides[0].path(), expected, "{way:?}");
    }
}

#[test]
fn nodes_that_hear_each_other_and_never_agree_ask_now_and_then() {
    let translated = Some("203.0.113.9".parse().unwrap());
    let (mut sides, mut now) = after(120, &|_, _| Some(translated));
    let until = now + Duration::from_secs(3600);
    let sent = run(&mut sides, &mut now, until, &|_, _| Some(translated));
    assert!(sent < 2 * 3 * 130, "{sent} probes an hour");
}

#[test]
fn a_way_that_worked_is_given_up_after_three_rounds_and_found_again() {
    let (mut sides, mut now) = after(5, &|_, _| Some(None));
    let until = now + Duration::from_secs(400);
    run(&mut sides, &mut now, until, &|_, way| (way != Way::Direct).then_some(None));
    assert_eq!((sides[0].path(), sides[1].path()), (Path::Overlay, Path::Overlay));
    let until = now + Duration::from_secs(400);
    run(&mut sides, &mut now, until, &|_, _| None);
    assert_eq!((sides[0].path(), sides[1].path()), (Path::None, Path::None));
    let until = now + Duration::from_secs(75);
    run(&mut sides, &mut now, until, &|_, _| Some(None));
    assert_eq!((sides[0].path(), sides[1].path()), (direct(2), direct(1)));
}

#[test]
fn lost_packets_change_nothing() {
    let (mut sides, mut now) = after(5, &|_, _| Some(None));
    let lost = std::cell::Cell::new(0_u32);
    let until = now + Duration::from_secs(7200);
    let every_third = |_: u128, _: Way| {
        lost.set(lost.get() + 1);
        (!lost.get().is_multiple_of(3)).then_some(None)
    };
    run(&mut sides, &mut now, until, &every_third);
    assert_eq!((sides[0].path(), sides[1].path()), (direct(2), direct(1)));
}

#[test]
fn what_is_for_another_node_from_a_stranger_or_to_be_answered_elsewhere_gets_no_answer() {
    let now = Instant::now();
    let mut side = Side::new(1, now);
    let probe = Probe {
        answer: false,
        way: Way::Plain,
        from: id(2),
        to: id(1),
        nonce: [1; 16],
        reply_to: Ipv4Addr::new(192, 0, 2, 2),
        seen: Ipv4Addr::UNSPECIFIED,
        direct_works: false,
    };
    let source = IpAddr::V4(probe.reply_to);
    let mut asked = |probe: Probe| side.peers.asked(&probe, source, id(1), now);
    assert!(asked(probe).is_some());
    assert_eq!(asked(Probe { to: id(7), ..probe }), None);
    assert_eq!(asked(Probe { from: id(7), ..probe }), None);
    assert_eq!(asked(Probe { reply_to: Ipv4Addr::new(192, 0, 2, 99), ..probe }), None);
    assert_eq!(asked(Probe { answer: true, ..probe }), None);
}

#[test]
fn an_answer_counts_once_asked_for_and_only_with_its_number() {
    let now = Instant::now();
    let mut side = Side::new(1, now);
    let (packets, _) = side.peers.due(&side.here, now + Duration::from_secs(1), &Ambient::system());
    let told = packets[0].probe.answered("192.0.2.1".parse().unwrap(), true);
    for wrong in
        [Probe { nonce: [0; 16], ..told }, Probe { way: Way::Direct, ..told }, Probe { to: id(5), ..told }, Probe { from: id(5), ..told }]
    {
        side.peers.answered(&wrong, &side.here);
    }
    side.peers.due(&side.here, now + Duration::from_secs(10), &Ambient::system());
    assert_eq!(side.path(), Path::None);
    let (packets, _) = side.peers.due(&side.here, now + Duration::from_secs(60), &Ambient::system());
    side.peers.answered(&packets[0].probe.answered("192.0.2.1".parse().unwrap(), true), &side.here);
    side.peers.due(&side.here, now + Duration::from_secs(60), &Ambient::system());
    assert_eq!(side.peers.iter().next().unwrap().reached_at(), Some(Ipv4Addr::new(192, 0, 2, 2)));
}

#[test]
fn an_own_address_of_another_node_is_not_tried_and_no_more_than_four_are() {
    let now = Instant::now();
    let mut side = Side::new(1, now);
    let underlay = ["192.0.2.1", "127.0.0.1", "fd00::1", "224.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    let peer = Peer {
        node: id(2),
        address: "192.0.2.1".parse().unwrap(),
        underlay: underlay.iter().map(|address| address.parse().unwrap()).collect(),
        pod_cidr: Some(pods(2).into()),
    };
    side.peers.set(&[peer], id(1), now, &Ambient::system());
    let (packets, _) = side.peers.due(&side.here, now + Duration::from_secs(20), &Ambient::system());
    let to: Vec<_> = packets.iter().map(|packet| packet.to.to_string()).collect();
    assert_eq!(to, ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]);
    assert!(packets.iter().all(|packet| packet.probe.reply_to == Ipv4Addr::new(192, 0, 2, 1)));
}
