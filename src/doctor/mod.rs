//! Checks of a machine: what the platform needs, what it has, and what to do about the difference.
//!
//! Each check is a file with a pure half that judges values and a thin half that reads them. Guarantees: every finding that is
//! not ok carries a remedy with a command; a check changes nothing, ends within seconds, and a failing one hides no other; what
//! cannot be read is said, never passed over. May import: [`crate::domain`].

mod address;
mod assets;
mod cgroups;
mod clock;
mod data_dir;
mod disk;
mod dns;
mod kernel;
mod limits;
mod memory;
mod nftables;
mod ports;
mod privileges;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::domain::{Ambient, Timestamp};

/// What one cluster's control plane takes when nothing else is known: 320 MiB.
pub const CLUSTER_MEMORY: u64 = 320 << 20;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but something is missing or will be.
    Warning,
    /// It will not work.
    Failed,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, such as `disk`.
    pub check: &'static str,
    /// How serious it is.
    pub status: Status,
    /// What was found, as a sentence.
    pub message: String,
    /// What to do, with a command; present whenever the status is not ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self { check, status: Status::Ok, message: message.into(), remedy: None }
    }

    fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, status: Status::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    fn failed(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, status: Status::Failed, message: message.into(), remedy: Some(remedy.into()) }
    }
}

/// What is known of the programs that control planes run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssetsReport {
    /// The versions that are complete, such as `1.36.3`.
    pub versions: Vec<String>,
    /// What is missing or damaged, a sentence each.
    pub problems: Vec<String>,
}

/// What the checks are to judge.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where the platform keeps its data.
    pub data_dir: PathBuf,
    /// Where the front door listens.
    pub listen: SocketAddr,
    /// The host that URLs and kubeconfigs name, when it is configured.
    pub advertise_host: Option<String>,
    /// The host that kubeconfigs name in `nodeport` mode, when it is configured.
    pub control_plane_host: Option<String>,
    /// The ports that clusters may get for themselves; `None` when no cluster gets one.
    pub node_ports: Option<RangeInclusive<u16>>,
    /// What one cluster takes, in bytes of memory.
    pub cluster_memory: u64,
    /// What is known of the programs; `None` leaves the check out.
    pub assets: Option<AssetsReport>,
    /// A host that the platform must be able to resolve, such as that of the assets' mirror; `None` looks at the configuration only.
    pub resolve: Option<String>,
    /// When this program was built: no clock may be before it.
    pub built_at: Timestamp,
    /// The clock.
    pub ambient: Ambient,
}

/// Runs every check, in a fixed order.
pub async fn run(context: &Context) -> Vec<Finding> {
    let mut findings = ports::check(context);
    findings.extend([kernel::check(), privileges::check(), cgroups::check(), nftables::check().await]);
    findings.extend([disk::check(context), memory::check(context), clock::check(context), dns::check(context).await]);
    findings.extend(assets::check(context));
    findings.extend([limits::check(), address::check(context), data_dir::check(context)]);
    findings
}

/// The most serious status among `findings`; ok when there are none.
pub fn worst(findings: &[Finding]) -> Status {
    findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok)
}

/// How long a check may wait for another program or machine.
const PATIENCE: Duration = Duration::from_secs(3);

/// `bytes` for people, in binary units as the configuration has them.
fn readable(bytes: u64) -> String {
    let (shift, name) = match bytes {
        0x100_0000_0000.. => (40, "TiB"),
        0x4000_0000.. => (30, "GiB"),
        _ => (20, "MiB"),
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
