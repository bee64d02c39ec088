//! What systemd is told: sd_notify(3). Without `NOTIFY_SOCKET` in the environment every call does nothing.
//!
//! May import: nothing of ours.

use std::time::Duration;

use sd_notify::NotifyState;

fn tell(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::warn!(error = %e, "systemd could not be told");
    }
}

/// Start-up or a reload is over, and what the process does now.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// A reload begins. systemd wants the time with it, so that it knows a reload of its own asking from an older one.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(e) => tracing::warn!(error = %e, "systemd could not be told of the reload"),
    }
}

/// The process stops, and what it waits for.
pub fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// What the process does, in a line of `systemctl status`.
pub fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// How often systemd wants to hear that the process is well: half of its patience. `None` without a watchdog.
pub fn watchdog_period() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|patience| patience / 2).filter(|period| !period.is_zero())
}

/// Says for ever that the process is well, each time only after the runtime ran a task that was just handed to it.
pub async fn watch(period: Duration) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if tokio::spawn(std::future::ready(())).await.is_ok() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}
