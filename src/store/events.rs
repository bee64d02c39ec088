//! Events: one sequence for the whole installation.
use super::{Result, Sql, Tx};
use crate::domain::event::{Event, NewEvent};
use crate::domain::page::{Page, PageRequest};
use crate::domain::{ClusterId, ProjectId, Timestamp};

/// Which events.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of these projects only; `None`: all, the platform's own too.
    pub projects: Option<Vec<ProjectId>>,
    /// Of this cluster only.
    pub cluster: Option<ClusterId>,
}
/// Appends an event and gives its id.
pub async fn append(tx: &mut Tx, at: Timestamp, event: NewEvent) -> Result<i64> {
    todo!()
}
/// Events, newest first; pages go backwards.
pub async fn list(sql: &mut dyn Sql, filter: &Filter, page: &PageRequest) -> Result<Page<Event>> {
    todo!()
}
/// Events with an id above `after`, oldest first, at most `limit`.
pub async fn after(sql: &mut dyn Sql, filter: &Filter, after: i64, limit: u32) -> Result<Vec<Event>> {
    todo!()
}
/// The newest id; 0 when there is none.
pub async fn newest(sql: &mut dyn Sql) -> Result<i64> {
    todo!()
}
/// Removes events older than `before`; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    todo!()
}
