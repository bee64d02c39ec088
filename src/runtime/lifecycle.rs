//! One object that owns the life of the process: signals, named tasks, soft and hard stop, and what systemd hears of it.
//!
//! - SIGTERM or SIGINT cancels the soft token: listeners close, what is open drains. At the drain deadline, or at a second signal,
//!   the hard token follows and nothing waits any longer.
//! - SIGHUP runs the reload function, one at a time.
//! - A task that returns an error or panics begins the stop and makes it a failure.
//!
//! May import: nothing of ours.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::service_manager;

/// How long tasks have between the hard stop and the end of the process.
const HARD_GRACE: Duration = Duration::from_secs(2);
/// How long a reload may take before systemd is told that it is over.
const RELOAD_LIMIT: Duration = Duration::from_secs(60);

/// What ends a process.
#[derive(Debug)]
pub enum Ended {
    /// It was asked to.
    Asked,
    /// A task failed.
    Failed {
        /// The task's name.
        task: String,
        /// What went wrong.
        error: anyhow::Error,
    },
}

impl Ended {
    /// The exit code: 0, or 1 after a failure.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Asked => 0,
            Self::Failed { .. } => 1,
        }
    }
}

enum Event {
    Failed(String, anyhow::Error),
    Stop,
}

#[derive(Default)]
struct Running {
    next: u64,
    names: BTreeMap<u64, Cow<'static, str>>,
}

/// Where tasks are started and learn that the process stops. Cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    soft: CancellationToken,
    hard: CancellationToken,
    running: Arc<Mutex<Running>>,
    events: mpsc::UnboundedSender<Event>,
}

impl Tasks {
    /// Starts a task that the process waits for when it stops. Its error or panic stops the process; `Ok` just ends the task.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, task: F)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let name = name.into();
        let guard = RunningGuard::new(&self.running, name.clone());
        let events = self.events.clone();
        self.tracker.spawn(async move {
            let outcome = tokio::spawn(task).await;
            drop(guard);
            let error = match outcome {
                Ok(Err(error)) => error,
                Err(e) if e.is_panic() => anyhow::anyhow!("panicked: {}", panic_text(&*e.into_panic())),
                // It ended well, or the runtime ended and cancelled it.
                Ok(Ok(())) | Err(_) => return,
            };
            let _ = events.send(Event::Failed(name.into_owned(), error));
        });
    }

    /// Cancelled when the process begins to stop: take on nothing new, end what is open in good order.
    pub const fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Cancelled when waiting is over: let go of everything.
    pub const fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Stops the process as SIGTERM does.
    pub fn stop(&self) {
        let _ = self.events.send(Event::Stop);
    }

    /// The names of the tasks that run.
    pub fn running(&self) -> Vec<String> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.names.values().map(|name| name.clone().into_owned()).collect()
    }
}

/// A task's entry among those that run.
struct RunningGuard(Arc<Mutex<Running>>, u64);

impl RunningGuard {
    fn new(running: &Arc<Mutex<Running>>, name: Cow<'static, str>) -> Self {
        let mut all = running.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.next;
        all.next += 1;
        all.names.insert(number, name);
        Self(Arc::clone(running), number)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).names.remove(&self.1);
    }
}

fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}

