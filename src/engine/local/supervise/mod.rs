//! The supervisor of one control plane: a task that owns its programs and brings them to what is desired.
//!
//! Guarantees: programs start in the order etcd, API server, controller-manager and scheduler, each when the one it needs is well; they stop in
//! the order of [`STOP_ORDER`]; a program that ends is started again with backoff; one that runs otherwise than planned is
//! started anew; one that runs as planned is left alone, whoever started it. Dropping the supervisor ends the watching, not
//! the programs. May import: `domain`, the common plan's constants.

mod slot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::logs;
use crate::domain::Ambient;
use crate::domain::cluster::ComponentStatus;
use crate::domain::event::Severity;
use crate::engine::plan::{COMPONENTS, STOP_ORDER};
use crate::process::{Exit, Process, ProcessSpec};
use slot::Slot;

/// How long a program may take to end before it is killed.
pub const GRACE: Duration = Duration::from_secs(20);
/// How often a program that is well is asked, give or take a fifth.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How often one that is not well (yet) is asked, once it has been running for [`EAGER_FOR`].
const PROBE_UNWELL: Duration = Duration::from_secs(1);
/// How often one that has just been started is asked.
const PROBE_EAGER: Duration = Duration::from_millis(50);
/// How long a start counts as fresh.
const EAGER_FOR: Duration = Duration::from_secs(30);
/// A program that was well is called unwell after so many probes in a row that failed.
const PATIENCE: u32 = 2;
/// One that was well and then answers nothing for so long hangs: it is ended and started again. etcd may be silent while it defragments,
/// which takes far less.
const SILENCE: Duration = Duration::from_secs(180);

/// What a component needs to be well before it is started.
pub fn needs(component: &str) -> Option<&'static str> {
    match component {
        "kube-apiserver" => Some("etcd"),
        "kube-controller-manager" | "kube-scheduler" => Some("kube-apiserver"),
        _ => None,
    }
}

/// Asks one program whether it is well.
#[async_trait]
pub trait Probes: Send + Sync {
    /// `Ok` when it is; else why not, for people. Answers within seconds.
    async fn probe(&self, component: &'static str) -> Result<(), String>;
}

/// Where the supervisor tells what happened to its programs.
#[async_trait]
pub trait Journal: Send + Sync {
    /// An event.
    async fn tell(&self, severity: Severity, reason: &str, message: String);
}

/// What is to run, and how to ask it.
#[derive(Clone)]
pub struct Desired {
    /// The programs, by component.
    pub specs: BTreeMap<&'static str, Arc<ProcessSpec>>,
    /// Asks them.
    pub probes: Arc<dyn Probes>,
    /// What etcd must find where it ran before; absent: it is not looked for.
    pub data: Option<Data>,
}

/// etcd's data.
#[derive(Clone)]
pub struct Data {
    /// Its folder, as the daemon sees it.
    pub folder: PathBuf,
    /// Whether it must be there by now. Once etcd was well it must in any case.
    pub expected: bool,
}

/// What is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// How often something was desired: tells whether what is seen answers the last [`Supervisor::apply`].
    pub applied: u64,
    /// The programs, in the order of their start.
    pub components: Vec<ComponentStatus>,
    /// Whether each of them runs as planned.
    pub as_planned: bool,
}

impl Observed {
    /// The state of one program.
    pub fn component(&self, name: &str) -> Option<&ComponentStatus> {
        self.components.iter().find(|c| c.name == name)
    }

    /// Whether all run as planned and are well.
    pub fn ready(&self) -> bool {
        self.as_planned && !self.components.is_empty() && self.components.iter().all(|c| c.healthy)
    }
}

enum Command {
    Apply(u64, Desired),
    Stop(oneshot::Sender<Result<(), Vec<anyhow::Error>>>),
}

/// The handle of a supervisor's task.
pub struct Supervisor {
    commands: mpsc::Sender<Command>,
    observed: watch::Receiver<Observed>,
    applied: std::sync::atomic::AtomicU64,
}

impl Supervisor {
    /// Begins to supervise; `adopted` are programs that run already, `before` says how often they were restarted.
    pub fn start(
        ambient: Ambient,
        journal: Arc<dyn Journal>,
        adopted: &BTreeMap<&'static str, Process>,
        before: &[ComponentStatus],
    ) -> Self {
        let restarts = |name: &str| before.iter().find(|c| c.name == name).map_or(0, |c| c.restarts);
        let (commands, inbox) = mpsc::channel(8);
        let (publish, observed) = watch::channel(Observed::default());
        let slots = COMPONENTS.map(|name| Slot::new(name, adopted.get(name).cloned(), restarts(name)));
        let task = Task { ambient, journal, slots, desired: None, had_data: false, applied: 0, probing: FuturesUnordered::new(), publish };
        tokio::spawn(task.run(inbox));
        Self { commands, observed, applied: 0.into() }
    }

