//! What is known of the way to each other node, and when to ask again. Pure: time, numbers and packets come and go as values.
//!
//! A way counts when a probe that took it was answered by the very node, and for as long as no three rounds in a row went unanswered.
//! The direct way is taken when it works in both directions, so that a kernel which checks sources (`rp_filter`) drops nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use tokio::time::Instant;

use super::probe::{Probe, Way};
use crate::domain::{Ambient, NodeId};
use crate::tunnel::protocol::Peer;

/// How many addresses of a node are tried.
const CANDIDATES: usize = 4;
/// When a round's probes are sent again, after its start.
const SENDINGS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(900)];
/// How long a round waits for answers.
const ROUND: Duration = Duration::from_secs(2);
/// How many rounds are under way at once.
const ROUNDS: usize = 64;
/// So many unanswered rounds end a way that worked.
const MISSES: u8 = 3;
/// The wait after a first unanswered round on a way that worked.
const DOUBT: Duration = Duration::from_secs(2);
/// After a change, so many rounds follow each other soon, each time after twice the wait.
const EAGER: u32 = 6;
/// How often a node is asked that is reached as well as can be.
const STEADY: Duration = Duration::from_secs(300);
/// How often one that is not.
const UNREACHED: Duration = Duration::from_secs(60);

/// An own address that other nodes may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Underlay {
    /// The address with its network.
    pub net: Ipv4Net,
    /// The interface's name.
    pub dev: String,
    /// The interface's index.
    pub index: u32,
    /// The interface's MTU.
    pub mtu: u32,
}

/// What a node is among others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// Which node.
    pub node: NodeId,
    /// Its range of pod addresses.
    pub pods: Ipv4Net,
    /// Its own addresses, the preferred first.
    pub underlay: Vec<Underlay>,
    /// The index of its VXLAN interface.
    pub overlay: Option<u32>,
}

/// The address of a range that is its gateway: on the bridge of the node whose pods it is for.
pub fn gateway(pods: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(pods.network()).saturating_add(1))
}

/// How pods of another node are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// Not known yet: what is in the kernel stays.
    Undecided,
    /// Straight to that address on that interface.
    Direct {
        /// The node's own address.
        via: Ipv4Addr,
        /// This machine's interface.
        dev: String,
    },
    /// Through VXLAN.
    Overlay,
    /// Not at all.
    None,
}

/// A packet to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: Ipv4Addr,
    /// From which address; none: the kernel's choice.
    pub source: Option<Ipv4Addr>,
    /// By which interface; none: the kernel's choice.
    pub dev: Option<u32>,
    /// What it says.
    pub probe: Probe,
}

/// Whether a way works, as far as is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Proof {
    holds: bool,
    misses: u8,
}

impl Proof {
    fn learn(&mut self, answered: bool) {
        if answered {
            *self = Self { holds: true, misses: 0 };
        } else {
            self.misses = self.misses.saturating_add(1);
            self.holds &= self.misses < MISSES;
        }
    }

    fn doubted(self) -> bool {
        self.holds && self.misses > 0
    }
}

/// A probe whose answer is waited for.
#[derive(Debug)]
struct Outstanding {
    packet: Transmit,
    candidate: Option<Ipv4Addr>,
    answered: bool,
}

#[derive(Debug)]
struct Round {
    started: Instant,
    sendings: usize,
    probes: Vec<Outstanding>,
    /// What the node said last of its direct way to us.
    reverse_direct: Option<bool>,
}

/// What is known of another node.
#[derive(Debug)]
pub struct Neighbour {
    /// Which.
    pub node: NodeId,
    /// Its `InternalIP`, for people.
    pub address: IpAddr,
    /// Its range of pod addresses.
    pub pods: Option<Ipv4Net>,
    /// Its own addresses.
    underlay: Vec<Ipv4Addr>,
    /// The one of them that answers, and whether.
    reached_at: Option<Ipv4Addr>,
    plain: Proof,
    direct: Proof,
    overlay: Proof,
    /// Whether it says that its packets reach us by the direct way.
    reverse_direct: bool,
    decided: bool,
    attempts: u32,
    round: Option<Round>,
    next: Instant,
    last_round: Option<Instant>,
}

impl Neighbour {
    /// Its own address that answers.
    pub fn reached_at(&self) -> Option<Ipv4Addr> {
        self.reached_at
    }

    /// Its own addresses.
    pub fn underlay(&self) -> &[Ipv4Addr] {
        &self.underlay
    }

