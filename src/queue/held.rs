//! The leases that a worker holds, and their renewal.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LEASE, lease};
use crate::domain::{Ambient, JobId};
use crate::store::{Result, Store};

/// The leases that a worker holds.
#[derive(Default)]
pub(super) struct HeldLeases(Mutex<HashMap<JobId, Lease>>);

struct Lease {
    token: String,
    cancelled: CancellationToken,
    /// By the monotonic clock: whatever the wall clock does, a lease that could not be renewed for its length is given up.
    renewed: Instant,
    lost: bool,
}

impl HeldLeases {
    pub(super) fn insert(&self, id: JobId, token: &str, cancelled: CancellationToken) {
        self.lock().insert(id, Lease { token: token.to_owned(), cancelled, renewed: Instant::now(), lost: false });
    }

    pub(super) fn remove(&self, id: JobId) {
        self.lock().remove(&id);
    }

    /// Whether the lease went to another, or may have.
    pub(super) fn is_lost(&self, id: JobId) -> bool {
        self.lock().get(&id).is_none_or(|lease| lease.lost)
    }

    /// Renews for as long as it is polled.
    pub(super) async fn keep(&self, store: &Store, ambient: &Ambient) {
        let mut ticks = tokio::time::interval(LEASE / 3);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.renew(store, ambient).await {
                tracing::warn!(%error, "the leases of running jobs could not be renewed");
            }
            self.give_up_overdue();
        }
    }

    /// Every lease that is not known to be lost.
    pub(super) fn all(&self) -> Vec<(JobId, String)> {
        self.lock().iter().filter(|(_, lease)| !lease.lost).map(|(id, lease)| (*id, lease.token.clone())).collect()
    }

    async fn renew(&self, store: &Store, ambient: &Ambient) -> Result<()> {
        let held = self.all();
        if held.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        let mut tx = store.begin().await?;
        let gone = lease::renew(&mut tx, &held, ambient.now()).await?;
        tx.commit().await?;
        let mut leases = self.lock();
        for (id, token) in held {
            let Some(lease) = leases.get_mut(&id).filter(|lease| lease.token == token) else { continue };
            if gone.contains(&id) {
                lease.lose(id);
            } else {
                lease.renewed = at;
            }
        }
        Ok(())
    }

    fn give_up_overdue(&self) {
        for (id, lease) in self.lock().iter_mut() {
            if !lease.lost && lease.renewed.elapsed() >= LEASE {
                lease.lose(*id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    fn lose(&mut self, id: JobId) {
        tracing::warn!(job = %id, "the lease of a running job is lost; the job is told to stop");
        self.lost = true;
        self.cancelled.cancel();
    }
}
