//! Engines: what runs the control planes of clusters.
//!
//! May import: `domain`, `store`, `queue`, `pki`, `assets`, `tunnel` (and `host`, once there is one).

mod component_http;
pub mod etcd;
pub mod health;
pub mod keys;
pub mod kubernetes;
pub mod local;
pub mod plan;

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::ClusterId;
use crate::domain::cluster::{Cluster, ClusterStatus};

/// Where an engine tells of its steps: they become events and lines of `--wait`.
#[async_trait]
pub trait Progress: Send + Sync {
    /// A step begins or ended: one CamelCase word and a sentence.
    async fn step(&self, reason: &str, message: &str);
}

/// Why an engine could not.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// May go well later.
    #[error("{0:#}")]
    Retry(#[from] anyhow::Error),
    /// Will not, until something else changes; the message says what to do.
    #[error("{0:#}")]
    Fatal(anyhow::Error),
}

/// Which lines of a component's log.
#[derive(Debug, Clone)]
pub struct LogQuery {
    /// `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, or `audit`.
    pub component: String,
    /// Only so many of the last lines.
    pub tail: Option<usize>,
    /// Go on as lines come.
    pub follow: bool,
}

/// Log lines as they come, each with its newline.
pub type LogStream = futures_util::stream::BoxStream<'static, std::io::Result<bytes::Bytes>>;

/// What runs control planes of one kind.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Brings a cluster to what its spec asks for, whatever state it is in, and returns when its API server answers
    /// through its authorizers and its default roles stand. Run twice, or cut and run again, it ends the same.
    /// The status that it returns has components and conditions; phase, generation and endpoint are the caller's.
    async fn reconcile(&self, cluster: &Cluster, progress: &dyn Progress) -> Result<ClusterStatus, EngineError>;
    /// Takes a cluster down and removes all that was made for it: processes, files, mounts, rules, claims. Goes on past
    /// failures and returns them all.
    async fn delete(&self, cluster: &Cluster, progress: &dyn Progress) -> Result<(), EngineError>;
    /// The log of a component.
    async fn logs(&self, cluster: ClusterId, query: &LogQuery) -> Result<LogStream, EngineError>;
    /// Makes revocations effective: returns when the API server has the current list, or says why it has not.
    async fn apply_revocations(&self, cluster: &Cluster) -> Result<(), EngineError>;
    /// Binds a role for a group in one namespace (`kubebyon:<role>s:<namespace>`); refuses a namespace that is not there.
    async fn bind_namespace_role(
        &self,
        cluster: &Cluster,
        role: crate::domain::kubeconfig::ClusterRole,
        namespace: &str,
    ) -> Result<(), EngineError>;
    /// A token of a ServiceAccount (made where it is absent, with the role bound), bound to a Secret of its own so that it can be revoked.
    async fn service_account_token(&self, cluster: &Cluster, request: &TokenRequest) -> Result<IssuedToken, EngineError>;
    /// Revokes a ServiceAccount token by removing the Secret that it is bound to; absent is well.
    async fn revoke_service_account_token(&self, cluster: &Cluster, namespace: &str, secret: &str) -> Result<(), EngineError>;
    /// Whether Kubernetes has a node of that name: `None` when not, else whether it is Ready.
    async fn node_ready(&self, cluster: &Cluster, name: &str) -> Result<Option<bool>, EngineError>;
    /// Takes a node out: cordons it, evicts its pods for at most `drain` (zero: not at all), deletes its object, ends its tunnel. Absent is well.
    async fn remove_node(
        &self,
        cluster: &Cluster,
        node: &crate::domain::Node,
        drain: Duration,
        progress: &dyn Progress,
    ) -> Result<(), EngineError>;
}

/// A ServiceAccount token that is asked for.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// The ServiceAccount's namespace.
    pub namespace: String,
    /// The ServiceAccount's name.
    pub name: String,
    /// The role it is bound to, in all namespaces or in `bound_namespace`.
    pub role: crate::domain::kubeconfig::ClusterRole,
    /// The one namespace the role is bound in.
    pub bound_namespace: Option<String>,
    /// How long the token is good for.
    pub ttl: Duration,
    /// The name of the Secret that the token is bound to.
    pub secret: String,
}

/// A ServiceAccount token.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct IssuedToken {
    /// The token.
    pub token: String,
    /// Its credential id, `JTI=<uuid>`.
    pub credential_id: String,
    /// When it ends: the API server may grant less than was asked.
    pub expires_at: crate::domain::Timestamp,
}
