use kube::Client;

use super::super::ControlPlane;
use super::super::signing::tests::node;
use super::*;
use crate::domain::{Ambient, ManualClock, Timestamp};
use crate::engine::EngineError;
use crate::pki::cluster::ClusterPki;
use crate::store::{Change, Store};

/// No API server: what is tested here asks none.
struct Nowhere;

#[async_trait]
impl ControlPlane for Nowhere {
    async fn client(&self) -> Result<Client, EngineError> {
        Err(EngineError::Retry(anyhow::anyhow!("the API server starts")))
    }
    async fn patient_client(&self) -> Result<Client, EngineError> {
        self.client().await
    }
    async fn pki(&self) -> anyhow::Result<ClusterPki> {
        anyhow::bail!("there is none")
    }
    async fn well(&self) {
        std::future::pending::<()>().await;
    }
}

/// A cluster with one node, in a store of its own.
pub struct Stand {
    pub scope: Scope,
    pub node: Node,
    pub clock: Arc<ManualClock>,
}

pub async fn stand() -> Stand {
    let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
    let ambient = Ambient { clock: clock.clone(), ..Ambient::system() };
    let store = Store::new(store::sqlite::temporary().unwrap());
    let cluster = crate::engine::local::tests::row(&store, &ambient, "here").await;
    let node = node(&ambient, cluster.id, "worker-1", "192.168.1.10");
    let mut tx = store.begin().await.unwrap();
    store::nodes::insert(&mut tx, &node).await.unwrap();
    tx.commit().await.unwrap();
    let scope = Scope::of(&cluster, store, ambient, "verify:1".into(), Arc::new(Nowhere));
    Stand { scope, node, clock }
}

fn silent() -> Steps {
    Arc::new(|_, _| {})
}

#[tokio::test]
async fn what_a_node_says_is_bounded_and_its_verification_is_not_its_own_word() {
    let stand = stand().await;
    let desk = Desk::open(stand.scope.clone());
    let aspect = |kind: &str, message: String| Aspect { kind: kind.to_owned(), status: true, reason: "R".repeat(90), message };
    let report = Report {
        machine: Machine { operating_system: format!("Debian\n{}", "x".repeat(9000)), ..Machine::default() },
        underlay: vec!["192.168.1.10".parse().unwrap(); 100],
        aspects: vec![aspect("KubeletHealthy", "é".repeat(9000)), aspect("Verified", "yes".into()), aspect("Odd", "x".into())],
    };
    desk.reported(stand.node.id, report.clone()).await;
    let known = stand.scope.node(stand.node.id).await.unwrap().unwrap();
    assert_eq!(known.machine.operating_system.len(), 120);
    assert!(!known.machine.operating_system.contains('\n'));
    assert_eq!(known.status.underlay.len(), 8);
    let kinds: Vec<_> = known.status.conditions.iter().map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds, ["KubeletHealthy"]);
    assert_eq!(known.status.conditions[0].message.chars().count(), 500);
    // Said again, nothing is written.
    let mut changes = stand.scope.store.changes();
    desk.reported(stand.node.id, report).await;
    assert!(changes.try_recv().is_err());
}

#[tokio::test]
async fn leaving_waits_for_the_job_and_shows_its_steps() {
    let stand = stand().await;
    let desk = Desk::open(stand.scope.clone());
    let shown = Arc::new(std::sync::Mutex::new(Vec::new()));
    let steps: Steps = Arc::new({
        let shown = Arc::clone(&shown);
        move |step: &str, _: &str| shown.lock().unwrap().push(step.to_owned())
    });
    let mut changes = stand.scope.store.changes();
    let leaving = tokio::spawn({
        let (desk, id) = (Arc::clone(&desk), stand.node.id);
        async move { desk.ask(id, Ask::Leave { drain_seconds: 5 }, steps).await }
    });
    while changes.recv().await.unwrap() != Change::JobEnqueued {}
    assert!(stand.scope.node(stand.node.id).await.unwrap().unwrap().removed_at.is_some());
    stand.scope.tell(crate::domain::event::Severity::Normal, "NodeCordoned", "node worker-1 takes no new pods").await;
    stand.scope.tell(crate::domain::event::Severity::Normal, "Other", "node worker-10 takes no new pods").await;
    while shown.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(*shown.lock().unwrap(), ["NodeCordoned"]);
    // The cluster goes, and its jobs with it.
    let mut tx = stand.scope.store.begin().await.unwrap();
    store::clusters::remove(&mut tx, stand.scope.cluster, stand.scope.ambient.now()).await.unwrap();
    tx.commit().await.unwrap();
    assert!(leaving.await.unwrap().unwrap_err().contains("could not take this node out"));
    assert!(desk.ask(stand.node.id, Ask::Verify, silent()).await.unwrap_err().contains("no node of the cluster"));
}

#[tokio::test]
async fn a_verification_without_an_api_server_says_so_and_is_kept() {
    let stand = stand().await;
    let desk = Desk::open(stand.scope.clone());
    let Answer::Verified { steps } = desk.ask(stand.node.id, Ask::Verify, silent()).await.unwrap() else { panic!("no steps") };
    assert_eq!((steps.len(), steps[0].status, steps[0].message.as_str()), (1, false, "the API server starts"));
    let known = stand.scope.node(stand.node.id).await.unwrap().unwrap();
    let verified = known.status.conditions.iter().find(|c| c.kind == "Verified").unwrap();
    assert!(!verified.status && known.status.verified_at.is_none());
}
