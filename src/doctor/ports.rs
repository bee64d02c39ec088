//! Whether the ports are free, or ours; and who has them if not.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use super::{Context, Finding};

const CHECK: &str = "ports";
/// Where the kernel tells of the ports that it gives to outgoing connections.
const EPHEMERAL: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A listening TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listening {
    address: SocketAddr,
    inode: u64,
}

/// A process that has a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    pid: u32,
    name: String,
    /// Whether it runs this very program.
    ours: bool,
}

pub(super) fn check(context: &Context) -> Vec<Finding> {
    let proc = Path::new("/proc");
    let listening = match listening(proc) {
        Ok(listening) => listening,
        Err(error) => {
            let message = format!("The open ports cannot be listed: /proc/net/tcp: {error}.");
            return vec![Finding::warning(CHECK, message, "List them by hand: `ss -ltnp`.")];
        }
    };
    let of_interest = |port: u16| port == context.listen.port() || context.node_ports.as_ref().is_some_and(|range| range.contains(&port));
    let inodes = listening.iter().filter(|other| of_interest(other.address.port())).map(|other| other.inode).collect();
    let holders = holders(proc, &inodes);
    let mut findings = vec![judge_listen(context.listen, &listening, |inode| holders.get(&inode).cloned())];
    if let Some(range) = &context.node_ports {
        findings.push(judge_range(range, &listening, |inode| holders.get(&inode).cloned()));
        let ephemeral = fs::read_to_string(EPHEMERAL).ok().and_then(|text| parse_range(&text));
        findings.extend(ephemeral.and_then(|ephemeral| judge_ephemeral(range, &ephemeral)));
    }
    findings
}

fn judge_listen(listen: SocketAddr, listening: &[Listening], holder: impl Fn(u64) -> Option<Holder>) -> Finding {
    let port = listen.port();
    let Some(taken) = listening.iter().find(|other| port != 0 && conflicts(listen, other.address)) else {
        return Finding::ok(CHECK, format!("Port {port} is free for the front door."));
    };
    let who = match holder(taken.inode) {
        Some(Holder { pid, ours: true, .. }) => {
            return Finding::ok(CHECK, format!("Port {port} is served by KubeBYON itself (process {pid})."));
        }
        Some(Holder { pid, name, .. }) => format!("{name} (process {pid})"),
        None => "a process that this user may not look at".to_owned(),
    };
    Finding::failed(
        CHECK,
        format!("Port {port}, where the front door is to listen, is taken by {who}."),
        format!("Stop it (`ss -ltnp 'sport = :{port}'` as root shows it), or set `listen` to another port."),
    )
}

/// Whether a listener at `wanted` and one at `present` exclude each other.
fn conflicts(wanted: SocketAddr, present: SocketAddr) -> bool {
    let (a, b) = (wanted.ip(), present.ip());
    // `[::]` is taken to mean IPv4 too.
    let everything = |address: IpAddr| address == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let same_family = a.is_ipv4() == b.is_ipv4();
    wanted.port() == present.port()
        && (everything(a) || everything(b) || a == b || (same_family && (a.is_unspecified() || b.is_unspecified())))
}

fn judge_range(range: &RangeInclusive<u16>, listening: &[Listening], holder: impl Fn(u64) -> Option<Holder>) -> Finding {
    let (first, last) = (range.start(), range.end());
    let foreign: BTreeSet<u16> = listening
        .iter()
        .filter(|other| range.contains(&other.address.port()))
        .filter(|other| !holder(other.inode).is_some_and(|holder| holder.ours))
        .map(|other| other.address.port())
        .collect();
    if foreign.is_empty() {
        return Finding::ok(CHECK, format!("No other program listens between {first} and {last}, where clusters get their ports."));
    }
    let some: Vec<String> = foreign.iter().take(8).map(ToString::to_string).collect();
    let more = if foreign.len() > some.len() { format!(" and {} more", foreign.len() - some.len()) } else { String::new() };
    Finding::warning(
        CHECK,
        format!(
            "Other programs listen on ports of clusters ({first} to {last}): {}{more}. These cannot be given to clusters.",
            some.join(", ")
        ),
        format!("Move the programs (`ss -ltnp 'sport >= :{first} and sport <= :{last}'` shows them), or choose another `nodeport_range`."),
    )
}

fn judge_ephemeral(range: &RangeInclusive<u16>, ephemeral: &RangeInclusive<u16>) -> Option<Finding> {
    let (first, last) = (range.start(), range.end());
    (first <= ephemeral.end() && ephemeral.start() <= last).then(|| {
        let message = format!(
            "The kernel gives ports from {} to {} to outgoing connections, and clusters get theirs from {first} to {last}: at times one will be taken.",
            ephemeral.start(),
            ephemeral.end()
        );
        Finding::warning(CHECK, message, format!("Keep them apart: `sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}`."))
    })
}

fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ports = text.split_whitespace().map(str::parse);
    Some(ports.next()?.ok()?..=ports.next()?.ok()?)
}

