//! From a cluster's row to a running control plane.
//!
//! Each step looks at what is there first; cut anywhere and run again, it ends the same.
//! May import: `domain`, `store`, `pki`, `tunnel`, and the common plan.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use anyhow::{Context, anyhow};
use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::confine::Place;
use super::confine::cgroup::CgroupLimits;
use super::materialise::{self, Readers};
use super::nodes::Nodes;
use super::plane::{Asked, Events, Plane, terminator_tls, tunnel_tls};

use super::supervise::{Data, Desired, Supervisor};
use super::{Inner, capacity, locked, status, watch as upkeep};
use crate::domain::cluster::{Cluster, ClusterStatus, LocalAllotment};
use crate::domain::{ClusterId, Timestamp};
use crate::engine::plan::{self, COMPONENTS, Layout, ports};
use crate::engine::{EngineError, Progress, keys};
use crate::pki::cluster::{ClusterPki, Files};
use crate::pki::leaves::LeafOptions;
use crate::process::{Process, ProcessSpec, adopt, program_identity};
use crate::store;
use crate::tunnel::terminator::targets::NoNodes;
use crate::tunnel::{NodeOptions, Terminator, TerminatorOptions, authorization_config, egress_selector_config, webhook_kubeconfig};

/// The authorizers, below the run folder.
pub(super) const AUTHORIZATION: &str = "authorization.yaml";
/// The revocation webhook's kubeconfig, below the run folder.
const REVOCATION_KUBECONFIG: &str = "revocation.kubeconfig";
/// Processes and threads of one control plane.
const PIDS: u32 = 1024;
/// Open files of one program.
const OPEN_FILES: u64 = 65_536;

/// Tells of nothing.
pub(super) struct Silent;

#[async_trait::async_trait]
impl Progress for Silent {
    async fn step(&self, _: &str, _: &str) {}
}

/// See [`crate::engine::Engine::reconcile`].
pub(super) async fn reconcile(inner: &Arc<Inner>, cluster: &Cluster, progress: &dyn Progress) -> Result<ClusterStatus, EngineError> {
    let _reserved = cluster.local.is_none().then(|| Reserved::new(inner));
    let (plane, applied) = raise(inner, cluster, progress).await?;
    plane.ready(applied, progress, inner, cluster).await?;
    let mut status = cluster.status.clone();
    let observed = plane.supervisor.observed().borrow().clone();
    let (space, unconfined) = (locked(&plane.space).clone(), locked(&plane.unconfined).clone());
    status::observe(&mut status, inner.tools.ambient.now(), &observed, &space, &unconfined);
    inner.hide_programs();
    Ok(status)
}

/// Counts a control plane whose memory is about to be taken.
struct Reserved<'a>(&'a Inner);

impl<'a> Reserved<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.starting.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.starting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Everything up to the programs' start; does not wait for them. Gives the number under which the supervisor takes it up. The caller holds the
/// cluster's lock.
pub(super) async fn raise(inner: &Arc<Inner>, cluster: &Cluster, progress: &dyn Progress) -> Result<(Arc<Plane>, u64), EngineError> {
    if let Some(why) = inner.data_is_missing(cluster) {
        return Err(EngineError::Fatal(anyhow!(why)));
    }
    let allotment = inner.allot(cluster, progress).await?;
    let pki = inner.pki(cluster).await?;
    let limits = CgroupLimits { memory_bytes: inner.options.memory_limit, pids: PIDS, cpu_weight: 100 };
    let place = inner.confinement.prepare(cluster.id, &allotment, &limits).await?;
    let written = inner.materialise(cluster, &pki, &allotment, &place).await?;
    if !written.is_empty() {
        progress.step("CertificatesIssued", &format!("certificates were issued for {}", written.join(", "))).await;
    }
    let _exposing = inner.exposing.read().await;
    let specs = inner.specs(cluster, &allotment, &place).await?;
    let plane = match inner.plane(cluster.id) {
        Some(plane) => {
            if !written.is_empty() {
                inner.use_new_certificates(&plane, &pki, allotment.address.into())?;
            }
            plane
        }
        None => inner.new_plane(cluster, &pki, &allotment, &place, &specs).await?,
    };
    *locked(&plane.unconfined) = place.missing;
    plane.version.store(Arc::new(cluster.spec.kubernetes_version));
    let data = Some(Data { folder: inner.etcd_member(cluster.id), expected: cluster.status.observed_generation > 0 });
    let applied = plane.supervisor.apply(Desired { specs, probes: plane.asked.clone(), data }).await?;
    Ok((plane, applied))
}

impl Inner {
    /// Where a cluster's etcd keeps its data, as the daemon sees it.
    fn etcd_member(&self, cluster: ClusterId) -> PathBuf {
        self.confinement.data_dir(cluster).join("etcd/member")
    }

