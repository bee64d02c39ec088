//! Jobs as rows: the outbox and what is read of them. Claiming, leases and settling are in `queue`.

use super::{Change, PRUNE_BATCH, Result, Row, Sql, Tx, Value, continuation, to_json};
use crate::domain::job::{Job, JobState};
use crate::domain::page::{Page, PageRequest};
use crate::domain::{Ambient, ClusterId, JobId, ProjectId, Timestamp};

const LIST: &str = "jobs";

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, kind, project_id, cluster_id, host, state, attempts, max_attempts, run_after, last_error, created_at, ",
            "finished_at from jobs ",
            $rest
        )
    };
}

/// A job that is to be done.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What kind of work.
    pub kind: &'static str,
    /// The project it belongs to.
    pub project_id: Option<ProjectId>,
    /// The cluster it is about.
    pub cluster_id: Option<ClusterId>,
    /// The one host that may do it; absent: any.
    pub host: Option<String>,
    /// What it needs to know, as JSON; no private key.
    pub payload: serde_json::Value,
    /// After so many attempts it is dead.
    pub max_attempts: i64,
    /// Whether one waiting job of this kind, cluster and host is enough: then the call gives that one's id, and makes it due.
    pub coalesce: bool,
}

/// A job that a worker holds.
#[derive(Debug, Clone)]
pub struct Leased {
    /// The job.
    pub job: Job,
    /// What it needs to know.
    pub payload: serde_json::Value,
    /// Proves the lease; another worker gets another.
    pub token: String,
    /// Until when the lease holds.
    pub expires_at: Timestamp,
}

/// Which jobs.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of these projects only; `None`: all.
    pub projects: Option<Vec<ProjectId>>,
    /// Of this cluster only.
    pub cluster: Option<ClusterId>,
    /// In this state only.
    pub state: Option<JobState>,
}

/// Enqueues a job in the transaction of what it follows from.
pub async fn enqueue(tx: &mut Tx, ambient: &Ambient, new: NewJob) -> Result<JobId> {
    let now = ambient.now();
    tx.note(Change::JobEnqueued);
    if new.coalesce
        && let Some(id) = join_waiting(tx, &new, now).await?
    {
        return Ok(id);
    }
    let id = JobId::generate(ambient);
    let insert = "insert into jobs (id, kind, project_id, cluster_id, host, payload, state, attempts, max_attempts, run_after, \
                  created_at) values ($1, $2, $3, $4, $5, $6, 'pending', 0, $7, $8, $8)";
    let values = vec![
        id.into(),
        new.kind.into(),
        new.project_id.into(),
        new.cluster_id.into(),
        new.host.into(),
        to_json(&new.payload)?.into(),
        new.max_attempts.max(1).into(),
        now.into(),
    ];
    tx.sql().execute(insert, values).await?;
    Ok(id)
}

/// The job that already waits for the same, made due and with all its attempts: what is asked for anew deserves them.
async fn join_waiting(tx: &mut Tx, new: &NewJob, now: Timestamp) -> Result<Option<JobId>> {
    let update = "update jobs set run_after = case when run_after < $4 then run_after else $4 end, attempts = 0 \
                  where id = (select id from jobs where state = 'pending' and kind = $1 \
                  and cluster_id is not distinct from $2 and host is not distinct from $3 limit 1) returning id";
    let values = vec![new.kind.into(), new.cluster_id.into(), new.host.as_deref().into(), now.into()];
    let mut rows = tx.sql().query(update, values).await?;
    rows.pop().map(|mut row| row.take(0)).transpose()
}

/// The job of that id.
pub async fn find(sql: &mut dyn Sql, id: JobId) -> Result<Option<Job>> {
    let mut rows = sql.query(select!("where id = $1"), vec![id.into()]).await?;
    rows.pop().map(|mut row| read(&mut row)).transpose()
}

/// What the job ended with; `None` until it ended well.
pub async fn result(sql: &mut dyn Sql, id: JobId) -> Result<Option<serde_json::Value>> {
    let select = "select result from jobs where id = $1 and state = 'succeeded' and result is not null";
    let mut rows = sql.query(select, vec![id.into()]).await?;
    rows.pop().map(|mut row| row.take_json(0)).transpose()
}

