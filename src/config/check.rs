//! Checks of the whole: each section by itself, then what must hold between them. May import: `domain`.

use super::error::{Origins, Problem};
use super::value::{ListenAddress, Listener};
use super::{Config, sections, unbuilt};
use crate::domain::{Invalid, access, network};

/// Adds what is wrong. A section in which a value could not be read is left out: its defaults are not what was asked for.
pub fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut found = Vec::new();
    config.validate(&mut found);
    between(config, &mut found);
    unbuilt::check(config, &mut found);
    let top = |key: &str| key.split(['.', '[']).next().unwrap_or(key).to_owned();
    let unread: Vec<String> = problems.iter().filter(|problem| !problem.key.is_empty()).map(|problem| top(&problem.key)).collect();
    for Invalid { field, message } in found {
        if !unread.contains(&top(&field)) {
            problems.push(Problem { origin: origins.of(&field).cloned(), key: field, message });
        }
    }
}

impl Config {
    /// Checks the keys at the top and every section, each by itself.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        self.validate_own(problems);
        self.tls.validate(problems);
        sections::validate_passthrough(&self.passthrough, problems);
        self.database.validate(problems);
        self.rabbitmq.validate(problems);
        self.local.validate(problems);
        self.assets.validate(problems);
        self.kubernetes.validate(problems);
        self.hosted.validate(problems);
        self.platform.validate(problems);
        self.gateway_api.validate(problems);
        self.routes.validate(problems);
        self.nodes.validate(problems);
        self.egress.validate(problems);
        self.cors.validate(problems);
        self.log.validate(problems);
        self.limits.validate(problems);
    }

    fn validate_own(&self, problems: &mut Vec<Invalid>) {
        if !self.data_dir.is_absolute() {
            let message = format!("{} must begin with a slash: the daemon's working folder is not yours", self.data_dir.display());
            problems.push(Invalid::new("data_dir", message));
        } else if self.data_dir.parent().is_none() {
            problems.push(Invalid::new("data_dir", "the root folder is no place for it; use one such as /var/lib/kubebyon"));
        } else if self.data_dir.exists() && !self.data_dir.is_dir() {
            problems.push(Invalid::new("data_dir", format!("{} is there and is no folder", self.data_dir.display())));
        } else if self.socket_path().as_os_str().len() > 100 {
            // sockaddr_un holds 108 bytes, unix(7).
            let message = "the path is too long for the socket inside of it; 86 bytes are the most".to_owned();
            problems.push(Invalid::new("data_dir", message));
        }
        if self.roles.is_empty() {
            problems.push(Invalid::new("roles", "name at least one of api, worker, agent"));
        }
        for (index, role) in self.roles.iter().enumerate() {
            if self.roles[..index].contains(role) {
                problems.push(Invalid::new(format!("roles[{index}]"), "this role is named twice"));
            }
        }
        for (field, host) in [("platform_host", &self.platform_host), ("control_plane_host", &self.control_plane_host)] {
            problems.extend(host.as_ref().and_then(|host| access::validate_host(field, host).err()));
        }
        for (field, domain) in [("base_domain", &self.base_domain), ("workload_domain", &self.workload_domain)] {
            problems.extend(domain.as_ref().and_then(|domain| domain_problem(field, domain)));
        }
    }
}

/// A domain under which labels are put: a name, short enough for a label of 63 and `-node` before it.
fn domain_problem(field: &str, domain: &str) -> Option<Invalid> {
    if domain.parse::<std::net::IpAddr>().is_ok() {
        return Some(Invalid::new(field, format!("{domain:?} is an address; clusters need a domain such as clusters.example.com")));
    }
    if let Some(bare) = domain.strip_prefix("*.") {
        return Some(Invalid::new(field, format!("leave the *. out: {bare}")));
    }
    if domain.len() > 180 {
        return Some(Invalid::new(field, "this is too long; 180 letters are the most, so that a cluster's name fits before it"));
    }
    access::validate_host(field, domain).err()
}

/// What must hold between sections.
fn between(config: &Config, problems: &mut Vec<Invalid>) {
    listeners(config, problems);
    names(config, problems);
    sections::validate_queue(&config.queue, &config.rabbitmq, &config.database, problems);
    if let Some(pool) = config.routes.pod_cidr_pool
        && network::overlap(pool, config.local.address_range)
    {
        problems
            .push(Invalid::new("routes.pod_cidr_pool", format!("{pool} overlaps local.address_range ({})", config.local.address_range)));
    }
}

/// No two listeners on one port, none inside of the clusters' ports.
fn listeners(config: &Config, problems: &mut Vec<Invalid>) {
    let optional = |key: &'static str, listener: Listener| (key, listener.address());
    let all = [
        ("listen", Some(config.listen)),
        ("http_listen", config.http_listen()),
        optional("internal_listen", config.internal_listen),
        optional("webhook.listen", config.webhook.listen),
        optional("metrics.api_listen", config.metrics.api_listen),
        optional("metrics.worker_listen", config.metrics.worker_listen),
    ];
    let taken: Vec<(&str, ListenAddress)> = all.into_iter().filter_map(|(key, address)| address.map(|a| (key, a))).collect();
    for (index, (key, address)) in taken.iter().enumerate() {
        if let Some((other, _)) = taken[..index].iter().find(|(_, earlier)| earlier.collides(*address)) {
            problems.push(Invalid::new(*key, format!("{address} is taken by {other} already; give each its own port")));
        }
        if address.0.port() == 0 {
            problems.push(Invalid::new(*key, "port 0 means any port, which nobody could be told of; name one"));
        } else if config.nodeport_range.contains(address.0.port()) {
            let message = format!("port {} lies in nodeport_range ({}); move one of the two", address.0.port(), config.nodeport_range);
            problems.push(Invalid::new(*key, message));
        }
    }
}

/// No name belongs to two.
fn names(config: &Config, problems: &mut Vec<Invalid>) {
    let base = config.base_domain().to_ascii_lowercase();
    let below = |name: &str| name.to_ascii_lowercase().ends_with(&format!(".{base}"));
    for (index, entry) in config.passthrough.iter().enumerate() {
        let field = format!("passthrough[{index}].host");
        let is = |name: &str| entry.host.eq_ignore_ascii_case(name);
        if config.platform_host.as_deref().is_some_and(is)
            || config.advertise_address.as_ref().is_some_and(|a| is(&a.host))
            || is("localhost")
        {
            problems.push(Invalid::new(field, format!("{} is the platform's own name; it cannot be handed to another server", entry.host)));
        } else if below(&entry.host) {
            problems.push(Invalid::new(field, format!("{} lies below base_domain ({base}), where clusters have their names", entry.host)));
        }
    }
    if let (Some(base), Some(workload)) = (&config.base_domain, &config.workload_domain)
        && base.eq_ignore_ascii_case(workload)
    {
        let message = format!("it must differ from base_domain ({base}): one name cannot lead to an API server and to applications");
        problems.push(Invalid::new("workload_domain", message));
    }
}
