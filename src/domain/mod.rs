//! Types and rules without I/O: what a cluster, a job, a project is, and what may be said of them.
//!
//! Everything here is a value or a function of values. Time and randomness come in through
//! [`Ambient`]. May import: nothing of ours.

pub mod access;
pub mod ambient;
pub mod cluster;
pub mod event;
pub mod ids;
pub mod job;
pub mod join;
pub mod kubeconfig;
pub mod label;
pub mod name;
pub mod network;
pub mod node;
pub mod page;
pub mod project;
pub mod settings;
pub mod user;
pub mod version;
pub mod work;

pub use ambient::{Ambient, Clock, Entropy, ManualClock, SystemClock, SystemEntropy, Timestamp};
pub use cluster::{Cluster, ClusterSpec, ClusterStatus, Condition, EngineKind, Phase};
pub use ids::{ApiTokenId, ClusterId, JobId, JoinTokenId, KubeconfigId, NodeId, ProjectId, SessionId, UserId};
pub use node::Node;
pub use version::KubernetesVersion;

/// A value that a caller gave and that is refused, with the field it stands in.
///
/// The message is a whole sentence that says what is wrong and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    /// The path of the field in the request, such as `spec.pod_cidr`.
    pub field: String,
    /// What is wrong, and what to give instead.
    pub message: String,
}

impl Invalid {
    /// Refuses `field` with `message`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}
