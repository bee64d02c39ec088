//! A cluster's authorities and keys as the store keeps them: sealed with the tenant key, bound to the cluster.
//!
//! May import: `domain`, `store`, `pki`.

use anyhow::Context as _;
use zeroize::Zeroizing;

use crate::domain::{Ambient, ClusterId};
use crate::pki::cluster::ClusterPki;
use crate::pki::sealing::SealingKey;
use crate::store::{self, Store};

/// The name of the sealed value.
const NAME: &str = "pki";
/// The name of the sealed key of probes between nodes.
const PROBE_KEY: &str = "probe-key";

fn context(cluster: ClusterId) -> String {
    format!("cluster/{cluster}/pki")
}

/// A cluster's authorities and keys; `None` until its engine has made them.
pub async fn load(store: &Store, key: &SealingKey, cluster: ClusterId) -> anyhow::Result<Option<ClusterPki>> {
    let sealed = store::secrets::get(&mut *store.read().await?, Some(cluster), NAME).await?;
    sealed.map(|sealed| open(key, cluster, &sealed)).transpose()
}

/// The same, made and sealed where there are none. Of two who race, both get the first one's.
pub async fn load_or_create(store: &Store, ambient: &Ambient, key: &SealingKey, cluster: ClusterId) -> anyhow::Result<ClusterPki> {
    if let Some(known) = load(store, key, cluster).await? {
        return Ok(known);
    }
    let fresh = ClusterPki::create(ambient, cluster)?;
    let plain = Zeroizing::new(serde_json::to_vec(&fresh).context("the cluster's keys cannot be written")?);
    let sealed = key.seal(ambient, &context(cluster), &plain);
    let mut tx = store.begin().await?;
    let stands = store::secrets::put_if_absent(&mut tx, Some(cluster), NAME, key.id(), &sealed).await?;
    tx.commit().await?;
    open(key, cluster, &stands)
}

/// The key that proves probes between the nodes of a cluster, made and sealed where there is none. Of two who race, both get the
/// first one's.
pub async fn probe_key(store: &Store, ambient: &Ambient, key: &SealingKey, cluster: ClusterId) -> anyhow::Result<Zeroizing<[u8; 32]>> {
    let context = format!("cluster/{cluster}/{PROBE_KEY}");
    let known = store::secrets::get(&mut *store.read().await?, Some(cluster), PROBE_KEY).await?;
    let sealed = if let Some(sealed) = known {
        sealed
    } else {
        let fresh = Zeroizing::new(ambient.random::<32>());
        let sealed = key.seal(ambient, &context, &*fresh);
        let mut tx = store.begin().await?;
        let stands = store::secrets::put_if_absent(&mut tx, Some(cluster), PROBE_KEY, key.id(), &sealed).await?;
        tx.commit().await?;
        stands
    };
    let plain =
        key.open(&context, &sealed).context("the cluster's probe key cannot be opened: is the installation's tenant key another one?")?;
    let bytes: [u8; 32] = plain.as_slice().try_into().context("the cluster's probe key is damaged")?;
    Ok(Zeroizing::new(bytes))
}

fn open(key: &SealingKey, cluster: ClusterId, sealed: &[u8]) -> anyhow::Result<ClusterPki> {
    let plain = key
        .open(&context(cluster), sealed)
        .context("the cluster's keys cannot be opened: is the installation's tenant key another one?")?;
    serde_json::from_slice(&plain).context("the cluster's keys cannot be read")
}
