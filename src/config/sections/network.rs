//! `egress.*`, `http.*`, `dns.*`, `proxy_protocol.*`, `webhook.*`: networks around the platform. Imports `config::value`.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::section::section;
use crate::config::value::Listener;
use crate::domain::{Invalid, access};

section! {
    /// What a cluster's API server may reach beyond its own nodes, pods and Services; such traffic leaves from a node.
    pub struct Egress {
        /// Public hosts that are allowed: `name` for port 443, `name:port` for another. Each is named by itself.
        public_hosts: Vec<String> = Vec::new(),
    }
}

impl Egress {
    /// Each is a host, or a host and a port.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        for (index, text) in self.public_hosts.iter().enumerate() {
            let field = format!("egress.public_hosts[{index}]");
            if text.contains('*') {
                problems.push(Invalid::new(field, format!("{text:?} stands for many; name each host by itself")));
                continue;
            }
            let (host, port) = match text.rsplit_once(':') {
                Some((host, port)) if text.parse::<IpAddr>().is_err() => (host, Some(port)),
                _ => (text.as_str(), None),
            };
            if port.is_some_and(|port| port.parse::<u16>().map_or(0, |port| port) == 0) {
                problems.push(Invalid::new(field, format!("{text:?} has no port behind its colon; it looks like api.example.com:8443")));
            } else {
                problems.extend(access::validate_host(&field, host).err());
            }
        }
    }
}

section! {
    /// HTTP in front of the API.
    pub struct Http {
        /// Networks of proxies whose `X-Forwarded-For` is believed.
        trusted_proxies: Vec<IpNet> = Vec::new(),
    }
}

section! {
    /// How names are resolved.
    pub struct Dns {
        /// Servers to ask; empty: those of `/etc/resolv.conf`.
        resolvers: Vec<IpAddr> = Vec::new(),
    }
}

section! {
    /// The PROXY protocol, which hands on a client's address.
    pub struct ProxyProtocol {
        /// Networks whose connections must begin with a PROXY header (v1 or v2).
        accept_from: Vec<IpNet> = Vec::new(),
        /// Whether connections to clusters begin with a v2 header.
        send: bool = false,
    }
}

section! {
    /// The admission webhook on a host cluster.
    pub struct Webhook {
        /// Where it listens; off by default.
        listen: Listener = Listener::Unset,
    }
}
