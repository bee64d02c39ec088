//! Machines that join, with keys of their own, and the real jobs over an engine that knows of no nodes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use super::harness::{Api, Call};
use crate::api::Peer;
use crate::domain::cluster::ClusterStatus;
use crate::domain::join::{TokenContent, fate_statement};
use crate::domain::kubeconfig::ClusterRole;
use crate::domain::{Cluster, ClusterId, EngineKind, Node, NodeId, Timestamp};
use crate::engine::{Engine, EngineError, IssuedToken, LogQuery, LogStream, Progress, TokenRequest, keys};
use crate::jobs::{self, Tools};
use crate::pki::sealing::SealingKey;

/// An engine whose clusters have no node that it knows of.
struct Empty;

fn never<T>() -> Result<T, EngineError> {
    Err(EngineError::Fatal(anyhow::anyhow!("no test asks for this")))
}

#[async_trait]
impl Engine for Empty {
    async fn reconcile(&self, _: &Cluster, _: &dyn Progress) -> Result<ClusterStatus, EngineError> {
        Ok(ClusterStatus::default())
    }
    async fn delete(&self, _: &Cluster, _: &dyn Progress) -> Result<(), EngineError> {
        Ok(())
    }
    async fn logs(&self, _: ClusterId, _: &LogQuery) -> Result<LogStream, EngineError> {
        never()
    }
    async fn apply_revocations(&self, _: &Cluster) -> Result<(), EngineError> {
        Ok(())
    }
    async fn bind_namespace_role(&self, _: &Cluster, _: ClusterRole, _: &str) -> Result<(), EngineError> {
        never()
    }
    async fn service_account_token(&self, _: &Cluster, _: &TokenRequest) -> Result<IssuedToken, EngineError> {
        never()
    }
    async fn revoke_service_account_token(&self, _: &Cluster, _: &str, _: &str) -> Result<(), EngineError> {
        never()
    }
    async fn node_ready(&self, _: &Cluster, _: &str) -> Result<Option<bool>, EngineError> {
        Ok(None)
    }
    async fn remove_node(&self, _: &Cluster, _: &Node, _: Duration, _: &dyn Progress) -> Result<(), EngineError> {
        Ok(())
    }
}

/// A platform that makes machines nodes, and a cluster of it.
pub async fn platform() -> (Api, Cluster) {
    let api = Api::new().await;
    let folder = tempfile::tempdir().unwrap();
    let key = Arc::new(SealingKey::load_or_create(&folder.path().join("key"), &api.state.ambient).unwrap());
    let engine: Arc<dyn Engine> = Arc::new(Empty);
    let addresses = api.state.ports.addresses.clone();
    let tools = Tools {
        engines: Arc::new([(EngineKind::Local, engine)].into()),
        addressing: Arc::new(move || addresses.current()),
        tenant_key: Arc::clone(&key),
        platform_key: Arc::clone(&key),
    };
    let cluster = api.cluster("demo").await;
    keys::load_or_create(&api.state.store, &api.state.ambient, &key, cluster.id).await.unwrap();
    for (path, content) in [
        ("kubernetes/1.34.4/amd64/kubelet", "kubelet"),
        ("kubernetes/1.34.4/amd64/kube-proxy", "kube-proxy"),
        ("kubebyon/1/amd64/kubebyon", "kubebyon"),
        ("images/amd64/pause.tar", "pause"),
    ] {
        api.parts.files.lock().unwrap().insert(path.into(), content.into());
    }
    (api.with_worker(jobs::handlers(&tools)), cluster)
}

/// Makes a token over the socket.
pub async fn token(api: &Api, cluster: &Cluster, body: Value) -> TokenContent {
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    let made = api.post(&path, body).local().send().await.expect(StatusCode::CREATED);
    TokenContent::parse(made.json["token"].as_str().unwrap()).unwrap()
}

/// A machine, with the key of its kubelet.
pub struct Machine {
    key: KeyPair,
    pub name: String,
    address: &'static str,
}

impl Machine {
    pub fn new(name: &str) -> Self {
        Self { key: KeyPair::generate().unwrap(), name: name.into(), address: "192.168.1.10" }
    }

    /// What it sends to join.
    pub fn request(&self, token: &TokenContent) -> Value {
        let csr = CertificateParams::default().serialize_request(&self.key).unwrap().pem().unwrap();
        json!({
            "token": token.id, "secret": token.secret, "csr_pem": csr, "name": self.name, "address": self.address,
            "machine": {
                "operating_system": "Debian GNU/Linux 12 (bookworm)", "architecture": "amd64", "kernel": "6.1.0",
                "kubebyon_version": "0.1.0", "kubelet_version": "", "container_runtime": ""
            },
            "labels": {"team": "web"}, "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
        })
    }

    /// What it sends to learn what became of it, at a time of its clock.
    pub fn fate(&self, node: NodeId, at: Timestamp) -> Value {
        let random = SystemRandom::new();
        let signer = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.key.serialize_der(), &random).unwrap();
        let signature = signer.sign(&random, &fate_statement(node, at)).unwrap();
        json!({"node": node, "at": at, "signature": STANDARD.encode(signature)})
    }
}

impl Call<'_> {
    /// From that address.
    pub fn from(self, address: &str) -> Self {
        self.peer(Peer::Remote { address: format!("{address}:40000").parse().unwrap(), tls: true })
    }
}
