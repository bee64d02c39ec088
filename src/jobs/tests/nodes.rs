//! Machines become nodes and cease to be.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use serde_json::{Value, json};

use super::Bench;
use crate::domain::join::JoinToken;
use crate::domain::node::{Fate, Machine, NodeStatus, Taint};
use crate::domain::work::{Answer, Refusal, RemoveNodeRequest, SignNodeRequest, SignNodeResult};
use crate::domain::{Cluster, JoinTokenId, Node, NodeId};
use crate::engine::{EngineError, keys};
use crate::jobs::remove_node::RemoveNode;
use crate::jobs::sign_node::SignNode;
use crate::pki::key_and_csr;
use crate::queue::JobError;
use crate::store::{self, Store};

const HOUR: Duration = Duration::from_secs(3600);

/// What Kubernetes knows of nodes, and what was asked of it.
#[derive(Default)]
pub struct Kubernetes {
    objects: Mutex<BTreeMap<String, bool>>,
    asked: Mutex<Vec<String>>,
    is_down: AtomicBool,
}

impl Kubernetes {
    pub fn ready(&self, name: &str) -> Option<bool> {
        self.objects.lock().unwrap().get(name).copied()
    }

    fn has(&self, name: &str, ready: bool) {
        self.objects.lock().unwrap().insert(name.to_owned(), ready);
    }

    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// What was asked since the last time, in words.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn answer(&self, what: String) -> Result<(), EngineError> {
        self.asked.lock().unwrap().push(what);
        if self.is_down.load(Ordering::SeqCst) { Err(EngineError::Retry(anyhow!("the API server is down"))) } else { Ok(()) }
    }

    pub async fn apply_revocations(&self, store: &Store, cluster: &Cluster) -> Result<(), EngineError> {
        let mut sql = store.read().await.unwrap();
        let revoked = store::nodes::revoked_credential_ids(&mut *sql, cluster.id, cluster.created_at).await.unwrap();
        self.answer(format!("refuse {}", revoked.len()))
    }

    pub async fn remove(&self, store: &Store, node: &Node, drain: Duration) -> Result<(), EngineError> {
        let mut sql = store.read().await.unwrap();
        let good = store::nodes::certificates(&mut *sql, node.cluster_id, node.joined_at).await.unwrap();
        let good = good.iter().filter(|certificate| certificate.node_id == node.id).count();
        self.answer(format!("remove {} within {} s with {good} certificates", node.name, drain.as_secs()))?;
        self.objects.lock().unwrap().remove(&node.name);
        Ok(())
    }
}

impl Bench {
    /// With keys, as after its cluster came up.
    async fn with_keys() -> Self {
        let bench = Self::new().await;
        let key = bench.tools(None).tenant_key;
        keys::load_or_create(&bench.context.store, &bench.context.ambient, &key, bench.cluster.id).await.unwrap();
        bench
    }

    async fn token(&self, uses: u32) -> JoinTokenId {
        let now = self.context.ambient.now();
        let id = JoinTokenId::generate(&self.context.ambient);
        let (cluster_id, expires_at) = (self.cluster.id, now.plus(HOUR));
        let token = JoinToken { id, cluster_id, owner: "ada".into(), created_at: now, expires_at, uses, used: 0, revoked_at: None };
        let mut tx = self.context.store.begin().await.unwrap();
        store::join_tokens::insert(&mut tx, &token, &[1; 32]).await.unwrap();
        tx.commit().await.unwrap();
        id
    }

    async fn used(&self, token: JoinTokenId) -> u32 {
        let mut sql = self.context.store.read().await.unwrap();
        store::join_tokens::find(&mut *sql, token).await.unwrap().unwrap().0.used
    }

    async fn sign(&self, request: &SignNodeRequest) -> Result<Answer<SignNodeResult>, JobError> {
        let answer = self.run(&SignNode(self.tools(None)), serde_json::to_value(request).unwrap()).await?;
        Ok(serde_json::from_value(answer).unwrap())
    }

    async fn joined(&self, request: &SignNodeRequest) -> Node {
        match self.sign(request).await.unwrap() {
            Answer::Done(result) => self.node(result.node).await.unwrap(),
            Answer::Refused { refused, .. } => panic!("{refused}"),
        }
    }

    async fn refused(&self, request: &SignNodeRequest) -> (Refusal, String) {
        match self.sign(request).await.unwrap() {
            Answer::Refused { refused, kind } => (kind.unwrap(), refused),
            Answer::Done(result) => panic!("{result:?}"),
        }
    }

