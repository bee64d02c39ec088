//! Probes between nodes: what they say, and the proof that a node of this cluster said it. Pure.
//!
//! A probe names its sender and the node it is for, since two nodes may have the same private address behind different NATs; whoever gets
//! one that is for another node says nothing. An answer is as long as its probe, and goes to an address that the platform told of its
//! asker, so that nobody is flooded with answers. What an asker believes, it believes for an answer to a number that it chose itself just
//! before; a probe that is played back does no more than cause one more answer.

use std::net::{IpAddr, Ipv4Addr};

use ring::hmac;

use crate::domain::NodeId;

/// The UDP port of probes, on every node.
pub const PROBE_PORT: u16 = 9876;
/// The length of probes and answers.
pub const LENGTH: usize = HEAD + 32;

const MAGIC: &[u8; 4] = b"KBp1";
const HEAD: usize = 4 + 1 + 1 + 16 + 16 + 16 + 4 + 4;
const ANSWER: u8 = 0x80;
const DIRECT_WORKS: u8 = 1;

/// Which way a packet takes to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// From and to the nodes' own addresses.
    Plain,
    /// From pods' address to pods' address, without a wrapping.
    Direct,
    /// From pods' address to pods' address, through VXLAN.
    Overlay,
}

/// A probe, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Whether this is the answer to one.
    pub answer: bool,
    /// The way that the probe took.
    pub way: Way,
    /// Who says it.
    pub from: NodeId,
    /// Whom it is for.
    pub to: NodeId,
    /// The asker's number, for this probe alone.
    pub nonce: [u8; 16],
    /// Where the asker waits for the answer: one of its own addresses.
    pub reply_to: Ipv4Addr,
    /// In an answer: the source address that the probe came with.
    pub seen: Ipv4Addr,
    /// Whether the direct way from `from` to `to` is known to work.
    pub direct_works: bool,
}

/// The key that proves probes.
pub struct ProbeKey(hmac::Key);

impl std::fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProbeKey")
    }
}

impl ProbeKey {
    /// From the cluster's 32 bytes.
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }
}

impl Probe {
    /// The packet.
    pub fn encode(&self, key: &ProbeKey) -> [u8; LENGTH] {
        let kind = match self.way {
            Way::Plain => 1,
            Way::Direct => 2,
            Way::Overlay => 3,
        };
        let mut packet = Vec::with_capacity(LENGTH);
        packet.extend_from_slice(MAGIC);
        packet.push(if self.answer { kind | ANSWER } else { kind });
        packet.push(if self.direct_works { DIRECT_WORKS } else { 0 });
        packet.extend_from_slice(self.from.uuid().as_bytes());
        packet.extend_from_slice(self.to.uuid().as_bytes());
        packet.extend_from_slice(&self.nonce);
        packet.extend_from_slice(&self.reply_to.octets());
        packet.extend_from_slice(&self.seen.octets());
        let proof = hmac::sign(&key.0, &packet);
        packet.extend_from_slice(proof.as_ref());
        packet.try_into().expect("the parts have these lengths")
    }

    /// Reads a packet; `None` unless it is whole and proven.
    pub fn decode(packet: &[u8], key: &ProbeKey) -> Option<Self> {
        let (head, proof) = packet.split_at_checked(HEAD).filter(|_| packet.len() == LENGTH)?;
        hmac::verify(&key.0, head, proof).ok()?;
        let (magic, rest) = head.split_first_chunk::<4>()?;
        let (&[kind, flags], rest) = rest.split_first_chunk::<2>()?;
        let (from, rest) = rest.split_first_chunk::<16>()?;
        let (to, rest) = rest.split_first_chunk::<16>()?;
        let (nonce, rest) = rest.split_first_chunk::<16>()?;
        let (reply_to, seen) = rest.split_first_chunk::<4>()?;
        let seen: [u8; 4] = seen.try_into().ok()?;
        let way = match kind & !ANSWER {
            1 => Way::Plain,
            2 => Way::Direct,
            3 => Way::Overlay,
            _ => return None,
        };
        (magic == MAGIC).then(|| Self {
            answer: kind & ANSWER != 0,
            way,
            from: uuid::Uuid::from_bytes(*from).into(),
            to: uuid::Uuid::from_bytes(*to).into(),
            nonce: *nonce,
            reply_to: (*reply_to).into(),
            seen: seen.into(),
            direct_works: flags & DIRECT_WORKS != 0,
        })
    }

    /// The answer of the node that this is for, to which it came from `source`.
    #[must_use]
    pub fn answered(&self, source: IpAddr, direct_works: bool) -> Self {
        let seen = match source {
            IpAddr::V4(source) => source,
            IpAddr::V6(source) => source.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED),
        };
        Self { answer: true, from: self.to, to: self.from, seen, direct_works, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn probe(way: Way) -> Probe {
        let id = |n| NodeId::from(uuid::Uuid::from_u128(n));
        Probe {
            answer: false,
            way,
            from: id(1),
            to: id(2),
            nonce: [9; 16],
            reply_to: Ipv4Addr::new(192, 0, 2, 1),
            seen: Ipv4Addr::UNSPECIFIED,
            direct_works: true,
        }
    }

    #[test]
    fn says_what_was_put_into_it_to_holders_of_the_key_alone() {
        let (key, other) = (ProbeKey::new(&[1; 32]), ProbeKey::new(&[2; 32]));
        for way in [Way::Plain, Way::Direct, Way::Overlay] {
            let probe = probe(way);
            let packet = probe.encode(&key);
            assert_eq!(Probe::decode(&packet, &key), Some(probe));
            assert_eq!(Probe::decode(&packet, &other), None);
            let answer = probe.answered("10.244.1.1".parse().unwrap(), false);
            assert_eq!((answer.from, answer.to, answer.nonce), (probe.to, probe.from, probe.nonce));
            assert_eq!(Probe::decode(&answer.encode(&key), &key).unwrap().seen, Ipv4Addr::new(10, 244, 1, 1));
        }
    }

    #[test]
    fn a_packet_with_any_bit_changed_or_cut_off_is_nothing() {
        let key = ProbeKey::new(&[1; 32]);
        let packet = probe(Way::Direct).encode(&key);
        for at in 0..packet.len() {
            let mut changed = packet;
            changed[at] ^= 1;
            assert_eq!(Probe::decode(&changed, &key), None, "{at}");
            assert_eq!(Probe::decode(&packet[..at], &key), None, "{at}");
        }
    }

    proptest! {
        #[test]
        fn garbage_is_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(Probe::decode(&bytes, &ProbeKey::new(&[1; 32])), None);
        }
    }
}