/// Forgets what the job ended with, once it was read and is not for keeping.
pub async fn clear_result(tx: &mut Tx, id: JobId) -> Result<()> {
    tx.sql().execute("update jobs set result = null where id = $1 and state = 'succeeded'", vec![id.into()]).await.map(drop)
}

/// Jobs, newest first.
pub async fn list(sql: &mut dyn Sql, filter: &Filter, page: &PageRequest) -> Result<Page<Job>> {
    // No identifier sorts behind a tilde.
    let before = continuation::decode_as::<JobId>(LIST, page)?.map_or_else(|| "~".to_owned(), |id| id.to_string());
    let wanted = continuation::surplus(page);
    let state = || Value::from(filter.state.map(JobState::as_str));
    let mut items = Vec::new();
    for project in super::distinct(filter.projects.as_deref()) {
        let before = Value::from(before.as_str());
        let mut rows = match (filter.cluster, project, filter.state) {
            (Some(cluster), project, _) => {
                let select = select!(
                    "where cluster_id = $1 and id < $2 and (cast($3 as text) is null or state = $3) \
                     and (cast($4 as text) is null or project_id = $4) order by id desc limit $5"
                );
                sql.query(select, vec![cluster.into(), before, state(), project.into(), wanted.into()]).await?
            }
            (None, Some(project), _) => {
                let select =
                    select!("where project_id = $1 and id < $2 and (cast($3 as text) is null or state = $3) order by id desc limit $4");
                sql.query(select, vec![project.into(), before, state(), wanted.into()]).await?
            }
            // What has ended is much, what is open is little: each has an index of its own.
            (None, None, Some(JobState::Succeeded | JobState::Dead)) => {
                let select = select!("where finished_at is not null and state = $1 and id < $2 order by id desc limit $3");
                sql.query(select, vec![state(), before, wanted.into()]).await?
            }
            (None, None, Some(JobState::Pending | JobState::Running)) => {
                let select = select!("where finished_at is null and state = $1 and id < $2 order by id desc limit $3");
                sql.query(select, vec![state(), before, wanted.into()]).await?
            }
            (None, None, None) => sql.query(select!("where id < $1 order by id desc limit $2"), vec![before, wanted.into()]).await?,
        };
        items.extend(rows.iter_mut().map(read).collect::<Result<Vec<_>>>()?);
    }
    items.sort_unstable_by_key(|job: &Job| std::cmp::Reverse(job.id));
    Ok(Page::from_surplus(items, continuation::limit(page), |job| continuation::encode(LIST, &job.id.to_string())))
}

/// Makes a job that is dead, or waits for its next attempt, due at once with all its attempts; gives whether it was one.
pub async fn retry(tx: &mut Tx, now: Timestamp, id: JobId) -> Result<bool> {
    let update = "update jobs set state = 'pending', attempts = 0, run_after = $2, finished_at = null \
                  where id = $1 and (state = 'dead' or (state = 'pending' and run_after > $2))";
    let changed = tx.sql().execute(update, vec![id.into(), now.into()]).await?;
    if changed > 0 {
        tx.note(Change::JobEnqueued);
    }
    Ok(changed > 0)
}

/// Removes jobs that ended well before `succeeded_before` and those that died before `dead_before`, at most
/// [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, succeeded_before: Timestamp, dead_before: Timestamp) -> Result<u64> {
    let delete = "delete from jobs where id in (select id from jobs where finished_at is not null \
                  and state = $1 and finished_at < $2 order by finished_at limit $3)";
    let mut removed = 0;
    for (state, before) in [(JobState::Succeeded, succeeded_before), (JobState::Dead, dead_before)] {
        let room = Value::Int((PRUNE_BATCH - removed).cast_signed());
        removed += tx.sql().execute(delete, vec![state.as_str().into(), before.into(), room]).await?;
    }
    Ok(removed)
}

/// A job out of a row that begins with this module's columns.
fn read(row: &mut Row) -> Result<Job> {
    Ok(Job {
        id: row.take(0)?,
        kind: row.take(1)?,
        project_id: row.take(2)?,
        cluster_id: row.take(3)?,
        host: row.take(4)?,
        state: row.take(5)?,
        attempts: row.take(6)?,
        max_attempts: row.take(7)?,
        run_after: row.take(8)?,
        last_error: row.take(9)?,
        created_at: row.take(10)?,
        finished_at: row.take(11)?,
    })
}
