//! Events: one sequence for the whole installation.

use super::{Change, Error, PRUNE_BATCH, Result, Row, Sql, Tx, Value, continuation};
use crate::domain::event::{Event, NewEvent, Severity};
use crate::domain::page::{MAX_LIMIT, Page, PageRequest};
use crate::domain::{ClusterId, ProjectId, Timestamp};

const LIST: &str = "events";

macro_rules! select {
    ($rest:literal) => {
        concat!("select id, at, project_id, cluster_id, cluster, severity, reason, message, actor from events ", $rest)
    };
}

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
    let insert = "insert into events (at, project_id, cluster_id, cluster, severity, reason, message, actor) \
                  values ($1, $2, $3, $4, $5, $6, $7, $8) returning id";
    let (cluster_id, cluster) = event.cluster.unzip();
    let values = vec![
        at.into(),
        event.project_id.into(),
        cluster_id.into(),
        cluster.into(),
        event.severity.as_str().into(),
        event.reason.into(),
        event.message.into(),
        event.actor.into(),
    ];
    let mut rows = tx.sql().query(insert, values).await?;
    tx.note(Change::Event);
    rows.pop().ok_or_else(|| Error::Database(anyhow::anyhow!("an insert gave no id")))?.take(0)
}

/// Events, newest first; pages go backwards.
pub async fn list(sql: &mut dyn Sql, filter: &Filter, page: &PageRequest) -> Result<Page<Event>> {
    let before = continuation::decode_as(LIST, page)?.unwrap_or(i64::MAX);
    let wanted = continuation::surplus(page);
    let mut items = Vec::new();
    for project in scopes(filter) {
        let rows = match (filter.cluster, project) {
            (Some(cluster), project) => {
                let select = select!(
                    "where cluster_id = $1 and id < $2 and (cast($3 as text) is null or project_id = $3) order by id desc limit $4"
                );
                sql.query(select, vec![cluster.into(), before.into(), project.into(), wanted.into()]).await?
            }
            (None, Some(project)) => {
                let select = select!("where project_id = $1 and id < $2 order by id desc limit $3");
                sql.query(select, vec![project.into(), before.into(), wanted.into()]).await?
            }
            (None, None) => sql.query(select!("where id < $1 order by id desc limit $2"), vec![before.into(), wanted.into()]).await?,
        };
        items.extend(rows.into_iter().map(read).collect::<Result<Vec<_>>>()?);
    }
    items.sort_unstable_by_key(|event| std::cmp::Reverse(event.id));
    Ok(Page::from_surplus(items, continuation::limit(page), |event| continuation::encode(LIST, &event.id.to_string())))
}

/// Events with an id above `after`, oldest first, at most `limit` (and at most [`MAX_LIMIT`]).
pub async fn after(sql: &mut dyn Sql, filter: &Filter, after: i64, limit: u32) -> Result<Vec<Event>> {
    let limit = limit.min(MAX_LIMIT);
    let mut items = Vec::new();
    for project in scopes(filter) {
        let rows = match (filter.cluster, project) {
            (Some(cluster), project) => {
                let select =
                    select!("where cluster_id = $1 and id > $2 and (cast($3 as text) is null or project_id = $3) order by id limit $4");
                sql.query(select, vec![cluster.into(), after.into(), project.into(), limit.into()]).await?
            }
            (None, Some(project)) => {
                let select = select!("where project_id = $1 and id > $2 order by id limit $3");
                sql.query(select, vec![project.into(), after.into(), limit.into()]).await?
            }
            (None, None) => sql.query(select!("where id > $1 order by id limit $2"), vec![after.into(), limit.into()]).await?,
        };
        items.extend(rows.into_iter().map(read).collect::<Result<Vec<_>>>()?);
    }
    items.sort_unstable_by_key(|event| event.id);
    items.truncate(limit as usize);
    Ok(items)
}

/// The newest id; 0 when there is none.
pub async fn newest(sql: &mut dyn Sql) -> Result<i64> {
    let mut rows = sql.query("select coalesce(max(id), 0) from events", Vec::new()).await?;
    rows.pop().map_or(Ok(0), |mut row| row.take(0))
}

/// Removes events older than `before`, at most [`PRUNE_BATCH`]; gives how many.
pub async fn prune(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    let delete = "delete from events where id in (select id from events where at < $1 order by at limit $2)";
    tx.sql().execute(delete, vec![before.into(), Value::Int(PRUNE_BATCH.cast_signed())]).await
}

/// The projects to ask for, one by one, so that each answer comes from an index in the order of the list.
fn scopes(filter: &Filter) -> Vec<Option<ProjectId>> {
    super::distinct(filter.projects.as_deref())
}

fn read(mut row: Row) -> Result<Event> {
    let severity: String = row.take(5)?;
    Ok(Event {
        id: row.take(0)?,
        at: row.take(1)?,
        project_id: row.take(2)?,
        cluster_id: row.take(3)?,
        cluster: row.take(4)?,
        severity: if severity == Severity::Warning.as_str() { Severity::Warning } else { Severity::Normal },
        reason: row.take(6)?,
        message: row.take(7)?,
        actor: row.take(8)?,
    })
}
