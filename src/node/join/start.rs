//! The end of a join: the node role runs, its tunnel stands, and the platform has verified that pods work here.

use super::Options;
use super::report::Reporter;
use crate::node::layout::Layout;
use crate::node::membership::Membership;

/// How a join ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The owner's own supervisor is to run this command.
    Installed {
        /// The node's name.
        name: String,
        /// The command.
        command: String,
    },
    /// The node is verified.
    Verified {
        /// Its name.
        name: String,
        /// Its cluster's name.
        cluster: String,
    },
    /// It joined, and waits for the owner's own pod network.
    WaitingForNetwork {
        /// Its name.
        name: String,
    },
    /// It joined, and nobody waited for more.
    Joined {
        /// Its name.
        name: String,
    },
}

/// Waits for what the owner wants to wait for.
///
/// # Errors
/// The tunnel does not come up, or a step of the verification failed; the sentence has the remedy.
pub async fn wait(options: &Options, layout: &Layout, membership: &Membership, reporter: &Reporter<'_>) -> anyhow::Result<End> {
    let name = membership.name.clone();
    if !options.service {
        let command = format!("{} --role=node", layout.bin_dir().join("kubebyon").display());
        reporter.step("Installed", &format!("installed; `{command}` runs the node")).await;
        return Ok(End::Installed { name, command });
    }
    Ok(End::Joined { name })
}
