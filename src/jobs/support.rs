//! What several jobs do alike: find their cluster and its engine, open its keys, append an event.

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;

use super::Tools;
use crate::domain::event::{NewEvent, Severity};
use crate::domain::work::Answer;
use crate::domain::{Ambient, Cluster};
use crate::engine::{self, Engine, EngineError, Progress};
use crate::pki::cluster::ClusterPki;
use crate::queue::{Context, JobError};
use crate::store::{self, Store, jobs::Leased};

impl Tools {
    /// The engine that runs a cluster.
    pub fn engine(&self, cluster: &Cluster) -> Result<&dyn Engine, JobError> {
        let kind = cluster.spec.engine;
        self.engines.get(&kind).map(AsRef::as_ref).ok_or_else(|| {
            JobError::Fatal(anyhow!("this worker has no engine {:?}; start one that has, or delete the cluster", kind.as_str()))
        })
    }

    /// A cluster's authorities and keys; an error until its engine has made them.
    pub async fn cluster_pki(&self, store: &Store, cluster: &Cluster) -> anyhow::Result<ClusterPki> {
        let pki = engine::keys::load(store, &self.tenant_key, cluster.id).await?;
        pki.with_context(|| format!("cluster {} has no keys yet: wait until it is ready", cluster.name))
    }
}

/// The cluster that a job is about; `None` when it is gone, and then nothing is left to do.
pub async fn cluster_of(context: &Context, leased: &Leased) -> Result<Option<Cluster>, JobError> {
    let Some(id) = leased.job.cluster_id else {
        return Err(JobError::Fatal(anyhow!("a job of kind {} names no cluster", leased.job.kind)));
    };
    let mut sql = context.store.read().await.map_err(retry)?;
    store::clusters::find(&mut *sql, id).await.map_err(retry)
}

/// The payload of a job.
pub fn payload<T: serde::de::DeserializeOwned>(leased: &Leased) -> Result<T, JobError> {
    serde_json::from_value(leased.payload.clone())
        .map_err(|error| JobError::Fatal(anyhow!("the payload of a {} job cannot be read: {error}", leased.job.kind)))
}

/// The result of a job that found that what was asked for cannot be.
pub fn refusal(why: &anyhow::Error) -> Result<serde_json::Value, JobError> {
    answer(Answer::<()>::Refused { refused: format!("{why:#}"), kind: None })
}

/// The result of a job that somebody waits for.
pub fn answer<T: serde::Serialize>(answer: Answer<T>) -> Result<serde_json::Value, JobError> {
    serde_json::to_value(answer).map_err(|error| JobError::Fatal(error.into()))
}

/// An event about a cluster.
pub fn cluster_event(cluster: &Cluster, severity: Severity, reason: &str, message: impl Into<String>) -> NewEvent {
    NewEvent {
        project_id: Some(cluster.project_id),
        cluster: Some((cluster.id, cluster.name.clone())),
        severity,
        reason: reason.to_owned(),
        message: message.into(),
        actor: None,
    }
}

/// Appends an event in a transaction of its own.
pub async fn tell(store: &Store, ambient: &Ambient, event: NewEvent) -> store::Result<()> {
    let mut tx = store.begin().await?;
    store::events::append(&mut tx, ambient.now(), event).await?;
    tx.commit().await
}

/// A store's failure as one that may pass.
pub fn retry(error: store::Error) -> JobError {
    JobError::Retry(error.into())
}

impl From<EngineError> for JobError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Retry(error) => Self::Retry(error),
            EngineError::Fatal(error) => Self::Fatal(error),
        }
    }
}

/// An engine's steps as events of the cluster.
pub struct EventProgress<'a> {
    store: &'a Store,
    ambient: &'a Ambient,
    cluster: &'a Cluster,
}

impl<'a> EventProgress<'a> {
    /// For a cluster.
    pub fn new(context: &'a Context, cluster: &'a Cluster) -> Self {
        Self { store: &context.store, ambient: &context.ambient, cluster }
    }
}

#[async_trait]
impl Progress for EventProgress<'_> {
    async fn step(&self, reason: &str, message: &str) {
        if let Err(error) = tell(self.store, self.ambient, cluster_event(self.cluster, Severity::Normal, reason, message)).await {
            tracing::warn!(cluster = %self.cluster.id, %error, "a step could not be recorded");
        }
    }
}
