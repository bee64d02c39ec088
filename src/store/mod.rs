//! What is kept, and the transactions in which it changes.
//!
//! A query exists once: the modules here (one for each kind of row) are written against [`Sql`], and each database
//! implements that. A row that changes and the job that follows from it commit in one [`Tx`]. Watchers are told after
//! the commit, through [`Store::changes`]; what they are told is a hint to read again.
//! May import: `domain`.

pub mod api_tokens;
pub mod certificates;
pub mod clusters;
mod continuation;
pub mod events;
pub mod idempotency;
pub mod jobs;
pub mod join_tokens;
pub mod kubeconfigs;
pub mod meta;
mod migrations;
pub mod nodes;
pub mod projects;
pub mod secrets;
pub mod sessions;
pub mod settings;
mod sql;
pub mod sqlite;
pub mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use sql::{Database, FromValue, Row, Sql, Transaction, Value};

use crate::domain::ClusterId;

/// What the store says when it cannot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of that name or key exists.
    #[error("{0} exists already")]
    Exists(String),
    /// What was to be changed is not there (any more).
    #[error("{0} is gone")]
    Gone(String),
    /// The row changed since it was read (`resource_version`).
    #[error("the row changed meanwhile: expected version {expected}, found {found}")]
    Stale {
        /// The version that the caller had read.
        expected: i64,
        /// The version that stands.
        found: i64,
    },
    /// The database was written by a newer release.
    #[error(
        "the database has schema {found}, this release knows {known}: install the newer release again, or restore the backup from before its upgrade"
    )]
    NewerSchema {
        /// The schema that was found.
        found: i64,
        /// The newest that this binary knows.
        known: i64,
    },
    /// The `continue` of a list is none that this list gave.
    #[error("this continue token was not given by this list: begin again without one")]
    BadContinue,
    /// Nothing became free in time: transactions are held open, or there is more to do than the disk bears.
    #[error("the database is busy: no {what} became free within {seconds} s; try again")]
    Busy {
        /// What was waited for: `writer` or `reader`.
        what: &'static str,
        /// How long, in seconds.
        seconds: u64,
    },
    /// The file system of the database is full; the transaction changed nothing.
    #[error("no space is left for the database: free some on the disk of the data folder: {0:#}")]
    DiskFull(#[source] anyhow::Error),
    /// The database itself failed.
    #[error("database: {0:#}")]
    Database(#[source] anyhow::Error),
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What changed in a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A cluster's row, or it is gone.
    Cluster(ClusterId),
    /// A job was enqueued.
    JobEnqueued,
    /// A job ended.
    JobFinished(crate::domain::JobId),
    /// An event was appended.
    Event,
    /// A setting.
    Settings,
    /// A kubeconfig was recorded or revoked.
    Kubeconfigs(ClusterId),
    /// A node of a cluster, one of its certificates, or the end of its membership.
    Nodes(ClusterId),
    /// A user, role, session or token, or a project that roles are given in.
    Access,
}

/// The store: cheap to clone.
#[derive(Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    changes: tokio::sync::broadcast::Sender<Change>,
    full: Arc<AtomicBool>,
}

/// A read-write transaction. Dropping it without [`Tx::commit`] rolls back.
pub struct Tx {
    inner: Box<dyn Transaction>,
    pending: Vec<Change>,
    changes: tokio::sync::broadcast::Sender<Change>,
    full: Arc<AtomicBool>,
}

impl Store {
    /// A store over a database that is open and migrated.
    pub fn new(database: Arc<dyn Database>) -> Self {
        Self { database, changes: tokio::sync::broadcast::Sender::new(1024), full: Arc::default() }
    }

    /// Begins a transaction that may write.
    pub async fn begin(&self) -> Result<Tx> {
        let (inner, full) = (self.database.begin().await?, Arc::clone(&self.full));
        Ok(Tx { inner, pending: Vec::new(), changes: self.changes.clone(), full })
    }

    /// A consistent view for reading.
    pub async fn read(&self) -> Result<Box<dyn Sql>> {
        self.database.read().await
    }

    /// Whether the last commit found the disk full.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// What changes from now on. A receiver that lags is told so and must read everything again.
    pub fn changes(&self) -> tokio::sync::broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

impl Tx {
    /// The transaction as something to run queries on.
    pub fn sql(&mut self) -> &mut dyn Sql {
        &mut *self.inner
    }

    /// Notes a change; watchers hear of it after the commit.
    pub fn note(&mut self, change: Change) {
        if !self.pending.contains(&change) {
            self.pending.push(change);
        }
    }

    /// Makes it lasting, then tells the watchers. Once begun it goes on to its end though the caller is dropped, so that
    /// nothing is committed without the watchers being told.
    pub async fn commit(self) -> Result<()> {
        let commit = async move {
            let done = self.inner.commit().await;
            match &done {
                Ok(()) => self.full.store(false, Ordering::Relaxed),
                Err(Error::DiskFull(_)) => self.full.store(true, Ordering::Relaxed),
                Err(_) => {}
            }
            done?;
            for change in self.pending {
                // No receiver is no failure: nobody watches.
                let _ = self.changes.send(change);
            }
            Ok(())
        };
        tokio::spawn(commit).await.map_err(|e| Error::Database(anyhow::Error::new(e).context("the commit did not come to its end")))?
    }
}

/// How many rows one call of a `prune` removes at most, so that the writer is never held for long.
pub const PRUNE_BATCH: u64 = 500;

/// A value as the JSON text that its column holds.
fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Database(anyhow::Error::new(e).context("a value has no form in JSON")))
}

/// The projects that a list goes through one by one, each once, so that each part comes from an index in the list's
/// order; the one `None` stands for all of them.
fn distinct(projects: Option<&[crate::domain::ProjectId]>) -> Vec<Option<crate::domain::ProjectId>> {
    projects
        .map_or_else(|| vec![None], |ids| ids.iter().copied().collect::<std::collections::BTreeSet<_>>().into_iter().map(Some).collect())
}
