//! Makes a ServiceAccount's token for a kubeconfig. The token leaves the worker sealed.

use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use base64::Engine as _;

use super::Tools;
use super::support::{answer, cluster_event, cluster_of, payload, refusal, retry};
use crate::domain::KubeconfigId;
use crate::domain::event::Severity;
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::work::{Answer, SERVICE_ACCOUNT_TOKEN, ServiceAccountTokenRequest, ServiceAccountTokenResult, token_context};
use crate::engine::{EngineError, TokenRequest};
use crate::pki::Authority;
use crate::queue::{Context, Handler, JobError};
use crate::store::{self, jobs::Leased};

/// See the module.
pub struct MakeServiceAccountToken(pub Tools);

#[async_trait]
impl Handler for MakeServiceAccountToken {
    fn kind(&self) -> &'static str {
        SERVICE_ACCOUNT_TOKEN
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let request: ServiceAccountTokenRequest = payload(leased)?;
        let Some(cluster) = cluster_of(context, leased).await? else {
            return Err(JobError::Fatal(anyhow!("the cluster is gone")));
        };
        let asked = TokenRequest {
            namespace: request.service_account_namespace.clone(),
            name: request.service_account_name.clone(),
            role: request.role,
            bound_namespace: request.namespace.clone(),
            ttl: Duration::from_secs(request.ttl_seconds),
            // The job's id: a second attempt takes the place of the first instead of leaving a token that nobody knows of.
            secret: format!("kubebyon-token-{}", leased.job.id),
        };
        let engine = self.0.engine(&cluster)?;
        let issued = match engine.service_account_token(&cluster, &asked).await {
            Err(EngineError::Fatal(why)) => return refusal(&why),
            issued => issued?,
        };
        let account = format!("{}/{}", asked.namespace, asked.name);
        let record = Kubeconfig {
            // So is the record's: `revoke` finds the Secret by it.
            id: KubeconfigId::from(leased.job.id.uuid()),
            cluster_id: cluster.id,
            owner: request.owner.clone(),
            role: request.role,
            namespace: request.namespace.clone(),
            service_account: Some(account.clone()),
            credential_id: issued.credential_id.clone(),
            created_at: context.ambient.now(),
            expires_at: issued.expires_at,
            revoked_at: None,
        };
        let message = format!(
            "a kubeconfig of ServiceAccount {account} with role {} was handed out to {} until {}",
            request.role.as_str(),
            request.owner,
            issued.expires_at
        );
        let mut event = cluster_event(&cluster, Severity::Normal, "KubeconfigIssued", message);
        event.actor = Some(request.owner.clone());
        let pki = self.0.cluster_pki(&context.store, &cluster).await?;
        let mut tx = context.store.begin().await.map_err(retry)?;
        store::kubeconfigs::insert(&mut tx, &record).await.map_err(retry)?;
        store::events::append(&mut tx, context.ambient.now(), event).await.map_err(retry)?;
        tx.commit().await.map_err(retry)?;
        let sealed = self.0.platform_key.seal(&context.ambient, &token_context(leased.job.id), issued.token.as_bytes());
        let result = ServiceAccountTokenResult {
            kubeconfig_id: record.id,
            sealed_token: base64::engine::general_purpose::STANDARD.encode(sealed),
            ca_pem: pki.authority(Authority::Server).cert_pem.clone(),
            expires_at: issued.expires_at,
        };
        answer(Answer::Done(result))
    }
}
