//! Jobs over an engine that says what a test wants.

mod nodes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Tools;
use super::reconcile_cluster::ReconcileCluster;
use super::service_account_token::MakeServiceAccountToken;
use super::sign::Sign;
use crate::domain::access::Addressing;
use crate::domain::cluster::{ClusterStatus, Phase};
use crate::domain::kubeconfig::ClusterRole;
use crate::domain::{Ambient, Cluster, ClusterId, ClusterSpec, EngineKind, ManualClock, Node, SystemEntropy, Timestamp};
use crate::engine::{Engine, EngineError, IssuedToken, LogQuery, LogStream, Progress, TokenRequest};
use crate::pki::sealing::SealingKey;
use crate::queue::{Context, Handler, JobError};
use crate::store::clusters::NewCluster;
use crate::store::jobs::{Leased, NewJob};
use crate::store::{self, Store};

/// Brings every cluster up at once, and has no namespace.
struct Bare {
    store: Store,
    /// What is asked for while a cluster is brought up.
    meanwhile: Option<ClusterSpec>,
    /// What Kubernetes knows of nodes.
    kubernetes: Arc<nodes::Kubernetes>,
}

fn no_namespace<T>() -> Result<T, EngineError> {
    Err(EngineError::Fatal(anyhow!("there is no namespace \"absent\"")))
}

#[async_trait]
impl Engine for Bare {
    async fn reconcile(&self, cluster: &Cluster, _: &dyn Progress) -> Result<ClusterStatus, EngineError> {
        if let Some(spec) = &self.meanwhile {
            let mut tx = self.store.begin().await.unwrap();
            store::clusters::update(&mut tx, cluster.id, None, spec, &cluster.labels).await.unwrap();
            tx.commit().await.unwrap();
        }
        Ok(ClusterStatus::default())
    }
    async fn delete(&self, _: &Cluster, _: &dyn Progress) -> Result<(), EngineError> {
        Ok(())
    }
    async fn logs(&self, _: ClusterId, _: &LogQuery) -> Result<LogStream, EngineError> {
        no_namespace()
    }
    async fn apply_revocations(&self, cluster: &Cluster) -> Result<(), EngineError> {
        self.kubernetes.apply_revocations(&self.store, cluster).await
    }
    async fn bind_namespace_role(&self, _: &Cluster, _: ClusterRole, _: &str) -> Result<(), EngineError> {
        no_namespace()
    }
    async fn service_account_token(&self, _: &Cluster, _: &TokenRequest) -> Result<IssuedToken, EngineError> {
        no_namespace()
    }
    async fn revoke_service_account_token(&self, _: &Cluster, _: &str, _: &str) -> Result<(), EngineError> {
        Ok(())
    }

    async fn node_ready(&self, _: &Cluster, name: &str) -> Result<Option<bool>, EngineError> {
        Ok(self.kubernetes.ready(name))
    }

    async fn remove_node(&self, _: &Cluster, node: &Node, drain: Duration, _: &dyn Progress) -> Result<(), EngineError> {
        self.kubernetes.remove(&self.store, node, drain).await
    }
}

