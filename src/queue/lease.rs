//! Leases as statements: who may take which job, and how an attempt ends.
//!
//! Everything that ends an attempt is conditional on the lease's token, so that a worker whose lease went to another
//! changes nothing. With Postgres the choice of candidates gets `for update skip locked`; that is the one difference.

use std::time::Duration;

use super::LEASE;
use super::running::{self, Running};
use crate::domain::job::{Job, JobState};
use crate::domain::{Ambient, JobId, Timestamp};
use crate::store::jobs::{self, Leased};
use crate::store::{Change, Result, Sql, Store, Tx, Value};

/// Further off than any backoff: a job that waits for longer was put off under a clock that has since been set back.
const FAR: Duration = Duration::from_secs(900);
/// What a job says whose worker is gone.
const WORKER_LOST: &str = "worker lost: its process ended, or could not renew its lease";
/// The longest error that is kept, in bytes.
const ERROR_MAX: usize = 4096;

/// Who takes jobs, and which.
#[derive(Debug, Clone)]
pub(super) struct Claimant {
    host: String,
    owner: String,
    /// The kinds of jobs, each between commas.
    kinds: String,
}

/// What waits for a claimant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Whether there is something to take, or a lease that ran out.
    pub due: bool,
    /// When the next job comes due, or the next lease runs out.
    pub next: Option<Timestamp>,
}

/// A job that was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub leased: Leased,
    pub running: Running,
}

/// How an attempt ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    /// Well, with this result.
    Succeeded(serde_json::Value),
    /// Badly; to be tried again at that time.
    Retry(String, Timestamp),
    /// Badly, for good.
    Dead(String),
    /// Not at all: the attempt does not count.
    Released,
}

impl Claimant {
    pub(super) fn new<'a>(host: &str, owner: &str, kinds: impl Iterator<Item = &'a str>) -> Self {
        let kinds = kinds.fold(",".to_owned(), |all, kind| all + kind + ",");
        Self { host: host.to_owned(), owner: owner.to_owned(), kinds }
    }
}

/// Whether there is something to take; reads only, so that an idle worker never asks for the writer.
pub(super) async fn waiting(sql: &mut dyn Sql, claimant: &Claimant, now: Timestamp) -> Result<Waiting> {
    let is_due = !candidates(sql, claimant, now, 1).await?.is_empty() || !expired(sql, now).await?.is_empty();
    let select = "select min(at) from ( \
                  select min(run_after) as at from jobs where state = 'pending' and run_after > $1 \
                  and (host is null or host = $2) and $3 like '%,' || kind || ',%' \
                  union all select min(lease_expires_at) as at from jobs where state = 'running' and lease_expires_at >= $1 \
                  and lease_owner <> $4) as times";
    let values = vec![now.into(), (&claimant.host).into(), (&claimant.kinds).into(), (&claimant.owner).into()];
    let mut rows = sql.query(select, values).await?;
    let next = rows.pop().map_or(Ok(None), |mut row| row.take(0))?;
    Ok(Waiting { due: is_due, next })
}

/// Takes at most `limit` jobs that are due, oldest first.
pub(super) async fn take(tx: &mut Tx, ambient: &Ambient, claimant: &Claimant, limit: usize) -> Result<Vec<Taken>> {
    let now = ambient.now();
    lose_expired(tx, now).await?;
    let mut taken = Vec::new();
    // Of several candidates of one cluster only one can be taken, so that a look may bring fewer than there are.
    while taken.len() < limit {
        let before = taken.len();
        for id in candidates(tx.sql(), claimant, now, limit - before).await? {
            if let Some(running) = running::enter(id)
                && let Some(leased) = claim(tx.sql(), ambient, claimant, id, now).await?
            {
                taken.push(Taken { leased, running });
            }
        }
        if taken.len() == before {
            break;
        }
    }
    Ok(taken)
}

async fn candidates(sql: &mut dyn Sql, claimant: &Claimant, now: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let select = "select j.id from jobs j where j.state = 'pending' and (j.run_after <= $1 or j.run_after > $2) \
                  and (j.host is null or j.host = $3) and $4 like '%,' || j.kind || ',%' \
                  and (j.cluster_id is null or not exists (select 1 from jobs r where r.state = 'running' \
                  and r.cluster_id = j.cluster_id and r.kind = j.kind)) order by j.run_after, j.id limit $5";
    // What this process is still doing without a lease is passed over, and must not crowd out the rest.
    let limit = i64::try_from(limit + running::count()).unwrap_or(i64::MAX);
    let values = vec![now.into(), now.plus(FAR).into(), (&claimant.host).into(), (&claimant.kinds).into(), Value::Int(limit)];
    let rows = sql.query(select, values).await?;
    let ids = rows.into_iter().map(|mut row| row.take(0)).collect::<Result<Vec<JobId>>>()?;
    Ok(ids.into_iter().filter(|id| !running::contains(*id)).collect())
}

async fn claim(sql: &mut dyn Sql, ambient: &Ambient, claimant: &Claimant, id: JobId, now: Timestamp) -> Result<Option<Leased>> {
    let token = hex::encode(ambient.random::<16>());
    let expires_at = now.plus(LEASE);
    let update = "update jobs set state = 'running', attempts = attempts + 1, lease_token = $2, lease_owner = $3, lease_host = $4, \
                  lease_expires_at = $5 where id = $1 and state = 'pending' \
                  and (cluster_id is null or not exists (select 1 from jobs r where r.state = 'running' \
                  and r.cluster_id = jobs.cluster_id and r.kind = jobs.kind)) returning payload";
    let values = vec![id.into(), (&token).into(), (&claimant.owner).into(), (&claimant.host).into(), expires_at.into()];
    let Some(mut row) = sql.query(update, values).await?.pop() else { return Ok(None) };
    let payload = row.take_json(0)?;
    Ok(jobs::find(sql, id).await?.map(|job| Leased { job, payload, token, expires_at }))
}

