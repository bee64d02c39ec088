//! What the supervisor knows of one program.

use std::time::Duration;

use tokio::time::Instant;

use super::{GRACE, PATIENCE, SILENCE, is_an_answer, next_probe};
use crate::domain::cluster::ComponentStatus;
use crate::process::backoff::Backoff;
use crate::process::{Exit, Process};

pub(super) struct Slot {
    pub(super) name: &'static str,
    pub(super) process: Option<Process>,
    pub(super) healthy: bool,
    pub(super) restarts: u32,
    message: String,
    started_at: Instant,
    /// Not to be started before; absent: as soon as it may.
    not_before: Option<Instant>,
    /// Ended by itself, so that its next start is a restart.
    fell: bool,
    backoff: Backoff,
    next_probe: Instant,
    probing: bool,
    failed_probes: u32,
    /// It was well since it was started, or taken over.
    was_well: bool,
    /// Since when it has not answered at all.
    silent_since: Option<Instant>,
}

impl Slot {
    pub(super) fn new(name: &'static str, process: Option<Process>, restarts: u32) -> Self {
        let now = Instant::now();
        Self {
            name,
            message: if process.is_some() { "it runs and has not answered yet".into() } else { "it was not started yet".into() },
            process,
            healthy: false,
            restarts,
            started_at: now,
            not_before: None,
            fell: false,
            backoff: Backoff::default(),
            next_probe: now,
            probing: false,
            failed_probes: 0,
            was_well: false,
            silent_since: None,
        }
    }

    /// Forgets waits: somebody asked anew.
    pub(super) fn hurry(&mut self) {
        self.not_before = None;
        self.next_probe = Instant::now();
    }

    pub(super) fn may_start(&self) -> bool {
        self.process.is_none() && self.not_before.is_none_or(|at| at <= Instant::now())
    }

    /// When something is to be done for it without anything else happening.
    pub(super) fn wake(&self) -> Option<Instant> {
        if self.process.is_none() {
            // One that may start by now waits for another to be well, and that wakes by itself.
            self.not_before.filter(|at| *at > Instant::now())
        } else if self.probing {
            None
        } else {
            Some(self.next_probe)
        }
    }

    /// Gives its pid where it is a restart.
    pub(super) fn started(&mut self, process: Process) -> Option<i32> {
        let pid = process.pid();
        let now = Instant::now();
        (self.process, self.healthy, self.failed_probes) = (Some(process), false, 0);
        (self.started_at, self.next_probe, self.not_before) = (now, now, None);
        (self.was_well, self.silent_since) = (false, None);
        self.message = "it was started and has not answered yet".into();
        if std::mem::take(&mut self.fell) {
            self.restarts += 1;
            Some(pid)
        } else {
            None
        }
    }

    pub(super) fn failed_to_start(&mut self, why: String) -> Duration {
        self.message = why;
        self.wait(Duration::ZERO)
    }

    pub(super) fn ended(&mut self, exit: Exit) -> Duration {
        (self.process, self.healthy, self.fell) = (None, false, true);
        self.message = format!("it ended with {exit}");
        self.wait(self.started_at.elapsed())
    }

    fn wait(&mut self, ran: Duration) -> Duration {
        let wait = self.backoff.next(ran);
        self.not_before = Some(Instant::now() + wait);
        wait
    }

    /// Its pid when it is to be asked now; it then counts as being asked.
    pub(super) fn take_due_probe(&mut self) -> Option<i32> {
        let process = self.process.as_ref()?;
        if self.probing || self.next_probe > Instant::now() {
            return None;
        }
        self.probing = true;
        Some(process.pid())
    }

    /// `excused`: what it needs is not well, so that its silence is not its own.
    pub(super) fn probed(&mut self, pid: i32, result: Result<(), String>, excused: bool, jitter: Duration) {
        self.probing = false;
        // The answer of a process that has been replaced meanwhile says nothing of this one.
        if self.process.as_ref().is_none_or(|p| p.pid() != pid) {
            return;
        }
        self.silent_since = match &result {
            Err(why) if !excused && !is_an_answer(why) => self.silent_since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        match result {
            Ok(()) => {
                self.was_well = true;
                (self.healthy, self.failed_probes) = (true, 0);
                self.message.clear();
            }
            Err(why) => {
                self.failed_probes += 1;
                if !self.healthy || self.failed_probes >= PATIENCE {
                    self.healthy = false;
                    self.message = why;
                }
            }
        }
        self.next_probe = next_probe(self.healthy && self.failed_probes == 0, self.started_at.elapsed(), jitter);
    }

    /// Whether it ran well and has answered nothing for so long that it will not by itself.
    pub(super) fn hangs(&self) -> bool {
        self.process.is_some() && self.was_well && self.silent_since.is_some_and(|since| since.elapsed() >= SILENCE)
    }

    /// Ends one that hangs, so that it is started again as one that ended by itself.
    pub(super) async fn end_hung(&mut self) -> anyhow::Result<()> {
        // Should it not end, it is tried again after as long.
        self.silent_since = Some(Instant::now());
        self.stop().await?;
        (self.fell, self.message) = (true, format!("it answered nothing for {} s and was ended", SILENCE.as_secs()));
        self.wait(self.started_at.elapsed());
        Ok(())
    }

    pub(super) async fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(process) = &self.process {
            process.stop(GRACE).await?;
        }
        (self.process, self.healthy, self.not_before, self.fell) = (None, false, None, false);
        self.message = "it was stopped".into();
        Ok(())
    }

    /// `waits_for`: what it needs and that is not well.
    pub(super) fn status(&self, waits_for: Option<&str>) -> ComponentStatus {
        let message = match waits_for {
            Some(other) if self.process.is_none() && !self.fell => format!("it waits for {other}"),
            _ => self.message.clone(),
        };
        ComponentStatus {
            name: self.name.to_owned(),
            healthy: self.healthy,
            pid: self.process.as_ref().map(Process::pid),
            restarts: self.restarts,
            message,
        }
    }
}
