//! The nodes of a control plane that runs here: the table that its terminator goes by, its desk, and the watches on its API server.
//!
//! Watches run only while the cluster has nodes: one without costs nothing. May import: `domain`, `store`, `pki`, `tunnel`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::Inner;
use crate::domain::ClusterId;
use crate::domain::cluster::Cluster;
use crate::domain::node::Fate;
use crate::engine::kubernetes::Clients;
use crate::engine::kubernetes::nodes::desk::Desk;
use crate::engine::kubernetes::nodes::table::{self, Surroundings};
use crate::engine::kubernetes::nodes::{ControlPlane, Scope, registered, signing};
use crate::engine::{EngineError, keys};
use crate::pki::cluster::ClusterPki;
use crate::store::{self, Change};
use crate::tunnel::terminator::nodes::NodeTable;

/// How often it is looked whether there are nodes when nothing is told.
const SAFETY_NET: Duration = Duration::from_secs(300);

/// How long watches go on when the last node is gone.
const SETTLE: Duration = Duration::from_secs(5);

/// The way to the API server of one cluster of this host.
struct Way {
    inner: Weak<Inner>,
    cluster: ClusterId,
}

impl Way {
    async fn clients(&self) -> Result<Clients, EngineError> {
        let inner = self.inner.upgrade().ok_or_else(|| anyhow::anyhow!("the platform ends"))?;
        let row = store::clusters::find(&mut *inner.tools.store.read().await.map_err(anyhow::Error::from)?, self.cluster).await;
        let cluster = row.map_err(anyhow::Error::from)?.ok_or_else(|| EngineError::Fatal(anyhow::anyhow!("the cluster is gone")))?;
        inner.clients(&cluster).await
    }
}

#[async_trait]
impl ControlPlane for Way {
    async fn client(&self) -> Result<kube::Client, EngineError> {
        Ok(self.clients().await?.prompt)
    }

    async fn patient_client(&self) -> Result<kube::Client, EngineError> {
        Ok(self.clients().await?.patient)
    }

    async fn pki(&self) -> anyhow::Result<ClusterPki> {
        let inner = self.inner.upgrade().ok_or_else(|| anyhow::anyhow!("the platform ends"))?;
        let tools = &inner.tools;
        keys::load_or_create(&tools.store, &tools.ambient, &tools.tenant_key, self.cluster).await
    }

    async fn well(&self) {
        loop {
            let observed = self.inner.upgrade().and_then(|inner| inner.plane(self.cluster)).map(|plane| plane.supervisor.observed());
            if let Some(mut observed) = observed
                && observed.wait_for(|o| o.component("kube-apiserver").is_some_and(|c| c.healthy)).await.is_ok()
            {
                return;
            }
            // Not yet taken up, or being taken down, and then this ends with it.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// What a terminator needs for a cluster's nodes, and what keeps it going.
pub(super) struct Nodes {
    pub(super) scope: Scope,
    surroundings: Surroundings,
    /// The table as it is, and its changes.
    pub(super) table: Arc<watch::Sender<Arc<NodeTable>>>,
    /// Where nodes report and ask.
    pub(super) desk: Arc<Desk>,
}

impl Nodes {
    /// Reads what stands.
    pub(super) async fn of(inner: &Arc<Inner>, cluster: &Cluster) -> anyhow::Result<Self> {
        let (tools, options) = (&inner.tools, &inner.options.nodes);
        let probe_key = *keys::probe_key(&tools.store, &tools.ambient, &tools.tenant_key, cluster.id).await?;
        let surroundings = Surroundings {
            addressing: Arc::clone(&tools.addressing),
            public_hosts: options.public_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            probe_key,
        };
        let way = Arc::new(Way { inner: Arc::downgrade(inner), cluster: cluster.id });
        let scope = Scope::of(cluster, tools.store.clone(), tools.ambient.clone(), options.verify_image.clone(), way);
        let table = Arc::new(watch::Sender::new(Arc::new(table::current(&scope, &surroundings).await?)));
        let desk = Desk::open(scope.clone());
        Ok(Self { scope, surroundings, table, desk })
    }

    /// Begins to feed the table, and to watch while there are nodes.
    pub(super) fn start(self) -> Vec<AbortOnDropHandle<()>> {
        let Self { scope, surroundings, table, desk } = self;
        vec![
            AbortOnDropHandle::new(tokio::spawn(async move { desk.resume().await })),
            AbortOnDropHandle::new(tokio::spawn(table::feed(scope.clone(), surroundings, table))),
            AbortOnDropHandle::new(tokio::spawn(tend(scope))),
        ]
    }
}

/// Tells a terminator that the cluster is gone, so that it can tell its nodes.
pub(super) fn end(table: &watch::Sender<Arc<NodeTable>>) {
    table.send_modify(|known| {
        let mut ended = NodeTable::clone(known);
        let why = "the cluster was deleted; run `kubebyon leave` here to clean up";
        ended.ended.extend(ended.nodes.drain(..).map(|node| (node.id, Fate::ClusterDeleted, why.to_owned())));
        *known = Arc::new(ended);
    });
}

/// Watches Node objects and requests for certificates while the cluster has nodes.
async fn tend(scope: Scope) {
    let mut changes = scope.store.changes();
    loop {
        while !has_nodes(&scope).await {
            if !changed(&scope, &mut changes).await {
                return;
            }
        }
        let ended = async {
            while has_nodes(&scope).await {
                if !changed(&scope, &mut changes).await {
                    return;
                }
                // It is no hurry, and many nodes change often.
                tokio::time::sleep(SETTLE).await;
            }
        };
        tokio::select! {
            () = registered::follow(&scope) => {}
            () = signing::follow(&scope) => {}
            () = ended => {}
        }
    }
}

async fn has_nodes(scope: &Scope) -> bool {
    registered::any(scope).await.unwrap_or_else(|error| {
        tracing::warn!(cluster = %scope.cluster, %error, "it cannot be read whether a cluster has nodes");
        true
    })
}

/// Waits until the cluster's nodes may have changed; `false`: they will not any more.
async fn changed(scope: &Scope, changes: &mut tokio::sync::broadcast::Receiver<Change>) -> bool {
    let told = async {
        loop {
            match changes.recv().await {
                Ok(Change::Nodes(cluster)) if cluster == scope.cluster => return true,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    };
    tokio::time::timeout(SAFETY_NET, told).await.unwrap_or(true)
}
