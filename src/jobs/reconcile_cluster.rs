//! Brings a cluster to what its spec asks for, or takes it down when its deletion was asked for.

use anyhow::anyhow;
use async_trait::async_trait;

use super::Tools;
use super::support::{EventProgress, cluster_event, cluster_of, retry, tell};
use crate::domain::cluster::{ClusterStatus, Phase};
use crate::domain::event::Severity;
use crate::domain::{Cluster, ClusterId, work};
use crate::queue::{Context, Handler, JobError};
use crate::store::{self, Change, Store, jobs::Leased};

/// See the module.
pub struct ReconcileCluster(pub Tools);

#[async_trait]
impl Handler for ReconcileCluster {
    fn kind(&self) -> &'static str {
        work::RECONCILE_CLUSTER
    }

    async fn run(&self, context: &Context, leased: &Leased) -> Result<serde_json::Value, JobError> {
        let Some(cluster) = cluster_of(context, leased).await? else { return Ok(serde_json::Value::Null) };
        if cluster.deleted_at.is_some() {
            self.delete(context, &cluster).await?;
        } else {
            // A deletion does not wait for a creation that may take its time: it has a job of its own, after this one.
            let mut changes = context.store.changes();
            let deleted = deletion_of(&context.store, &mut changes, cluster.id);
            tokio::select! {
                result = self.bring_up(context, leased, &cluster) => result?,
                () = deleted => {}
            }
        }
        Ok(serde_json::Value::Null)
    }
}

impl ReconcileCluster {
    async fn bring_up(&self, context: &Context, leased: &Leased, cluster: &Cluster) -> Result<(), JobError> {
        let phase = if cluster.status.observed_generation == 0 { Phase::Provisioning } else { Phase::Updating };
        if cluster.status.observed_generation != cluster.generation {
            self.change_status(context, cluster.id, |current| current.status.phase = phase).await?;
        }
        let outcome = match step_from_what_runs(cluster).and_then(|()| self.0.engine(cluster)) {
            Ok(engine) => engine.reconcile(cluster, &EventProgress::new(context, cluster)).await.map_err(JobError::from),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(observed) => self.ready(context, cluster, observed).await,
            Err(error) => {
                let last = matches!(error, JobError::Fatal(_)) || leased.job.attempts >= leased.job.max_attempts;
                self.failed(context, cluster, &error, last).await?;
                Err(error)
            }
        }
    }

    async fn ready(&self, context: &Context, cluster: &Cluster, observed: ClusterStatus) -> Result<(), JobError> {
        let now = context.ambient.now();
        let mut tx = context.store.begin().await.map_err(retry)?;
        let Some(current) = store::clusters::find(tx.sql(), cluster.id).await.map_err(retry)? else { return Ok(()) };
        if current.deleted_at.is_some() {
            return Ok(());
        }
        let endpoint = (self.0.addressing)().endpoint(&current);
        let mut status = current.status.clone();
        status.kubernetes_version = Some(cluster.spec.kubernetes_version);
        status.components = observed.components;
        for condition in observed.conditions {
            status.set_condition(now, &condition.kind, condition.status, &condition.reason, condition.message);
        }
        status.set_condition(now, "Ready", true, "Ready", "the API server answers and all parts are well");
        status.endpoint.clone_from(&endpoint);
        status.observed_generation = cluster.generation;
        // Asked for something else meanwhile, it is not yet what it is to be: the job for that waits.
        status.phase = if current.generation == cluster.generation { Phase::Ready } else { Phase::Updating };
        let news = current.status.phase != Phase::Ready || current.status.observed_generation != cluster.generation;
        store::clusters::set_status(&mut tx, cluster.id, &status).await.map_err(retry)?;
        if news {
            let server = endpoint.map(|e| e.server).unwrap_or_default();
            let message = format!("Kubernetes {} answers at {server}", cluster.spec.kubernetes_version);
            store::events::append(&mut tx, now, cluster_event(cluster, Severity::Normal, "Ready", message)).await.map_err(retry)?;
        }
        tx.commit().await.map_err(retry)
    }

    async fn failed(&self, context: &Context, cluster: &Cluster, error: &JobError, last: bool) -> Result<(), JobError> {
        let now = context.ambient.now();
        let message = error.to_string();
        self.change_status(context, cluster.id, |current| {
            let reason = if last { "Failed" } else { "Retrying" };
            current.status.set_condition(now, "Ready", false, reason, message.clone());
            if last && current.generation == cluster.generation {
                current.status.phase = Phase::Failed;
            }
        })
        .await?;
        let reason = if last { "ReconcileFailed" } else { "ReconcileRetried" };
        tell(&context.store, &context.ambient, cluster_event(cluster, Severity::Warning, reason, message)).await.map_err(retry)
    }

    async fn delete(&self, context: &Context, cluster: &Cluster) -> Result<(), JobError> {
        self.0.engine(cluster)?.delete(cluster, &EventProgress::new(context, cluster)).await?;
        let mut tx = context.store.begin().await.map_err(retry)?;
        let message = format!("cluster {} and all that was made for it are gone", cluster.name);
        store::events::append(&mut tx, context.ambient.now(), cluster_event(cluster, Severity::Normal, "Deleted", message))
            .await
            .map_err(retry)?;
        store::clusters::remove(&mut tx, cluster.id, context.ambient.now()).await.map_err(retry)?;
        tx.commit().await.map_err(retry)
    }

    async fn change_status(&self, context: &Context, id: ClusterId, change: impl FnOnce(&mut Cluster) + Send) -> Result<(), JobError> {
        let mut tx = context.store.begin().await.map_err(retry)?;
        let Some(mut cluster) = store::clusters::find(tx.sql(), id).await.map_err(retry)? else { return Ok(()) };
        if cluster.deleted_at.is_some() {
            return Ok(());
        }
        change(&mut cluster);
        store::clusters::set_status(&mut tx, id, &cluster.status).await.map_err(retry)?;
        tx.commit().await.map_err(retry)
    }
}

/// Refuses a version that the control plane cannot go to from the one that runs: a version may have come up just when it was
/// taken back.
fn step_from_what_runs(cluster: &Cluster) -> Result<(), JobError> {
    let (Some(running), asked) = (cluster.status.kubernetes_version, cluster.spec.kubernetes_version) else { return Ok(()) };
    running.check_upgrade(asked).map_err(|refused| {
        let name = &cluster.name;
        JobError::Fatal(anyhow!("{name} runs {running} and {asked} was asked for: {}; set its version to {running}", refused.message))
    })
}

/// Returns once the deletion of a cluster has been asked for.
async fn deletion_of(store: &Store, changes: &mut tokio::sync::broadcast::Receiver<Change>, id: ClusterId) {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        match changes.recv().await {
            Ok(Change::Cluster(changed)) if changed == id => {}
            Ok(_) => continue,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
        let Ok(mut sql) = store.read().await else { continue };
        if let Ok(Some(cluster)) = store::clusters::find(&mut *sql, id).await
            && cluster.deleted_at.is_some()
        {
            return;
        }
    }
}
