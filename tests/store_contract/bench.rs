//! What a contract works with: a store, a clock that stands still, and handlers that tell what they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kubebyon::domain::cluster::{Cluster, ClusterSpec};
use kubebyon::domain::job::Job;
use kubebyon::domain::page::PageRequest;
use kubebyon::domain::project::DEFAULT_PROJECT;
use kubebyon::domain::{Ambient, ClusterId, JobId, ManualClock, ProjectId, SystemEntropy, Timestamp};
use kubebyon::queue::{Context, Embedded, Handler, JobError, Worker, WorkerOptions};
use kubebyon::store::clusters::{self, NewCluster};
use kubebyon::store::jobs::{self, Leased, NewJob};
use kubebyon::store::{Database, Store, Value, projects};
use tokio_util::sync::CancellationToken;

/// What a contract works with.
pub struct Bench {
    pub store: Store,
    pub clock: Arc<ManualClock>,
    pub ambient: Ambient,
}

impl Bench {
    pub fn new(database: Arc<dyn Database>) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)));
        let ambient = Ambient { clock: clock.clone(), entropy: Arc::new(SystemEntropy) };
        Self { store: Store::new(database), clock, ambient }
    }

    pub async fn default_project(&self) -> ProjectId {
        projects::find_by_name(&mut *self.store.read().await.unwrap(), DEFAULT_PROJECT).await.unwrap().unwrap().id
    }

    pub async fn project(&self, name: &str) -> ProjectId {
        let mut tx = self.store.begin().await.unwrap();
        let project = projects::create(&mut tx, &self.ambient, name).await.unwrap();
        tx.commit().await.unwrap();
        project.id
    }

    /// A cluster of the default project; each is a millisecond younger than the one before.
    pub async fn cluster(&self, name: &str, labels: &[(&str, &str)]) -> Cluster {
        let project = self.default_project().await;
        self.cluster_of(project, name, labels).await
    }

    pub async fn cluster_of(&self, project_id: ProjectId, name: &str, labels: &[(&str, &str)]) -> Cluster {
        self.clock.advance(Duration::from_millis(1));
        let mut tx = self.store.begin().await.unwrap();
        let cluster = clusters::create(&mut tx, &self.ambient, new_cluster(project_id, name, labels)).await.unwrap();
        tx.commit().await.unwrap();
        cluster
    }

    pub async fn find(&self, id: ClusterId) -> Option<Cluster> {
        clusters::find(&mut *self.store.read().await.unwrap(), id).await.unwrap()
    }

    pub async fn enqueue(&self, new: NewJob) -> JobId {
        self.clock.advance(Duration::from_millis(1));
        let mut tx = self.store.begin().await.unwrap();
        let id = jobs::enqueue(&mut tx, &self.ambient, new).await.unwrap();
        tx.commit().await.unwrap();
        id
    }

    pub async fn job(&self, id: JobId) -> Job {
        jobs::find(&mut *self.store.read().await.unwrap(), id).await.unwrap().unwrap()
    }

    /// Returns the job once it is as asked. A claim is told to nobody, so that this looks again and again.
    pub async fn job_once(&self, id: JobId, is_as_asked: impl Fn(&Job) -> bool) -> Job {
        for _ in 0..10_000 {
            let job = self.job(id).await;
            if is_as_asked(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing more happens to {:?}", self.job(id).await);
    }

    /// Runs a statement of the contract's own.
    pub async fn execute(&self, sql: &'static str, values: Vec<Value>) {
        let mut tx = self.store.begin().await.unwrap();
        assert_eq!(tx.sql().execute(sql, values).await.unwrap(), 1, "{sql}");
        tx.commit().await.unwrap();
    }

    pub fn worker(&self, host: &str, handlers: &[Arc<Scripted>]) -> Running {
        self.worker_with(&WorkerOptions::new(host, &self.ambient), handlers)
    }

    pub fn worker_with(&self, options: &WorkerOptions, handlers: &[Arc<Scripted>]) -> Running {
        let transport = Arc::new(Embedded::new(&self.store));
        let worker = Worker::new(self.store.clone(), self.ambient.clone(), transport, options.clone());
        let worker = handlers.iter().fold(worker, |worker, handler| worker.with(handler.clone()));
        let shutdown = CancellationToken::new();
        Running { task: tokio::spawn(worker.run(shutdown.clone())), shutdown }
    }
}

/// A worker that runs.
pub struct Running {
    task: tokio::task::JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Running {
    /// Drains it.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    /// Ends it as `kill -9` would: nothing of it runs on, nothing is written.
    pub async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// What a handler does with an attempt.
type Script = dyn Fn(&Leased) -> Step + Send + Sync;

/// What a handler does.
pub enum Step {
    Succeed(serde_json::Value),
    Fail(&'static str),
    Fatal(&'static str),
    Panic(&'static str),
    /// Goes on until it is told to stop, then fails.
    UntilCancelled,
    /// Goes on for ever, whatever it is told.
    Forever,
    /// Goes on until the token is cancelled, then succeeds.
    Until(CancellationToken),
}

/// A handler that follows a script and counts.
pub struct Scripted {
    kind: &'static str,
    script: Box<Script>,
    pub begun: AtomicUsize,
    begun_one: tokio::sync::Notify,
}

impl Scripted {
    pub fn new(kind: &'static str, script: impl Fn(&Leased) -> Step + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { kind, script: Box::new(script), begun: AtomicUsize::new(0), begun_one: tokio::sync::Notify::new() })
    }

    /// Returns when an attempt has begun since the last call.
    pub async fn has_begun(&self) {
        tokio::time::timeout(Duration::from_secs(600), self.begun_one.notified()).await.expect("no attempt begins");
    }

    pub fn count(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Handler for Scripted {
    fn kind(&self) -> &'static str {
        self.kind
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let step = (self.script)(leased);
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.begun_one.notify_one();
        match step {
            Step::Succeed(value) => Ok(value),
            Step::Fail(why) => Err(anyhow::anyhow!(why).into()),
            Step::Fatal(why) => Err(JobError::Fatal(anyhow::anyhow!(why))),
            Step::Panic(why) => panic!("{why}"),
            Step::UntilCancelled => {
                context.cancelled.cancelled().await;
                Err(anyhow::anyhow!("told to stop").into())
            }
            Step::Forever => std::future::pending().await,
            Step::Until(token) => {
                token.cancelled().await;
                Ok("ended".into())
            }
        }
    }
}

pub fn new_job(kind: &'static str) -> NewJob {
    NewJob {
        kind,
        project_id: None,
        cluster_id: None,
        host: None,
        payload: serde_json::json!({ "n": 1 }),
        max_attempts: 3,
        coalesce: false,
    }
}

pub fn spec() -> ClusterSpec {
    serde_json::from_value(serde_json::json!({
        "kubernetes_version": "1.34.4",
        "engine": "local",
        "pod_cidr": "10.244.0.0/16",
        "service_cidr": "10.96.0.0/16",
        "api_local_address": "198.51.100.1",
    }))
    .unwrap()
}

pub fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub fn new_cluster(project_id: ProjectId, name: &str, pairs: &[(&str, &str)]) -> NewCluster {
    NewCluster { project_id, name: name.to_owned(), labels: labels(pairs), host: Some("one".to_owned()), spec: spec() }
}

pub fn page(limit: u32, after: Option<String>) -> PageRequest {
    PageRequest { limit, after }
}

/// Everything that a list gives page by page, with the size of each page.
macro_rules! all_pages {
    ($limit:expr, |$page:ident| $list:expr) => {{
        let (mut items, mut sizes, mut next) = (Vec::new(), Vec::new(), None);
        loop {
            let request = $crate::bench::page($limit, next);
            let $page = &request;
            let page = $list.await.unwrap();
            sizes.push(page.items.len());
            items.extend(page.items);
            next = page.next;
            if next.is_none() {
                break (items, sizes);
            }
        }
    }};
}
pub(crate) use all_pages;
