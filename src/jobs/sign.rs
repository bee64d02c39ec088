//! Signs a client certificate for a kubeconfig, recorded before it is handed out.

use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;

use super::Tools;
use super::support::{answer, cluster_event, cluster_of, payload, refusal, retry};
use crate::domain::event::Severity;
use crate::domain::kubeconfig::Kubeconfig;
use crate::domain::work::{Answer, SIGN, SignRequest, SignResult};
use crate::domain::{Ambient, Cluster, KubeconfigId};
use crate::engine::EngineError;
use crate::pki::{Authority, Issued, LeafProfile};
use crate::queue::{Context, Handler, JobError};
use crate::store::certificates::CertificateRecord;
use crate::store::{self, jobs::Leased};

/// See the module.
pub struct Sign(pub Tools);

#[async_trait]
impl Handler for Sign {
    fn kind(&self) -> &'static str {
        SIGN
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let request: SignRequest = payload(leased)?;
        let Some(cluster) = cluster_of(context, leased).await? else {
            return Err(JobError::Fatal(anyhow!("the cluster is gone")));
        };
        if let Some(namespace) = &request.namespace {
            match self.0.engine(&cluster)?.bind_namespace_role(&cluster, request.role, namespace).await {
                Err(EngineError::Fatal(why)) => return refusal(&why),
                bound => bound?,
            }
        }
        let pki = self.0.cluster_pki(&context.store, &cluster).await?;
        let profile = LeafProfile {
            common_name: request.owner.clone(),
            organizations: vec![request.role.group(request.namespace.as_deref())],
            sans: Vec::new(),
            server_auth: false,
            client_auth: true,
            ttl: Duration::from_secs(request.ttl_seconds),
        };
        let issued = pki.authority(Authority::Client).sign_csr(&context.ambient, &request.csr_pem, &profile).map_err(JobError::Fatal)?;
        let record = kubeconfig_record(&context.ambient, &cluster, &request, &issued);
        let message =
            format!("a kubeconfig with role {} was handed out to {} until {}", request.role.as_str(), request.owner, issued.not_after);
        let mut event = cluster_event(&cluster, Severity::Normal, "KubeconfigIssued", message);
        event.actor = Some(request.owner.clone());
        let mut tx = context.store.begin().await.map_err(retry)?;
        store::certificates::record(&mut tx, &[certificate_record(&cluster, &profile, &issued)]).await.map_err(retry)?;
        store::kubeconfigs::insert(&mut tx, &record).await.map_err(retry)?;
        store::events::append(&mut tx, context.ambient.now(), event).await.map_err(retry)?;
        tx.commit().await.map_err(retry)?;
        let result = SignResult {
            kubeconfig_id: record.id,
            cert_pem: issued.cert_pem,
            ca_pem: pki.authority(Authority::Server).cert_pem.clone(),
            expires_at: issued.not_after,
        };
        answer(Answer::Done(result))
    }
}

fn kubeconfig_record(ambient: &Ambient, cluster: &Cluster, request: &SignRequest, issued: &Issued) -> Kubeconfig {
    Kubeconfig {
        id: KubeconfigId::generate(ambient),
        cluster_id: cluster.id,
        owner: request.owner.clone(),
        role: request.role,
        namespace: request.namespace.clone(),
        service_account: None,
        credential_id: issued.credential_id(),
        created_at: ambient.now(),
        expires_at: issued.not_after,
        revoked_at: None,
    }
}

fn certificate_record(cluster: &Cluster, profile: &LeafProfile, issued: &Issued) -> CertificateRecord {
    CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: Some(cluster.id),
        authority: Authority::Client.as_str().to_owned(),
        purpose: "kubeconfig".to_owned(),
        common_name: profile.common_name.clone(),
        not_before: issued.not_before,
        not_after: issued.not_after,
    }
}
