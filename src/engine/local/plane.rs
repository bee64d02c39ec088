//! A control plane that runs on this host: its supervisor, its terminator, and how to ask its programs.
//!
//! May import: `domain`, `pki`, `tunnel`, `store`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::status::Space;
use super::supervise::{Journal, Probes, Supervisor};
use crate::domain::event::{NewEvent, Severity};
use crate::domain::{Ambient, Cluster, ClusterId, KubernetesVersion, ProjectId, Timestamp};
use crate::engine::etcd::Maintenance;
use crate::engine::health::{Probe, ProbeCredentials};
use crate::engine::kubernetes::Clients;
use crate::pki::Authority;
use crate::pki::cluster::{ClusterPki, files};
use crate::store::{self, Store};
use crate::tunnel::terminator::nodes::NodeTable;
use crate::tunnel::{Terminator, TerminatorTls, TunnelTls};

/// A control plane that runs here.
pub(super) struct Plane {
    pub(super) id: ClusterId,
    pub(super) supervisor: Supervisor,
    pub(super) version: ArcSwap<KubernetesVersion>,
    pub(super) asked: Arc<Asked>,
    /// Taken out when the plane is taken down.
    pub(super) terminator: Mutex<Option<Terminator>>,
    pub(super) revocations: watch::Sender<Arc<BTreeSet<String>>>,
    /// Clients of its API server and when their certificate was made.
    pub(super) client: tokio::sync::Mutex<Option<(Clients, Timestamp)>>,
    /// What the terminator knows of the nodes.
    pub(super) nodes: Arc<watch::Sender<Arc<NodeTable>>>,
    pub(super) space: Mutex<Space>,
    /// What is not confined.
    pub(super) unconfined: Mutex<Vec<String>>,
    /// Its upkeep; ends with it.
    pub(super) tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// How its programs are asked; made anew when certificates are.
pub(super) struct Asked {
    probe: ArcSwap<Probe>,
    maintenance: ArcSwap<Maintenance>,
}

impl Asked {
    /// From the certificates of a run folder.
    pub(super) fn read(address: std::net::IpAddr, pki: &ClusterPki, run_dir: &Path) -> anyhow::Result<Self> {
        let (probe, maintenance) = clients(address, pki, run_dir)?;
        Ok(Self { probe: ArcSwap::from_pointee(probe), maintenance: ArcSwap::from_pointee(maintenance) })
    }

    /// Uses the certificates that are there by now.
    pub(super) fn renew(&self, address: std::net::IpAddr, pki: &ClusterPki, run_dir: &Path) -> anyhow::Result<()> {
        let (probe, maintenance) = clients(address, pki, run_dir)?;
        self.probe.store(Arc::new(probe));
        self.maintenance.store(Arc::new(maintenance));
        Ok(())
    }

    /// etcd's upkeep.
    pub(super) fn maintenance(&self) -> Arc<Maintenance> {
        self.maintenance.load_full()
    }
}

fn clients(address: std::net::IpAddr, pki: &ClusterPki, run_dir: &Path) -> anyhow::Result<(Probe, Maintenance)> {
    let etcd_client_cert = read(run_dir, files::API_SERVER_ETCD_CLIENT_CERT)?;
    let etcd_client_key = read(run_dir, files::API_SERVER_ETCD_CLIENT_KEY)?;
    let etcd_ca = &pki.authority(Authority::Etcd).cert_pem;
    let credentials = ProbeCredentials {
        server_ca: &pki.authority(Authority::Server).cert_pem,
        etcd_ca,
        etcd_client_cert: &etcd_client_cert,
        etcd_client_key: &etcd_client_key,
    };
    Ok((Probe::new(address, credentials)?, Maintenance::new(address, etcd_ca, &etcd_client_cert, &etcd_client_key)?))
}

/// What the terminator proves itself with, as it is on the disk.
pub(super) fn terminator_tls(pki: &ClusterPki, run_dir: &Path) -> anyhow::Result<TerminatorTls> {
    Ok(TerminatorTls {
        ca_pem: pki.authority(Authority::Terminator).cert_pem.clone(),
        cert_pem: read(run_dir, files::TERMINATOR_CERT)?,
        key_pem: read(run_dir, files::TERMINATOR_KEY)?,
    })
}

/// What the terminator proves itself to nodes with, as it is on the disk.
pub(super) fn tunnel_tls(pki: &ClusterPki, run_dir: &Path) -> anyhow::Result<TunnelTls> {
    Ok(TunnelTls {
        client_ca_pem: pki.authority(Authority::Client).cert_pem.clone(),
        cert_pem: read(run_dir, files::TUNNEL_CERT)?,
        key_pem: read(run_dir, files::TUNNEL_KEY)?,
    })
}

fn read(run_dir: &Path, file: &str) -> anyhow::Result<String> {
    let path = run_dir.join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

#[async_trait]
impl Probes for Asked {
    async fn probe(&self, component: &'static str) -> Result<(), String> {
        let health = self.probe.load_full().component(component).await;
        if health.healthy { Ok(()) } else { Err(health.message) }
    }
}

/// Tells of a cluster's programs as its events.
pub(super) struct Events {
    store: Store,
    ambient: Ambient,
    cluster: (ClusterId, String),
    project: ProjectId,
}

impl Events {
    pub(super) fn of(store: &Store, ambient: &Ambient, cluster: &Cluster) -> Self {
        Self { store: store.clone(), ambient: ambient.clone(), cluster: (cluster.id, cluster.name.clone()), project: cluster.project_id }
    }
}

#[async_trait]
impl Journal for Events {
    async fn tell(&self, severity: Severity, reason: &str, message: String) {
        let event = NewEvent {
            project_id: Some(self.project),
            cluster: Some(self.cluster.clone()),
            severity,
            reason: reason.to_owned(),
            message,
            actor: None,
        };
        let append = async {
            let mut tx = self.store.begin().await?;
            store::events::append(&mut tx, self.ambient.now(), event).await?;
            tx.commit().await
        };
        if let Err(error) = append.await {
            tracing::warn!(cluster = %self.cluster.0, %error, "an event could not be recorded");
        }
    }
}
