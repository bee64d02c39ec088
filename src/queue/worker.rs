//! The loop that takes jobs under a lease, runs them, and settles them.
use std::sync::Arc;

use async_trait::async_trait;

use crate::domain::Ambient;
use crate::store::{Store, jobs::Leased};

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// It may go well later: retried with backoff until the attempts are used up.
    #[error("{0:#}")]
    Retry(#[from] anyhow::Error),
    /// It will not go well however often it is tried: dead at once.
    #[error("{0:#}")]
    Fatal(anyhow::Error),
}

/// What a job runs with.
pub struct Context {
    /// The store.
    pub store: Store,
    /// Clock and randomness.
    pub ambient: Ambient,
    /// Cancelled when the lease is lost or the process drains: stop at the next safe point.
    pub cancelled: tokio_util::sync::CancellationToken,
}

/// The work of one kind of job.
#[async_trait]
pub trait Handler: Send + Sync {
    /// The kind of job that this does.
    fn kind(&self) -> &'static str;
    /// Does it. Must be a reconcile: run twice, or cut anywhere and run again, it ends the same.
    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError>;
}

/// A worker of this process.
pub struct Worker {
    _store: Store,
    _handlers: Vec<Arc<dyn Handler>>,
}
