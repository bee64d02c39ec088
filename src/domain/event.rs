//! Events: what happened to a cluster, in order, for people and for `--wait`.

use serde::{Deserialize, Serialize};

use super::{ClusterId, ProjectId, Timestamp};

/// How much an event asks for attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// All as asked.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// The word for it, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
        }
    }
}

/// An event as it is stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// Its place in the installation's one sequence; grows, and `Last-Event-ID` resumes after it.
    pub id: i64,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The project it belongs to; absent: the platform's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The cluster it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<ClusterId>,
    /// That cluster's name at the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// How much attention it asks for.
    pub severity: Severity,
    /// What kind of thing happened, one CamelCase word: `EtcdStarted`, `Ready`, `ComponentExited`.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// Who caused it; absent: the platform itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// An event that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The project it belongs to.
    pub project_id: Option<ProjectId>,
    /// The cluster it is about, with its name.
    pub cluster: Option<(ClusterId, String)>,
    /// How much attention it asks for.
    pub severity: Severity,
    /// One CamelCase word.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// Who caused it.
    pub actor: Option<String>,
}