async fn expired(sql: &mut dyn Sql, now: Timestamp) -> Result<Vec<(JobId, String)>> {
    let select = "select id, lease_token from jobs where state = 'running' and lease_expires_at < $1 \
                  order by lease_expires_at limit 100";
    lost(sql.query(select, vec![now.into()]).await?)
}

/// The jobs and tokens of rows, without what this process is doing in truth.
fn lost(rows: Vec<crate::store::Row>) -> Result<Vec<(JobId, String)>> {
    let all = rows.into_iter().map(|mut row| Ok((row.take(0)?, row.take(1)?))).collect::<Result<Vec<(JobId, String)>>>()?;
    Ok(all.into_iter().filter(|(id, _)| !running::contains(*id)).collect())
}

async fn lose_expired(tx: &mut Tx, now: Timestamp) -> Result<()> {
    for (id, token) in expired(tx.sql(), now).await? {
        lose(tx, id, &token, now).await?;
    }
    Ok(())
}

/// Ends an attempt whose worker is gone: it counts, since the job may be what ended the worker.
async fn lose(tx: &mut Tx, id: JobId, token: &str, now: Timestamp) -> Result<()> {
    let Some(job) = jobs::find(tx.sql(), id).await? else { return Ok(()) };
    let end = if job.attempts >= job.max_attempts { End::Dead(WORKER_LOST.to_owned()) } else { End::Retry(WORKER_LOST.to_owned(), now) };
    tracing::warn!(job = %id, kind = job.kind, attempts = job.attempts, "the worker of a job was lost");
    end_attempt(tx, &job, token, now, end).await?;
    Ok(())
}

/// Frees at once what an earlier process of this host left running, instead of waiting for its leases to run out; gives
/// how many. Call it at start, before any worker of this host runs, and only where no other process of this host works.
pub async fn reclaim(store: &Store, ambient: &Ambient, host: &str) -> Result<usize> {
    let mut tx = store.begin().await?;
    let select = "select id, lease_token from jobs where state = 'running' and lease_host = $1";
    let left = lost(tx.sql().query(select, vec![host.into()]).await?)?;
    for (id, token) in &left {
        lose(&mut tx, *id, token, ambient.now()).await?;
    }
    tx.commit().await?;
    Ok(left.len())
}

/// Makes leases last from `now` on; gives those that are held no longer.
pub(super) async fn renew(tx: &mut Tx, held: &[(JobId, String)], now: Timestamp) -> Result<Vec<JobId>> {
    let update = "update jobs set lease_expires_at = $3 where id = $1 and lease_token = $2 and state = 'running'";
    let mut gone = Vec::new();
    for (id, token) in held {
        if tx.sql().execute(update, vec![(*id).into(), token.into(), now.plus(LEASE).into()]).await? == 0 {
            gone.push(*id);
        }
    }
    Ok(gone)
}

/// Ends an attempt, when its lease is still held; gives whether it was.
pub(super) async fn settle(tx: &mut Tx, leased: &Leased, now: Timestamp, end: End) -> Result<bool> {
    end_attempt(tx, &leased.job, &leased.token, now, end).await
}

/// Gives a lease back, when it is still held.
pub(super) async fn release(tx: &mut Tx, id: JobId, token: &str, now: Timestamp) -> Result<()> {
    if let Some(job) = jobs::find(tx.sql(), id).await? {
        end_attempt(tx, &job, token, now, End::Released).await?;
    }
    Ok(())
}

async fn end_attempt(tx: &mut Tx, job: &Job, token: &str, now: Timestamp, end: End) -> Result<bool> {
    let uncounted = i64::from(end == End::Released);
    let (state, result, error, run_after) = match end {
        End::Succeeded(result) => (JobState::Succeeded, Some(result.to_string()), None, job.run_after),
        End::Retry(error, at) => (JobState::Pending, None, Some(error), at),
        End::Dead(error) => (JobState::Dead, None, Some(error), job.run_after),
        End::Released => (JobState::Pending, None, job.last_error.clone(), now),
    };
    let is_over = matches!(state, JobState::Succeeded | JobState::Dead);
    let update = "update jobs set state = $3, result = $4, last_error = $5, run_after = $6, finished_at = $7, attempts = attempts - $8, \
                  lease_token = null, lease_owner = null, lease_host = null, lease_expires_at = null \
                  where id = $1 and lease_token = $2 and state = 'running'";
    let values = vec![
        job.id.into(),
        token.into(),
        state.as_str().into(),
        result.into(),
        error.map(shortened).into(),
        run_after.into(),
        is_over.then_some(now).into(),
        uncounted.into(),
    ];
    if tx.sql().execute(update, values).await? == 0 {
        return Ok(false);
    }
    tx.note(if is_over { Change::JobFinished(job.id) } else { Change::JobEnqueued });
    Ok(true)
}

fn shortened(mut error: String) -> String {
    if error.len() > ERROR_MAX {
        error.truncate((0..=ERROR_MAX).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0));
        error.push('…');
    }
    error
}
