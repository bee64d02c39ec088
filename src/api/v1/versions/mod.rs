//! The Kubernetes versions that clusters may have.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use crate::api::auth::Caller;
use crate::api::problem::Problem;
use crate::api::state::{ApiState, CatalogueEntry};
use crate::api::v1::settings;
use crate::domain::{Invalid, KubernetesVersion};

/// A Kubernetes version that clusters may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Version {
    /// The version.
    #[schema(value_type = String, example = "1.34.4")]
    pub version: KubernetesVersion,
    /// Whether its programs are on the machine; else they are fetched when a cluster first asks for them.
    pub installed: bool,
    /// Whether clusters get it when nothing is said.
    pub default: bool,
}

/// The Kubernetes versions that clusters may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Versions {
    /// Every one, oldest first.
    pub items: Vec<Version>,
}

/// List Kubernetes versions
#[utoipa::path(get, path = "/api/v1/versions", tag = "versions", operation_id = "list_versions",
    responses((status = 200, description = "Every version that clusters may have", body = Versions)))]
pub async fn list(State(state): State<ApiState>, _caller: Caller) -> Result<Json<Versions>, Problem> {
    let default = settings::Effective::read(&state, &mut *state.store.read().await?).await?.kubernetes_version()?;
    let entries = state.ports.catalogue.versions().await.map_err(|cause| Problem::internal("reading the catalogue", &cause))?;
    let items = entries.into_iter().map(|e| Version { version: e.version, installed: e.installed, default: e.version == default });
    Ok(Json(Versions { items: items.collect() }))
}

/// What an event adds about a version whose programs are not on the machine; empty where they are.
pub(crate) fn fetched_first(entry: CatalogueEntry) -> &'static str {
    if entry.installed { "" } else { "; its programs are not on the platform's host and are fetched first" }
}

/// Reads a version and refuses one that is not in the catalogue.
pub(crate) async fn known(state: &ApiState, text: &str) -> Result<CatalogueEntry, Problem> {
    let version: KubernetesVersion = text.parse()?;
    let entries = state.ports.catalogue.versions().await.map_err(|cause| Problem::internal("reading the catalogue", &cause))?;
    if let Some(entry) = entries.iter().find(|entry| entry.version == version) {
        return Ok(*entry);
    }
    let known = entries.iter().map(|entry| entry.version.to_string()).collect::<Vec<_>>().join(", ");
    Err(Invalid::new("kubernetes_version", format!("{version} is not available; there are {known}")).into())
}
