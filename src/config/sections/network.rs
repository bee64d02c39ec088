//! `egress.*`, `http.*`, `dns.*`, `proxy_protocol.*`, `webhook.*`: networks around the platform. Imports `config::value`.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::config::section::section;
use crate::config::value::Listener;
use crate::domain::{Invalid, access};

section! {
    /// What a cluster's API server may reach beyond its own nodes, pods and Services; such traffic leaves from a node.
    pub struct Egress {
        /// Public names that are allowed, `*.` before one for all below it.
        public_hosts: Vec<String> = Vec::new(),
    }
}

impl Egress {
    /// Each is a name.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        for (index, host) in self.public_hosts.iter().enumerate() {
            let name = host.strip_prefix("*.").unwrap_or(host);
            problems.extend(access::validate_host(&format!("egress.public_hosts[{index}]"), name).err());
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
