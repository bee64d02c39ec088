//! Clusters.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::anyhow;

use super::{Change, Error, Result, Row, Sql, Tx, continuation, nodes, to_json};
use crate::domain::cluster::{Cluster, ClusterSpec, ClusterStatus, LocalAllotment, Phase};
use crate::domain::label::Selector;
use crate::domain::page::{Page, PageRequest};
use crate::domain::{Ambient, ClusterId, ProjectId, Timestamp, name};

const LIST: &str = "clusters";
/// How many rows a list with a selector reads at a time.
const CHUNK: u32 = 250;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select c.id, c.project_id, p.name, c.name, c.label, c.labels, c.generation, c.resource_version, c.host, c.node_port, ",
            "c.local, c.spec, c.status, c.created_at, c.deleted_at from clusters c join projects p on p.id = c.project_id ",
            $rest
        )
    };
}

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
    let id = ClusterId::generate(ambient);
    let label = fresh_label(tx.sql(), ambient, &new.name).await?;
    let insert = "insert into clusters (id, project_id, name, label, labels, generation, resource_version, host, spec, status, \
                  created_at) values ($1, $2, $3, $4, $5, 1, 1, $6, $7, $8, $9) on conflict (project_id, name) do nothing";
    let values = vec![
        id.into(),
        new.project_id.into(),
        (&new.name).into(),
        label.into(),
        to_json(&new.labels)?.into(),
        new.host.into(),
        to_json(&new.spec)?.into(),
        to_json(&ClusterStatus::default())?.into(),
        ambient.now().into(),
    ];
    if tx.sql().execute(insert, values).await? == 0 {
        return Err(Error::Exists(format!("cluster {:?} of this project", new.name)));
    }
    tx.note(Change::Cluster(id));
    find(tx.sql(), id).await?.ok_or_else(|| anyhow!("project {} does not exist", new.project_id).into())
}

async fn fresh_label(sql: &mut dyn Sql, ambient: &Ambient, name: &str) -> Result<String> {
    for _ in 0..16 {
        let label = name::cluster_label(ambient, name);
        if sql.query("select 1 from clusters where label = $1", vec![(&label).into()]).await?.is_empty() {
            return Ok(label);
        }
    }
    Err(anyhow!("no free label was found for {name:?}: the random source repeats itself").into())
}

/// The cluster of that id, one being deleted too.
pub async fn find(sql: &mut dyn Sql, id: ClusterId) -> Result<Option<Cluster>> {
    let mut rows = sql.query(select!("where c.id = $1"), vec![id.into()]).await?;
    rows.pop().map(read).transpose()
}

/// The cluster of that name in a project, one being deleted too.
pub async fn find_by_name(sql: &mut dyn Sql, project: ProjectId, name: &str) -> Result<Option<Cluster>> {
    let mut rows = sql.query(select!("where c.project_id = $1 and c.name = $2"), vec![project.into(), name.into()]).await?;
    rows.pop().map(read).transpose()
}

/// Clusters by id (so by age) of the given projects (`None`: all) that the selector selects.
pub async fn list(sql: &mut dyn Sql, projects: Option<&[ProjectId]>, selector: &Selector, page: &PageRequest) -> Result<Page<Cluster>> {
    let wanted = continuation::surplus(page);
    let chunk = if selector.is_empty() { wanted } else { wanted.max(CHUNK) };
    let scopes = super::distinct(projects);
    let mut key = continuation::decode_as::<ClusterId>(LIST, page)?;
    let mut items = Vec::new();
    loop {
        let clusters = after(sql, &scopes, key, chunk).await?;
        let is_last = clusters.len() < chunk as usize;
        key = clusters.last().map(|cluster| cluster.id);
        items.extend(clusters.into_iter().filter(|cluster| selector.matches(&cluster.labels)));
        if is_last || items.len() >= wanted as usize {
            return Ok(Page::from_surplus(items, continuation::limit(page), |c| continuation::encode(LIST, &c.id.to_string())));
        }
    }
}

