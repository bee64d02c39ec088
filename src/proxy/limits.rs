//! How many connections there may be: in all, and by source until they are routed.
//!
//! By source the limit holds before routing only: behind one NAT address there may be hundreds of nodes with long-lived
//! connections, while nobody honest has many unfinished hellos. IPv6 sources count by their /64.
//! May import: nothing of ours.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts connections by their source.
#[derive(Debug)]
pub struct SourceLimit {
    most: usize,
    waiting: Mutex<HashMap<IpAddr, usize>>,
}

impl SourceLimit {
    /// At most so many of one source.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, waiting: Mutex::default() })
    }

    /// Counts one more of `source`, or `None` when it has as many as it may.
    pub fn admit(self: &Arc<Self>, source: IpAddr) -> Option<Waiting> {
        let source = counted_as(source);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.entry(source).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Waiting { limit: Arc::clone(self), source })
    }
}

/// A connection that counts for its source until this is dropped.
#[derive(Debug)]
pub struct Waiting {
    limit: Arc<SourceLimit>,
    source: IpAddr,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiting = self.limit.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = waiting.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.source);
            }
        }
    }
}

/// The address that `source` is counted under.
fn counted_as(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_limited_and_freed_by_drop() {
        let limit = SourceLimit::new(2);
        let source = "192.0.2.1".parse().unwrap();
        let first = limit.admit(source).unwrap();
        let _second = limit.admit("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(limit.admit(source).is_none());
        assert!(limit.admit("192.0.2.2".parse().unwrap()).is_some());
        drop(first);
        assert!(limit.admit(source).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_source_and_nothing_is_kept() {
        let limit = SourceLimit::new(1);
        let held = limit.admit("2001:db8::1".parse().unwrap());
        assert!(limit.admit("2001:db8::ffff:2".parse().unwrap()).is_none());
        assert!(limit.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
        drop(held);
        assert!(limit.waiting.lock().unwrap().is_empty());
    }
}