    async fn remove(&self, node: &Node, drain: u64) -> Result<Value, JobError> {
        let request = RemoveNodeRequest { node: node.id, fate: Fate::Removed, drain_seconds: drain };
        self.run(&RemoveNode(self.tools(None)), serde_json::to_value(request).unwrap()).await
    }

    async fn node(&self, id: NodeId) -> Option<Node> {
        store::nodes::find(&mut *self.context.store.read().await.unwrap(), id).await.unwrap()
    }

    async fn fate(&self, id: NodeId) -> Option<Fate> {
        let mut sql = self.context.store.read().await.unwrap();
        store::nodes::membership(&mut *sql, id).await.unwrap().map(|known| known.fate)
    }

    /// How many certificates of the node are good, and how many are refused.
    async fn certificates(&self, id: NodeId) -> (usize, usize) {
        let mut sql = self.context.store.read().await.unwrap();
        let issued = store::nodes::issued_certificates(&mut *sql, id).await.unwrap();
        let refused = issued.iter().filter(|certificate| certificate.revoked_at.is_some()).count();
        (issued.len() - refused, refused)
    }

    async fn events(&self) -> Vec<String> {
        let mut sql = self.context.store.read().await.unwrap();
        let filter = store::events::Filter { projects: None, cluster: Some(self.cluster.id) };
        store::events::after(&mut *sql, &filter, 0, 100).await.unwrap().into_iter().map(|event| event.reason).collect()
    }

    async fn set_connected(&self, id: NodeId) {
        let mut tx = self.context.store.begin().await.unwrap();
        store::nodes::set_status(&mut tx, id, &NodeStatus { connected: true, ..NodeStatus::default() }).await.unwrap();
        tx.commit().await.unwrap();
    }
}

fn request(token: JoinTokenId, name: &str) -> SignNodeRequest {
    SignNodeRequest {
        token,
        csr_pem: key_and_csr("whatever it says").unwrap().1,
        name: name.to_owned(),
        address: "192.168.1.10".parse().unwrap(),
        machine: Machine::default(),
        labels: BTreeMap::default(),
        taints: Vec::new(),
        replace: false,
    }
}

fn subject(pem: &str) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    pem.parse_x509().unwrap().subject().to_string()
}

#[tokio::test]
async fn a_machine_becomes_a_node_and_asking_again_changes_nothing() {
    let bench = Bench::with_keys().await;
    let token = bench.token(1).await;
    let asked = request(token, "pi");
    let Answer::Done(first) = bench.sign(&asked).await.unwrap() else { panic!("refused") };
    assert!(subject(&first.certificate_pem).contains("CN=system:node:pi"), "{}", subject(&first.certificate_pem));
    assert!(subject(&first.certificate_pem).contains("O=system:nodes") && !subject(&first.certificate_pem).contains("whatever"));
    assert!(first.server_ca_pem != first.client_ca_pem && first.client_ca_pem.contains("BEGIN CERTIFICATE"));
    let node = bench.node(first.node).await.unwrap();
    assert_eq!((node.name.as_str(), node.address, node.address_assigned), ("pi", asked.address, false));
    // The token is used up by the machine itself, and has ended meanwhile.
    let mut tx = bench.context.store.begin().await.unwrap();
    tx.sql().execute("update join_tokens set expires_at = 1", Vec::new()).await.unwrap();
    tx.commit().await.unwrap();
    let taints = vec![Taint { key: "dedicated".into(), value: String::new(), effect: "NoSchedule".into() }];
    let again = SignNodeRequest { taints: taints.clone(), ..asked.clone() };
    let Answer::Done(second) = bench.sign(&again).await.unwrap() else { panic!("refused") };
    assert_eq!((second.node, bench.used(token).await), (first.node, 1));
    assert_eq!(bench.node(first.node).await.unwrap(), Node { taints, ..node });
    assert_eq!(bench.certificates(first.node).await, (2, 0));
    // Its key is its name's.
    let (kind, why) = bench.refused(&SignNodeRequest { name: "other".into(), ..asked.clone() }).await;
    assert_eq!(kind, Refusal::OtherName);
    assert!(why.contains("is node pi") && why.contains("kubebyon leave"), "{why}");
    // A revoked token lets nobody in, whoever joined with it.
    let mut tx = bench.context.store.begin().await.unwrap();
    store::join_tokens::revoke(&mut tx, token, bench.context.ambient.now()).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bench.refused(&asked).await.0, Refusal::TokenRevoked);
}