async fn after(sql: &mut dyn Sql, scopes: &[Option<ProjectId>], key: Option<ClusterId>, limit: u32) -> Result<Vec<Cluster>> {
    let key = key.map(|id| id.to_string()).unwrap_or_default();
    let mut clusters = Vec::new();
    for project in scopes {
        let rows = match project {
            Some(project) => {
                let select = select!("where c.project_id = $1 and c.id > $2 order by c.id limit $3");
                sql.query(select, vec![(*project).into(), key.as_str().into(), limit.into()]).await?
            }
            None => sql.query(select!("where c.id > $1 order by c.id limit $2"), vec![key.as_str().into(), limit.into()]).await?,
        };
        clusters.extend(rows.into_iter().map(read).collect::<Result<Vec<_>>>()?);
    }
    clusters.sort_unstable_by_key(|cluster| cluster.id);
    clusters.truncate(limit as usize);
    Ok(clusters)
}

/// Every cluster that a host runs or is to run.
pub async fn on_host(sql: &mut dyn Sql, host: &str) -> Result<Vec<Cluster>> {
    let rows = sql.query(select!("where c.host = $1 order by c.id"), vec![host.into()]).await?;
    rows.into_iter().map(read).collect()
}

/// Every cluster; for the host map at start.
pub async fn all(sql: &mut dyn Sql) -> Result<Vec<Cluster>> {
    sql.query(select!("order by c.id"), Vec::new()).await?.into_iter().map(read).collect()
}

/// Changes spec and labels: generation grows when the spec differs, and a phase that tells how the spec before it ended gives
/// way to `updating` (`provisioning` where none ever came up). `expected`: only when the row still has that
/// `resource_version`, else [`super::Error::Stale`]. Gives `None` when it is gone or being deleted.
pub async fn update(
    tx: &mut Tx,
    id: ClusterId,
    expected: Option<i64>,
    spec: &ClusterSpec,
    labels: &BTreeMap<String, String>,
) -> Result<Option<Cluster>> {
    let Some(mut cluster) = find(tx.sql(), id).await?.filter(|cluster| cluster.deleted_at.is_none()) else { return Ok(None) };
    check_version(&cluster, expected)?;
    if cluster.spec == *spec && cluster.labels == *labels {
        return Ok(Some(cluster));
    }
    if cluster.spec != *spec {
        cluster.generation += 1;
        if matches!(cluster.status.phase, Phase::Ready | Phase::Degraded | Phase::Failed) {
            cluster.status.phase = if cluster.status.observed_generation == 0 { Phase::Provisioning } else { Phase::Updating };
        }
    }
    cluster.spec = spec.clone();
    cluster.labels.clone_from(labels);
    write(tx, cluster).await.map(Some)
}

/// Sets the status. Writes nothing, and notes no change, when it is the same. Gives whether the row exists.
pub async fn set_status(tx: &mut Tx, id: ClusterId, status: &ClusterStatus) -> Result<bool> {
    let update = "update clusters set status = $2, resource_version = resource_version + 1 where id = $1 and status <> $2";
    if tx.sql().execute(update, vec![id.into(), to_json(status)?.into()]).await? > 0 {
        tx.note(Change::Cluster(id));
        return Ok(true);
    }
    Ok(!tx.sql().query("select 1 from clusters where id = $1", vec![id.into()]).await?.is_empty())
}

/// Sets what the local engine allotted, once; a later call with another value is an error.
pub async fn set_local(tx: &mut Tx, id: ClusterId, local: &LocalAllotment) -> Result<()> {
    let Some(cluster) = find(tx.sql(), id).await? else { return Err(anyhow!("cluster {id} does not exist").into()) };
    match &cluster.local {
        Some(known) if known == local => Ok(()),
        Some(known) => Err(anyhow!("cluster {id} was allotted {known:?}; {local:?} cannot take its place").into()),
        None => write(tx, Cluster { local: Some(local.clone()), ..cluster }).await.map(drop),
    }
}

/// Allots the lowest free port of the range as the cluster's `node_port` and gives it; the one it has, when it has one.
/// `None`: the range is used up.
pub async fn allot_node_port(tx: &mut Tx, id: ClusterId, range: RangeInclusive<u16>) -> Result<Option<u16>> {
    let Some(cluster) = find(tx.sql(), id).await? else { return Err(anyhow!("cluster {id} does not exist").into()) };
    if cluster.node_port.is_some() {
        return Ok(cluster.node_port);
    }
    let select = "select node_port from clusters where node_port >= $1 and node_port <= $2 order by node_port";
    let rows = tx.sql().query(select, vec![(*range.start()).into(), (*range.end()).into()]).await?;
    let taken = rows.into_iter().map(|mut row| row.take(0)).collect::<Result<Vec<u16>>>()?;
    // The first place where the ports that are taken do not go on one by one.
    let free = range.zip(taken.into_iter().map(Some).chain(std::iter::repeat(None))).find(|(port, taken)| *taken != Some(*port));
    let Some((port, _)) = free else { return Ok(None) };
    write(tx, Cluster { node_port: Some(port), ..cluster }).await?;
    Ok(Some(port))
}

