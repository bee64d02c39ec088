//! `kubebyon leave`: this machine is no node any more; the exact inverse of join.
//!
//! The platform is asked to drain the node and take it out, and where it is gone the machine is cleaned all the same. What runs ends in the
//! order in which nothing starts it again; mounts, namespaces, interfaces, rules and routes go; then what the journal of the join notes, the
//! last first. No mount is crossed, no link followed, and what pods wrote outside of the kubelet's own folder stays. Failures do not stop
//! it: they are all told. It may be run again. May import: `domain`, `process`, `routes`.

mod chains;
mod foreign;
mod mounts;
mod namespaces;
mod processes;
mod remove;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node::control::{self, Reply, Request};
use crate::node::join::journal::{self, Made};
use crate::node::join::service::{self, UNIT};
use crate::node::layout::Layout;
use crate::node::membership::Membership;
use crate::node::show::Show;
use crate::node::{join, network};

use processes::{Program, Table};
use remove::Remover;

/// How long the platform may take to take a node out, after its pods were evicted.
const REMOVED_WITHIN: Duration = Duration::from_secs(120);

/// How a machine leaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Remove what pods wrote into local volumes, too.
    pub delete_data: bool,
    /// For how long pods may be evicted first.
    pub drain: Duration,
    /// Do not ask the platform.
    pub force: bool,
}

/// How it went.
#[derive(Debug)]
pub struct Left {
    /// Whether there was nothing of a node here.
    pub nothing: bool,
    /// The node's name; `None` where that is not known.
    pub name: Option<String>,
    /// Whether the platform took it out.
    pub told: bool,
    /// What could not be undone, and why.
    pub failures: Vec<anyhow::Error>,
}

/// Leaves.
///
/// # Errors
/// Nothing can be undone at all: this is not root's process, or what is mounted cannot be told. Everything else is in [`Left::failures`].
pub async fn run(options: &Options, layout: &Layout, show: &dyn Show) -> anyhow::Result<Left> {
    let made = journal::read(layout)?;
    let membership = join::present(layout).unwrap_or_else(|error| {
        show.note(&format!("{error:#}; what the journal of the join notes is undone"));
        None
    });
    // An owner may have a disk mounted at an empty place of a node's, beside a kubelet that is none of ours.
    let anything = std::fs::read_dir(layout.state_dir()).is_ok_and(|mut entries| entries.next().is_some());
    if membership.is_none() && made.is_empty() && !anything {
        return Ok(Left { nothing: true, name: None, told: false, failures: Vec::new() });
    }
    let told = ask(options, layout, membership.as_ref(), show).await;
    let mut failures = stop(layout, &made, membership.as_ref(), show).await;
    let volumes = mounts::local_volumes(&mounts::mounts()?, &layout.kubelet_dir());
    failures.extend(unmount(layout, &made, show));
    failures.extend(data(options, &volumes, show)?);
    show.step("Network", "removing interfaces, rules and routes of the node");
    if let Some(membership) = &membership {
        failures.extend(network::clear(membership, layout).await);
    } else if layout.root() == Path::new("/") {
        failures.extend(network::remove_api_interface().await.err().map(Into::into));
    }
    if layout.root() == Path::new("/") {
        failures.extend(chains::remove().await);
    }
    show.step("Files", "removing what join made");
    let mut remover = Remover::new()?;
    remover.content(&layout.kubelet_dir());
    remover.undo(&made, layout);
    if made.iter().any(|one| matches!(one, Made::Unit(_))) {
        let _ = service::systemctl(&["daemon-reload"]).await;
    }
    remover.own_folders(&made, layout);
    failures.extend(remover.failures);
    Ok(Left { nothing: false, name: membership.map(|membership| membership.name), told, failures })
}

/// Has the platform drain the node and take it out. `false`: it was not told.
async fn ask(options: &Options, layout: &Layout, membership: Option<&Membership>, show: &dyn Show) -> bool {
    let Some(membership) = membership.filter(|_| !options.force) else { return false };
    show.step("Leaving", &format!("asking the platform to drain node {} and to take it out", membership.name));
    let request = Request::Leave { drain_seconds: options.drain.as_secs() };
    let patience = options.drain + REMOVED_WITHIN;
    let answer =
        control::ask(&layout.control_socket(), &request, patience, async |step: &str, message: &str| show.step(step, message)).await;
    match answer {
        Ok(Reply::Done) => true,
        answer => {
            // The end of a membership ends the tunnel, too, perhaps before the answer came.
            let why = answer.map_or_else(|error| format!("{error:#}"), |reply| format!("it answered {reply:?}"));
            if ended(layout).await {
                return true;
            }
            show.note(&format!("the platform was not told: {why}; the machine is cleaned all the same"));
            false
        }
    }
}

