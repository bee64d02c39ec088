//! The machine's network as files tell it: routes, listeners, resolvers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net};

use super::text;

/// A route of the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetRoute {
    /// Where it leads; `0.0.0.0/0` for the default route.
    pub to: IpNet,
    /// The interface.
    pub dev: String,
}

/// A TCP socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    /// Where; unspecified: everywhere.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// Routes of `/proc/net/route`: addresses are numbers in the machine's byte order.
pub fn routes(table: &str) -> Vec<NetRoute> {
    let parse = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let (to, mask) = (Ipv4Addr::from(number(1)?.to_ne_bytes()), Ipv4Addr::from(number(7)?.to_ne_bytes()));
        let net = Ipv4Net::with_netmask(to, mask).ok()?;
        Some(NetRoute { to: net.trunc().into(), dev: (*fields.first()?).to_owned() })
    };
    table.lines().skip(1).filter_map(parse).collect()
}

/// Who listens, by `/proc/net/tcp` and `/proc/net/tcp6`.
pub fn listeners(root: &Path) -> Vec<Listener> {
    ["proc/net/tcp", "proc/net/tcp6"].iter().filter_map(|file| text(root, file)).flat_map(|table| sockets(&table)).collect()
}

/// The listening sockets of such a table.
fn sockets(table: &str) -> Vec<Listener> {
    const LISTEN: &str = "0A";
    let parse = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        (fields.get(3) == Some(&LISTEN)).then_some(())?;
        Some(Listener { address: hex_address(address)?, port: u16::from_str_radix(port, 16).ok()? })
    };
    table.lines().skip(1).filter_map(parse).collect()
}

/// An address as the kernel prints it: words of four bytes in the machine's byte order.
fn hex_address(text: &str) -> Option<IpAddr> {
    let words: Option<Vec<[u8; 4]>> = (0..text.len() / 8)
        .map(|at| text.get(at * 8..at * 8 + 8).and_then(|word| u32::from_str_radix(word, 16).ok()).map(u32::to_ne_bytes))
        .collect();
    match words?.as_slice() {
        [word] => Some(Ipv4Addr::from(*word).into()),
        [a, b, c, d] => {
            let mut bytes = [0; 16];
            for (at, word) in [a, b, c, d].into_iter().enumerate() {
                bytes[at * 4..at * 4 + 4].copy_from_slice(word);
            }
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

/// The resolvers: those of `/etc/resolv.conf`, and where it names systemd's own, those behind it.
pub fn resolvers(root: &Path) -> Vec<IpAddr> {
    let stub: IpAddr = Ipv4Addr::new(127, 0, 0, 53).into();
    let named = text(root, "etc/resolv.conf").map(|conf| nameservers(&conf)).unwrap_or_default();
    if named.contains(&stub)
        && let Some(behind) = text(root, "run/systemd/resolve/resolv.conf")
    {
        return nameservers(&behind);
    }
    named
}

fn nameservers(conf: &str) -> Vec<IpAddr> {
    conf.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().split(['%', ' ', '\t']).next()?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_sockets_are_read_as_the_kernel_prints_them() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                     eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n\
                     garbage\tzz\n";
        let found = routes(table);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].to.to_string(), found[1].to.to_string()), ("0.0.0.0/0".to_owned(), "192.168.1.0/24".to_owned()));
        let tcp =
            "  sl  local_address rem_address   st\n   0: 0100007F:2808 00000000:0000 0A 0 0 0\n   1: 0100007F:1F90 0100007F:9999 01 0\n";
        assert_eq!(sockets(tcp), [Listener { address: Ipv4Addr::LOCALHOST.into(), port: 10248 }]);
        let tcp6 = "  sl  local_address rem_address   st\n   0: 00000000000000000000000000000000:280A 0:0 0A 0\n   1: FF:1 0:0 0A\n";
        assert_eq!(sockets(tcp6), [Listener { address: Ipv6Addr::UNSPECIFIED.into(), port: 10250 }]);
        assert_eq!(nameservers("# x\nnameserver 1.1.1.1\nnameserver fe80::1%eth0\nsearch lan\nnameserver x\n").len(), 2);
    }
}
