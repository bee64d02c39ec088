//! Preflight: whether this machine can be a node, and what to do where it cannot.
//!
//! [`judge`] is a function of facts and of what is wanted. Each finding carries a remedy with a command for this very distribution; a
//! finding that is an error stops a join before anything on the machine has changed. May import: `domain`.

mod network;
mod system;

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use crate::domain::Timestamp;
use crate::domain::cluster::Addon;
use crate::domain::join::JoinedCluster;
use crate::node::machine::Facts;

pub use system::CLOCK_REMEDY;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works, but not as it might, or not for ever.
    Warning,
    /// It does not work.
    Error,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, such as `cgroups`.
    pub check: &'static str,
    /// How serious it is.
    pub severity: Severity,
    /// What was found, as a sentence.
    pub message: String,
    /// What to do, with a command.
    pub remedy: String,
}

impl Finding {
    pub(crate) fn error(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, severity: Severity::Error, message: message.into(), remedy: remedy.into() }
    }

    pub(crate) fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, severity: Severity::Warning, message: message.into(), remedy: remedy.into() }
    }
}

/// What a machine is to become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The node's name.
    pub name: String,
    /// The cluster's ranges; `None` before the platform has told them.
    pub cluster: Option<Ranges>,
    /// The platform's address, as this machine resolves it.
    pub server: Option<IpAddr>,
    /// The address that the owner chose.
    pub node_ip: Option<IpAddr>,
    /// Whether systemd is to keep the node role.
    pub service: bool,
    /// Whether packages may be installed.
    pub packages: bool,
    /// A containerd of the owner's own.
    pub containerd_socket: Option<String>,
    /// Whether this machine is a node of that cluster already: its own programs are no strangers then.
    pub member: bool,
    /// The platform's time, and the machine's at that moment.
    pub clocks: Option<(Timestamp, Timestamp)>,
}

/// A cluster's addresses, as far as they matter to a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// Its name, for people.
    pub cluster: String,
    /// The pods' range.
    pub pods: IpNet,
    /// The Services' range.
    pub services: IpNet,
    /// The address of the API server on nodes, and its port.
    pub api: (IpAddr, u16),
    /// Whether the pod network is the platform's.
    pub own_network: bool,
}

impl From<&JoinedCluster> for Ranges {
    fn from(cluster: &JoinedCluster) -> Self {
        Self {
            cluster: cluster.name.clone(),
            pods: cluster.pod_cidr,
            services: cluster.service_cidr,
            api: (cluster.api_local_address, cluster.api_port),
            own_network: cluster.cni == Addon::Default,
        }
    }
}

/// Judges a machine. Errors come first.
pub fn judge(facts: &Facts, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = system::judge(facts, wanted);
    findings.extend(network::judge(facts, wanted));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Whether one of them stops a join.
pub fn stops(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

#[cfg(test)]
mod tests;
