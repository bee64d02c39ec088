//! Tokens of ServiceAccounts, each bound to a Secret of its own, so that deleting the Secret revokes that token alone (KEP-1205).

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use k8s_openapi::api::authentication::v1::{
    BoundObjectReference, TokenRequest as KubernetesTokenRequest, TokenRequestSpec, TokenRequestStatus,
};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::Subject;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use super::roles::{self, cluster_role_binding, cluster_role_name, metadata, role_binding};
use super::{EngineError, FIELD_MANAGER, already_exists, failed, is_not_found};
use crate::domain::Timestamp;
use crate::engine::{IssuedToken, TokenRequest};

/// The shortest life that Kubernetes grants.
const SHORTEST: Duration = Duration::from_secs(600);

/// Issues a token: makes the ServiceAccount and the Secret where they are absent, binds the role, and asks for a token bound to the Secret.
/// Run again, it issues another token bound to the same Secret; revoking ends both.
pub async fn service_account_token(client: &Client, request: &TokenRequest) -> Result<IssuedToken, EngineError> {
    roles::require_namespace(client, &request.namespace).await?;
    ensure_service_account(client, request).await?;
    bind(client, request).await?;
    let uid = ensure_secret(client, request).await?;
    let asked = KubernetesTokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            expiration_seconds: Some(request.ttl.max(SHORTEST).as_secs().try_into().unwrap_or(i64::MAX)),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(request.secret.clone()),
                uid: Some(uid),
            }),
        },
        ..KubernetesTokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &request.namespace);
    let what = format!("a token of ServiceAccount {}/{}", request.namespace, request.name);
    let issued = accounts.create_token_request(&request.name, &PostParams::default(), &asked).await.map_err(|e| failed(&what, e))?;
    let status = issued.status.with_context(|| format!("the API server answers without {what}"))?;
    Ok(read_token(status)?)
}

/// Revokes the tokens that are bound to a Secret by deleting it; absent is well. The API server caches a token that it has verified for
/// 10 s; the authorization configuration, which names the token's credential id, acts before that.
pub async fn revoke_service_account_token(client: &Client, namespace: &str, secret: &str) -> Result<(), EngineError> {
    let api = Api::<Secret>::namespaced(client.clone(), namespace);
    match api.delete(secret, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(error) => Err(failed(format!("deleting Secret {namespace}/{secret}"), error)),
    }
}

async fn ensure_service_account(client: &Client, request: &TokenRequest) -> Result<(), EngineError> {
    let api = Api::<ServiceAccount>::namespaced(client.clone(), &request.namespace);
    let what = format!("ServiceAccount {}/{}", request.namespace, request.name);
    if api.get_opt(&request.name).await.map_err(|e| failed(&what, e))?.is_some() {
        return Ok(());
    }
    let account = ServiceAccount { metadata: metadata(&request.name, Some(&request.namespace)), ..ServiceAccount::default() };
    match api.create(&PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }, &account).await {
        Ok(_) => Ok(()),
        Err(error) if already_exists(&error) => Ok(()),
        Err(error) => Err(failed(what, error)),
    }
}

/// Binds the role: in all namespaces, or in the one that the request names.
async fn bind(client: &Client, request: &TokenRequest) -> Result<(), EngineError> {
    let subject = Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: request.name.clone(),
        namespace: Some(request.namespace.clone()),
    };
    let role = cluster_role_name(request.role, request.bound_namespace.is_none());
    let name = format!("kubebyon:{}:{}:{role}", request.namespace, request.name);
    match &request.bound_namespace {
        None => roles::ensure_cluster_role_binding(&Api::all(client.clone()), &cluster_role_binding(&name, role, subject)).await,
        Some(namespace) => {
            roles::require_namespace(client, namespace).await?;
            roles::ensure_role_binding(client, &role_binding(&name, namespace, role, subject)).await
        }
    }
}

/// The uid of the Secret that the token is bound to.
async fn ensure_secret(client: &Client, request: &TokenRequest) -> Result<String, EngineError> {
    let api = Api::<Secret>::namespaced(client.clone(), &request.namespace);
    let what = format!("Secret {}/{}", request.namespace, request.secret);
    let mut secret = Secret { metadata: metadata(&request.secret, Some(&request.namespace)), ..Secret::default() };
    secret.metadata.annotations =
        Some([("kubebyon/revokes".to_owned(), format!("deleting this revokes a token of ServiceAccount {}", request.name))].into());
    let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let there = match api.create(&post, &secret).await {
        Ok(made) => made,
        Err(error) if already_exists(&error) => api.get(&request.secret).await.map_err(|e| failed(&what, e))?,
        Err(error) => return Err(failed(what, error)),
    };
    Ok(there.metadata.uid.with_context(|| format!("{what} has no uid"))?)
}

/// The token with its credential id, which is the `jti` of its payload (KEP-4193).
fn read_token(status: TokenRequestStatus) -> anyhow::Result<IssuedToken> {
    #[derive(serde::Deserialize)]
    struct Claims {
        jti: String,
    }
    let payload = status.token.split('.').nth(1).context("the API server's token is no JWT")?;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(payload).context("the API server's token is no JWT")?;
    let claims: Claims = serde_json::from_slice(&payload).context("the API server's token carries no jti")?;
    let expires_at: Timestamp = status.expiration_timestamp.0.to_string().parse().context("the token's expiry is no time")?;
    Ok(IssuedToken { token: status.token, credential_id: format!("JTI={}", claims.jti), expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(payload: &str) -> TokenRequestStatus {
        let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(payload);
        serde_json::from_value(serde_json::json!({ "token": format!("e30.{payload}.c2ln"), "expirationTimestamp": "2030-01-02T03:04:05Z" }))
            .unwrap()
    }

    #[test]
    fn the_credential_id_is_the_tokens_jti() {
        let token = read_token(status(r#"{"iss":"x","jti":"7d2c5b2e-0000-4000-8000-000000000001"}"#)).unwrap();
        assert_eq!(token.credential_id, "JTI=7d2c5b2e-0000-4000-8000-000000000001");
        assert_eq!(token.expires_at.to_string(), "2030-01-02T03:04:05Z");
        assert!(read_token(status(r#"{"iss":"x"}"#)).is_err(), "a token that could not be revoked is not handed out");
        let opaque =
            serde_json::from_value(serde_json::json!({ "token": "opaque", "expirationTimestamp": "2030-01-02T03:04:05Z" })).unwrap();
        assert!(read_token(opaque).is_err());
    }
}
