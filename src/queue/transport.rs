//! What wakes workers.

use async_trait::async_trait;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::{Mutex, Notify};

use crate::store::{Change, Store};

/// Tells workers that jobs wait.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Tells of waiting jobs; called after the commit, and may be lost or doubled.
    async fn wake(&self) -> anyhow::Result<()>;
    /// Returns when jobs may wait. May be dropped and called again at any time.
    async fn woken(&self) -> anyhow::Result<()>;
}

/// Wakes a worker of this process, from the store's changes. Each worker has one of its own: of two that share one, one
/// is woken, and the other at its next pass.
pub struct Embedded {
    changes: Mutex<Receiver<Change>>,
    asked: Notify,
}

impl Embedded {
    /// Listens to what is committed through `store` (and its clones) from now on.
    pub fn new(store: &Store) -> Self {
        Self { changes: Mutex::new(store.changes()), asked: Notify::new() }
    }

    async fn enqueued(&self) -> anyhow::Result<()> {
        let mut changes = self.changes.lock().await;
        loop {
            match changes.recv().await {
                Ok(Change::JobEnqueued) | Err(RecvError::Lagged(_)) => break,
                Ok(_) => {}
                Err(RecvError::Closed) => anyhow::bail!("the store is closed"),
            }
        }
        // One pass serves all that was told up to here.
        *changes = changes.resubscribe();
        Ok(())
    }
}

#[async_trait]
impl Transport for Embedded {
    async fn wake(&self) -> anyhow::Result<()> {
        self.asked.notify_one();
        Ok(())
    }

    async fn woken(&self) -> anyhow::Result<()> {
        tokio::select! {
            () = self.asked.notified() => Ok(()),
            enqueued = self.enqueued() => enqueued,
        }
    }
}
