//! The end of a join: the node role runs, its tunnel stands, and the platform has verified that pods work here.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::Options;
use super::report::Reporter;
use super::service::UNIT;
use crate::node::control::{self, Reply, Request, Status};
use crate::node::layout::Layout;
use crate::node::membership::Membership;

/// How long the tunnel may take to come up.
const CONNECTED_WITHIN: Duration = Duration::from_secs(90);
/// How long a verification may take: the platform gives up before.
pub const VERIFIED_WITHIN: Duration = Duration::from_secs(600);
/// How long the node role may take to tell how it is.
pub const STATUS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The platform's word for a node that has no pod network yet, and whose owner brings one.
pub const WAITING_FOR_CNI: &str = "WaitingForCni";

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
pub(super) async fn wait(options: &Options, layout: &Layout, membership: &Membership, reporter: &Reporter<'_>) -> anyhow::Result<End> {
    let name = membership.name.clone();
    if !options.service {
        let command = format!("{} --role=node", layout.bin_dir().join("kubebyon").display());
        reporter.step("Installed", &format!("installed; `{command}` runs the node")).await;
        return Ok(End::Installed { name, command });
    }
    let status = connected(layout, reporter).await?;
    let way = status.endpoint.map_or_else(String::new, |endpoint| format!(" to {}:{}", endpoint.host, endpoint.port));
    reporter.step("Connected", &format!("the tunnel{way} stands")).await;
    if !options.verify {
        return Ok(End::Joined { name });
    }
    verify(layout, membership, async |step: &str, message: &str| reporter.show().step(step, message)).await
}

/// Waits until the tunnel stands.
async fn connected(layout: &Layout, reporter: &Reporter<'_>) -> anyhow::Result<Status> {
    let end = Instant::now() + CONNECTED_WITHIN;
    let mut told = None;
    loop {
        let answer = control::ask(&layout.control_socket(), &Request::Status, STATUS_WITHIN, async |_: &str, _: &str| {}).await;
        let trouble = match answer {
            Ok(Reply::Status(status)) if status.connected => return Ok(*status),
            Ok(Reply::Status(status)) => {
                if let Some(ended) = status.ended {
                    bail!("{}", ended.message);
                }
                status.trouble
            }
            Ok(other) => bail!("the node role answered {other:?} when it was asked for its status"),
            Err(error) if error.is::<control::NotRunning>() => None,
            Err(error) => Some(format!("{error:#}")),
        };
        if trouble.is_some() && trouble != told {
            told.clone_from(&trouble);
            reporter.show().note(told.as_deref().unwrap_or_default());
        }
        if Instant::now() >= end {
            let why = trouble.or(told).unwrap_or_else(|| "the node role does not answer".to_owned());
            bail!(
                "the node is installed and its tunnel did not come up within {} s: {why}. See `journalctl -u {UNIT} -e`, then run the same command again",
                CONNECTED_WITHIN.as_secs()
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Has the platform check that pods work here; `steps` is told of each of its steps.
///
/// # Errors
/// The node role does not run or is not connected; a step failed: the sentence names it and has the remedy.
pub async fn verify(layout: &Layout, membership: &Membership, steps: impl AsyncFnMut(&str, &str)) -> anyhow::Result<End> {
    let name = membership.name.clone();
    let reply =
        control::ask(&layout.control_socket(), &Request::Verify, VERIFIED_WITHIN, steps).await.context("the node is not verified")?;
    let Reply::Verified { steps } = reply else { bail!("the node role answered {reply:?} when it was to verify the node") };
    if let Some(failed) = steps.iter().find(|step| !step.status) {
        bail!("the node joined and is not verified: step {} ({}): {}", failed.kind, failed.reason, failed.message);
    }
    if steps.last().is_some_and(|last| last.reason == WAITING_FOR_CNI) {
        return Ok(End::WaitingForNetwork { name });
    }
    Ok(End::Verified { name, cluster: membership.cluster.name.clone() })
}