    /// Why a cluster must not be started: it ran before and its data is not there. etcd would begin anew with an empty cluster.
    pub(super) fn data_is_missing(&self, cluster: &Cluster) -> Option<String> {
        let folder = self.etcd_member(cluster.id);
        let runs = locked(&self.orphans).get(&cluster.id).is_some_and(|found| found.iter().any(|f| f.component == "etcd"))
            || self.plane(cluster.id).is_some_and(|p| p.supervisor.observed().borrow().component("etcd").is_some_and(|c| c.pid.is_some()));
        missing_data(&cluster.name, &folder, cluster.status.observed_generation > 0 && !runs)
    }

    /// The address and uid of a cluster: what its row says, else what is free, written to its row.
    async fn allot(&self, cluster: &Cluster, progress: &dyn Progress) -> Result<LocalAllotment, EngineError> {
        let known = {
            let mut sql = self.tools.store.read().await.map_err(anyhow::Error::from)?;
            let row = store::clusters::find(&mut *sql, cluster.id).await.map_err(anyhow::Error::from)?;
            row.ok_or_else(|| EngineError::Fatal(anyhow!("cluster {} is gone", cluster.name)))?.local
        };
        if let Some(known) = known {
            self.confinement.hold(cluster.id, &known).map_err(EngineError::Fatal)?;
            return Ok(known);
        }
        let has = capacity::Resources::read(&self.options.data_dir, locked(&self.planes).len() as u32)?;
        let others = self.starting.load(Ordering::SeqCst).saturating_sub(1);
        if let Some(why) = capacity::refusal(&has, self.options.memory_estimate, others, &self.options.data_dir) {
            return Err(EngineError::Fatal(anyhow!(why)));
        }
        let allotted =
            self.confinement.allot(cluster.id, self.options.address_range, self.options.uid_range.clone()).map_err(EngineError::Fatal)?;
        let mut tx = self.tools.store.begin().await.map_err(anyhow::Error::from)?;
        store::clusters::set_local(&mut tx, cluster.id, &allotted).await.map_err(anyhow::Error::from)?;
        tx.commit().await.map_err(anyhow::Error::from)?;
        let uid = allotted.uid.map_or_else(|| "the daemon's own user".to_owned(), |uid| format!("uid {uid}"));
        progress.step("AddressAllotted", &format!("its programs listen on {} and run as {uid}", allotted.address)).await;
        Ok(allotted)
    }

    /// A cluster's authorities: opened, or made and sealed where there are none.
    pub(super) async fn pki(&self, cluster: &Cluster) -> anyhow::Result<ClusterPki> {
        keys::load_or_create(&self.tools.store, &self.tools.ambient, &self.tools.tenant_key, cluster.id).await
    }

