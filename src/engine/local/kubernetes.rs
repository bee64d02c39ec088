//! The engine as a client of its control planes.
//!
//! May import: `domain`, `store`, `pki`, `tunnel`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::Inner;
use super::bring_up::{AUTHORIZATION, authorization, client_is_stale};
use super::materialise::{self, Readers};
use crate::domain::cluster::Cluster;
use crate::engine::EngineError;
use crate::engine::kubernetes::{self, Access, Clients};
use crate::pki::Authority;
use crate::pki::cluster::Files;
use crate::pki::leaves::platform_client;
use crate::store;

/// How long an API server may take to work by new revocations.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(90);

impl Inner {
    /// A client of a cluster's API server.
    pub(super) async fn client(&self, cluster: &Cluster) -> Result<kube::Client, EngineError> {
        Ok(self.clients(cluster).await?.prompt)
    }

    /// Clients of a cluster's API server, with a credential that lives for an hour at most and is recorded.
    pub(super) async fn clients(&self, cluster: &Cluster) -> Result<Clients, EngineError> {
        let plane = self.running(cluster)?;
        let mut kept = plane.client.lock().await;
        let now = self.tools.ambient.now();
        if let Some((clients, made)) = &*kept
            && !client_is_stale(*made, now)
        {
            return Ok(clients.clone());
        }
        let pki = self.pki(cluster).await?;
        let issued = platform_client(&pki, &self.tools.ambient)?;
        let record = materialise::record(cluster.id, "platform-client", &issued);
        let mut tx = self.tools.store.begin().await.map_err(anyhow::Error::from)?;
        store::certificates::record(&mut tx, &[record]).await.map_err(anyhow::Error::from)?;
        tx.commit().await.map_err(anyhow::Error::from)?;
        let row = store::clusters::find(&mut *self.tools.store.read().await.map_err(anyhow::Error::from)?, cluster.id).await;
        let local = row.map_err(anyhow::Error::from)?.and_then(|c| c.local);
        let address = local.ok_or_else(|| anyhow!("cluster {} has no address yet", cluster.name))?.address;
        let clients = kubernetes::clients(&Access {
            address: address.into(),
            tls_server_name: None,
            server_ca_pem: &pki.authority(Authority::Server).cert_pem,
            cert_pem: &issued.cert_pem,
            key_pem: &issued.key_pem,
        })?;
        *kept = Some((clients.clone(), now));
        Ok(clients)
    }

    /// See [`crate::engine::Engine::apply_revocations`]. The caller holds the cluster's lock.
    pub(super) async fn apply_revocations(&self, cluster: &Cluster) -> Result<(), EngineError> {
        let plane = self.running(cluster)?;
        let revoked = self.revoked(cluster.id).await?;
        let run_dir = self.confinement.cluster_run_dir(cluster.id);
        let yaml = authorization(&run_dir.to_string_lossy(), &revoked);
        // The webhook first: once the file names a credential, the API server asks about it.
        plane.revocations.send_replace(Arc::new(revoked));
        let path = run_dir.join(AUTHORIZATION);
        let meta = std::fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let gid = self.confinement.root().then(|| std::os::unix::fs::MetadataExt::gid(&meta));
        materialise::files(&run_dir, &Files::from([(AUTHORIZATION.to_owned(), yaml.clone())]), Readers { gid })?;
        kubernetes::wait_for_authorization_config(&self.client(cluster).await?, &yaml, IN_FORCE_WITHIN).await
    }
}
