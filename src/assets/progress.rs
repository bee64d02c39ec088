//! Telling of what goes on: bars on a terminal, plain lines elsewhere, or the log of the daemon.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a long step without a known end says that it goes on, where there is no terminal.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Where steps and meters go.
pub trait ProgressSink: Send + Sync {
    /// One line about a step that begins or ended.
    fn step(&self, message: &str);
    /// Something that takes time: `total` bytes, or an unknown while.
    fn meter(&self, label: &str, total: Option<u64>) -> Box<dyn Meter>;
}

/// How far something has come.
pub trait Meter: Send + Sync {
    /// So many bytes are done.
    fn at(&self, done: u64);
    /// What is being done, for a meter without a total.
    fn note(&self, what: &str);
}

/// The sink for a person at standard error: bars on a terminal, else plain lines.
pub fn for_stderr() -> Box<dyn ProgressSink> {
    if std::io::stderr().is_terminal() { Box::new(Bars(MultiProgress::new())) } else { Box::new(Lines) }
}

/// Writes a line to standard error; a closed one is nobody's loss.
fn line(message: &str) {
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// `1.5 MB` and the like.
pub fn human(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.0} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// `2 min 5 s` and the like.
pub fn human_time(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s => format!("{} min {} s", s / 60, s % 60),
    }
}

/// Bars on a terminal.
struct Bars(MultiProgress);

impl ProgressSink for Bars {
    fn step(&self, message: &str) {
        if self.0.println(message).is_err() {
            line(message);
        }
    }

    fn meter(&self, label: &str, total: Option<u64>) -> Box<dyn Meter> {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), "  {prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
            None => (ProgressBar::new_spinner(), "  {spinner} {prefix} {elapsed} {wide_msg}"),
        };
        let bar = self.0.add(bar).with_prefix(label.to_owned());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Box::new(Bar(bar))
    }
}

struct Bar(ProgressBar);

impl Meter for Bar {
    fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    fn note(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Plain lines, one for every tenth part.
struct Lines;

impl ProgressSink for Lines {
    fn step(&self, message: &str) {
        line(message);
    }

    fn meter(&self, label: &str, total: Option<u64>) -> Box<dyn Meter> {
        Box::new(LineMeter { label: label.to_owned(), total, told: AtomicU64::new(0), began: Instant::now() })
    }
}

struct LineMeter {
    label: String,
    total: Option<u64>,
    /// The last tenth, or the last heartbeat, that was told.
    told: AtomicU64,
    began: Instant,
}

impl Meter for LineMeter {
    fn at(&self, done: u64) {
        let Some(total) = self.total.filter(|t| *t > 0) else { return };
        let tenth = done.saturating_mul(10) / total;
        if self.told.fetch_max(tenth, Ordering::Relaxed) < tenth {
            line(&format!("  {} {} % of {}", self.label, tenth * 10, human(total)));
        }
    }

    fn note(&self, what: &str) {
        let beat = self.began.elapsed().as_secs() / HEARTBEAT.as_secs();
        if self.told.fetch_max(beat, Ordering::Relaxed) < beat {
            line(&format!("  {} goes on since {}: {what}", self.label, human_time(self.began.elapsed())));
        }
    }
}

/// Steps as lines of the log, without meters: for the daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct Logged;

impl ProgressSink for Logged {
    fn step(&self, message: &str) {
        tracing::info!("{message}");
    }

    fn meter(&self, _label: &str, _total: Option<u64>) -> Box<dyn Meter> {
        Box::new(Self)
    }
}

impl Meter for Logged {
    fn at(&self, _done: u64) {}
    fn note(&self, _what: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(human(999), "999 B");
        assert_eq!(human(135_200_000), "135.2 MB");
        assert_eq!(human_time(Duration::from_secs(125)), "2 min 5 s");
    }
}
