//! Tells the front door where names and ports lead, from the clusters that the store has.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::addressing::CurrentAddressing;
use crate::domain::access::Addressing;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::job::{Job, JobState};
use crate::domain::page::{MAX_LIMIT, PageRequest};
use crate::domain::work::{REMOVE_NODE, REVOKE};
use crate::domain::{Ambient, Cluster, ClusterId, JobId};
use crate::engine::plan::ports;
use crate::proxy::{Backend, FrontDoor, HostName, NodePorts, PortError, Route};
use crate::store::{self, Change, Store};

/// The front door and what feeds it.
pub struct Front {
    /// The shared port.
    pub door: Arc<FrontDoor>,
    /// The ports of clusters in `nodeport` mode.
    pub node_ports: Arc<NodePorts>,
    /// The clusters.
    pub store: Store,
    /// The clock of events.
    pub ambient: Ambient,
    /// The platform's names.
    pub addressing: CurrentAddressing,
}

impl Front {
    /// Reads every cluster and sets names and ports. `troubled` are the ports that could not be opened the last time.
    pub async fn refresh(&self, troubled: &mut BTreeMap<u16, ClusterId>) -> anyhow::Result<()> {
        let clusters = {
            let mut sql = self.store.read().await?;
            store::clusters::all(&mut *sql).await?
        };
        self.door.hosts().replace(&routes(&self.addressing.get(), &clusters));
        let errors = self.node_ports.set(&node_ports(&clusters)).await;
        let now: BTreeMap<u16, ClusterId> = errors.iter().map(|error| (error.port, error.cluster)).collect();
        for PortError { port, cluster, error } in errors {
            if !troubled.contains_key(&port) {
                tracing::error!(%cluster, %error, "a cluster's port cannot be opened");
                self.tell_of_port(cluster, Some(&error.to_string())).await?;
            }
        }
        for (_, cluster) in troubled.iter().filter(|(port, _)| !now.contains_key(port)) {
            self.tell_of_port(*cluster, None).await?;
        }
        *troubled = now;
        Ok(())
    }

    /// Says in a cluster's conditions and events that its port is closed and why, or that it is open again.
    async fn tell_of_port(&self, id: ClusterId, error: Option<&str>) -> anyhow::Result<()> {
        let now = self.ambient.now();
        let mut tx = self.store.begin().await?;
        let Some(mut cluster) = store::clusters::find(tx.sql(), id).await? else { return Ok(()) };
        let (severity, reason, message) = match error {
            Some(error) => (Severity::Warning, "PortUnavailable", error),
            None => (Severity::Normal, "PortOpened", "its port is open"),
        };
        cluster.status.set_condition(now, "PortOpen", error.is_none(), reason, message);
        store::clusters::set_status(&mut tx, id, &cluster.status).await?;
        let event = NewEvent {
            project_id: Some(cluster.project_id),
            cluster: Some((id, cluster.name)),
            severity,
            reason: reason.to_owned(),
            message: message.to_owned(),
            actor: None,
        };
        store::events::append(&mut tx, now, event).await?;
        Ok(tx.commit().await?)
    }

    /// Follows the store until `shutdown`.
    pub async fn follow(&self, shutdown: CancellationToken) {
        let mut changes = self.store.changes();
        let mut troubled = BTreeMap::new();
        let mut stale = true;
        loop {
            if stale && let Err(error) = self.refresh(&mut troubled).await {
                tracing::error!(%error, "the front door's names could not be read; they are read again with the next change");
            }
            // A port that another program holds is tried again: nothing tells when it is free.
            let patience = if troubled.is_empty() { 300 } else { 10 };
            stale = tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(std::time::Duration::from_secs(patience)) => true,
                change = changes.recv() => match change {
                    Ok(Change::Cluster(_) | Change::Settings) => true,
                    Err(RecvError::Lagged(_)) => {
                        self.cut_after_recent_revocations().await;
                        true
                    }
                    Ok(Change::JobFinished(id)) => {
                        self.cut_after_revocation(id).await;
                        false
                    }
                    Ok(_) => false,
                    Err(RecvError::Closed) => return,
                },
            };
        }
    }

    /// The same for revocations whose word was missed.
    async fn cut_after_recent_revocations(&self) {
        let since = self.ambient.now().minus(std::time::Duration::from_secs(60));
        let filter = store::jobs::Filter { state: Some(JobState::Succeeded), ..store::jobs::Filter::default() };
        let page = PageRequest { limit: MAX_LIMIT, after: None };
        let jobs = match self.store.read().await {
            Ok(mut sql) => store::jobs::list(&mut *sql, &filter, &page).await,
            Err(error) => Err(error),
        };
        let Ok(jobs) = jobs else { return };
        for job in jobs.items.iter().filter(|job| revokes(job) && job.finished_at.is_some_and(|at| at >= since)) {
            self.cut_after_revocation(job.id).await;
        }
    }

    /// Requests are authorised only at their start: once a revocation is effective, the cluster's open flows are cut once.
    async fn cut_after_revocation(&self, id: JobId) {
        let job = match self.store.read().await {
            Ok(mut sql) => store::jobs::find(&mut *sql, id).await,
            Err(error) => Err(error),
        };
        if let Ok(Some(job)) = job
            && revokes(&job)
            && let Some(cluster) = job.cluster_id
        {
            let flows = self.door.hosts().cut(cluster) + self.node_ports.cut(cluster).await;
            tracing::info!(%cluster, flows, "open flows were cut after a revocation");
        }
    }
}

/// Whether credentials are refused once such a job has ended well: a kubeconfig's, or a node's.
fn revokes(job: &Job) -> bool {
    job.kind == REVOKE || job.kind == REMOVE_NODE
}

/// Where a cluster's API server listens on this host, once the engine allotted it.
fn backend(cluster: &Cluster) -> Option<Backend> {
    let local = cluster.local.as_ref().filter(|_| cluster.deleted_at.is_none())?;
    Some(Backend { cluster: cluster.id, address: SocketAddr::from((local.address, ports::API_SERVER)) })
}

fn routes(addressing: &Addressing, clusters: &[Cluster]) -> BTreeMap<HostName, Route> {
    let mut routes = BTreeMap::new();
    for cluster in clusters {
        let Some(backend) = backend(cluster) else { continue };
        let tunnel = Backend { address: SocketAddr::new(backend.address.ip(), ports::TERMINATOR), ..backend };
        for (name, to) in [(addressing.cluster_sni(&cluster.label), backend), (addressing.tunnel_sni(&cluster.label), tunnel)] {
            if let Ok(name) = HostName::parse(&name) {
                routes.insert(name, Route::Backend(to));
            }
        }
    }
    // Last, so that no cluster's name ever takes the platform's.
    routes.extend(addressing.platform_names.iter().filter_map(|name| HostName::parse(name).ok()).map(|name| (name, Route::Platform)));
    routes
}

fn node_ports(clusters: &[Cluster]) -> BTreeMap<u16, Backend> {
    clusters.iter().filter_map(|cluster| Some((cluster.node_port?, backend(cluster)?))).collect()
}
