//! What the API needs of parts that it may not import.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use async_trait::async_trait;
use zeroize::Zeroizing;

use super::InForce;
use crate::api::state::{
    ByteStream, Capacity, Catalogue, CatalogueEntry, Credentials, FixedSetting, KubeconfigParts, LogRequest, LogSource, Proof,
    SettingsFixed,
};
use crate::assets::{Assets, Want, catalogue};
use crate::domain::KubernetesVersion;
use crate::domain::settings::KNOWN;
use crate::engine::local::LocalEngine;
use crate::engine::{Engine as _, EngineError, LogQuery};
use crate::pki::kubeconfig::{Credential, KubeconfigFile};
use crate::pki::sealing::SealingKey;

/// Logs of the local engine.
pub struct LocalLogs(pub Arc<LocalEngine>);

#[async_trait]
impl LogSource for LocalLogs {
    async fn logs(&self, request: &LogRequest) -> anyhow::Result<Option<ByteStream>> {
        let query = LogQuery { component: request.component.clone(), tail: request.tail, follow: request.follow };
        match self.0.logs(request.cluster, &query).await {
            Ok(stream) => Ok(Some(stream)),
            Err(EngineError::Retry(error)) if error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::NotFound) => {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Room for clusters of the local engine.
pub struct LocalCapacity(pub Arc<LocalEngine>);

#[async_trait]
impl Capacity for LocalCapacity {
    async fn admit(&self) -> Result<(), String> {
        let engine = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || engine.admit()).await {
            Ok(admitted) => admitted.map_err(|error| format!("{error:#}")),
            Err(error) => Err(format!("whether another cluster fits could not be found out: {error}")),
        }
    }
}

/// The versions of the catalogue.
pub struct Versions {
    /// The programs of this machine.
    pub assets: Arc<Assets>,
    /// Names the version of clusters that name none.
    pub in_force: InForce,
}

#[async_trait]
impl Catalogue for Versions {
    async fn versions(&self) -> anyhow::Result<Vec<CatalogueEntry>> {
        let assets = Arc::clone(&self.assets);
        let entries = tokio::task::spawn_blocking(move || {
            let installed = |version| assets.installed(&Want::kubernetes(version, assets.arch())).is_ok();
            let versions = catalogue::RELEASES.iter().rev().map(|release| release.kubernetes);
            versions.map(|version| CatalogueEntry { version, installed: installed(version) }).collect()
        });
        Ok(entries.await?)
    }

    fn default_version(&self) -> KubernetesVersion {
        self.in_force.load().config.kubernetes_version.unwrap_or_else(catalogue::default_version)
    }
}

/// Settings that the configuration gives.
pub struct Fixed(pub InForce);

impl SettingsFixed for Fixed {
    fn fixed(&self) -> BTreeMap<String, FixedSetting> {
        let loaded = self.0.load();
        let config = &loaded.config;
        KNOWN
            .iter()
            .filter_map(|(key, _)| {
                let source = loaded.origins.of(key)?.to_string();
                let value = match *key {
                    "public_access_mode" => config.public_access_mode.as_str().to_owned(),
                    "control_plane_host" => config.control_plane_host.clone()?,
                    "kubernetes_version" => config.kubernetes_version?.to_string(),
                    _ => return None,
                };
                Some(((*key).to_owned(), FixedSetting { value, source }))
            })
            .collect()
    }
}

/// Keys and kubeconfig files.
pub struct PkiCredentials(pub Arc<SealingKey>);

impl Credentials for PkiCredentials {
    fn key_and_csr(&self, common_name: &str) -> anyhow::Result<(String, String)> {
        crate::pki::key_and_csr(common_name)
    }

    fn kubeconfig(&self, parts: &KubeconfigParts) -> String {
        let credential = match &parts.proof {
            Proof::Certificate { cert_pem, key_pem } => Credential::Certificate { cert_pem: cert_pem.clone(), key_pem: key_pem.clone() },
            Proof::Token(token) => Credential::Token(token.clone()),
        };
        KubeconfigFile {
            name: parts.name.clone(),
            server: parts.server.clone(),
            tls_server_name: parts.tls_server_name.clone(),
            ca_pem: parts.ca_pem.clone(),
            namespace: parts.namespace.clone(),
            credential,
        }
        .to_yaml()
    }

    fn open_sealed(&self, context: &str, sealed: &[u8]) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        self.0.open(context, sealed)
    }
}
