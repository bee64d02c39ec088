//! The loop that takes jobs under a lease, runs them, and settles them.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::held::HeldLeases;
use super::lease::{self, Claimant, End, Taken};
use super::transport::Transport;
use super::{DRAIN, SAFETY_NET};
use crate::domain::{Ambient, job};
use crate::store::{self, Store, jobs::Leased};

/// How long to wait after the store failed.
const AFTER_ERROR: Duration = Duration::from_secs(1);
/// How often it is tried to settle a job; then its lease runs out and it is done again.
const SETTLE_TRIES: usize = 30;

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

impl From<store::Error> for JobError {
    fn from(error: store::Error) -> Self {
        Self::Retry(error.into())
    }
}

/// What a job runs with.
pub struct Context {
    /// The store.
    pub store: Store,
    /// Clock and randomness.
    pub ambient: Ambient,
    /// Cancelled when the lease is lost or the process drains: stop at the next safe point, and say so with
    /// [`JobError::Retry`]; an attempt that drained so does not count.
    pub cancelled: CancellationToken,
}

/// The work of one kind of job.
#[async_trait]
pub trait Handler: Send + Sync {
    /// The kind of job that this does; letters, digits and hyphens.
    fn kind(&self) -> &'static str;
    /// Does it. Must be a reconcile: run twice, or cut anywhere and run again, it ends the same.
    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError>;
}

/// What a worker is.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The host that it works for: it does the jobs of this host and those of any host.
    pub host: String,
    /// How many jobs it does at once.
    pub concurrency: usize,
    /// Names this process among all that share the store, now and later: it stands with each lease.
    pub owner: String,
    /// How long it lets its jobs come to a safe point when it is asked to stop.
    pub drain: Duration,
}

impl WorkerOptions {
    /// A worker of that host that does eight jobs at once, with a fresh owner and [`DRAIN`].
    pub fn new(host: impl Into<String>, ambient: &Ambient) -> Self {
        let host = host.into();
        let owner = format!("{host}/{}/{}", std::process::id(), hex::encode(ambient.random::<6>()));
        Self { host, concurrency: 8, owner, drain: DRAIN }
    }
}

/// A worker of this process.
pub struct Worker {
    core: Core,
    transport: Arc<dyn Transport>,
}

struct Core {
    store: Store,
    ambient: Ambient,
    options: WorkerOptions,
    handlers: BTreeMap<&'static str, Arc<dyn Handler>>,
    held: HeldLeases,
    stop: CancellationToken,
}

impl Worker {
    /// A worker without handlers.
    pub fn new(store: Store, ambient: Ambient, transport: Arc<dyn Transport>, options: WorkerOptions) -> Self {
        let core = Core { store, ambient, options, handlers: BTreeMap::new(), held: HeldLeases::default(), stop: CancellationToken::new() };
        Self { core, transport }
    }

    /// Also does this kind of job. Jobs of other kinds are left to other workers.
    #[must_use]
    pub fn with(mut self, handler: Arc<dyn Handler>) -> Self {
        let known = self.core.handlers.insert(handler.kind(), handler);
        debug_assert!(known.is_none(), "two handlers for one kind of job");
        self
    }

