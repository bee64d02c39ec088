//! The work that the queue hands out, one job a file. Each is a reconcile: run twice, or cut anywhere and run again, it
//! ends the same.
//!
//! May import: `domain`, `store`, `queue`, `pki`, `engine`.

pub mod prune;
mod reconcile_cluster;
mod remove_node;
mod revoke;
mod service_account_token;
mod sign;
mod sign_node;
mod support;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::EngineKind;
use crate::domain::access::Addressing;
use crate::engine::Engine;
use crate::pki::sealing::SealingKey;
use crate::queue::Handler;

/// The engines of this process, by kind.
pub type Engines = Arc<HashMap<EngineKind, Arc<dyn Engine>>>;

/// What the jobs work with.
#[derive(Clone)]
pub struct Tools {
    /// The engines of this process.
    pub engines: Engines,
    /// The platform's addresses as they are at the time of the call.
    pub addressing: Arc<dyn Fn() -> Addressing + Send + Sync>,
    /// Seals what only workers open: clusters' authorities.
    pub tenant_key: Arc<SealingKey>,
    /// Seals what workers and the API open.
    pub platform_key: Arc<SealingKey>,
}

/// Every job that concerns clusters.
pub fn handlers(tools: &Tools) -> Vec<Arc<dyn Handler>> {
    vec![
        Arc::new(reconcile_cluster::ReconcileCluster(tools.clone())),
        Arc::new(sign::Sign(tools.clone())),
        Arc::new(service_account_token::MakeServiceAccountToken(tools.clone())),
        Arc::new(revoke::Revoke(tools.clone())),
        Arc::new(sign_node::SignNode(tools.clone())),
        Arc::new(remove_node::RemoveNode(tools.clone())),
    ]
}
