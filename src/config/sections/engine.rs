//! `engine.*` and `local.*`: what runs control planes, and what the local engine hands to each. Imports `config::value`.

use ipnet::IpNet;

use crate::config::section::section;
use crate::config::value::UidRange;
use crate::domain::{EngineKind, Invalid};

section! {
    /// What runs control planes.
    pub struct Engine {
        /// The engine of clusters created without one: `local`, `hosted` or `vcluster`.
        default: EngineKind = EngineKind::Local,
    }
}

section! {
    /// The local engine: control planes as processes of this host.
    pub struct Local {
        /// The user ids of control planes, one a cluster, `first-last`. No other program of the host may use them; the default lies
        /// where systemd's list of uids says that nobody does.
        uid_range: UidRange = UidRange { first: 1_900_000_000, last: 1_900_065_535 },
        /// The loopback addresses of control planes, one a cluster.
        address_range: IpNet = "127.64.0.0/10".parse().expect("a constant"),
    }
}

impl Local {
    /// The range is of loopback addresses, and leaves 127.0.0.0/16 to the machine.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let mut refuse = |message: String| problems.push(Invalid::new("local.address_range", message));
        match self.address_range {
            IpNet::V6(net) => refuse(format!("{net} is IPv6, of which a machine has one loopback address; use a part of 127.0.0.0/8")),
            IpNet::V4(net) if net.network() != net.addr() => {
                refuse(format!("{net} has bits set behind its prefix; did you mean {}?", net.trunc()));
            }
            IpNet::V4(net) if net.network().octets()[0] != 127 || net.prefix_len() < 9 || net.prefix_len() > 28 => {
                refuse(format!("{net} is no part of 127.0.0.0/8 between /9 and /28; it looks like 127.64.0.0/10"));
            }
            IpNet::V4(net) if net.network().octets()[1] == 0 => {
                refuse(format!("{net} holds 127.0.0.1, or addresses that resolvers use; begin at 127.1.0.0 or above"));
            }
            IpNet::V4(_) => {}
        }
    }
}