/// The life of the process; see the module.
pub struct Lifecycle {
    tasks: Tasks,
    events: mpsc::UnboundedReceiver<Event>,
    drain: Duration,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

type Reload<'a> = Pin<Box<dyn Future<Output = anyhow::Result<String>> + Send + 'a>>;

impl Lifecycle {
    /// Takes over the signals; needs a tokio runtime. `drain` is how long a soft stop may take.
    pub fn new(drain: Duration) -> std::io::Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let tasks = Tasks {
            tracker: TaskTracker::new(),
            soft: CancellationToken::new(),
            hard: CancellationToken::new(),
            running: Arc::default(),
            events: sender,
        };
        Ok(Self {
            tasks,
            events,
            drain,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Where tasks are started.
    pub fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// Tells systemd that start-up is over, then runs until the process is asked to stop or a task fails, and stops.
    ///
    /// `status` is the line of `systemctl status`. `reload` is run on SIGHUP; what it returns is logged and becomes that line.
    pub async fn run<R, F>(mut self, status: &str, mut reload: R) -> Ended
    where
        R: FnMut() -> F + Send,
        F: Future<Output = anyhow::Result<String>> + Send,
    {
        let watchdog = service_manager::watchdog_period().map(|period| tokio::spawn(service_manager::watch(period)));
        service_manager::ready(status);
        let ended = self.until_stop(status, &mut reload).await;
        let ended = self.stop(ended).await;
        if let Some(watchdog) = watchdog {
            watchdog.abort();
        }
        ended
    }

    async fn until_stop<R, F>(&mut self, status: &str, reload: &mut R) -> Ended
    where
        R: FnMut() -> F + Send,
        F: Future<Output = anyhow::Result<String>> + Send,
    {
        let mut reloading: Option<Reload<'_>> = None;
        loop {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => return asked("SIGTERM"),
                _ = self.interrupt.recv() => return asked("SIGINT"),
                Some(event) = self.events.recv() => match event {
                    Event::Stop => return asked("a request"),
                    Event::Failed(task, error) => return failed(task, error),
                },
                outcome = async { reloading.as_mut().expect("the branch is off without one").await }, if reloading.is_some() => {
                    reloading = None;
                    service_manager::ready(&reload_outcome(outcome, status));
                }
                _ = self.hang_up.recv(), if reloading.is_none() => {
                    service_manager::reloading();
                    let work = reload();
                    reloading = Some(Box::pin(async move {
                        let limit = RELOAD_LIMIT.as_secs();
                        let late = |_| anyhow::anyhow!("the reload was given up after {limit} s");
                        tokio::time::timeout(RELOAD_LIMIT, work).await.map_err(late)?
                    }));
                }
            }
        }
    }

    /// Soft stop, then hard stop, then the end.
    async fn stop(&mut self, mut ended: Ended) -> Ended {
        service_manager::stopping("draining");
        self.tasks.tracker.close();
        self.tasks.soft.cancel();
        let done = self.tasks.tracker.clone();
        let done = done.wait();
        tokio::pin!(done);
        let deadline = tokio::time::sleep(self.drain);
        tokio::pin!(deadline);
        loop {
            tokio::select! {
                biased;
                () = &mut done => break,
                Some(event) = self.events.recv() => if let Event::Failed(task, error) = event { ended = worse(ended, task, error) },
                () = &mut deadline => {
                    tracing::warn!(tasks = ?self.tasks.running(), "the drain deadline is over; letting go of what is still open");
                    break;
                }
                _ = self.terminate.recv() => { again("SIGTERM"); break }
                _ = self.interrupt.recv() => { again("SIGINT"); break }
            }
        }
        self.tasks.hard.cancel();
        if tokio::time::timeout(HARD_GRACE, self.tasks.tracker.wait()).await.is_err() {
            tracing::warn!(tasks = ?self.tasks.running(), "these tasks did not end; the process ends without them");
        }
        while let Ok(event) = self.events.try_recv() {
            if let Event::Failed(task, error) = event {
                ended = worse(ended, task, error);
            }
        }
        ended
    }
}

fn asked(by: &str) -> Ended {
    tracing::info!("stopping: {by}");
    Ended::Asked
}

fn again(signal: &str) {
    tracing::warn!("{signal} again: letting go of what is still open");
}

fn failed(task: String, error: anyhow::Error) -> Ended {
    tracing::error!(task, error = format!("{error:#}"), "a task failed; stopping");
    Ended::Failed { task, error }
}

/// The first failure is the one that is told.
fn worse(ended: Ended, task: String, error: anyhow::Error) -> Ended {
    match ended {
        Ended::Asked => failed(task, error),
        first @ Ended::Failed { .. } => {
            tracing::error!(task, error = format!("{error:#}"), "a task failed while stopping");
            first
        }
    }
}

fn reload_outcome(outcome: anyhow::Result<String>, status: &str) -> String {
    match outcome {
        Ok(line) => {
            tracing::info!("reloaded: {line}");
            format!("{status}; reloaded: {line}")
        }
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the reload failed; what was in effect stays so");
            format!("{status}; the last reload failed: {error:#}")
        }
    }
}

#[cfg(test)]
mod tests;