    /// Writes what the programs read; gives the purposes of the certificates that are new.
    pub(super) async fn materialise(
        &self,
        cluster: &Cluster,
        pki: &ClusterPki,
        allotment: &LocalAllotment,
        place: &Place,
    ) -> anyhow::Result<Vec<&'static str>> {
        let run_dir = self.confinement.cluster_run_dir(cluster.id);
        let readers = Readers { gid: allotment.uid };
        let layout = layout(allotment, place);
        let mut files: Files = pki.lasting_files();
        files.extend(plan::control_plane(cluster, &layout, &self.options.limits).files);
        files.insert("encryption.yaml".into(), plan::files::encryption(&pki.secrets_encryption_key));
        files.insert("egress.yaml".into(), egress_selector_config(&layout.run_dir));
        files.insert(REVOCATION_KUBECONFIG.into(), webhook_kubeconfig(&layout.run_dir));
        let revoked = self.revoked(cluster.id).await?;
        files.insert(AUTHORIZATION.into(), authorization(&layout.run_dir, &revoked));
        materialise::files(&run_dir, &files, readers)?;
        let address = IpAddr::from(allotment.address);
        let addressing = (self.tools.addressing)();
        let options = LeafOptions {
            address,
            api_server_sans: addressing.api_server_sans(cluster, Some(address)),
            tunnel_name: addressing.tunnel_sni(&cluster.label),
            ttl: self.options.leaf_ttl,
        };
        let (store, ambient) = (&self.tools.store, &self.tools.ambient);
        materialise::leaves(store, ambient, cluster.id, pki, &options, &run_dir, readers).await
    }

    /// The credentials of a cluster that are revoked and would otherwise still be good.
    pub(super) async fn revoked(&self, cluster: ClusterId) -> anyhow::Result<BTreeSet<String>> {
        let now = self.tools.ambient.now();
        let mut sql = self.tools.store.read().await?;
        let people = store::kubeconfigs::revoked_credential_ids(&mut *sql, cluster, now).await?;
        let nodes = store::nodes::revoked_credential_ids(&mut *sql, cluster, now).await?;
        Ok(people.into_iter().chain(nodes).collect())
    }

    fn use_new_certificates(&self, plane: &Plane, pki: &ClusterPki, address: IpAddr) -> anyhow::Result<()> {
        let run_dir = self.confinement.cluster_run_dir(plane.id);
        plane.asked.renew(address, pki, &run_dir)?;
        if let Some(terminator) = &*locked(&plane.terminator) {
            terminator.renew(&terminator_tls(pki, &run_dir)?)?;
            if let Some(tunnels) = terminator.tunnels() {
                tunnels.renew(&tunnel_tls(pki, &run_dir)?)?;
            }
        }
        Ok(())
    }

    /// Renews what is due and lets the platform's half use it; the programs read their own again by themselves.
    pub(super) async fn renew(&self, cluster: &Cluster, plane: &Plane) -> anyhow::Result<()> {
        let allotment = cluster.local.as_ref().context("the cluster has no address")?;
        let pki = self.pki(cluster).await?;
        let run_dir = self.confinement.cluster_run_dir(cluster.id);
        let data_dir = if allotment.uid.is_some() { run_dir.join("data") } else { self.confinement.data_dir(cluster.id) };
        let place = Place { run_dir, data_dir, cgroups: Vec::new(), missing: Vec::new() };
        let written = self.materialise(cluster, &pki, allotment, &place).await?;
        if !written.is_empty() {
            tracing::info!(cluster = %cluster.id, certificates = written.join(", "), "certificates were renewed");
            self.use_new_certificates(plane, &pki, allotment.address.into())?;
        }
        Ok(())
    }

    /// The programs as processes.
    async fn specs(
        &self,
        cluster: &Cluster,
        allotment: &LocalAllotment,
        place: &Place,
    ) -> anyhow::Result<BTreeMap<&'static str, Arc<ProcessSpec>>> {
        let version = cluster.spec.kubernetes_version;
        let control_plane = plan::control_plane(cluster, &layout(allotment, place), &self.options.limits);
        let mut specs = BTreeMap::new();
        for program in control_plane.programs {
            let file = self.tools.programs.program(version, program.name).await?;
            let file = std::fs::canonicalize(&file).with_context(|| format!("the program {} is not there", file.display()))?;
            // etcd has versions of its own: one that several Kubernetes versions share is not restarted between them.
            let of = if program.name == "etcd" { String::new() } else { version.to_string() };
            let identity = program_identity(&of, program.name, &file)?;
            let spec = ProcessSpec {
                installation: self.options.installation.clone(),
                cluster: cluster.id,
                component: program.name.to_owned(),
                program: self.confinement.expose(version, program.name, &file)?,
                identity,
                args: program.args,
                env: program.env,
                log: self.confinement.log_dir(cluster.id).join(format!("{}.log", program.name)),
                uid: allotment.uid,
                cgroups: place.cgroups.clone(),
                open_files: OPEN_FILES,
                oom_score_adj: oom_score(program.name),
            };
            specs.insert(program.name, Arc::new(spec));
        }
        Ok(specs)
    }

    /// Takes over what an earlier daemon left running, starts the terminator and the supervision.
    async fn new_plane(
        self: &Arc<Self>,
        cluster: &Cluster,
        pki: &ClusterPki,
        allotment: &LocalAllotment,
        place: &Place,
        specs: &BTreeMap<&'static str, Arc<ProcessSpec>>,
    ) -> anyhow::Result<Arc<Plane>> {
        let run_dir = self.confinement.cluster_run_dir(cluster.id);
        let (revocations, revoked) = watch::channel(Arc::new(self.revoked(cluster.id).await?));
        let asked = Arc::new(Asked::read(allotment.address.into(), pki, &run_dir)?);
        let nodes = Nodes::of(self, cluster).await?;
        let terminator = Terminator::start(TerminatorOptions {
            cluster: cluster.id,
            run_dir: run_dir.clone(),
            gid: allotment.uid,
            tls: terminator_tls(pki, &run_dir)?,
            revocations: revoked,
            targets: Arc::new(NoNodes),
            nodes: Some(NodeOptions {
                listen: (allotment.address, ports::TERMINATOR).into(),
                tls: tunnel_tls(pki, &run_dir)?,
                table: nodes.table.subscribe(),
                desk: nodes.desk.clone(),
                api_server: (allotment.address, ports::API_SERVER).into(),
                api_local_address: cluster.spec.api_local_address,
                ambient: self.tools.ambient.clone(),
            }),
        })?;
        let adopted = self.adopt(cluster.id, allotment, specs).await;
        let journal = Arc::new(Events::of(&self.tools.store, &self.tools.ambient, cluster));
        let plane = Arc::new(Plane {
            id: cluster.id,
            supervisor: Supervisor::start(self.tools.ambient.clone(), journal, &adopted, &cluster.status.components),
            version: ArcSwap::from_pointee(cluster.spec.kubernetes_version),
            asked,
            terminator: Mutex::new(Some(terminator)),
            revocations,
            client: tokio::sync::Mutex::default(),
            nodes: Arc::clone(&nodes.table),
            space: Mutex::default(),
            unconfined: Mutex::new(place.missing.clone()),
            tasks: Mutex::default(),
        });
        let mut tasks = upkeep::start(self, &plane, cluster);
        tasks.extend(nodes.start());
        *locked(&plane.tasks) = tasks;
        locked(&self.planes).insert(cluster.id, plane.clone());
        Ok(plane)
    }

    /// One process for each component of those that run already; surplus ones are stopped.
    async fn adopt(
        &self,
        cluster: ClusterId,
        allotment: &LocalAllotment,
        specs: &BTreeMap<&'static str, Arc<ProcessSpec>>,
    ) -> BTreeMap<&'static str, Process> {
        let expected = self.confinement.uid_of(Some(allotment));
        let found = locked(&self.orphans).remove(&cluster).unwrap_or_default();
        let (ours, strangers): (Vec<_>, Vec<_>) = found.into_iter().partition(|f| f.uid == expected);
        for stranger in strangers {
            tracing::warn!(%cluster, pid = stranger.process.pid(), uid = stranger.uid, "a process claims to be of a cluster whose uid it has not: it is left alone");
        }
        let mut adopted = BTreeMap::new();
        for name in COMPONENTS {
            let candidates = ours.iter().filter(|f| f.component == name && f.process.running()).cloned().collect();
            let (kept, surplus) = adopt::choose(candidates, specs.get(name).map(|s| s.plan()).as_deref());
            for one in surplus {
                tracing::warn!(%cluster, component = name, pid = one.process.pid(), "a second process of a component is stopped");
                if let Err(error) = one.process.stop(super::supervise::GRACE).await {
                    tracing::error!(%cluster, component = name, error = format!("{error:#}"), "it does not stop");
                }
            }
            if let Some(one) = kept {
                tracing::info!(%cluster, component = name, pid = one.process.pid(), "adopted");
                adopted.insert(name, one.process);
            }
        }
        adopted
    }

    /// Hides programs of versions that no control plane runs.
    pub(super) fn hide_programs(&self) {
        // Not while one is on its way up: its programs are exposed before it counts as running. Whoever ends next does it.
        let Ok(_nobody) = self.exposing.try_write() else { return };
        let versions = locked(&self.planes).values().map(|p| **p.version.load()).collect();
        for error in self.confinement.hide_programs_but(&versions) {
            tracing::warn!(error = format!("{error:#}"), "programs of a version that is not used stay mounted");
        }
    }
}

