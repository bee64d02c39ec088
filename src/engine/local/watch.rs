//! The upkeep of a control plane that runs: its status in the store, its logs, its certificates, its default roles, its etcd.
//!
//! The status is written when something changes; a look once a minute puts right what another writer has put back.
//! May import: `domain`, `store`, `pki`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::task::AbortOnDropHandle;

use super::bring_up::AUTHORIZATION;
use super::plane::{Events, Plane};
use super::supervise::{Journal, Observed};
use super::{Inner, locked, logs, materialise, status};
use crate::domain::cluster::Cluster;
use crate::domain::event::Severity;
use crate::engine::etcd::{Recovery, Upkeep, upkeep};
use crate::engine::kubernetes;
use crate::engine::plan::COMPONENTS;
use crate::pki::cluster::files;
use crate::store;

/// How often logs are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often certificates are, at most and at least; in between a twentieth of their life.
const CERTIFICATES_EVERY: (Duration, Duration) = (LOOK_EVERY, Duration::from_secs(600));
/// How often the status is compared with the row when nothing changes.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// Changes that follow each other so closely are written once.
const SETTLE: Duration = Duration::from_millis(500);
/// A daemon that has just taken a control plane up says nothing against it for so long.
const BENEFIT_OF_THE_DOUBT: Duration = Duration::from_secs(15);
/// How often etcd is looked after.
const ETCD_EVERY: Duration = Duration::from_secs(15);
/// How often while it refuses writes: whoever deletes something to make room waits for it.
const FULL_ETCD_EVERY: Duration = Duration::from_secs(5);
/// How often the default roles are looked at: who deletes their own comes back in after so long.
const ROLES_EVERY: Duration = Duration::from_secs(60);

/// The leaves that are looked at for renewal.
const CERTIFICATES: [&str; 13] = [
    files::API_SERVER_CERT,
    files::API_SERVER_ETCD_CLIENT_CERT,
    files::API_SERVER_KUBELET_CLIENT_CERT,
    files::FRONT_PROXY_CLIENT_CERT,
    files::API_SERVER_TERMINATOR_CLIENT_CERT,
    files::ETCD_SERVER_CERT,
    files::ETCD_PEER_CERT,
    files::CONTROLLER_MANAGER_CERT,
    files::CONTROLLER_MANAGER_SERVING_CERT,
    files::SCHEDULER_CERT,
    files::SCHEDULER_SERVING_CERT,
    files::TERMINATOR_CERT,
    files::TUNNEL_CERT,
];

/// The configurations that are put back when somebody removed them: a program that is started again needs them.
const CONFIGURATIONS: [&str; 2] = [AUTHORIZATION, "encryption.yaml"];

/// Begins the upkeep. The tasks hold the plane weakly and end with it.
pub(super) fn start(inner: &Arc<Inner>, plane: &Arc<Plane>, cluster: &Cluster) -> Vec<AbortOnDropHandle<()>> {
    let journal = Arc::new(Events::of(&inner.tools.store, &inner.tools.ambient, cluster));
    let watching = (Arc::downgrade(inner), Arc::downgrade(plane));
    let etcd = etcd(watching.clone(), journal.clone());
    vec![
        AbortOnDropHandle::new(tokio::spawn(report(watching.clone(), plane.supervisor.observed(), journal))),
        AbortOnDropHandle::new(tokio::spawn(keep(watching.clone()))),
        AbortOnDropHandle::new(tokio::spawn(roles(watching, plane.supervisor.observed()))),
        AbortOnDropHandle::new(tokio::spawn(etcd)),
    ]
}

type Watching = (Weak<Inner>, Weak<Plane>);

fn alive(watching: &Watching) -> Option<(Arc<Inner>, Arc<Plane>)> {
    Some((watching.0.upgrade()?, watching.1.upgrade()?))
}

