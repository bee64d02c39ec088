//! Taking a control plane down: processes, terminator, rules, groups, mounts, files, claims.
//!
//! Goes on past failures and gives them all; run again, it does what is left. May import: `domain`, the common plan.

use std::sync::Arc;

use anyhow::{Context, anyhow};

use super::supervise::GRACE;
use super::{Inner, locked, nodes};
use crate::domain::ClusterId;
use crate::domain::cluster::Cluster;
use crate::engine::plan::STOP_ORDER;
use crate::engine::{EngineError, Progress};
use crate::process::adopt;

/// See [`crate::engine::Engine::delete`]. The caller holds the cluster's lock.
pub(super) async fn delete(inner: &Arc<Inner>, cluster: &Cluster, progress: &dyn Progress) -> Result<(), EngineError> {
    let uid = inner.confinement.uid_of(cluster.local.as_ref());
    let mut errors = stop(inner, cluster.id, &|found| found == uid).await;
    if errors.is_empty() {
        progress.step("Stopped", "none of its programs runs any more").await;
        errors = inner.confinement.remove(cluster.id, true).await;
    }
    inner.hide_programs();
    if errors.is_empty() {
        progress.step("Removed", "its data, keys, rules and claims are gone").await;
        return Ok(());
    }
    let all = errors.iter().map(|e| format!("{e:#}")).collect::<Vec<_>>().join("; ");
    Err(EngineError::Retry(anyhow!("cluster {} is not wholly removed: {all}", cluster.name)))
}

/// Ends what runs for a cluster that no row knows, and gives back what it held. Its data stays on the disk, since only a deletion that
/// somebody asked for may remove it.
pub(super) async fn abandon(inner: &Arc<Inner>, cluster: ClusterId) {
    let lock = inner.lock_of(cluster);
    let _held = lock.lock().await;
    let (uids, own) = (inner.options.uid_range.clone(), nix::unistd::geteuid().as_raw());
    let root = inner.confinement.root();
    let mut errors = stop(inner, cluster, &|uid| if root { uids.contains(&uid) } else { uid == own }).await;
    if errors.is_empty() {
        errors = inner.confinement.remove(cluster, false).await;
    }
    let data = inner.confinement.cluster_dir(cluster);
    let kept = if data.exists() { format!("its data stays in {}", data.display()) } else { String::new() };
    tracing::warn!(%cluster, kept, errors = ?errors, "what ran for a cluster that is not in the store was ended");
}

/// Ends a cluster's programs in order: those that are supervised, then any others that carry its marks.
async fn stop(inner: &Arc<Inner>, cluster: ClusterId, uid_is_its: &(dyn Fn(u32) -> bool + Send + Sync)) -> Vec<anyhow::Error> {
    let mut errors = Vec::new();
    if let Some(plane) = inner.plane(cluster) {
        locked(&plane.tasks).clear();
        // While the programs stop, nodes hear that this is for good.
        nodes::end(&plane.nodes);
        if let Err(failed) = plane.supervisor.stop().await {
            errors.extend(failed);
        }
        let terminator = locked(&plane.terminator).take();
        if let Some(terminator) = terminator {
            terminator.stop().await;
        }
        locked(&inner.planes).remove(&cluster);
    }
    locked(&inner.orphans).remove(&cluster);
    // A supervisor that was cut off may have started one that nobody knows of; what was forked keeps the marks.
    let found = match adopt::scan(&inner.options.installation).context("cannot read the process table") {
        Ok(found) => found,
        Err(error) => {
            errors.push(error);
            return errors;
        }
    };
    let ours: Vec<_> = found.into_iter().filter(|f| f.cluster == cluster && uid_is_its(f.uid)).collect();
    let rank = |component: &str| STOP_ORDER.iter().position(|name| *name == component).unwrap_or(0);
    let mut ours: Vec<_> = ours.into_iter().map(|f| (rank(&f.component), f)).collect();
    ours.sort_by_key(|(rank, _)| *rank);
    for (_, one) in ours {
        errors.extend(one.process.stop(GRACE).await.with_context(|| format!("cannot stop {}", one.component)).err());
    }
    errors
}
