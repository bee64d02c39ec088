//! What the platform puts into every cluster for its nodes: kube-proxy's rights, and CoreDNS.
//!
//! Guarantees: what stands as it should is not written; what was changed or deleted is put back; an object that carries the label or
//! annotation [`MANAGED`] with the value `false` is its owner's and is left alone, and on the ConfigMap `coredns` it means all of CoreDNS.
//! One object that cannot be written does not keep the others. May import: `domain`, and `engine`'s own types.

pub mod coredns;
pub mod kube_proxy;
mod manifest;

use kube::Client;

use super::EngineError;
use crate::domain::cluster::{Addon, ClusterSpec};
pub use manifest::Manifest;

/// The label or annotation by which an owner takes an object over, with the value `false`.
pub const MANAGED: &str = "kubebyon.app/managed";

/// Puts the add-ons of a cluster where they should be.
///
/// # Errors
/// What could not be written, all of it in one.
pub async fn apply(client: &Client, spec: &ClusterSpec, coredns_image: &str) -> Result<(), EngineError> {
    let mut refused = Vec::new();
    if spec.kube_proxy == Addon::Default {
        all(client, &kube_proxy::manifests(), &mut refused).await;
    }
    match coredns::is_the_owners(client).await {
        Ok(true) => {}
        Ok(false) => {
            if let Err(error) = coredns::configuration().create_if_absent(client).await {
                refused.push(error);
            }
            all(client, &coredns::manifests(spec, coredns_image), &mut refused).await;
        }
        Err(error) => refused.push(error),
    }
    match refused.len() {
        0 => Ok(()),
        1 => Err(refused.remove(0)),
        _ => {
            let why = refused.iter().map(|e| format!("{e:#}")).collect::<Vec<_>>().join("; ");
            Err(EngineError::Retry(anyhow::anyhow!(why)))
        }
    }
}

async fn all(client: &Client, manifests: &[Manifest], refused: &mut Vec<EngineError>) {
    for manifest in manifests {
        if let Err(error) = manifest.ensure(client).await {
            refused.push(error);
        }
    }
}