/// Whether the node role knows that the membership has ended.
async fn ended(layout: &Layout) -> bool {
    let status = control::ask(&layout.control_socket(), &Request::Status, join::STATUS_WITHIN, async |_: &str, _: &str| {}).await;
    matches!(status, Ok(Reply::Status(status)) if status.ended.is_some())
}

/// Ends what runs, in the order in which nothing starts it again.
async fn stop(layout: &Layout, made: &[Made], membership: Option<&Membership>, show: &dyn Show) -> Vec<anyhow::Error> {
    let mut failures = Vec::new();
    show.step("Stopping", "ending the node's programs and its pods");
    if made.contains(&Made::Unit(UNIT.to_owned())) && layout.unit().exists() {
        failures.extend(service::systemctl(&["disable", "--now", UNIT]).await.err());
    }
    for program in [Program::NodeRole, Program::Kubelet, Program::KubeProxy] {
        failures.extend(processes::stop(program, layout).await);
    }
    let socket = membership.and_then(|membership| membership.options.containerd_socket.as_deref());
    let mut held: BTreeSet<PathBuf> = Table::read().pod_namespaces(layout);
    if let Some(socket) = socket.filter(|socket| foreign::is_foreign(layout, Some(socket))) {
        let (namespaces, failed) = foreign::stop_pods(layout, socket).await;
        held.extend(namespaces);
        failures.extend(failed);
    }
    let namespaces = namespaces::ours(layout, &held);
    failures.extend(processes::stop_pods(layout).await);
    failures.extend(processes::stop(Program::Containerd, layout).await);
    // Shims that a containerd started while it ended.
    failures.extend(processes::stop_pods(layout).await);
    failures.extend(namespaces::remove(layout, &namespaces));
    namespaces::remove_groups(layout.root());
    failures
}

/// Takes down what is mounted in the node's folders, but for what its owner mounted there before the join.
fn unmount(layout: &Layout, made: &[Made], show: &dyn Show) -> Vec<anyhow::Error> {
    show.step("Unmounting", "taking down what is mounted in the node's folders");
    let before: Vec<PathBuf> = remove::stood_before(made).into_iter().collect();
    mounts::unmount_below(&own_folders(layout), &before)
}

/// Ends the kubelet; a node role that runs starts it again.
pub async fn stop_kubelet(layout: &Layout) {
    for failure in processes::stop(Program::Kubelet, layout).await {
        tracing::warn!(error = %format!("{failure:#}"), "the kubelet could not be ended");
    }
}

/// Where something is mounted.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mount_points() -> anyhow::Result<Vec<PathBuf>> {
    Ok(mounts::mounts()?.into_iter().map(|mount| mount.at).collect())
}

/// The folders in which nothing but a node's own is mounted.
pub fn own_folders(layout: &Layout) -> Vec<PathBuf> {
    vec![layout.kubelet_dir(), layout.state_dir(), layout.run_dir(), layout.log_dir()]
}

/// What pods wrote into local volumes: told of, or removed where that was asked for.
fn data(options: &Options, volumes: &[PathBuf], show: &dyn Show) -> anyhow::Result<Vec<anyhow::Error>> {
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let list = volumes.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    if !options.delete_data {
        show.step("Data", &format!("kept, as pods wrote it: {list}"));
        return Ok(Vec::new());
    }
    show.step("Data", &format!("emptying local volumes: {list}"));
    let mut remover = Remover::new()?;
    for volume in volumes {
        if may_empty(volume) {
            remover.content(volume);
        } else {
            remover.failures.push(anyhow::anyhow!("{} is no folder of a volume's own, and is left", volume.display()));
        }
    }
    Ok(remover.failures)
}

/// Whether a folder that somebody made a local volume is none that the system itself lives in.
fn may_empty(folder: &Path) -> bool {
    const SYSTEM: [&str; 14] = [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/lib64",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/sys",
        "/usr",
        "/var/lib/kubelet",
        "/var/log",
    ];
    let parts = folder.components().count();
    let top = parts <= 2 && !folder.starts_with("/data");
    folder.is_absolute()
        && !top
        && !["/var/lib", "/home", "/mnt", "/srv", "/opt", "/media"].iter().any(|own| folder == Path::new(own))
        && !SYSTEM.iter().any(|own| folder.starts_with(own))
}

#[cfg(test)]
mod tests;
