//! What identifies an installation: its id, the name of this host, and the keys that seal its secrets.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use crate::domain::Ambient;
use crate::pki::sealing::SealingKey;
use crate::store::{self, Store};

/// The two sealing keys: `platform` for what API and workers open, `tenant` for what workers alone open.
pub struct Keys {
    /// Opens what API and workers share.
    pub platform: Arc<SealingKey>,
    /// Opens clusters' authorities.
    pub tenant: Arc<SealingKey>,
}

/// Reads the keys below the data folder, or makes them where the installation is new. Refuses keys of another installation:
/// sealing under them would lose what is sealed here.
pub async fn load(store: &Store, ambient: &Ambient, data_dir: &Path) -> anyhow::Result<Keys> {
    Ok(Keys { platform: key(store, ambient, data_dir, "platform").await?, tenant: key(store, ambient, data_dir, "tenant").await? })
}

async fn key(store: &Store, ambient: &Ambient, data_dir: &Path, name: &str) -> anyhow::Result<Arc<SealingKey>> {
    let path = data_dir.join(format!("{name}.key"));
    let fact = format!("sealing-key/{name}");
    let known = {
        let mut sql = store.read().await?;
        store::meta::get(&mut *sql, &fact).await?
    };
    if known.is_some() && !path.exists() {
        bail!(
            "{} is missing, and this installation's secrets are sealed under it: put it back from the backup of the data folder",
            path.display()
        );
    }
    if known.is_none() && path.exists() && was_in_use(data_dir) {
        bail!(
            "{} is here, but the database knows no key of this installation: it is empty, lost, or another one's. Restore kubebyon.db beside the keys; \
             for a new installation choose an empty data folder",
            path.display()
        );
    }
    let key = SealingKey::load_or_create(&path, ambient)?;
    let mut tx = store.begin().await?;
    let stands = store::meta::put_if_absent(&mut tx, &fact, key.id()).await?;
    tx.commit().await?;
    if stands != key.id() {
        bail!(
            "{} is the key of another installation (id {}, expected {stands}): put the right one back from the backup of the data folder",
            path.display(),
            key.id()
        );
    }
    Ok(Arc::new(key))
}

/// Whether a data folder holds what is made only after the keys are in the database. Keys alone are no sign: a first start may have been cut
/// between making them and recording them.
fn was_in_use(data_dir: &Path) -> bool {
    let has_clusters = std::fs::read_dir(data_dir.join("clusters")).is_ok_and(|mut entries| entries.next().is_some());
    has_clusters || ["platform-ca.crt", "initial-admin-password"].iter().any(|name| data_dir.join(name).exists())
}

/// A fact of the installation that is settled at its first start.
async fn settled(store: &Store, fact: &str, value: &str) -> anyhow::Result<String> {
    let mut tx = store.begin().await?;
    let stands = store::meta::put_if_absent(&mut tx, fact, value).await?;
    tx.commit().await?;
    Ok(stands)
}

/// The installation's id: 16 hex digits.
pub async fn installation(store: &Store, ambient: &Ambient) -> anyhow::Result<String> {
    settled(store, "installation", &hex::encode(ambient.random::<8>())).await
}

/// The name by which clusters know this host. It is settled at the first start: a machine that is renamed keeps its clusters.
pub async fn host(store: &Store) -> anyhow::Result<String> {
    let name = nix::unistd::gethostname().context("the host has no name")?;
    settled(store, "host", &name.to_string_lossy()).await
}
