//! What of a host is in use without a claim: addresses that something listens on, uids that somebody has.
//!
//! May import: the ports of the common plan.

use std::net::{Ipv4Addr, TcpListener};

use super::claims::Candidates;
use crate::engine::plan::ports;

/// The users of this host.
pub struct OnThisHost {
    /// First and last uid of each span in use.
    spans: Vec<(u32, u32)>,
}

impl OnThisHost {
    /// Reads users (`passwd(5)`) and the spans given to user namespaces (`subuid(5)`).
    pub fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self { spans: spans(&text("/etc/passwd"), &text("/etc/subuid")) }
    }
}

impl Candidates for OnThisHost {
    fn address(&self, address: Ipv4Addr) -> bool {
        let all = [ports::API_SERVER, ports::ETCD_CLIENT, ports::ETCD_PEER, ports::CONTROLLER_MANAGER, ports::SCHEDULER, ports::TERMINATOR];
        all.into_iter().all(|port| TcpListener::bind((address, port)).is_ok())
    }

    fn uid(&self, uid: u32) -> bool {
        !self.spans.iter().any(|(first, last)| (*first..=*last).contains(&uid))
    }
}

fn spans(passwd: &str, subuid: &str) -> Vec<(u32, u32)> {
    let field = |line: &str, n: usize| line.split(':').nth(n).and_then(|f| f.trim().parse::<u32>().ok());
    let users = passwd.lines().filter_map(|l| field(l, 2).map(|uid| (uid, uid)));
    let given = subuid.lines().filter_map(|l| Some((field(l, 1)?, field(l, 1)?.saturating_add(field(l, 2)?.saturating_sub(1)))));
    users.chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_their_namespaces_are_in_use() {
        let host = OnThisHost { spans: spans("root:x:0:0::/root:/bin/sh\nx:x:900005:1::/:\nbad\n", "root:900010:5\n\n") };
        let free: Vec<_> = (900_004..900_017).filter(|u| host.uid(*u)).collect();
        assert_eq!(free, [900_004, 900_006, 900_007, 900_008, 900_009, 900_015, 900_016]);
    }

    #[test]
    fn an_address_that_something_listens_on_is_in_use() {
        let host = OnThisHost { spans: vec![] };
        let address = Ipv4Addr::new(127, 127, 251, 9);
        assert!(host.address(address));
        let listener = TcpListener::bind((address, ports::ETCD_PEER)).unwrap();
        assert!(!host.address(address));
        drop(listener);
        assert!(host.address(address));
    }
}
