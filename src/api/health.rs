//! Whether the process lives, and whether it can serve.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::problem::{DISK_FULL, Kind, Problem};
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
/// The store answers and takes writes, and the process does not drain; otherwise 503 says which.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "readyz", security(()),
    responses((status = 200, description = "It serves", body = Health)))]
pub async fn readyz(State(state): State<ApiState>) -> Result<Json<Health>, Problem> {
    if state.draining.is_cancelled() {
        return Err(Problem::new(Kind::Unavailable, "the process drains: it ends what it has begun and takes nothing new"));
    }
    let answer = async {
        let mut sql = state.store.read().await?;
        store::meta::get(&mut *sql, "installation").await?;
        drop(sql);
        if state.store.is_full() {
            // The disk was full; whether it still is shows a small write alone.
            let mut tx = state.store.begin().await?;
            store::meta::put(&mut tx, "write-probe", &state.ambient.now().to_string()).await?;
            tx.commit().await?;
        }
        store::Result::Ok(())
    };
    match tokio::time::timeout(std::time::Duration::from_secs(5), answer).await {
        Ok(Ok(())) => Ok(ok()),
        Ok(Err(store::Error::DiskFull(_))) => Err(Problem::new(Kind::Unavailable, DISK_FULL)),
        Ok(Err(error)) => {
            tracing::error!(%error, "the store does not answer");
            Err(Problem::new(Kind::Unavailable, "the store does not answer; the log says why"))
        }
        Err(_) => Err(Problem::new(Kind::Unavailable, "the store did not answer within 5 seconds")),
    }
}
