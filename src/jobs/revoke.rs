//! Makes the revocation of a kubeconfig effective at the API server.

use async_trait::async_trait;

use super::Tools;
use super::support::{cluster_event, cluster_of, payload, retry, tell};
use crate::domain::event::Severity;
use crate::domain::work::{REVOKE, RevokeRequest};
use crate::queue::{Context, Handler, JobError};
use crate::store::{self, jobs::Leased};

/// See the module.
pub struct Revoke(pub Tools);

#[async_trait]
impl Handler for Revoke {
    fn kind(&self) -> &'static str {
        REVOKE
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let request: RevokeRequest = payload(leased)?;
        let Some(cluster) = cluster_of(context, leased).await? else { return Ok(serde_json::Value::Null) };
        let record = {
            let mut sql = context.store.read().await.map_err(retry)?;
            store::kubeconfigs::find(&mut *sql, request.kubeconfig_id).await.map_err(retry)?
        };
        let Some(record) = record else { return Ok(serde_json::Value::Null) };
        let engine = self.0.engine(&cluster)?;
        if let Some((namespace, _)) = record.service_account.as_deref().and_then(|account| account.split_once('/')) {
            engine.revoke_service_account_token(&cluster, namespace, &format!("kubebyon-token-{}", record.id)).await?;
        }
        // Token or certificate: the list of credential ids refuses it at once, while API servers cache tokens for a while.
        engine.apply_revocations(&cluster).await?;
        let message = format!("the kubeconfig of {} is refused from now on", record.owner);
        tell(&context.store, &context.ambient, cluster_event(&cluster, Severity::Normal, "KubeconfigRevoked", message))
            .await
            .map_err(retry)?;
        Ok(serde_json::Value::Null)
    }
}
