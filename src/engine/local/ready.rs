//! Waiting until a control plane is ready, with what happens on the way told as steps.
//!
//! May import: `domain`, and `engine`'s own types.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::anyhow;

use super::plane::Plane;
use super::supervise::Observed;
use super::{Inner, logs, status};
use crate::domain::cluster::{Cluster, ComponentStatus};
use crate::engine::{EngineError, Progress, kubernetes};

/// A program that ended so often while it was waited for will not come up by waiting.
const HOPELESS: u32 = 4;
/// How long a control plane may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(180);
impl Plane {
    /// Waits until all that was applied under that number runs and is well, and gives the platform's groups their roles meanwhile.
    pub(super) async fn ready(&self, applied: u64, progress: &dyn Progress, inner: &Inner, cluster: &Cluster) -> Result<(), EngineError> {
        let mut observed = self.supervisor.observed();
        let mut told = Told::since(&cluster.status.components);
        let mut bound = false;
        // What is seen before it was taken up is of the former plan.
        observed.wait_for(|o| o.applied >= applied).await.map_err(|_| anyhow!("the supervision ended"))?;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            let now = observed.borrow_and_update().clone();
            told.tell(&now, progress).await;
            if !bound && now.component("kube-apiserver").is_some_and(|c| c.healthy) {
                let client = inner.client(cluster).await?;
                kubernetes::bootstrap(&client).await?;
                // A cluster is one without its add-ons: they are tried again from then on.
                if let Err(error) = kubernetes::addons::apply(&client, &cluster.spec, &inner.options.nodes.coredns_image).await {
                    tracing::warn!(cluster = %cluster.id, error = format!("{error:#}"), "an add-on cannot be put in place; it is tried again");
                }
                if told.said.contains("ApiServerReady") {
                    progress.step("RolesBound", "the platform's groups have their roles").await;
                }
                bound = true;
                continue;
            }
            if bound && now.ready() {
                return Ok(());
            }
            if let Some(hopeless) = now.components.iter().find(|c| told.fell_since(c) >= HOPELESS) {
                let log = logs::last_words(&inner.confinement.log_dir(cluster.id).join(format!("{}.log", hopeless.name)));
                return Err(EngineError::Retry(anyhow!(
                    "{} ends again and again ({}). Its last words: {log}",
                    hopeless.name,
                    hopeless.message
                )));
            }
            tokio::select! {
                changed = observed.changed() => changed.map_err(|_| anyhow!("the supervision ended"))?,
                () = tokio::time::sleep_until(deadline) => {
                    let why = status::complaint(&now.components);
                    return Err(EngineError::Retry(anyhow!("the control plane is not ready after {} s: {why}", READY_WITHIN.as_secs())));
                }
            }
        }
    }
}

/// Which steps were told: what ran before is no step.
#[derive(Default)]
struct Told {
    said: BTreeSet<&'static str>,
    pids_before: BTreeMap<String, i32>,
    restarts_before: Option<BTreeMap<String, u32>>,
}

impl Told {
    fn since(before: &[ComponentStatus]) -> Self {
        Self { pids_before: before.iter().filter_map(|c| Some((c.name.clone(), c.pid?))).collect(), ..Self::default() }
    }

    async fn tell(&mut self, now: &Observed, progress: &dyn Progress) {
        self.restarts_before.get_or_insert_with(|| now.components.iter().map(|c| (c.name.clone(), c.restarts)).collect());
        for (name, started, ready) in [
            ("etcd", "EtcdStarted", None),
            ("kube-apiserver", "ApiServerStarted", Some("ApiServerReady")),
            ("kube-controller-manager", "ControllerManagerStarted", None),
            ("kube-scheduler", "SchedulerStarted", None),
        ] {
            let Some(component) = now.component(name) else { continue };
            let Some(pid) = component.pid.filter(|pid| self.pids_before.get(name) != Some(pid)) else { continue };
            if self.said.insert(started) {
                progress.step(started, &format!("{name} runs (pid {pid})")).await;
            }
            if let Some(ready) = ready.filter(|_| component.healthy)
                && self.said.insert(ready)
            {
                progress.step(ready, &format!("{name} answers that it is ready")).await;
            }
        }
    }

    fn fell_since(&self, component: &ComponentStatus) -> u32 {
        let before = self.restarts_before.as_ref().and_then(|r| r.get(&component.name));
        component.restarts.saturating_sub(before.copied().unwrap_or(0))
    }
}