    /// The interface on whose network the address that answers is.
    pub fn on_link<'a>(&self, here: &'a Here) -> Option<(Ipv4Addr, &'a Underlay)> {
        let via = self.reached_at?;
        here.underlay.iter().find(|own| own.net.prefix_len() < 32 && own.net.contains(&via)).map(|own| (via, own))
    }

    /// How its pods are reached.
    pub fn path(&self, here: &Here) -> Path {
        match self.on_link(here) {
            _ if !self.decided => Path::Undecided,
            Some((via, own)) if self.direct.holds && self.reverse_direct => Path::Direct { via, dev: own.dev.clone() },
            _ if self.reached_at.is_some() && self.overlay.holds => Path::Overlay,
            _ => Path::None,
        }
    }

    /// Whether there is nothing better to hope for than what there is.
    fn as_well_as_can_be(&self, here: &Here) -> bool {
        let best = self.on_link(here).is_some();
        match self.path(here) {
            Path::Direct { .. } => self.overlay.holds,
            Path::Overlay => !best,
            _ => false,
        }
    }

    fn probes(&self, here: &Here, ambient: &Ambient) -> Vec<Outstanding> {
        let own = |address: &Ipv4Addr| here.underlay.iter().any(|own| own.net.addr() == *address);
        let reply_to = |candidate: Ipv4Addr| {
            let same_net = here.underlay.iter().find(|own| own.net.contains(&candidate));
            same_net.or(here.underlay.first()).map(|own| own.net.addr())
        };
        let outstanding = |way, to, source, dev, candidate: Ipv4Addr| {
            let probe = Probe {
                answer: false,
                way,
                from: here.node,
                to: self.node,
                nonce: ambient.random(),
                reply_to: reply_to(candidate)?,
                seen: Ipv4Addr::UNSPECIFIED,
                direct_works: self.direct.holds,
            };
            let candidate = (way == Way::Plain).then_some(candidate);
            Some(Outstanding { packet: Transmit { to, source, dev, probe }, candidate, answered: false })
        };
        let tried = self.underlay.iter().copied().filter(|address| !own(address)).take(CANDIDATES);
        let mut probes: Vec<_> = tried.filter_map(|to| outstanding(Way::Plain, to, None, None, to)).collect();
        if let (Some(at), Some(pods)) = (self.reached_at, self.pods) {
            if let Some(overlay) = here.overlay {
                probes.extend(outstanding(Way::Overlay, pods.network(), Some(here.pods.network()), Some(overlay), at));
            }
            if let Some((_, own)) = self.on_link(here) {
                probes.extend(outstanding(Way::Direct, gateway(pods), Some(gateway(here.pods)), Some(own.index), at));
            }
        }
        probes
    }

    /// Draws the conclusions of a round. Returns whether something changed.
    fn conclude(&mut self, round: &Round, here: &Here, now: Instant, ambient: &Ambient) -> bool {
        let before = (self.path(here), self.reached_at);
        let answered = |way| round.probes.iter().any(|sent| sent.answered && sent.packet.probe.way == way);
        let asked = |way| round.probes.iter().any(|sent| sent.packet.probe.way == way);
        let at: Vec<_> = round.probes.iter().filter(|sent| sent.answered).filter_map(|sent| sent.candidate).collect();
        self.reverse_direct = round.reverse_direct.unwrap_or(self.reverse_direct);
        self.plain.learn(self.reached_at.is_some_and(|address| at.contains(&address)));
        if self.plain.holds {
            for (way, proof) in [(Way::Direct, &mut self.direct), (Way::Overlay, &mut self.overlay)] {
                if asked(way) {
                    proof.learn(answered(way));
                }
            }
        } else {
            self.reached_at = at.first().copied();
            self.plain = Proof { holds: self.reached_at.is_some(), misses: 0 };
            (self.direct, self.overlay, self.reverse_direct) = (Proof::default(), Proof::default(), false);
        }
        let found_anew = self.reached_at.is_some() && before.1 != self.reached_at;
        // An address that answers for the first time has its other ways tried in the next round, which comes at once.
        self.decided |= !found_anew;
        let changed = (self.path(here), self.reached_at) != before;
        self.attempts = if changed || found_anew { 0 } else { self.attempts.saturating_add(1) };
        let jitter = |wait: Duration| wait + Duration::from_millis(ambient.below(wait.as_millis() as u64 / 5 + 1));
        let wait = if found_anew {
            Duration::ZERO
        } else if self.plain.doubted() || self.direct.doubted() || self.overlay.doubted() {
            DOUBT
        } else if self.as_well_as_can_be(here) {
            jitter(STEADY)
        } else if self.attempts < EAGER {
            jitter(Duration::from_secs(1 << self.attempts))
        } else if matches!(self.path(here), Path::None) {
            jitter(UNREACHED)
        } else {
            jitter(STEADY)
        };
        self.next = now + wait;
        self.last_round = Some(now);
        changed
    }
}

/// All other nodes of the cluster.
#[derive(Debug, Default)]
pub struct Peers(BTreeMap<NodeId, Neighbour>);

