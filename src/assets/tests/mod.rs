//! The store against a real mirror on loopback, with small programs.

mod mirror;
mod store;
mod ways;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use super::progress::{Logged, Meter};
use super::*;

/// A sink that keeps the steps.
#[derive(Default)]
struct Steps(Mutex<Vec<String>>);

impl Steps {
    fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl ProgressSink for Steps {
    fn step(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }

    fn meter(&self, _label: &str, _total: Option<u64>) -> Box<dyn Meter> {
        Box::new(Logged)
    }
}

/// Timeouts that suit loopback.
fn quick() -> Pace {
    Pace { stall: Duration::from_millis(250), backoff: Duration::from_millis(5), ..Pace::default() }
}

fn open(dir: &Path, mirror: Mirror) -> Assets {
    Assets::open(dir, Arch::Amd64, mirror).with_pace(quick())
}

fn helm() -> Want {
    Want::helm(Arch::Amd64)
}

fn runc() -> Want {
    Want { kind: Kind::Runc, version: catalogue::RUNC.to_owned(), arch: Arch::Amd64 }
}

const NEVER: Mode = Mode { seed: None, build: BuildMode::Never };

/// Everything below `dir` but the lock, as paths.
fn tree(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(".lock") {
                found.push(path.strip_prefix(dir).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}
