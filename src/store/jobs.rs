//! Jobs as rows: the outbox, leases, results. The rules are in `queue`.
use super::{Result, Sql, Tx};
use crate::domain::job::{Job, JobState};
use crate::domain::page::{Page, PageRequest};
use crate::domain::{Ambient, ClusterId, JobId, ProjectId, Timestamp};

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
    /// Whether one waiting job of this kind and cluster is enough: then the call gives that one's id.
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
    todo!()
}
/// The job of that id.
pub async fn find(sql: &mut dyn Sql, id: JobId) -> Result<Option<Job>> {
    todo!()
}
/// What the job ended with; `None` until it ended well.
pub async fn result(sql: &mut dyn Sql, id: JobId) -> Result<Option<serde_json::Value>> {
    todo!()
}
/// Jobs, newest first.
pub async fn list(sql: &mut dyn Sql, filter: &Filter, page: &PageRequest) -> Result<Page<Job>> {
    todo!()
}
/// Makes a dead job pending again with attempts 0; gives whether it was dead.
pub async fn retry(tx: &mut Tx, now: Timestamp, id: JobId) -> Result<bool> {
    todo!()
}