    /// Asks for this from now on; gives the number by which [`Observed::applied`] tells that it was taken up.
    pub async fn apply(&self, desired: Desired) -> anyhow::Result<u64> {
        let number = 1 + self.applied.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.commands.send(Command::Apply(number, desired)).await.map_err(|_| anyhow!("the supervisor of this cluster has stopped"))?;
        Ok(number)
    }

    /// What is, as it changes.
    pub fn observed(&self) -> watch::Receiver<Observed> {
        self.observed.clone()
    }

    /// Stops all programs in order and ends the supervision; gives every failure.
    pub async fn stop(&self) -> Result<(), Vec<anyhow::Error>> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Stop(reply)).await.is_err() {
            return Ok(());
        }
        answer.await.unwrap_or_else(|_| Err(vec![anyhow!("the supervisor ended before all programs had stopped; delete again")]))
    }
}

type Probed = (&'static str, i32, Result<(), String>);

struct Task {
    ambient: Ambient,
    journal: Arc<dyn Journal>,
    slots: [Slot; 4],
    desired: Option<Desired>,
    /// etcd was well under this supervisor.
    had_data: bool,
    applied: u64,
    probing: FuturesUnordered<BoxFuture<'static, Probed>>,
    publish: watch::Sender<Observed>,
}

enum Happened {
    Command(Option<Command>),
    Ended(usize, Exit),
    Probed(Probed),
    Time,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        loop {
            self.converge().await;
            self.publish();
            match self.next(&mut inbox).await {
                Happened::Command(None) => return,
                Happened::Command(Some(Command::Apply(number, desired))) => {
                    (self.applied, self.desired) = (number, Some(desired));
                    self.slots.iter_mut().for_each(Slot::hurry);
                }
                Happened::Command(Some(Command::Stop(reply))) => {
                    let errors = self.stop_all().await;
                    // Nobody waits for the answer when the caller was cut off.
                    let _ = reply.send(if errors.is_empty() { Ok(()) } else { Err(errors) });
                    return;
                }
                Happened::Ended(index, exit) => self.ended(index, exit).await,
                Happened::Probed((name, pid, result)) => {
                    let jitter = self.ambient.below(PROBE_EVERY.as_millis() as u64 * 2 / 5);
                    self.had_data |= name == "etcd" && result.is_ok();
                    let excused = needs(name).is_some_and(|needed| !self.well(needed));
                    self.slot(name).probed(pid, result, excused, Duration::from_millis(jitter));
                    if self.slot(name).hangs() {
                        self.end_hung(name).await;
                    }
                }
                Happened::Time => {}
            }
        }
    }

    async fn next(&mut self, inbox: &mut mpsc::Receiver<Command>) -> Happened {
        let mut exits: FuturesUnordered<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| slot.process.clone().map(|process| async move { (index, process.exited().await) }))
            .collect();
        let wake = self.slots.iter().filter_map(Slot::wake).min();
        let sleep = async {
            match wake {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = inbox.recv() => Happened::Command(command),
            Some((index, exit)) = exits.next() => Happened::Ended(index, exit),
            Some(probed) = self.probing.next() => Happened::Probed(probed),
            () = sleep => Happened::Time,
        }
    }

    fn slot(&mut self, name: &str) -> &mut Slot {
        self.slots.iter_mut().find(|s| s.name == name).expect("a slot for every component")
    }

    fn well(&self, name: &str) -> bool {
        self.slots.iter().any(|s| s.name == name && s.process.is_some() && s.healthy)
    }

    /// One step towards what is desired: stops what runs otherwise, starts what may start, asks what is due.
    async fn converge(&mut self) {
        let Some(desired) = self.desired.clone() else { return };
        for name in STOP_ORDER {
            let plan = desired.specs.get(name).map(|s| s.plan());
            let slot = self.slot(name);
            if slot.process.as_ref().is_some_and(|p| Some(p.plan()) != plan.as_deref())
                && let Err(error) = slot.stop().await
            {
                tracing::error!(component = name, error = format!("{error:#}"), "a program that is to be replaced does not stop");
            }
        }
        for name in COMPONENTS {
            let Some(spec) = desired.specs.get(name) else { continue };
            let allowed = needs(name).is_none_or(|needed| self.well(needed));
            if allowed && self.slot(name).may_start() {
                self.start(name, spec).await;
            }
        }
        for slot in &mut self.slots {
            if let Some(pid) = slot.take_due_probe() {
                let (name, probes) = (slot.name, desired.probes.clone());
                self.probing.push(Box::pin(async move {
                    let answer = tokio::time::timeout(Duration::from_secs(10), probes.probe(name)).await;
                    (name, pid, answer.unwrap_or_else(|_| Err("it does not answer within 10 s".to_owned())))
                }));
            }
        }
    }

    async fn start(&mut self, name: &'static str, spec: &Arc<ProcessSpec>) {
        let data = self.desired.as_ref().and_then(|d| d.data.clone()).filter(|_| name == "etcd");
        let lost = data.filter(|d| (d.expected || self.had_data) && !d.folder.is_dir());
        let to_spawn = spec.clone();
        let runtime = tokio::runtime::Handle::current();
        let spawned = tokio::task::spawn_blocking(move || {
            let _guard = runtime.enter();
            if let Some(lost) = lost {
                anyhow::bail!(
                    "etcd is not started, since its data is missing: {} is not there. Mount or restore it",
                    lost.folder.display()
                );
            }
            to_spawn.spawn()
        })
        .await
        .unwrap_or_else(|error| Err(error.into()));
        let slot = self.slot(name);
        match spawned {
            Ok(process) => {
                let again = slot.started(process);
                if let Some(pid) = again {
                    let message = format!("{name} was started again (pid {pid}, restart {})", slot.restarts);
                    self.journal.tell(Severity::Normal, "ComponentRestarted", message).await;
                }
            }
            Err(error) => {
                let (message, wait) = (format!("{error:#}"), slot.failed_to_start(format!("{error:#}")));
                tracing::error!(component = name, error = message, "a program cannot be started");
                let message = format!("{message}; the next attempt is in {} s", wait.as_secs());
                self.journal.tell(Severity::Warning, "ComponentNotStarted", message).await;
            }
        }
    }

    async fn ended(&mut self, index: usize, exit: Exit) {
        let name = self.slots[index].name;
        let log = self.desired.as_ref().and_then(|d| d.specs.get(name)).map(|s| s.log.clone());
        let last = log.map(|path| logs::last_words(&path)).unwrap_or_default();
        let wait = self.slots[index].ended(exit);
        let mut message = format!("{name} ended with {exit}; it is started again in {} s", wait.as_secs());
        if !last.is_empty() {
            message.push_str(". Its last words: ");
            message.push_str(&last);
        }
        self.journal.tell(Severity::Warning, "ComponentExited", message).await;
    }

    async fn end_hung(&mut self, name: &'static str) {
        let message = format!("{name} was well and has answered nothing for {} s: it is ended and started again", SILENCE.as_secs());
        self.journal.tell(Severity::Warning, "ComponentHung", message).await;
        if let Err(error) = self.slot(name).end_hung().await {
            tracing::error!(component = name, error = format!("{error:#}"), "a program that hangs does not end");
        }
    }

    async fn stop_all(&mut self) -> Vec<anyhow::Error> {
        let mut errors = Vec::new();
        for name in STOP_ORDER {
            if let Err(error) = self.slot(name).stop().await.with_context(|| format!("cannot stop {name}")) {
                errors.push(error);
            }
        }
        errors
    }

    fn publish(&self) {
        let Some(desired) = &self.desired else { return };
        let components = self.slots.iter().map(|slot| slot.status(needs(slot.name).filter(|n| !self.well(n)))).collect();
        let as_planned = self.slots.iter().all(|slot| {
            let plan = desired.specs.get(slot.name).map(|s| s.plan());
            slot.process.as_ref().map(Process::plan) == plan.as_deref()
        });
        let observed = Observed { applied: self.applied, components, as_planned };
        self.publish.send_if_modified(|known| {
            let changed = *known != observed;
            *known = observed;
            changed
        });
    }
}

/// Whether a probe failed by what the program said, and not for want of an answer: see [`crate::engine::health`].
fn is_an_answer(why: &str) -> bool {
    why.starts_with("these checks fail") || why.starts_with("its health check answers")
}

/// When one that answered is asked next.
fn next_probe(healthy: bool, running_for: Duration, jitter: Duration) -> Instant {
    Instant::now()
        + match (healthy, running_for < EAGER_FOR) {
            (true, _) => PROBE_EVERY * 4 / 5 + jitter,
            (false, true) => PROBE_EAGER,
            (false, false) => PROBE_UNWELL,
        }
}