struct Bench {
    context: Context,
    cluster: Cluster,
    folder: tempfile::TempDir,
    kubernetes: Arc<nodes::Kubernetes>,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(store::sqlite::open(&folder.path().join("kubebyon.db")).unwrap());
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let ambient = Ambient { clock, entropy: Arc::new(SystemEntropy) };
        let mut tx = store.begin().await.unwrap();
        let project_id = store::projects::find_by_name(tx.sql(), "default").await.unwrap().unwrap().id;
        let spec = json!({"kubernetes_version": "1.34.4", "engine": "local", "pod_cidr": "10.244.0.0/16",
            "service_cidr": "10.96.0.0/16", "api_local_address": "198.51.100.1"});
        let spec = serde_json::from_value(spec).unwrap();
        let new = NewCluster { project_id, name: "shop".into(), labels: std::collections::BTreeMap::default(), host: None, spec };
        let cluster = store::clusters::create(&mut tx, &ambient, new).await.unwrap();
        tx.commit().await.unwrap();
        Self { context: Context { store, ambient, cancelled: CancellationToken::new() }, cluster, folder, kubernetes: Arc::default() }
    }

    fn tools(&self, meanwhile: Option<ClusterSpec>) -> Tools {
        let engine: Arc<dyn Engine> =
            Arc::new(Bare { store: self.context.store.clone(), meanwhile, kubernetes: Arc::clone(&self.kubernetes) });
        let key = Arc::new(SealingKey::load_or_create(&self.folder.path().join("key"), &self.context.ambient).unwrap());
        let addressing = || Addressing {
            base_domain: "kubebyon.internal".into(),
            base_domain_is_public: false,
            control_plane_host: "203.0.113.7".into(),
            advertised: ("203.0.113.7".into(), 8443),
            join: None,
            platform_names: Vec::new(),
        };
        Tools {
            engines: Arc::new([(EngineKind::Local, engine)].into()),
            addressing: Arc::new(addressing),
            tenant_key: Arc::clone(&key),
            platform_key: key,
        }
    }

    async fn run(&self, handler: &dyn Handler, payload: Value) -> Result<Value, JobError> {
        let new = NewJob {
            kind: handler.kind(),
            project_id: None,
            cluster_id: Some(self.cluster.id),
            host: None,
            payload: payload.clone(),
            max_attempts: 3,
            coalesce: false,
        };
        let mut tx = self.context.store.begin().await.unwrap();
        let id = store::jobs::enqueue(&mut tx, &self.context.ambient, new).await.unwrap();
        let job = store::jobs::find(tx.sql(), id).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        let leased = Leased { job, payload, token: String::new(), expires_at: self.context.ambient.now() };
        handler.run(&self.context, &leased).await
    }

    async fn status(&self) -> ClusterStatus {
        store::clusters::find(&mut *self.context.store.read().await.unwrap(), self.cluster.id).await.unwrap().unwrap().status
    }
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_an_answer_and_no_failure() {
    let bench = Bench::new().await;
    let refused = json!({"refused": "there is no namespace \"absent\""});
    let sign = json!({"csr_pem": "", "owner": "ada", "role": "view", "namespace": "absent", "ttl_seconds": 600});
    assert_eq!(bench.run(&Sign(bench.tools(None)), sign).await.unwrap(), refused);
    let token = json!({"owner": "ada", "service_account_namespace": "absent", "service_account_name": "ci", "role": "view",
        "namespace": null, "ttl_seconds": 600});
    assert_eq!(bench.run(&MakeServiceAccountToken(bench.tools(None)), token).await.unwrap(), refused);
}

#[tokio::test]
async fn what_was_asked_for_meanwhile_is_not_called_ready() {
    let bench = Bench::new().await;
    let mut newer = bench.cluster.spec.clone();
    newer.kubernetes_version = "1.35.4".parse().unwrap();
    bench.run(&ReconcileCluster(bench.tools(Some(newer))), json!({})).await.unwrap();
    let status = bench.status().await;
    assert_eq!((status.phase, status.kubernetes_version), (Phase::Updating, Some("1.34.4".parse().unwrap())));
    bench.run(&ReconcileCluster(bench.tools(None)), json!({})).await.unwrap();
    let status = bench.status().await;
    assert_eq!((status.phase, status.kubernetes_version), (Phase::Ready, Some("1.35.4".parse().unwrap())));
}

#[tokio::test]
async fn a_version_that_runs_is_not_taken_back() {
    let bench = Bench::new().await;
    let mut status = bench.status().await;
    status.kubernetes_version = Some("1.35.4".parse().unwrap());
    let mut tx = bench.context.store.begin().await.unwrap();
    store::clusters::set_status(&mut tx, bench.cluster.id, &status).await.unwrap();
    tx.commit().await.unwrap();
    let refused = bench.run(&ReconcileCluster(bench.tools(None)), json!({})).await.unwrap_err();
    assert!(matches!(refused, JobError::Fatal(_)) && refused.to_string().contains("set its version to 1.35.4"), "{refused}");
    let status = bench.status().await;
    assert_eq!((status.phase, status.kubernetes_version), (Phase::Failed, Some("1.35.4".parse().unwrap())));
}