fn listening(proc: &Path) -> std::io::Result<Vec<Listening>> {
    let mut all = parse(&fs::read_to_string(proc.join("net/tcp"))?);
    // Absent without IPv6.
    all.extend(fs::read_to_string(proc.join("net/tcp6")).map(|text| parse(&text)).unwrap_or_default());
    Ok(all)
}

/// The listening sockets of a table such as `/proc/net/tcp` (proc(5)).
fn parse(table: &str) -> Vec<Listening> {
    table.lines().skip(1).filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Listening> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let address = match address.len() {
        8 => Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok()?.to_ne_bytes());
            }
            IpAddr::from(bytes)
        }
        _ => return None,
    };
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listening { address: (address, port).into(), inode: fields.get(9)?.parse().ok()? })
}

/// The processes that have the sockets `inodes` open, among those that this user may look at; one pass over all processes.
fn holders(proc: &Path, inodes: &HashSet<u64>) -> HashMap<u64, Holder> {
    let own = fs::read_link(proc.join("self/exe")).ok();
    let mut found = HashMap::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let folder = entry.path();
        let sockets =
            fs::read_dir(folder.join("fd")).into_iter().flatten().flatten().filter_map(|fd| socket(&fs::read_link(fd.path()).ok()?));
        let sockets: Vec<u64> = sockets.filter(|inode| inodes.contains(inode)).collect();
        if sockets.is_empty() {
            continue;
        }
        let name = fs::read_to_string(folder.join("comm")).map_or_else(|_| "a process".into(), |name| name.trim().to_owned());
        let same = own.is_some() && fs::read_link(folder.join("exe")).ok() == own;
        let holder = Holder { pid, ours: same || name == "kubebyon", name };
        found.extend(sockets.into_iter().map(|inode| (inode, holder.clone())));
    }
    found
}

/// The inode of a link such as `socket:[4711]`.
fn socket(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0
   1: 0100007F:7531 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:7532 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0 100 0 0 10 0
";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[expect(clippy::unnecessary_wraps, reason = "it stands for a look-up")]
    fn other(_: u64) -> Option<Holder> {
        Some(Holder { pid: 7, name: "nginx".into(), ours: false })
    }

    #[test]
    fn listening_sockets_are_read_and_others_are_not() {
        let parsed = parse(TABLE);
        assert_eq!(
            parsed,
            [Listening { address: at("0.0.0.0:443"), inode: 4711 }, Listening { address: at("127.0.0.1:30001"), inode: 4712 }]
        );
        let v6 = "sl\n 0: 00000000000000000000000001000000:01BB 0:0 0A 0:0 0:0 0 0 0 9 1";
        assert_eq!(parse(v6), [Listening { address: at("[::1]:443"), inode: 9 }]);
    }

    #[test]
    fn a_taken_port_names_its_holder_and_our_own_is_fine() {
        let taken = parse(TABLE);
        let finding = judge_listen(at("[::]:443"), &taken, other);
        assert_eq!(finding.status, Status::Failed);
        assert!(finding.message.contains("nginx (process 7)"), "{}", finding.message);
        assert_eq!(judge_listen(at("[::]:443"), &taken, |_| None).status, Status::Failed);
        let ours = |_| Some(Holder { pid: 8, name: "kubebyon".into(), ours: true });
        assert_eq!(judge_listen(at("[::]:443"), &taken, ours).status, Status::Ok);
        assert_eq!(judge_listen(at("[::]:8443"), &taken, other).status, Status::Ok);
    }

    #[test]
    fn listeners_conflict_where_their_addresses_meet() {
        for (wanted, present, expected) in [
            ("[::]:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("127.0.0.1:1", "[::1]:1", false),
            ("127.0.0.1:1", "[::]:1", true),
            ("[::]:1", "[::]:2", false),
        ] {
            assert_eq!(conflicts(at(wanted), at(present)), expected, "{wanted} {present}");
        }
    }

    #[test]
    fn foreign_listeners_in_the_range_of_clusters_are_warned_of() {
        let finding = judge_range(&(30000..=32767), &parse(TABLE), other);
        assert_eq!(finding.status, Status::Warning);
        assert!(finding.message.contains(": 30001."), "{}", finding.message);
        assert_eq!(judge_range(&(31000..=32767), &parse(TABLE), other).status, Status::Ok);
    }

    #[test]
    fn a_range_within_the_kernels_own_is_warned_of() {
        let linux = parse_range("32768\t60999\n").unwrap();
        assert_eq!(judge_ephemeral(&(30000..=32767), &linux), None);
        assert_eq!(judge_ephemeral(&(30000..=32768), &linux).map(|finding| finding.status), Some(Status::Warning));
    }

    #[test]
    fn the_holder_of_a_real_socket_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listening = listening(Path::new("/proc")).unwrap();
        let found = listening.iter().find(|other| other.address == address).unwrap();
        let holders = holders(Path::new("/proc"), &HashSet::from([found.inode]));
        let holder = &holders[&found.inode];
        assert_eq!((holder.pid, holder.ours), (std::process::id(), true));
    }
}
