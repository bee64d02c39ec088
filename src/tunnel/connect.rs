//! CONNECT requests (RFC 9110, 9.3.6), parsed by a pure and bounded function.
//!
//! May import: nothing of ours.
use std::net::{IpAddr, Ipv6Addr};

/// The longest request head that is read, in bytes.
pub const MAX_HEAD_BYTES: usize = 4096;

/// Where a stream is to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port; never 0.
    pub port: u16,
}

/// The host of a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name in lower case, without a final dot.
    Name(String),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            Host::Address(address) => write!(f, "{address}:{}", self.port),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// What the bytes received so far amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// More is needed.
    Incomplete,
    /// A whole request of `length` bytes; what follows belongs to the stream.
    Request {
        /// Where to.
        target: Target,
        /// The length of its head in bytes.
        length: usize,
    },
    /// Not a CONNECT request that is understood; the text says why.
    Refused(&'static str),
}

/// Parses the head of a CONNECT request. Its header fields are skipped: nothing in them decides anything.
pub fn parse(received: &[u8]) -> Parsed {
    let window = &received[..received.len().min(MAX_HEAD_BYTES)];
    let Some(end) = find(window, b"\r\n\r\n") else {
        return if received.len() >= MAX_HEAD_BYTES { Parsed::Refused("the request head is too long") } else { early(window) };
    };
    let line_end = find(window, b"\r\n").unwrap_or(end);
    match request_line(&window[..line_end]) {
        Ok(target) => Parsed::Request { target, length: end + 4 },
        Err(reason) => Parsed::Refused(reason),
    }
}

/// Refuses at once what can no longer become a CONNECT request, so that a TLS hello does not wait for a deadline.
fn early(received: &[u8]) -> Parsed {
    let method = b"CONNECT ";
    let known = received.len().min(method.len());
    if received[..known] == method[..known] { Parsed::Incomplete } else { Parsed::Refused("only CONNECT is served here") }
}

fn request_line(line: &[u8]) -> Result<Target, &'static str> {
    if !line.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        return Err("the request line holds bytes that are not printable ASCII");
    }
    let line = std::str::from_utf8(line).map_err(|_| "the request line is not ASCII")?;
    let mut words = line.split(' ');
    let (method, authority, version, rest) = (words.next(), words.next(), words.next(), words.next());
    if method != Some("CONNECT") {
        return Err("only CONNECT is served here");
    }
    if !matches!(version, Some("HTTP/1.1" | "HTTP/1.0")) || rest.is_some() {
        return Err("the request line is not `CONNECT host:port HTTP/1.1`");
    }
    target(authority.unwrap_or_default())
}

/// Parses `host:port`, with an IPv6 address in brackets.
fn target(authority: &str) -> Result<Target, &'static str> {
    let (host, port) = authority.rsplit_once(':').ok_or("the target has no port")?;
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the target's port is not a number");
    }
    let port = port.parse::<u16>().ok().filter(|&port| port != 0).ok_or("the target's port is not between 1 and 65535")?;
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or("the target's address is not closed by a bracket")?;
            Host::Address(IpAddr::V6(inner.parse::<Ipv6Addr>().map_err(|_| "the target's address is not IPv6")?))
        }
        None => match host.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => Host::Address(IpAddr::V4(address)),
            Ok(IpAddr::V6(_)) => return Err("an IPv6 target stands in brackets"),
            Err(_) => Host::Name(name(host)?),
        },
    };
    Ok(Target { host, port })
}

fn name(host: &str) -> Result<String, &'static str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    if host.len() > 253 || !host.split('.').all(label) {
        return Err("the target's host is neither an address nor a DNS name");
    }
    Ok(host.to_ascii_lowercase())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_target(authority: &str) -> Result<String, &'static str> {
        let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        match parse(head.as_bytes()) {
            Parsed::Request { target, length } => {
                assert_eq!(length, head.len());
                Ok(target.to_string())
            }
            Parsed::Refused(reason) => Err(reason),
            Parsed::Incomplete => panic!("{authority} is whole"),
        }
    }

    #[test]
    fn reads_what_kubernetes_sends() {
        assert_eq!(parse_target("10.0.0.7:10250").unwrap(), "10.0.0.7:10250");
        assert_eq!(parse_target("[2001:DB8::1]:443").unwrap(), "[2001:db8::1]:443");
        assert_eq!(parse_target("Revocation.Invalid.:443").unwrap(), "revocation.invalid:443");
        assert_eq!(parse_target("my_svc.ns.svc:8443").unwrap(), "my_svc.ns.svc:8443");
    }

    #[test]
    fn refuses_what_is_no_target() {
        for authority in [
            "",
            ":443",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "::1:443",
            "[::1]",
            "[::1:443",
            "[fe80::1%eth0]:1",
            "[1.2.3.4]:1",
            "a..b:1",
            ".:1",
            "a b:1",
            "a/b:1",
            "user@host:1",
            "http://host:1",
        ] {
            assert!(parse_target(authority).is_err(), "{authority:?}");
        }
        assert!(parse_target(&format!("{}:1", "a".repeat(64))).is_err());
        assert!(parse_target(&format!("{}a:1", "a.".repeat(130))).is_err());
    }

    #[test]
    fn refuses_other_requests() {
        for head in
            ["GET / HTTP/1.1\r\n\r\n", "connect a:1 HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/2\r\n\r\n", "CONNECT a:1\r\n\r\n", "\r\n\r\n"]
        {
            assert!(matches!(parse(head.as_bytes()), Parsed::Refused(_)), "{head:?}");
        }
        assert!(matches!(parse(b"\x16\x03\x01"), Parsed::Refused(_)), "a TLS hello is refused at once");
        assert!(matches!(parse(b"CONNECT a\0:1 HTTP/1.1\r\n\r\n"), Parsed::Refused(_)));
    }

    #[test]
    fn waits_for_the_rest_and_leaves_what_follows() {
        let whole = b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]), Parsed::Incomplete, "cut at {cut}");
        }
        let longer = [whole.as_slice(), b"\x16\x03"].concat();
        assert_eq!(parse(&longer), parse(whole));
    }

    #[test]
    fn a_long_head_is_refused() {
        let mut head = b"CONNECT a:1 HTTP/1.1\r\nX: ".to_vec();
        head.resize(MAX_HEAD_BYTES - 1, b'x');
        assert_eq!(parse(&head), Parsed::Incomplete);
        head.extend_from_slice(b"\r\n\r\n");
        assert!(matches!(parse(&head), Parsed::Refused(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            if let Parsed::Request { length, .. } = parse(&bytes) {
                prop_assert!(length <= bytes.len() && length <= MAX_HEAD_BYTES);
            }
        }

        #[test]
        fn what_is_understood_reads_the_same_again(authority in "[a-zA-Z0-9.:\\[\\]_-]{1,40}") {
            if let Ok(target) = parse_target(&authority) {
                prop_assert_eq!(parse_target(&target), Ok(target.clone()));
            }
        }
    }
}
