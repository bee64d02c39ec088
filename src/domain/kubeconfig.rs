//! Credentials for a cluster that were handed out, and their revocation.

use serde::{Deserialize, Serialize};

use super::{ClusterId, KubeconfigId, Timestamp};

/// How long a kubeconfig is good for when nothing is said.
pub const DEFAULT_TTL: std::time::Duration = std::time::Duration::from_secs(8 * 3600);
/// The longest life that can be asked for.
pub const MAX_TTL: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
/// The shortest life of one that holds a certificate.
pub const MIN_TTL: std::time::Duration = std::time::Duration::from_secs(10);
/// The shortest life of one that holds a ServiceAccount's token: Kubernetes grants none for less (TokenRequest).
pub const MIN_TOKEN_TTL: std::time::Duration = std::time::Duration::from_secs(600);

/// What a kubeconfig may do in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ClusterRole {
    /// Reads (ClusterRole `view`).
    View,
    /// Reads and writes workloads (ClusterRole `edit`).
    Edit,
    /// Owns the cluster.
    Admin,
}

impl ClusterRole {
    /// The word for it, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Edit => "edit",
            Self::Admin => "admin",
        }
    }

    /// The group that a certificate for it carries: `kubebyon:<role>s`, or for one namespace `kubebyon:<role>s:<namespace>`.
    pub fn group(self, namespace: Option<&str>) -> String {
        let group = match self {
            Self::View => "kubebyon:viewers",
            Self::Edit => "kubebyon:editors",
            Self::Admin => "kubebyon:admins",
        };
        namespace.map_or_else(|| group.to_owned(), |ns| format!("{group}:{ns}"))
    }
}

impl std::str::FromStr for ClusterRole {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::View, Self::Edit, Self::Admin].into_iter().find(|r| r.as_str() == text).ok_or(())
    }
}

/// The record of a kubeconfig that was handed out. The credential itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Kubeconfig {
    /// Its permanent identifier.
    pub id: KubeconfigId,
    /// The cluster it is for.
    pub cluster_id: ClusterId,
    /// Who asked for it.
    pub owner: String,
    /// What it may do.
    pub role: ClusterRole,
    /// The one namespace it is good for; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The ServiceAccount (`namespace/name`) whose token it holds; absent: it holds a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Kubernetes' credential id: `X509SHA256=<hex>` of a certificate, `JTI=<uuid>` of a token.
    pub credential_id: String,
    /// When it was handed out.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<Timestamp>,
}