#[tokio::test]
async fn of_two_who_join_at_once_with_the_last_use_one_wins() {
    let bench = Bench::with_keys().await;
    let token = bench.token(1).await;
    let (one, two) = (request(token, "one"), request(token, "two"));
    let (one, two) = tokio::join!(bench.sign(&one), bench.sign(&two));
    let answers = [one.unwrap(), two.unwrap()];
    let won = answers.iter().filter(|answer| matches!(answer, Answer::Done(_))).count();
    let lost = answers.iter().any(|answer| matches!(answer, Answer::Refused { kind: Some(Refusal::TokenUsedUp), .. }));
    assert_eq!((won, lost, bench.used(token).await), (1, true, 1), "{answers:?}");
    let nodes = store::nodes::list(&mut *bench.context.store.read().await.unwrap(), bench.cluster.id).await.unwrap();
    assert_eq!(nodes.len(), 1);
}

#[tokio::test]
async fn of_two_who_want_a_name_at_once_one_gets_it() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let (one, two) = (request(token, "pi"), request(token, "pi"));
    let (one, two) = tokio::join!(bench.sign(&one), bench.sign(&two));
    let answers = [one.unwrap(), two.unwrap()];
    let refused: Vec<_> = answers.iter().filter(|a| matches!(a, Answer::Refused { kind: Some(Refusal::NameTaken), .. })).collect();
    assert_eq!((refused.len(), bench.used(token).await), (1, 1), "{answers:?}");
}

#[tokio::test]
async fn what_cannot_be_is_said_and_uses_nothing_up() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let good = request(token, "pi");
    let cases = [
        (SignNodeRequest { token: JoinTokenId::generate(&bench.context.ambient), ..good.clone() }, Refusal::TokenUnknown),
        (SignNodeRequest { name: "Not A Name".into(), ..good.clone() }, Refusal::NameInvalid),
        (SignNodeRequest { csr_pem: "no CSR".into(), ..good.clone() }, Refusal::RequestInvalid),
        (SignNodeRequest { labels: [("kubernetes.io/os".into(), "plan9".into())].into(), ..good.clone() }, Refusal::RequestInvalid),
    ];
    for (request, expected) in cases {
        assert_eq!(bench.refused(&request).await.0, expected, "{request:?}");
    }
    bench.kubernetes.has("theirs", false);
    let (kind, why) = bench.refused(&request(token, "theirs")).await;
    assert!(kind == Refusal::NameTaken && why.contains("never joined") && why.contains("--replace"), "{why}");
    assert_eq!(bench.used(token).await, 0);
    let mut tx = bench.context.store.begin().await.unwrap();
    store::clusters::mark_deleted(&mut tx, &bench.context.ambient, bench.cluster.id, None).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bench.refused(&good).await.0, Refusal::ClusterDeleting);
    assert!(bench.kubernetes.asked().is_empty());
}

#[tokio::test]
async fn two_machines_with_one_address_get_different_ones() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let (one, two) = (bench.joined(&request(token, "one")).await, bench.joined(&request(token, "two")).await);
    assert!(!one.address_assigned && two.address_assigned);
    assert_ne!(one.address, two.address);
}

#[tokio::test]
async fn a_node_that_lives_is_not_replaced() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let before = bench.joined(&request(token, "pi")).await;
    let newcomer = SignNodeRequest { replace: true, ..request(token, "pi") };
    bench.kubernetes.has("pi", true);
    assert!(bench.refused(&newcomer).await.1.contains("is Ready"));
    bench.kubernetes.has("pi", false);
    let (_, why) = bench.refused(&SignNodeRequest { replace: false, ..newcomer.clone() }).await;
    assert!(why.contains("--replace") && why.contains("kubebyon node remove shop pi"), "{why}");
    bench.set_connected(before.id).await;
    assert!(bench.refused(&newcomer).await.1.contains("is connected"));
    assert_eq!((bench.fate(before.id).await, bench.certificates(before.id).await), (Some(Fate::Member), (1, 0)));
}

#[tokio::test]
async fn a_node_that_is_replaced_is_refused_and_gone_before_the_other_is_one() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let before = bench.joined(&request(token, "pi")).await;
    let newcomer = SignNodeRequest { replace: true, ..request(token, "pi") };
    bench.kubernetes.has("pi", false);
    // Cut in the midst: the one before is refused, the other is not in, and its token is not used.
    bench.kubernetes.set_down(true);
    assert!(matches!(bench.sign(&newcomer).await, Err(JobError::Retry(_))));
    assert_eq!((bench.fate(before.id).await, bench.certificates(before.id).await), (Some(Fate::Replaced), (0, 1)));
    assert_eq!(bench.used(token).await, 1);
    assert_eq!(bench.refused(&request(token, "pi")).await.0, Refusal::NodeLeaving, "without --replace it is no way in");
    bench.kubernetes.set_down(false);
    bench.kubernetes.asked();
    let after = bench.joined(&newcomer).await;
    assert_eq!(bench.kubernetes.asked(), ["refuse 1", "remove pi within 0 s with 0 certificates"]);
    assert_eq!((after.address, after.address_assigned), (before.address, false), "the address is free with the name");
    assert!(bench.node(before.id).await.is_none() && bench.fate(before.id).await == Some(Fate::Replaced));
    // Once more, as after a lost answer: nothing is removed again.
    assert_eq!(bench.joined(&newcomer).await.id, after.id);
    assert!(bench.kubernetes.asked().is_empty());
    // The job that tells front doors of the revocation touches nobody.
    bench.remove(&before, 0).await.unwrap();
    assert!(bench.kubernetes.asked().is_empty() && bench.fate(after.id).await == Some(Fate::Member));
}