    /// Works until `shutdown`, then drains: takes nothing more, cancels what runs, waits for it, and gives back the leases
    /// of what did not come to its end. Dropped instead, it stops at once and its leases run out, as after a kill.
    pub async fn run(self, shutdown: CancellationToken) {
        let (core, transport) = (Arc::new(self.core), self.transport);
        let mut tasks = JoinSet::new();
        let mut renewal = JoinSet::new();
        renewal.spawn({
            let core = Arc::clone(&core);
            async move { core.held.keep(&core.store, &core.ambient).await }
        });
        while !shutdown.is_cancelled() {
            let pause = core.fill(&mut tasks).await;
            tokio::select! {
                () = shutdown.cancelled() => {}
                Some(_) = tasks.join_next() => while tasks.try_join_next().is_some() {},
                woken = transport.woken() => if let Err(error) = woken {
                    tracing::warn!(%error, "nobody wakes this worker; it looks for jobs by itself");
                    tokio::time::sleep(AFTER_ERROR).await;
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
        core.drain(tasks).await;
    }
}

impl Core {
    /// Takes as many jobs as there is room for and starts them; gives how long to wait at most before looking again.
    async fn fill(self: &Arc<Self>, tasks: &mut JoinSet<()>) -> Duration {
        let room = self.options.concurrency.max(1).saturating_sub(tasks.len());
        if room == 0 {
            return SAFETY_NET;
        }
        match self.take(room).await {
            Ok((taken, pause)) => {
                for taken in taken {
                    let cancelled = self.stop.child_token();
                    self.held.insert(taken.leased.job.id, &taken.leased.token, cancelled.clone());
                    let job = &taken.leased.job;
                    let span = tracing::info_span!("job", id = %job.id, kind = job.kind, attempt = job.attempts);
                    tasks.spawn(Arc::clone(self).perform(taken, cancelled).instrument(span));
                }
                pause
            }
            Err(error) => {
                tracing::warn!(%error, "looking for jobs failed");
                AFTER_ERROR
            }
        }
    }

    async fn take(&self, room: usize) -> store::Result<(Vec<Taken>, Duration)> {
        let claimant = Claimant::new(&self.options.host, &self.options.owner, self.handlers.keys().copied());
        let now = self.ambient.now();
        let waiting = lease::waiting(&mut *self.store.read().await?, &claimant, now).await?;
        let pause = waiting.next.map_or(SAFETY_NET, |next| next.since(now).clamp(Duration::from_millis(1), SAFETY_NET));
        if !waiting.due {
            return Ok((Vec::new(), pause));
        }
        let mut tx = self.store.begin().await?;
        let taken = lease::take(&mut tx, &self.ambient, &claimant, room).await?;
        tx.commit().await?;
        Ok((taken, pause))
    }

    async fn perform(self: Arc<Self>, taken: Taken, cancelled: CancellationToken) {
        let Taken { leased, running } = taken;
        let context = Context { store: self.store.clone(), ambient: self.ambient.clone(), cancelled };
        let outcome = match self.handlers.get(leased.job.kind.as_str()) {
            Some(handler) => match AssertUnwindSafe(handler.run(&context, &leased)).catch_unwind().await {
                Ok(outcome) => outcome,
                Err(panic) => Err(JobError::Retry(anyhow::anyhow!("the job panicked: {}", said_by(&*panic)))),
            },
            None => Err(JobError::Retry(anyhow::anyhow!("this worker does not do such jobs"))),
        };
        self.settle(&leased, self.end_of(&leased, outcome)).await;
        self.held.remove(leased.job.id);
        drop(running);
    }

    fn end_of(&self, leased: &Leased, outcome: Result<serde_json::Value, JobError>) -> End {
        match outcome {
            Ok(result) => End::Succeeded(result),
            Err(JobError::Retry(error)) if self.stop.is_cancelled() => {
                tracing::info!(error = format!("{error:#}"), "stopped for the drain; the job goes on with the next worker");
                End::Released
            }
            Err(JobError::Retry(error)) if leased.job.attempts < leased.job.max_attempts => {
                let wait = job::backoff(&self.ambient, leased.job.attempts);
                tracing::warn!(error = format!("{error:#}"), ?wait, "failed; it will be tried again");
                End::Retry(format!("{error:#}"), self.ambient.now().plus(wait))
            }
            Err(JobError::Retry(error) | JobError::Fatal(error)) => {
                tracing::error!(error = format!("{error:#}"), "failed for good");
                End::Dead(format!("{error:#}"))
            }
        }
    }

    /// Writes how an attempt ended, for as long as its lease may be held.
    async fn settle(&self, leased: &Leased, end: End) {
        for _ in 0..SETTLE_TRIES {
            match self.write(leased, end.clone()).await {
                Ok(true) => return,
                Ok(false) => break,
                Err(error) => tracing::warn!(%error, "how the job ended could not be written; trying again"),
            }
            if self.held.is_lost(leased.job.id) {
                break;
            }
            tokio::time::sleep(AFTER_ERROR).await;
        }
        tracing::warn!("the lease is lost: how the job ended here is not written");
    }

    async fn write(&self, leased: &Leased, end: End) -> store::Result<bool> {
        let mut tx = self.store.begin().await?;
        let settled = lease::settle(&mut tx, leased, self.ambient.now(), end).await?;
        tx.commit().await?;
        Ok(settled)
    }

    async fn drain(&self, mut tasks: JoinSet<()>) {
        self.stop.cancel();
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(self.options.drain, all).await.is_ok() {
            return;
        }
        tracing::warn!(jobs = tasks.len(), "jobs did not stop in time; they are cut, and go on with the next worker");
        tasks.shutdown().await;
        if let Err(error) = self.release_all().await {
            tracing::warn!(%error, "leases could not be given back; they run out by themselves");
        }
    }

    /// Gives back every lease that is still held.
    async fn release_all(&self) -> store::Result<()> {
        let mut tx = self.store.begin().await?;
        for (id, token) in self.held.all() {
            lease::release(&mut tx, id, &token, self.ambient.now()).await?;
        }
        tx.commit().await
    }
}

/// What a panic said.
fn said_by(panic: &(dyn std::any::Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(without words)")
}
