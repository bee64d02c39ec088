//! The start of the engine: what runs is adopted at once, what should run is started a few at a time, what belongs to no cluster is ended.
//!
//! May import: `domain`, `store`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::bring_up::{self, Silent};
use super::plane::Events;
use super::supervise::Journal;
use super::{Inner, locked, take_down};
use crate::domain::ClusterId;
use crate::domain::cluster::{Cluster, Phase};
use crate::domain::event::Severity;
use crate::process::adopt;
use crate::store;

/// How long a start keeps others waiting when its API server does not become well.
const TURN: Duration = Duration::from_secs(90);
/// The pause before a control plane that could not be taken up is tried again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// The reason of a cluster that ran before and whose data is not there.
const DATA_MISSING: &str = "DataMissing";

/// Looks at rows, processes and claims, and begins to bring them together.
pub(super) async fn all(inner: &Arc<Inner>) -> anyhow::Result<AbortOnDropHandle<()>> {
    let rows = store::clusters::all(&mut *inner.tools.store.read().await?).await?;
    let found = adopt::scan(&inner.options.installation).context("cannot read the process table")?;
    let mut orphans: HashMap<ClusterId, Vec<adopt::Found>> = HashMap::new();
    for one in found {
        orphans.entry(one.cluster).or_default().push(one);
    }
    let mut holders: BTreeSet<ClusterId> = inner.confinement.holders()?;
    holders.extend(orphans.keys());
    let known: HashMap<ClusterId, &Cluster> = rows.iter().map(|c| (c.id, c)).collect();
    for (id, cluster) in &known {
        if holders.contains(id) && cluster.host.as_deref() != Some(inner.options.host.as_str()) {
            tracing::error!(
                cluster = %id,
                host = cluster.host,
                "this host ({}) runs a cluster whose row names another host: it is left alone; was this host renamed?",
                inner.options.host
            );
        }
    }
    let abandoned: Vec<_> = holders.into_iter().filter(|id| !known.contains_key(id)).collect();
    let ours = |c: &&Cluster| c.host.as_deref() == Some(inner.options.host.as_str()) && c.deleted_at.is_none() && c.local.is_some();
    let resumed: Vec<_> =
        rows.iter().filter(ours).filter(|c| c.status.observed_generation > 0 || orphans.contains_key(&c.id)).map(|c| c.id).collect();
    let (running, stopped): (Vec<_>, Vec<_>) = resumed.into_iter().partition(|id| orphans.contains_key(id));
    *locked(&inner.orphans) = orphans;

    let inner = inner.clone();
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2);
        let turns = Arc::new(Semaphore::new(cores));
        let mut tasks = JoinSet::new();
        for id in abandoned {
            let inner = inner.clone();
            tasks.spawn(async move { take_down::abandon(&inner, id).await });
        }
        for id in running {
            tasks.spawn(one(inner.clone(), id, None));
        }
        for id in stopped {
            tasks.spawn(one(inner.clone(), id, Some(turns.clone())));
        }
        while tasks.join_next().await.is_some() {}
        inner.hide_programs();
    })))
}

/// Takes up one cluster; tries again until it is up, gone, or taken up by a job.
async fn one(inner: Arc<Inner>, id: ClusterId, turns: Option<Arc<Semaphore>>) {
    let mut pause = PAUSE.0;
    loop {
        let turn = match &turns {
            Some(turns) => turns.acquire().await.ok(),
            None => None,
        };
        match attempt(&inner, id).await {
            Ok(()) => {
                if let (Some(_), Some(plane)) = (&turn, inner.plane(id)) {
                    let mut observed = plane.supervisor.observed();
                    let up = observed.wait_for(|o| o.component("kube-apiserver").is_some_and(|c| c.healthy));
                    let _ = tokio::time::timeout(TURN, up).await;
                }
                return;
            }
            Err(error) => {
                tracing::error!(cluster = %id, error = format!("{error:#}"), "a control plane cannot be taken up; it is tried again in {} s", pause.as_secs());
            }
        }
        drop(turn);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

async fn attempt(inner: &Arc<Inner>, id: ClusterId) -> anyhow::Result<()> {
    let lock = inner.lock_of(id);
    let _held = lock.lock().await;
    if inner.plane(id).is_some() {
        return Ok(());
    }
    let row = store::clusters::find(&mut *inner.tools.store.read().await?, id).await?;
    let Some(cluster) = row.filter(|c| c.deleted_at.is_none()) else { return Ok(()) };
    if let Some(why) = inner.data_is_missing(&cluster) {
        tell_missing_data(inner, cluster, &why).await?;
        anyhow::bail!(why);
    }
    bring_up::raise(inner, &cluster, &Silent).await?;
    Ok(())
}

/// Says in a cluster's status that its data is missing, and once as an event.
async fn tell_missing_data(inner: &Inner, mut cluster: Cluster, why: &str) -> anyhow::Result<()> {
    if cluster.status.condition("Ready").is_some_and(|c| !c.status && c.reason == DATA_MISSING && c.message == why) {
        return Ok(());
    }
    let now = inner.tools.ambient.now();
    let mut tx = inner.tools.store.begin().await?;
    let Some(row) = store::clusters::find(tx.sql(), cluster.id).await?.filter(|c| c.deleted_at.is_none()) else { return Ok(()) };
    cluster = row;
    cluster.status.set_condition(now, "Ready", false, DATA_MISSING, why);
    if cluster.status.phase == Phase::Ready {
        cluster.status.phase = Phase::Degraded;
    }
    store::clusters::set_status(&mut tx, cluster.id, &cluster.status).await?;
    tx.commit().await?;
    Events::of(&inner.tools.store, &inner.tools.ambient, &cluster).tell(Severity::Warning, DATA_MISSING, why.to_owned()).await;
    Ok(())
}
