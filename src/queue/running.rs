//! Which jobs this process is doing at this moment, whatever the leases say.
//!
//! A lease is held against the wall clock, which may jump; this is not. A job that stands here is taken by no worker of
//! this process.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::JobId;

static RUNNING: Mutex<BTreeSet<JobId>> = Mutex::new(BTreeSet::new());

/// Stands for a job while it runs.
#[derive(Debug)]
pub(super) struct Running(JobId);

/// Enters a job; `None` when it runs already.
pub(super) fn enter(id: JobId) -> Option<Running> {
    lock().insert(id).then_some(Running(id))
}

/// Whether a job runs.
pub(super) fn contains(id: JobId) -> bool {
    lock().contains(&id)
}

/// How many jobs run.
pub(super) fn count() -> usize {
    lock().len()
}

impl Drop for Running {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

fn lock() -> MutexGuard<'static, BTreeSet<JobId>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
