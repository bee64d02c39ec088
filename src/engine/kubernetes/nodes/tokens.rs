//! kube-proxy's token: of its ServiceAccount, bound to the object of the one node that asks (KEP-4193, general since Kubernetes 1.33).
//!
//! The API server refuses it as soon as that object is gone, so a removed node's kube-proxy sees nothing more.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node as KubernetesNode, ServiceAccount};
use kube::Api;
use kube::api::PostParams;

use super::super::addons::kube_proxy;
use super::super::{EngineError, failed};
use super::Scope;
use crate::domain::Node;
use crate::domain::cluster::Addon;
use crate::tunnel::protocol::Answer;

/// How long a token is good for.
const LIFE: Duration = Duration::from_secs(2 * 3600);

/// A token for the kube-proxy of a node.
pub async fn kube_proxy(scope: &Scope, node: &Node) -> Result<Answer, EngineError> {
    if scope.spec.kube_proxy == Addon::None {
        return Err(EngineError::Fatal(anyhow!(
            "cluster {} was made with --kube-proxy none: there is no kube-proxy of the platform",
            scope.name
        )));
    }
    let client = scope.control_plane.client().await?;
    let object = Api::<KubernetesNode>::all(client.clone()).get_opt(&node.name).await;
    let uid = object.map_err(|e| failed(format!("node {}", node.name), e))?.and_then(|object| object.metadata.uid);
    let uid = uid.ok_or_else(|| anyhow!("the kubelet of node {} has not registered it yet; ask again once it has", node.name))?;
    let asked = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            expiration_seconds: Some(LIFE.as_secs().cast_signed()),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.name.clone()),
                uid: Some(uid),
            }),
        },
        ..TokenRequest::default()
    };
    let accounts = Api::<ServiceAccount>::namespaced(client, kube_proxy::NAMESPACE);
    let issued = accounts.create_token_request(kube_proxy::NAME, &PostParams::default(), &asked).await;
    let status = issued.map_err(|e| failed("a token of kube-proxy", e))?.status.context("the API server answers without a token")?;
    let ends: crate::domain::Timestamp = status.expiration_timestamp.0.to_string().parse().context("the token's expiry is no time")?;
    Ok(Answer::Token { token: status.token, seconds: ends.since(scope.ambient.now()).as_secs() })
}
