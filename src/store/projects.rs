//! Projects.

use super::{Change, Error, Result, Row, Sql, Tx, continuation};
use crate::domain::page::{Page, PageRequest};
use crate::domain::project::Project;
use crate::domain::{Ambient, ProjectId};

const LIST: &str = "projects";

/// Creates a project; [`super::Error::Exists`] when the name is taken.
pub async fn create(tx: &mut Tx, ambient: &Ambient, name: &str) -> Result<Project> {
    let project = Project { id: ProjectId::generate(ambient), name: name.to_owned(), created_at: ambient.now() };
    let insert = "insert into projects (id, name, created_at) values ($1, $2, $3) on conflict (name) do nothing";
    let values = vec![project.id.into(), name.into(), project.created_at.into()];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists(format!("project {name:?}")));
    }
    tx.note(Change::Access);
    Ok(project)
}

/// The project of that id.
pub async fn find(sql: &mut dyn Sql, id: ProjectId) -> Result<Option<Project>> {
    let mut rows = sql.query("select id, name, created_at from projects where id = $1", vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The project of that name.
pub async fn find_by_name(sql: &mut dyn Sql, name: &str) -> Result<Option<Project>> {
    let mut rows = sql.query("select id, name, created_at from projects where name = $1", vec![name.into()]).await?;
    rows.pop().map(read).transpose()
}

/// Projects by name; `only`: no others than these.
pub async fn list(sql: &mut dyn Sql, only: Option<&[ProjectId]>, page: &PageRequest) -> Result<Page<Project>> {
    let mut after = continuation::decode(LIST, page)?.unwrap_or_default();
    let wanted = continuation::surplus(page);
    let mut items = Vec::new();
    // Somebody who sees few of many projects makes this read on until the page is full.
    loop {
        let select = "select id, name, created_at from projects where name > $1 order by name limit $2";
        let rows = sql.query(select, vec![after.as_str().into(), wanted.into()]).await?;
        let is_last = rows.len() < wanted as usize;
        for row in rows {
            let project = read(row)?;
            after.clone_from(&project.name);
            if only.is_none_or(|ids| ids.contains(&project.id)) {
                items.push(project);
            }
        }
        if is_last || items.len() >= wanted as usize {
            return Ok(Page::from_surplus(items, continuation::limit(page), |p| continuation::encode(LIST, &p.name)));
        }
    }
}

fn read(mut row: Row) -> Result<Project> {
    Ok(Project { id: row.take(0)?, name: row.take(1)?, created_at: row.take(2)? })
}
