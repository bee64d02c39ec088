//! Projects.
use super::{Result, Sql, Tx};
use crate::domain::page::{Page, PageRequest};
use crate::domain::project::Project;
use crate::domain::{Ambient, ProjectId};

/// Creates a project; [`super::Error::Exists`] when the name is taken.
pub async fn create(tx: &mut Tx, ambient: &Ambient, name: &str) -> Result<Project> {
    todo!()
}
/// The project of that id.
pub async fn find(sql: &mut dyn Sql, id: ProjectId) -> Result<Option<Project>> {
    todo!()
}
/// The project of that name.
pub async fn find_by_name(sql: &mut dyn Sql, name: &str) -> Result<Option<Project>> {
    todo!()
}
/// Projects by name; `only`: no others than these.
pub async fn list(sql: &mut dyn Sql, only: Option<&[ProjectId]>, page: &PageRequest) -> Result<Page<Project>> {
    todo!()
}
