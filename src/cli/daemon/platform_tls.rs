//! The certificate of the platform's own names: the configured one, or one of the platform's own authority.
//!
//! The own leaf keeps its key through every renewal, so that what is pinned stays right.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::addressing::CurrentAddressing;
use super::keys::Keys;
use crate::config::Config;
use crate::domain::Ambient;
use crate::pki::{Authority, CertificateAuthority, LeafProfile};
use crate::proxy::PlatformTls;
use crate::store::certificates::CertificateRecord;
use crate::store::{self, Store};

/// How long the own leaf is good for; clients such as Apple's refuse more than 825 days.
const LEAF_TTL: Duration = Duration::from_secs(397 * 24 * 3600);
const SECRET: &str = "platform-tls";
const CONTEXT: &str = "platform/tls";

/// What the platform's own TLS is made from; sealed in the store.
#[derive(Serialize, Deserialize)]
struct OwnIdentity {
    authority: CertificateAuthority,
    key_pem: String,
    csr_pem: String,
}

/// Keeps the platform's certificate right.
pub struct PlatformIdentity {
    /// What the listener uses.
    pub tls: Arc<PlatformTls>,
    own: Option<OwnIdentity>,
}

impl PlatformIdentity {
    /// The configured certificate, else one of the own authority, whose certificate is written to `platform-ca.crt`.
    pub async fn load(
        config: &Config,
        store: &Store,
        ambient: &Ambient,
        keys: &Keys,
        addressing: &CurrentAddressing,
    ) -> anyhow::Result<Self> {
        if let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) {
            return Ok(Self { tls: Arc::new(PlatformTls::from_files(cert, key)?), own: None });
        }
        let own = own_identity(store, ambient, keys).await?;
        write_public(&config.data_dir.join("platform-ca.crt"), &own.authority.cert_pem)?;
        let chain = sign(store, ambient, &own, addressing).await?;
        Ok(Self { tls: Arc::new(PlatformTls::from_pem(chain.as_bytes(), own.key_pem.as_bytes())?), own: Some(own) })
    }

    /// Puts a fresh leaf in the place of the present one: at renewal, and when the platform's names changed.
    pub async fn renew(&self, store: &Store, ambient: &Ambient, addressing: &CurrentAddressing) -> anyhow::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let chain = sign(store, ambient, own, addressing).await?;
        Ok(self.tls.replace(chain.as_bytes(), own.key_pem.as_bytes())?)
    }

    /// Follows changes of given files, or renews the own leaf long before it ends.
    pub async fn keep(&self, store: &Store, ambient: &Ambient, addressing: &CurrentAddressing, shutdown: &CancellationToken) {
        if self.own.is_none() {
            return self.tls.watch(shutdown).await;
        }
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(LEAF_TTL / 3) => {}
            }
            if let Err(error) = self.renew(store, ambient, addressing).await {
                tracing::error!(%error, "the platform's certificate could not be renewed; it is tried again");
            }
        }
    }
}

async fn own_identity(store: &Store, ambient: &Ambient, keys: &Keys) -> anyhow::Result<OwnIdentity> {
    let stored = {
        let mut sql = store.read().await?;
        store::secrets::get(&mut *sql, None, SECRET).await?
    };
    let sealed = if let Some(sealed) = stored {
        sealed
    } else {
        let (key_pem, csr_pem) = crate::pki::key_and_csr("kubebyon")?;
        let authority = CertificateAuthority::create(ambient, Authority::Platform, "KubeBYON platform")?;
        let plain = zeroize::Zeroizing::new(serde_json::to_vec(&OwnIdentity { authority, key_pem, csr_pem })?);
        let fresh = keys.platform.seal(ambient, CONTEXT, &plain);
        let mut tx = store.begin().await?;
        let stands = store::secrets::put_if_absent(&mut tx, None, SECRET, keys.platform.id(), &fresh).await?;
        tx.commit().await?;
        stands
    };
    serde_json::from_slice(&keys.platform.open(CONTEXT, &sealed)?).context("the platform's own authority cannot be read from the store")
}

/// Signs the leaf for the platform's names and records it; gives the chain. The authority is part of it: joining machines know it by its hash
/// alone, and take it from here.
async fn sign(store: &Store, ambient: &Ambient, own: &OwnIdentity, addressing: &CurrentAddressing) -> anyhow::Result<String> {
    let names = addressing.get().platform_names;
    let profile = LeafProfile {
        common_name: names.first().cloned().unwrap_or_else(|| "kubebyon".to_owned()),
        organizations: Vec::new(),
        sans: names,
        server_auth: true,
        client_auth: false,
        ttl: LEAF_TTL,
    };
    let issued = own.authority.sign_csr(ambient, &own.csr_pem, &profile)?;
    let record = CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: None,
        authority: Authority::Platform.as_str().to_owned(),
        purpose: "platform".to_owned(),
        common_name: profile.common_name,
        not_before: issued.not_before,
        not_after: issued.not_after,
    };
    let mut tx = store.begin().await?;
    store::certificates::record(&mut tx, &[record]).await?;
    tx.commit().await?;
    Ok(format!("{}\n{}", issued.cert_pem.trim_end(), own.authority.cert_pem))
}

/// Writes what everybody may read; whole or not at all.
fn write_public(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        if std::fs::read_to_string(path).is_ok_and(|present| present == text) {
            return Ok(());
        }
        let draft = path.with_extension("new");
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
