//! What is kept, and the transactions in which it changes.
//!
//! A query exists once: the modules here (one for each kind of row) are written against [`Sql`], and each database
//! implements that. A row that changes and the job that follows from it commit in one [`Tx`]. Watchers are told after
//! the commit, through [`Store::changes`]; what they are told is a hint to read again.
//! May import: `domain`.

pub mod api_tokens;
pub mod certificates;
pub mod clusters;
pub mod events;
pub mod idempotency;
pub mod jobs;
pub mod kubeconfigs;
pub mod meta;
pub mod projects;
pub mod secrets;
pub mod sessions;
pub mod settings;
mod sql;
pub mod sqlite;
pub mod users;

use std::sync::Arc;

pub use sql::{Database, Row, Sql, Transaction, Value};

use crate::domain::ClusterId;

/// What the store says when it cannot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of that name or key exists.
    #[error("{0} exists already")]
    Exists(String),
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
    /// The database itself failed.
    #[error("database: {0}")]
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
    /// A user, role, session or token.
    Access,
}

/// The store: cheap to clone.
#[derive(Clone)]
pub struct Store {
    database: Arc<dyn Database>,
    changes: tokio::sync::broadcast::Sender<Change>,
}

/// A read-write transaction. Dropping it without [`Tx::commit`] rolls back.
pub struct Tx {
    inner: Box<dyn Transaction>,
    pending: Vec<Change>,
    changes: tokio::sync::broadcast::Sender<Change>,
}

impl Store {
    /// A store over a database that is open and migrated.
    pub fn new(database: Arc<dyn Database>) -> Self {
        Self { database, changes: tokio::sync::broadcast::Sender::new(1024) }
    }

    /// Begins a transaction that may write.
    pub async fn begin(&self) -> Result<Tx> {
        Ok(Tx { inner: self.database.begin().await?, pending: Vec::new(), changes: self.changes.clone() })
    }

    /// A consistent view for reading.
    pub async fn read(&self) -> Result<Box<dyn Sql>> {
        self.database.read().await
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

    /// Makes it lasting, then tells the watchers.
    pub async fn commit(self) -> Result<()> {
        self.inner.commit().await?;
        for change in self.pending {
            // No receiver is no failure: nobody watches.
            let _ = self.changes.send(change);
        }
        Ok(())
    }
}
