//! Whether the process lives, and whether it can serve.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::problem::{Kind, Problem};
use super::state::ApiState;
use crate::store;

/// All is well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Health {
    /// Always `ok`.
    #[schema(pattern = "^ok$")]
    pub status: String,
}

fn ok() -> Json<Health> {
    Json(Health { status: "ok".into() })
}

/// Whether the process lives
///
/// Answers as long as requests are handled at all.
#[utoipa::path(get, path = "/healthz", tag = "health", operation_id = "healthz", security(()),
    responses((status = 200, description = "It lives", body = Health)))]
pub async fn healthz() -> Json<Health> {
    ok()
}

/// Whether requests can be served
///
/// The store answers and the process does not drain; otherwise 503 says which.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses((status = 200, description = "It serves", body = Health)))]
pub async fn readyz(State(state): State<ApiState>) -> Result<Json<Health>, Problem> {
    if state.draining.is_cancelled() {
        return Err(Problem::new(Kind::Unavailable, "the process drains: it ends what it has begun and takes nothing new"));
    }
    let answer = async {
        let mut sql = state.store.read().await?;
        store::meta::get(&mut *sql, "installation").await
    };
    match tokio::time::timeout(std::time::Duration::from_secs(5), answer).await {
        Ok(Ok(_)) => Ok(ok()),
        Ok(Err(error)) => {
            tracing::error!(%error, "the store does not answer");
            Err(Problem::new(Kind::Unavailable, "the store does not answer; the log says why"))
        }
        Err(_) => Err(Problem::new(Kind::Unavailable, "the store did not answer within 5 seconds")),
    }
}
