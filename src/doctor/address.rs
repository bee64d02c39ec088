//! Whether the address that is handed out can be reached from where tenants' machines are.

use std::net::IpAddr;

use super::{Context, Finding};

const CHECK: &str = "address";

pub(super) fn check(context: &Context) -> Finding {
    judge(context.advertise_host.as_deref(), context.control_plane_host.as_deref())
}

fn judge(advertised: Option<&str>, control_plane: Option<&str>) -> Finding {
    let remedy = "Set `advertise_address` to the host and port at which nodes reach this machine (a public name, or the router's public address with \
                  its port passed on), and look at the result with `kubebyon config print`.";
    let told = match (advertised, control_plane) {
        (None, None) => {
            return Finding::warning(
                CHECK,
                "No address is configured, so kubeconfigs and join commands name that of the default route, which may be private.",
                remedy,
            );
        }
        (Some(host), None) => vec![("Nodes and people are told", host, "`advertise_address`")],
        (None, Some(host)) => vec![("Kubeconfigs name", host, "`control_plane_host`")],
        (Some(host), Some(own)) => {
            vec![("Kubeconfigs name", own, "`control_plane_host`"), ("nodes and people are told", host, "`advertise_address`")]
        }
    };
    let near = told.iter().any(|(_, host, _)| nearness(host).is_some());
    let parts = told.iter().map(|(who, host, key)| match nearness(host) {
        Some(why) => format!("{who} {host} ({key}), {why}"),
        None => format!("{who} {host} ({key})"),
    });
    let message = parts.collect::<Vec<_>>().join("; ") + ".";
    match (near, control_plane) {
        (false, _) => Finding::ok(CHECK, message),
        (true, Some(own)) if nearness(own).is_some() => {
            Finding::warning(CHECK, message, remedy.replace("advertise_address", "control_plane_host"))
        }
        (true, _) => Finding::warning(CHECK, message, remedy),
    }
}

/// Why `host` is not reached from everywhere; `None` when it may be.
fn nearness(host: &str) -> Option<&'static str> {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => reach(address),
        Err(_) if host == "localhost" || host.ends_with(".localhost") => Some("which is every machine itself"),
        Err(_) => None,
    }
}

/// Why `address` is not reached from everywhere; `None` when it may be.
fn reach(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            if v4.is_loopback() {
                Some("which is every machine itself")
            } else if v4.is_unspecified() {
                Some("which is no address to connect to")
            } else if v4.is_private() {
                Some("a private address (RFC 1918) that only the same network reaches")
            } else if a == 100 && (64..128).contains(&b) {
                Some("an address behind the provider's NAT (RFC 6598)")
            } else if v4.is_link_local() {
                Some("a link-local address (RFC 3927) that only the same link reaches")
            } else {
                None
            }
        }
        IpAddr::V6(v6) if v6.is_loopback() => Some("which is every machine itself"),
        IpAddr::V6(v6) if v6.is_unspecified() => Some("which is no address to connect to"),
        IpAddr::V6(v6) if v6.is_unique_local() => Some("a private address (RFC 4193) that only the same network reaches"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("a link-local address (RFC 4291) that only the same link reaches"),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn private_addresses_are_warned_of_and_public_ones_are_not() {
        for private in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "0.0.0.0",
            "::1",
            "[::1]",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "localhost",
            "x.localhost",
        ] {
            assert_eq!(judge(Some(private), None).status, Status::Warning, "{private}");
        }
        for public in ["203.0.113.7", "172.32.0.1", "100.128.0.1", "2001:db8::1", "[2001:db8::1]", "platform.example"] {
            assert_eq!(judge(Some(public), None).status, Status::Ok, "{public}");
        }
        assert_eq!(judge(None, None).status, Status::Warning);
    }

    #[test]
    fn the_host_of_kubeconfigs_is_judged_where_it_is_configured() {
        let own = judge(None, Some("203.0.113.7"));
        assert_eq!(own.status, Status::Ok);
        assert!(own.message.contains("203.0.113.7") && own.message.contains("control_plane_host"), "{}", own.message);
        assert_eq!(judge(Some("203.0.113.7"), Some("10.0.0.1")).status, Status::Warning);
        assert_eq!(judge(Some("10.0.0.1"), Some("203.0.113.7")).status, Status::Warning);
    }
}
