//! Addresses: under which names and ports a cluster and the platform are reached, and what certificates must say.

use std::net::IpAddr;

use super::Invalid;
use super::cluster::{Cluster, Endpoint, PublicAccessMode};
use super::join::TunnelEndpoint;
use super::network;

/// The domain below which clusters are known when none is configured; no DNS is asked for it.
pub const DEFAULT_BASE_DOMAIN: &str = "kubebyon.internal";

/// What the addresses follow from: configuration and settings, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addressing {
    /// `<label>.<base_domain>` is a cluster's host name.
    pub base_domain: String,
    /// Whether `base_domain` was configured, so that DNS knows it.
    pub base_domain_is_public: bool,
    /// The host that clients are told where nothing else is: `control_plane_host`, else the host of `advertise_address`,
    /// else the default route's address.
    pub control_plane_host: String,
    /// Host and port that are advertised for the shared port.
    pub advertised: (String, u16),
    /// Host and port of `join_base_url`, where it is set: what join lines and tunnels name before all else.
    pub join: Option<(String, u16)>,
    /// Further names that the platform answers to.
    pub platform_names: Vec<String>,
}

impl Addressing {
    /// The name by which the front door knows a cluster.
    pub fn cluster_sni(&self, label: &str) -> String {
        format!("{label}.{}", self.base_domain)
    }

    /// The name by which the front door knows a cluster's tunnel.
    pub fn tunnel_sni(&self, label: &str) -> String {
        format!("{label}-node.{}", self.base_domain)
    }

    /// Where nodes' tunnels lead, to be tried in order: the shared port by every name that the platform hands out, each once.
    pub fn tunnel_endpoints(&self) -> Vec<TunnelEndpoint> {
        let advertised = [self.advertised.clone(), (self.control_plane_host.clone(), self.advertised.1)];
        let mut endpoints: Vec<TunnelEndpoint> = Vec::new();
        for (host, port) in self.join.iter().cloned().chain(advertised) {
            if !endpoints.iter().any(|e| e.port == port && e.host.eq_ignore_ascii_case(&host)) {
                endpoints.push(TunnelEndpoint { host, port });
            }
        }
        endpoints
    }

    /// How clients reach a cluster. In `nodeport` mode `None` until its port is allotted.
    pub fn endpoint(&self, cluster: &Cluster) -> Option<Endpoint> {
        let sni = self.cluster_sni(&cluster.label);
        let (server, tls_server_name) = match cluster.spec.public_access_mode {
            PublicAccessMode::Nodeport => {
                let host = cluster.spec.control_plane_host.as_deref().unwrap_or(&self.control_plane_host);
                (url(host, cluster.node_port?), None)
            }
            PublicAccessMode::Domain if self.base_domain_is_public => (url(&sni, self.advertised.1), None),
            PublicAccessMode::Domain => (url(&self.advertised.0, self.advertised.1), Some(sni.clone())),
        };
        Some(Endpoint { server, tls_server_name, sni })
    }

    /// Every name and address that a cluster's API server must be able to prove: whatever is handed out, and what
    /// clients inside the cluster use.
    pub fn api_server_sans(&self, cluster: &Cluster, bind: Option<IpAddr>) -> Vec<String> {
        let mut sans: Vec<String> =
            ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"]
                .map(str::to_owned)
                .into();
        sans.push(self.cluster_sni(&cluster.label));
        sans.extend(network::nth_address(cluster.spec.service_cidr, 1).map(|a| a.to_string()));
        sans.push(cluster.spec.api_local_address.to_string());
        sans.extend(bind.map(|a| a.to_string()));
        sans.push("127.0.0.1".to_owned());
        sans.push(cluster.spec.control_plane_host.clone().unwrap_or_else(|| self.control_plane_host.clone()));
        sans.push(self.advertised.0.clone());
        let mut seen = std::collections::BTreeSet::new();
        sans.retain(|san| seen.insert(san.to_ascii_lowercase()));
        sans
    }
}

/// An `https` URL of a host and a port; IPv6 addresses get their brackets, 443 is left out.
pub fn url(host: &str, port: u16) -> String {
    let host = if host.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() };
    if port == 443 { format!("https://{host}") } else { format!("https://{host}:{port}") }
}

/// The host of an `https://host[:port]` URL, without brackets.
pub fn host_of(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    (!host.is_empty()).then_some(host)
}

/// Checks that `host` is an IP address or a DNS name (RFC 1123).
pub fn validate_host(field: &str, host: &str) -> Result<(), Invalid> {
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let digits_only = host.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
    if host.len() <= 253 && host.split('.').all(label) && !digits_only {
        Ok(())
    } else {
        Err(Invalid::new(field, format!("{host:?} is neither an IP address nor a host name")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_bracket_ipv6_and_leave_443_out() {
        assert_eq!(url("fd00::1", 8443), "https://[fd00::1]:8443");
        assert_eq!(url("k.example", 443), "https://k.example");
    }

    #[test]
    fn hosts_are_taken_out_of_urls() {
        for (url, host) in [
            ("https://k.example", Some("k.example")),
            ("https://k.example:8443/x", Some("k.example")),
            ("https://[fd00::1]:8443", Some("fd00::1")),
            ("https://203.0.113.7", Some("203.0.113.7")),
            ("http://k.example", None),
            ("https://", None),
            ("https://[fd00::1", None),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }

    #[test]
    fn tunnels_lead_to_the_shared_port_by_each_name_once() {
        let mut addressing = Addressing {
            base_domain: DEFAULT_BASE_DOMAIN.into(),
            base_domain_is_public: false,
            control_plane_host: "203.0.113.7".into(),
            advertised: ("k.example".into(), 443),
            join: Some(("join.example".into(), 8443)),
            platform_names: vec![],
        };
        let said = |a: &Addressing| a.tunnel_endpoints().into_iter().map(|e| format!("{}:{}", e.host, e.port)).collect::<Vec<_>>();
        assert_eq!(said(&addressing), ["join.example:8443", "k.example:443", "203.0.113.7:443"]);
        addressing.join = Some(("K.example".into(), 443));
        addressing.control_plane_host = "k.example".into();
        assert_eq!(said(&addressing), ["K.example:443"]);
    }

    #[test]
    fn hosts_are_names_or_addresses() {
        for good in ["203.0.113.7", "fd00::1", "a.example", "localhost"] {
            assert_eq!(validate_host("h", good), Ok(()));
        }
        for bad in ["", "a..b", "-a", "1.2.3", "a b", "https://x", "x:1"] {
            assert!(validate_host("h", bad).is_err(), "{bad}");
        }
    }
}
