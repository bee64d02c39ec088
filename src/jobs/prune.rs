//! Removes what is kept for a while only: old events, finished jobs, ended sessions and credentials, answers to
//! idempotency keys, ended memberships of nodes and join tokens.
//!
//! Every piece is a transaction of its own, so that the writer is never held for long. May import: `domain`, `store`,
//! `queue`.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::domain::join::TOMBSTONE_LIFE;
use crate::domain::{Ambient, Timestamp};
use crate::queue::{Context, Handler, JobError};
use crate::store::jobs::{Leased, NewJob};
use crate::store::{self, PRUNE_BATCH, Store, certificates, events, idempotency, jobs, join_tokens, kubeconfigs, nodes, sessions};

/// The kind of this job.
pub const KIND: &str = "prune";
/// How often it is to be done.
pub const EVERY: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Events.
    pub events: Duration,
    /// Jobs that ended well.
    pub succeeded_jobs: Duration,
    /// Jobs that are dead.
    pub dead_jobs: Duration,
    /// Kubeconfigs and certificates, after their end.
    pub credentials: Duration,
    /// Answers to idempotency keys.
    pub answers: Duration,
    /// What is known of nodes' memberships and certificates, after their end.
    pub nodes: Duration,
    /// Join tokens, after they ended or were revoked.
    pub join_tokens: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            events: 30 * DAY,
            succeeded_jobs: 7 * DAY,
            dead_jobs: 30 * DAY,
            credentials: 30 * DAY,
            answers: DAY,
            nodes: TOMBSTONE_LIFE,
            join_tokens: 7 * DAY,
        }
    }
}

/// The handler.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prune {
    /// How long things are kept.
    pub retention: Retention,
}

#[async_trait]
impl Handler for Prune {
    fn kind(&self) -> &'static str {
        KIND
    }

    async fn run(&self, context: &Context, _leased: &Leased) -> Result<serde_json::Value, JobError> {
        let mut removed = serde_json::Map::new();
        for what in Kept::ALL {
            removed.insert(what.name().to_owned(), json!(self.prune(context, what).await?));
        }
        Ok(removed.into())
    }
}

/// What is kept for a while only.
#[derive(Debug, Clone, Copy)]
enum Kept {
    Events,
    Jobs,
    Sessions,
    Kubeconfigs,
    Certificates,
    Answers,
    Nodes,
    JoinTokens,
}

impl Kept {
    const ALL: [Self; 8] =
        [Self::Events, Self::Jobs, Self::Sessions, Self::Kubeconfigs, Self::Certificates, Self::Answers, Self::Nodes, Self::JoinTokens];

    const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Jobs => "jobs",
            Self::Sessions => "sessions",
            Self::Kubeconfigs => "kubeconfigs",
            Self::Certificates => "certificates",
            Self::Answers => "answers",
            Self::Nodes => "nodes",
            Self::JoinTokens => "join-tokens",
        }
    }
}

impl Prune {
    /// Removes one kind, batch by batch; gives how many rows.
    async fn prune(&self, context: &Context, what: Kept) -> Result<u64, JobError> {
        let now = context.ambient.now();
        let mut total = 0;
        loop {
            if context.cancelled.is_cancelled() {
                return Err(anyhow::anyhow!("stopped before all was removed").into());
            }
            let removed = self.batch(&context.store, what, now).await?;
            total += removed;
            if removed < PRUNE_BATCH {
                return Ok(total);
            }
            // Whoever waits for the writer comes first: it is given in the order of asking.
            tokio::task::yield_now().await;
        }
    }

    async fn batch(&self, store: &Store, what: Kept, now: Timestamp) -> store::Result<u64> {
        let keep = self.retention;
        let mut tx = store.begin().await?;
        let removed = match what {
            Kept::Events => events::prune(&mut tx, now.minus(keep.events)).await?,
            Kept::Jobs => jobs::prune(&mut tx, now.minus(keep.succeeded_jobs), now.minus(keep.dead_jobs)).await?,
            Kept::Sessions => sessions::prune(&mut tx, now).await?,
            Kept::Kubeconfigs => kubeconfigs::prune(&mut tx, now.minus(keep.credentials)).await?,
            Kept::Certificates => certificates::prune(&mut tx, now.minus(keep.credentials)).await?,
            Kept::Answers => idempotency::prune(&mut tx, now.minus(keep.answers)).await?,
            Kept::Nodes => nodes::prune(&mut tx, now.minus(keep.nodes)).await?,
            Kept::JoinTokens => join_tokens::prune(&mut tx, now.minus(keep.join_tokens)).await?,
        };
        tx.commit().await?;
        Ok(removed)
    }
}

/// The job, for [`jobs::enqueue`]; one that waits is enough.
pub fn new_job() -> NewJob {
    NewJob { kind: KIND, project_id: None, cluster_id: None, host: None, payload: serde_json::Value::Null, max_attempts: 5, coalesce: true }
}

/// Enqueues the job at once and then every hour, until `shutdown`.
pub async fn schedule(store: Store, ambient: Ambient, shutdown: CancellationToken) {
    let mut ticks = tokio::time::interval(EVERY);
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        if let Err(error) = enqueue(&store, &ambient).await {
            tracing::warn!(%error, "the removal of old rows could not be planned; it is tried again in an hour");
        }
    }
}

async fn enqueue(store: &Store, ambient: &Ambient) -> store::Result<()> {
    let mut tx = store.begin().await?;
    jobs::enqueue(&mut tx, ambient, new_job()).await?;
    tx.commit().await
}