impl Peers {
    /// Takes over which nodes there are. What is known of those that stay is kept, unless it was of addresses that they no longer have.
    pub fn set(&mut self, peers: &[Peer], here: NodeId, now: Instant, ambient: &Ambient) {
        self.0.retain(|node, _| peers.iter().any(|peer| peer.node == *node));
        let spread = Duration::from_millis(20) * u32::try_from(peers.len()).unwrap_or(u32::MAX).min(500);
        for peer in peers.iter().filter(|peer| peer.node != here) {
            let underlay: Vec<Ipv4Addr> = peer.underlay.iter().filter_map(usable).collect();
            let pods = peer.pod_cidr.and_then(|net| match net {
                IpNet::V4(net) => Some(net.trunc()),
                IpNet::V6(_) => None,
            });
            let soon = now + Duration::from_millis(ambient.below(spread.as_millis() as u64));
            let known = self.0.entry(peer.node).or_insert_with(|| Neighbour {
                node: peer.node,
                address: peer.address,
                pods,
                underlay: underlay.clone(),
                reached_at: None,
                plain: Proof::default(),
                direct: Proof::default(),
                overlay: Proof::default(),
                reverse_direct: false,
                decided: false,
                attempts: 0,
                round: None,
                next: soon,
                last_round: None,
            });
            known.address = peer.address;
            if known.underlay != underlay || known.pods != pods {
                (known.underlay, known.pods, known.round, known.attempts, known.next) = (underlay, pods, None, 0, soon);
            }
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Neighbour> {
        self.0.values()
    }

    /// Has all of them asked again soon: this machine's own addresses changed, or its routes did.
    pub fn hurry(&mut self, now: Instant, ambient: &Ambient) {
        for known in self.0.values_mut() {
            known.round = None;
            known.attempts = 0;
            known.next = known.next.min(now + Duration::from_millis(ambient.below(1000)));
        }
    }

    /// What is to be sent now, and whether rounds that ended changed anything.
    pub fn due(&mut self, here: &Here, now: Instant, ambient: &Ambient) -> (Vec<Transmit>, bool) {
        let mut changed = false;
        for known in self.0.values_mut() {
            let over = |round: &Round| now >= round.started + ROUND || round.probes.iter().all(|sent| sent.answered);
            if let Some(round) = known.round.take_if(|round| over(round)) {
                changed |= known.conclude(&round, here, now, ambient);
            }
        }
        // Before another round, whoever was found has to get its routes.
        let mut under_way = self.0.values().filter(|known| known.round.is_some()).count();
        let mut packets = Vec::new();
        for known in self.0.values_mut() {
            if known.round.is_none() && known.next <= now && known.pods.is_some() && under_way < ROUNDS && !changed {
                known.round = Some(Round { started: now, sendings: 0, probes: known.probes(here, ambient), reverse_direct: None });
                under_way += 1;
            }
            if let Some(round) = &mut known.round
                && SENDINGS.get(round.sendings).is_some_and(|after| now >= round.started + *after)
            {
                round.sendings += 1;
                packets.extend(round.probes.iter().filter(|sent| !sent.answered).map(|sent| sent.packet.clone()));
            }
        }
        (packets, changed)
    }

    /// When there is something to do without anything happening.
    pub fn next(&self, now: Instant) -> Option<Instant> {
        let full = self.0.values().filter(|known| known.round.is_some()).count() >= ROUNDS;
        let of_one = |known: &Neighbour| match &known.round {
            Some(round) if round.probes.iter().all(|sent| sent.answered) => Some(now),
            Some(round) => Some(SENDINGS.get(round.sendings).map_or(round.started + ROUND, |after| round.started + *after)),
            None => (known.pods.is_some() && !full).then_some(known.next),
        };
        self.0.values().filter_map(of_one).min()
    }

    /// An answer came. It counts when it is to a probe that is waited for, and says that the probe came unchanged.
    pub fn answered(&mut self, answer: &Probe, here: &Here) {
        let Some(known) = self.0.get_mut(&answer.from).filter(|_| answer.to == here.node) else { return };
        let Some(round) = &mut known.round else { return };
        let unchanged = match answer.way {
            Way::Plain => here.underlay.iter().any(|own| own.net.addr() == answer.seen),
            Way::Direct => answer.seen == gateway(here.pods),
            Way::Overlay => answer.seen == here.pods.network(),
        };
        let waited = round.probes.iter_mut().find(|sent| sent.packet.probe.nonce == answer.nonce && sent.packet.probe.way == answer.way);
        if let Some(sent) = waited.filter(|_| unchanged) {
            sent.answered = true;
            round.reverse_direct = Some(answer.direct_works);
        }
    }

    /// A node that can prove itself sent a probe: when it knows more than we do, it is asked soon. Returns the answer, if one is due.
    pub fn asked(&mut self, probe: &Probe, source: IpAddr, here: NodeId, now: Instant) -> Option<Transmit> {
        let known = self.0.get_mut(&probe.from).filter(|_| probe.to == here && !probe.answer)?;
        if known.reached_at.is_none() || known.reverse_direct != probe.direct_works || (probe.way == Way::Overlay && !known.overlay.holds) {
            // Two nodes that hear each other and yet never agree do not keep each other busy.
            let pause = if known.attempts < EAGER { Duration::from_secs(1) } else { UNREACHED / 2 };
            let earliest = known.last_round.map_or(now, |last| last + pause);
            known.next = known.next.min(earliest.max(now));
        }
        let told = known.underlay.contains(&probe.reply_to);
        let answer = probe.answered(source, known.direct.holds);
        told.then_some(Transmit { to: probe.reply_to, source: None, dev: None, probe: answer })
    }
}

/// An address that may be another machine's.
fn usable(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) if !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || address.is_broadcast()) => {
            Some(*address)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
