//! Clusters.
use super::{Result, Sql, Tx};
use crate::domain::cluster::{Cluster, ClusterSpec, ClusterStatus, LocalAllotment};
use crate::domain::label::Selector;
use crate::domain::page::{Page, PageRequest};
use crate::domain::{Ambient, ClusterId, ProjectId};
use std::collections::BTreeMap;

/// A cluster that is to be created.
#[derive(Debug, Clone)]
pub struct NewCluster {
    /// Its project.
    pub project_id: ProjectId,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The host that is to run it.
    pub host: Option<String>,
    /// What is asked for.
    pub spec: ClusterSpec,
}

/// Creates a cluster with generation 1, a fresh label and status `pending`; [`super::Error::Exists`] when the project has that name.
pub async fn create(tx: &mut Tx, ambient: &Ambient, new: NewCluster) -> Result<Cluster> {
    todo!()
}
/// The cluster of that id, one being deleted too.
pub async fn find(sql: &mut dyn Sql, id: ClusterId) -> Result<Option<Cluster>> {
    todo!()
}
/// The cluster of that name in a project, one being deleted too.
pub async fn find_by_name(sql: &mut dyn Sql, project: ProjectId, name: &str) -> Result<Option<Cluster>> {
    todo!()
}
/// Clusters by id (so by age) of the given projects (`None`: all) that the selector selects.
pub async fn list(sql: &mut dyn Sql, projects: Option<&[ProjectId]>, selector: &Selector, page: &PageRequest) -> Result<Page<Cluster>> {
    todo!()
}
/// Every cluster that a host runs or is to run.
pub async fn on_host(sql: &mut dyn Sql, host: &str) -> Result<Vec<Cluster>> {
    todo!()
}
/// Every cluster; for the host map at start.
pub async fn all(sql: &mut dyn Sql) -> Result<Vec<Cluster>> {
    todo!()
}
/// Changes spec and labels: generation grows when the spec differs. `expected`: only when the row still has that
/// `resource_version`, else [`super::Error::Stale`]. Gives `None` when it is gone or being deleted.
pub async fn update(
    tx: &mut Tx,
    id: ClusterId,
    expected: Option<i64>,
    spec: &ClusterSpec,
    labels: &BTreeMap<String, String>,
) -> Result<Option<Cluster>> {
    todo!()
}
/// Sets the status. Writes nothing, and notes no change, when it is the same. Gives whether the row exists.
pub async fn set_status(tx: &mut Tx, id: ClusterId, status: &ClusterStatus) -> Result<bool> {
    todo!()
}
/// Sets what the local engine allotted, once; a later call with another value is an error.
pub async fn set_local(tx: &mut Tx, id: ClusterId, local: &LocalAllotment) -> Result<()> {
    todo!()
}
/// Allots the lowest free port of the range as the cluster's `node_port` and gives it; the one it has, when it has one.
/// `None`: the range is used up.
pub async fn allot_node_port(tx: &mut Tx, id: ClusterId, range: std::ops::RangeInclusive<u16>) -> Result<Option<u16>> {
    todo!()
}
/// Marks for deletion (once: later calls keep the first time) with phase `deleting`. `expected` as in [`update`].
pub async fn mark_deleted(tx: &mut Tx, ambient: &Ambient, id: ClusterId, expected: Option<i64>) -> Result<Option<Cluster>> {
    todo!()
}
/// Removes the row and every row that belongs to it but its events.
pub async fn remove(tx: &mut Tx, id: ClusterId) -> Result<()> {
    todo!()
}
