//! Projects: what clusters belong to and what roles are given in.

use serde::{Deserialize, Serialize};

use super::{ProjectId, Timestamp};

/// The name of the project that exists from the first start.
pub const DEFAULT_PROJECT: &str = "default";

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Project {
    /// Its permanent identifier.
    pub id: ProjectId,
    /// Its name, unique in the installation.
    pub name: String,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}