/// Writes the status when what is observed changes.
async fn report(watching: Watching, mut observed: tokio::sync::watch::Receiver<Observed>, journal: Arc<Events>) {
    if let Ok(Err(_)) = tokio::time::timeout(BENEFIT_OF_THE_DOUBT, observed.wait_for(Observed::ready)).await {
        return;
    }
    loop {
        observed.borrow_and_update();
        tokio::time::sleep(SETTLE).await;
        let Some((inner, plane)) = alive(&watching) else { return };
        if let Err(error) = write(&inner, &plane, &journal).await {
            tracing::warn!(cluster = %plane.id, error = format!("{error:#}"), "the status could not be written");
        }
        drop((inner, plane));
        if let Ok(Err(_)) = tokio::time::timeout(COMPARE_EVERY, observed.changed()).await {
            return;
        }
    }
}

async fn write(inner: &Inner, plane: &Plane, journal: &Events) -> anyhow::Result<()> {
    let observed = plane.supervisor.observed().borrow().clone();
    let (space, unconfined) = (locked(&plane.space).clone(), locked(&plane.unconfined).clone());
    let now = inner.tools.ambient.now();
    let mut news = None;
    let mut change = |cluster: &mut Cluster| {
        let before = cluster.status.clone();
        status::observe(&mut cluster.status, now, &observed, &space, &unconfined);
        news = status::judge(&mut cluster.status, now, &observed);
        cluster.status != before
    };
    // A look without a transaction first: mostly there is nothing to write.
    let mut sql = inner.tools.store.read().await?;
    let Some(mut row) = store::clusters::find(&mut *sql, plane.id).await?.filter(|c| c.deleted_at.is_none()) else { return Ok(()) };
    drop(sql);
    if !change(&mut row) {
        return Ok(());
    }
    let mut tx = inner.tools.store.begin().await?;
    let Some(mut row) = store::clusters::find(tx.sql(), plane.id).await?.filter(|c| c.deleted_at.is_none()) else { return Ok(()) };
    if change(&mut row) {
        store::clusters::set_status(&mut tx, plane.id, &row.status).await?;
    }
    tx.commit().await?;
    match news {
        Some((true, message)) => journal.tell(Severity::Normal, "Recovered", message).await,
        Some((false, message)) => journal.tell(Severity::Warning, "Degraded", message).await,
        None => {}
    }
    Ok(())
}

/// Cuts logs, renews certificates, and puts back files that are gone.
async fn keep(watching: Watching) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut certificates_at = Instant::now();
    loop {
        let now = ticks.tick().await;
        let Some((inner, plane)) = alive(&watching) else { return };
        let folder = inner.confinement.log_dir(plane.id);
        for name in COMPONENTS {
            if let Err(error) = logs::rotate(&folder.join(format!("{name}.log")), logs::ROTATE_AT) {
                tracing::warn!(cluster = %plane.id, component = name, %error, "a log cannot be cut");
            }
        }
        let run_dir = inner.confinement.cluster_run_dir(plane.id);
        let gone = CERTIFICATES.iter().chain(&CONFIGURATIONS).any(|name| !run_dir.join(name).exists());
        if now < certificates_at && !gone {
            continue;
        }
        certificates_at = now + (inner.options.leaf_ttl / 20).clamp(CERTIFICATES_EVERY.0, CERTIFICATES_EVERY.1);
        if (gone || materialise::renewal_is_due(&run_dir, &CERTIFICATES, inner.tools.ambient.now()))
            && let Err(error) = renew(&inner, &plane).await
        {
            tracing::error!(cluster = %plane.id, error = format!("{error:#}"), "certificates are due, or files are gone, and cannot be renewed");
        }
    }
}

async fn renew(inner: &Inner, plane: &Plane) -> anyhow::Result<()> {
    let lock = inner.lock_of(plane.id);
    let _held = lock.lock().await;
    let row = store::clusters::find(&mut *inner.tools.store.read().await?, plane.id).await?;
    match row.filter(|c| c.deleted_at.is_none()) {
        Some(cluster) => inner.renew(&cluster, plane).await,
        None => Ok(()),
    }
}