/// Marks for deletion (once: later calls keep the first time) with phase `deleting`. `expected` as in [`update`].
pub async fn mark_deleted(tx: &mut Tx, ambient: &Ambient, id: ClusterId, expected: Option<i64>) -> Result<Option<Cluster>> {
    let Some(mut cluster) = find(tx.sql(), id).await? else { return Ok(None) };
    check_version(&cluster, expected)?;
    if cluster.deleted_at.is_some() {
        return Ok(Some(cluster));
    }
    cluster.deleted_at = Some(ambient.now());
    cluster.status.phase = Phase::Deleting;
    write(tx, cluster).await.map(Some)
}

/// Removes the row and every row that belongs to it but its events, and but a job that is running. The ends of its nodes'
/// memberships are remembered as of `at`.
pub async fn remove(tx: &mut Tx, id: ClusterId, at: Timestamp) -> Result<()> {
    nodes::bury_cluster(tx, id, at).await?;
    let jobs = "delete from jobs where cluster_id = $1 and state <> 'running' returning id";
    for mut row in tx.sql().query(jobs, vec![id.into()]).await? {
        tx.note(Change::JobFinished(row.take(0)?));
    }
    for delete in [
        "delete from kubeconfigs where cluster_id = $1",
        "delete from certificates where cluster_id = $1",
        "delete from secrets where cluster_id = $1",
        "delete from clusters where id = $1",
    ] {
        tx.sql().execute(delete, vec![id.into()]).await?;
    }
    tx.note(Change::Kubeconfigs(id));
    tx.note(Change::Cluster(id));
    Ok(())
}

fn check_version(cluster: &Cluster, expected: Option<i64>) -> Result<()> {
    match expected {
        Some(expected) if expected != cluster.resource_version => Err(Error::Stale { expected, found: cluster.resource_version }),
        _ => Ok(()),
    }
}

/// Writes what of a cluster may change, over the version that was read, and gives it with its new version.
async fn write(tx: &mut Tx, mut cluster: Cluster) -> Result<Cluster> {
    let read = cluster.resource_version;
    cluster.resource_version += 1;
    let update = "update clusters set labels = $3, generation = $4, resource_version = $5, node_port = $6, local = $7, spec = $8, \
                  status = $9, deleted_at = $10 where id = $1 and resource_version = $2";
    let values = vec![
        cluster.id.into(),
        read.into(),
        to_json(&cluster.labels)?.into(),
        cluster.generation.into(),
        cluster.resource_version.into(),
        cluster.node_port.into(),
        cluster.local.as_ref().map(to_json).transpose()?.into(),
        to_json(&cluster.spec)?.into(),
        to_json(&cluster.status)?.into(),
        cluster.deleted_at.into(),
    ];
    if tx.sql().execute(update, values).await? == 0 {
        let found = find(tx.sql(), cluster.id).await?.map_or(0, |cluster| cluster.resource_version);
        return Err(Error::Stale { expected: read, found });
    }
    tx.note(Change::Cluster(cluster.id));
    Ok(cluster)
}

fn read(mut row: Row) -> Result<Cluster> {
    let local: Option<String> = row.take(10)?;
    Ok(Cluster {
        id: row.take(0)?,
        project_id: row.take(1)?,
        project: row.take(2)?,
        name: row.take(3)?,
        label: row.take(4)?,
        labels: row.take_json(5)?,
        generation: row.take(6)?,
        resource_version: row.take(7)?,
        host: row.take(8)?,
        node_port: row.take(9)?,
        local: local.map(|text| serde_json::from_str(&text)).transpose().map_err(|e| Error::Database(e.into()))?,
        spec: row.take_json(11)?,
        status: row.take_json(12)?,
        nodes: None,
        created_at: row.take(13)?,
        deleted_at: row.take(14)?,
    })
}