fn layout(allotment: &LocalAllotment, place: &Place) -> Layout {
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    Layout { address: allotment.address.into(), run_dir: text(&place.run_dir), data_dir: text(&place.data_dir) }
}

/// What to say of a folder of etcd's that should have data and has none.
fn missing_data(cluster: &str, folder: &Path, expected: bool) -> Option<String> {
    (expected && !folder.is_dir()).then(|| {
        format!(
            "the data of cluster {cluster} is missing: {} is not there, though the cluster ran before. Mount or restore it, then restart the \
             daemon or run `kubebyon job retry` for its failed job",
            folder.display()
        )
    })
}

/// The authorizers of a cluster.
pub(super) fn authorization(run_dir: &str, revoked: &BTreeSet<String>) -> String {
    let kubeconfig = Path::new(run_dir).join(REVOCATION_KUBECONFIG);
    authorization_config(revoked, &kubeconfig.to_string_lossy())
}

/// etcd goes last: what it loses is lost for all.
fn oom_score(component: &str) -> i16 {
    match component {
        "etcd" => 100,
        "kube-apiserver" => 200,
        _ => 300,
    }
}

/// Half of a platform client's life: it is made anew then.
pub(super) fn client_is_stale(made: Timestamp, now: Timestamp) -> bool {
    now.since(made) >= crate::pki::leaves::PLATFORM_CLIENT_LIFE / 2 || now < made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_missed_only_of_a_cluster_that_ran() {
        let folder = tempfile::tempdir().unwrap();
        let member = folder.path().join("member");
        assert_eq!(missing_data("demo", &member, false), None);
        let why = missing_data("demo", &member, true).unwrap();
        assert!(why.contains("the data of cluster demo is missing") && why.contains(&*member.to_string_lossy()), "{why}");
        std::fs::create_dir(&member).unwrap();
        assert_eq!(missing_data("demo", &member, true), None);
    }
}