/// Puts default roles and add-ons back where a tenant has changed or deleted them: when the API server is well at first, and from then on.
async fn roles(watching: Watching, mut observed: tokio::sync::watch::Receiver<Observed>) {
    let mut failing = false;
    loop {
        if observed.wait_for(|o| o.component("kube-apiserver").is_some_and(|c| c.healthy)).await.is_err() {
            return;
        }
        // Spread, and after what a reconcile does itself as soon as the API server answers.
        let Some(spread) = watching.0.upgrade().map(|inner| inner.tools.ambient.below(10_000)) else { return };
        tokio::time::sleep(Duration::from_millis(2_000 + spread)).await;
        let Some((inner, plane)) = alive(&watching) else { return };
        match bind_roles(&inner, &plane).await {
            Ok(()) => failing = false,
            Err(error) if failing => {
                tracing::debug!(cluster = %plane.id, error = format!("{error:#}"), "default roles and add-ons cannot be put where they should be");
            }
            Err(error) => {
                tracing::warn!(cluster = %plane.id, error = format!("{error:#}"), "default roles and add-ons cannot be put where they should be; it is tried again");
                failing = true;
            }
        }
        drop((inner, plane));
        tokio::time::sleep(ROLES_EVERY).await;
    }
}

async fn bind_roles(inner: &Inner, plane: &Plane) -> anyhow::Result<()> {
    let row = store::clusters::find(&mut *inner.tools.store.read().await?, plane.id).await?;
    let Some(cluster) = row.filter(|c| c.deleted_at.is_none()) else { return Ok(()) };
    let client = inner.client(&cluster).await.map_err(anyhow::Error::from)?;
    kubernetes::bind_default_roles(&client).await?;
    Ok(kubernetes::addons::apply(&client, &cluster.spec, &inner.options.nodes.coredns_image).await?)
}

/// Looks after etcd: gaps, and the way out of NOSPACE.
async fn etcd(watching: Watching, journal: Arc<Events>) {
    let first = watching.0.upgrade().map_or(0, |inner| inner.tools.ambient.below(10_000));
    // Spread: a daemon that takes up many does not ask them all at once.
    tokio::time::sleep(Duration::from_millis(2_000 + first)).await;
    let mut out_of_space = false;
    loop {
        let Some((inner, plane)) = alive(&watching) else { return };
        if plane.supervisor.observed().borrow().component("etcd").is_some_and(|c| c.healthy) {
            match look_after(&plane).await {
                Ok(space) => {
                    let full = space.1 == "OutOfSpace";
                    if full != out_of_space {
                        let (severity, reason) =
                            if full { (Severity::Warning, "EtcdOutOfSpace") } else { (Severity::Normal, "EtcdSpaceRecovered") };
                        journal.tell(severity, reason, space.2.clone()).await;
                        out_of_space = full;
                    }
                    let changed =
                        locked(&plane.space).replace(space.clone()).is_none_or(|before| (before.0, before.1) != (space.0, space.1));
                    if changed && let Err(error) = write(&inner, &plane, &journal).await {
                        tracing::warn!(cluster = %plane.id, error = format!("{error:#}"), "the status could not be written");
                    }
                }
                Err(error) => tracing::warn!(cluster = %plane.id, error = format!("{error:#}"), "etcd could not be looked after"),
            }
        }
        drop((inner, plane));
        tokio::time::sleep(if out_of_space { FULL_ETCD_EVERY } else { ETCD_EVERY }).await;
    }
}

async fn look_after(plane: &Plane) -> anyhow::Result<(bool, &'static str, String)> {
    let maintenance = plane.asked.maintenance();
    let mut found = maintenance.status().await?;
    match upkeep(&found) {
        Upkeep::Nothing => {}
        Upkeep::Defragment => {
            maintenance.defragment().await?;
            found = maintenance.status().await?;
        }
        Upkeep::RecoverSpace => match maintenance.recover_space().await? {
            Recovery::Recovered(after) | Recovery::StillFull(after) => found = after,
        },
    }
    Ok(found.space_condition())
}
