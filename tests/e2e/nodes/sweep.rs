//! Where machines for tests keep their disks, and putting away what runs left that were killed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Once;

use crate::harness::{assets_dir, run};

/// The mark of this run in names and aliases: its process and when that began, so that another process of the same number is not taken for it.
pub fn mark() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", began(pid).expect("this process runs"))
}

fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()
}

/// Whether the run of a mark is over.
pub fn is_over(mark: &str) -> bool {
    let Some((pid, when)) = mark.split_once('-') else { return true };
    match (pid.parse().ok().and_then(began), when.parse::<u64>()) {
        (Some(began), Ok(when)) => began != when,
        _ => true,
    }
}

/// The folder of this run, on the real disk: below the cache, where nothing is in memory.
pub fn folder() -> PathBuf {
    all().join(mark())
}

fn all() -> PathBuf {
    assets_dir().parent().expect("assets are below the cache").join("test-hosts")
}

/// Puts away the disks and bridges of runs that are over; once in each run.
pub fn sweep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for entry in std::fs::read_dir(all()).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_over) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let links = run("ip", &["-j", "link", "show", "type", "bridge"]);
        let links: serde_json::Value = serde_json::from_slice(&links.stdout).unwrap_or_default();
        for link in links.as_array().into_iter().flatten() {
            let (name, alias) = (link["ifname"].as_str().unwrap_or(""), link["ifalias"].as_str().unwrap_or(""));
            if alias.strip_prefix("kubebyon-test ").is_some_and(is_over) {
                let _ = Command::new("ip").args(["link", "del", name]).status();
                let _ = Command::new("nft").args(["delete", "table", "inet", &super::network::table(name)]).status();
            }
        }
    });
}