#[tokio::test]
async fn a_token_that_is_gone_ends_no_membership() {
    let bench = Bench::with_keys().await;
    let before = bench.joined(&request(bench.token(5).await, "pi")).await;
    let newcomer = SignNodeRequest { replace: true, ..request(bench.token(0).await, "pi") };
    assert_eq!(bench.refused(&newcomer).await.0, Refusal::TokenUsedUp);
    assert_eq!(bench.fate(before.id).await, Some(Fate::Member));
}

#[tokio::test]
async fn a_node_is_drained_refused_and_removed_in_this_order() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let asked = request(token, "pi");
    let node = bench.joined(&asked).await;
    bench.remove(&node, 60).await.unwrap();
    assert_eq!(
        bench.kubernetes.asked(),
        ["remove pi within 60 s with 1 certificates", "refuse 1", "remove pi within 0 s with 0 certificates"]
    );
    assert!(bench.node(node.id).await.is_none());
    assert_eq!((bench.fate(node.id).await, bench.certificates(node.id).await), (Some(Fate::Removed), (0, 1)));
    bench.remove(&node, 60).await.unwrap();
    assert!(bench.kubernetes.asked().is_empty(), "there is nothing left to do");
    // The machine may come back, as another node.
    assert_ne!(bench.joined(&asked).await.id, node.id);
}

#[tokio::test]
async fn a_removed_node_is_refused_though_kubernetes_does_not_answer() {
    let bench = Bench::with_keys().await;
    let token = bench.token(5).await;
    let asked = request(token, "pi");
    let node = bench.joined(&asked).await;
    let mut tx = bench.context.store.begin().await.unwrap();
    store::nodes::ask_removal(&mut tx, &bench.context.ambient, &node, Fate::Removed, HOUR).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bench.refused(&asked).await.0, Refusal::NodeLeaving, "its key is no way back while it goes");
    bench.kubernetes.set_down(true);
    assert!(matches!(bench.remove(&node, 60).await, Err(JobError::Retry(_))));
    assert_eq!((bench.fate(node.id).await, bench.certificates(node.id).await), (Some(Fate::Removed), (0, 1)));
    assert!(bench.node(node.id).await.is_some(), "its name is kept until its object is gone");
    bench.kubernetes.set_down(false);
    bench.kubernetes.asked();
    bench.remove(&node, 60).await.unwrap();
    assert_eq!(bench.kubernetes.asked(), ["refuse 1", "remove pi within 0 s with 0 certificates"], "it is not drained again");
    assert!(bench.node(node.id).await.is_none());
}

#[tokio::test]
async fn a_node_of_a_cluster_that_is_deleted_just_goes() {
    let bench = Bench::with_keys().await;
    let node = bench.joined(&request(bench.token(5).await, "pi")).await;
    let mut tx = bench.context.store.begin().await.unwrap();
    store::clusters::mark_deleted(&mut tx, &bench.context.ambient, bench.cluster.id, None).await.unwrap();
    tx.commit().await.unwrap();
    bench.remove(&node, 60).await.unwrap();
    assert!(bench.kubernetes.asked().is_empty() && bench.node(node.id).await.is_none());
    let kept = bench.events().await;
    assert_eq!(kept, ["NodeJoined", "NodeRemoved"]);
}

#[tokio::test]
async fn a_deleted_clusters_nodes_are_remembered() {
    let bench = Bench::with_keys().await;
    let node = bench.joined(&request(bench.token(5).await, "pi")).await;
    let mut tx = bench.context.store.begin().await.unwrap();
    store::clusters::mark_deleted(&mut tx, &bench.context.ambient, bench.cluster.id, None).await.unwrap();
    tx.commit().await.unwrap();
    bench.run(&super::ReconcileCluster(bench.tools(None)), json!({})).await.unwrap();
    assert_eq!(bench.fate(node.id).await, Some(Fate::ClusterDeleted));
}
