//! Finding the processes that an earlier daemon started: the process table itself is the record of them, so there are no pid files
//! that could lie.
//!
//! A process is ours when its environment carries our markers and its uid is the one expected of that cluster (anybody may set
//! markers, nobody can run under a cluster's uid). What is read of a pid is believed only when a pidfd that was opened
//! before still names a running process afterwards: then no other process can have had that pid in between.
//! May import: `domain`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use rustix::process::Pid;

use super::{self as process, Process};
use crate::domain::ClusterId;

/// A process with our markers.
#[derive(Clone)]
pub struct Found {
    /// The process, watched.
    pub process: Process,
    /// The cluster that it says it belongs to.
    pub cluster: ClusterId,
    /// Which program it says it is.
    pub component: String,
    /// Its real uid.
    pub uid: u32,
    /// When it started, in clock ticks after boot.
    pub start_time: u64,
}

/// Every running process of an installation, oldest first. One that ends while it is looked at is left out.
/// Must be called within a tokio runtime.
pub fn scan(installation: &str) -> std::io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else { continue };
        // A cheap look first: few processes carry our markers.
        if markers(pid, installation).is_some()
            && let Some(one) = inspect(pid, installation)
        {
            found.push(one);
        }
    }
    found.sort_by_key(|f| f.start_time);
    Ok(found)
}

/// Reads a process again between opening a pidfd and finding that it still runs.
fn inspect(pid: Pid, installation: &str) -> Option<Found> {
    let (_, _, plan) = markers(pid, installation)?;
    let process = Process::open(pid, plan.clone()).ok()?;
    let (cluster, component, plan_again) = markers(pid, installation)?;
    let stat = Stat::parse(&read(pid, "stat")?)?;
    let uid = real_uid(&read(pid, "status")?)?;
    (plan == plan_again && stat.state != 'Z' && stat.state != 'X' && process.running()).then_some(Found {
        process,
        cluster,
        component,
        uid,
        start_time: stat.start_time,
    })
}

fn read(pid: Pid, file: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let path = Path::new("/proc").join(pid.as_raw_pid().to_string()).join(file);
    std::fs::File::open(path).ok()?.take(256 * 1024).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn markers(pid: Pid, installation: &str) -> Option<(ClusterId, String, String)> {
    parse_markers(&read(pid, "environ")?, installation)
}

/// Cluster, component and plan of an environment as `/proc/PID/environ` gives it; `None` when it is not one of the installation's.
fn parse_markers(environ: &str, installation: &str) -> Option<(ClusterId, String, String)> {
    let env: BTreeMap<&str, &str> = environ.split('\0').filter(|v| v.starts_with("KUBEBYON_")).filter_map(|v| v.split_once('=')).collect();
    if env.get(process::MARK_INSTALLATION) != Some(&installation) {
        return None;
    }
    let cluster = env.get(process::MARK_CLUSTER)?.parse().ok()?;
    Some((cluster, (*env.get(process::MARK_COMPONENT)?).to_owned(), (*env.get(process::MARK_PLAN)?).to_owned()))
}

/// What is needed of `/proc/PID/stat` (`proc_pid_stat(5)`).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    start_time: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses and may hold blanks and parentheses itself: the rest begins after the last one.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // `state` is field 3, `starttime` field 22.
        let start_time = fields.nth(18)?.parse().ok()?;
        Some(Self { state, start_time })
    }
}

fn real_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|l| l.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Which of the processes that claim to be one component stays, and which are surplus: the one that was started as planned, else the oldest.
pub fn choose(mut found: Vec<Found>, plan: Option<&str>) -> (Option<Found>, Vec<Found>) {
    if found.is_empty() {
        return (None, found);
    }
    let kept = found.iter().position(|f| Some(f.process.plan()) == plan).unwrap_or(0);
    let kept = found.remove(kept);
    (Some(kept), found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    use super::super::tests::shell;
    use super::*;
    use crate::domain::Ambient;

    #[test]
    fn stat_is_read_behind_the_last_parenthesis() {
        let text = "77 (a) Z (b) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 1 18446744073709551615";
        assert_eq!(Stat::parse(text), Some(Stat { state: 'S', start_time: 987_654 }));
        assert_eq!(Stat::parse("77 (a"), None);
        assert_eq!(real_uid("Name:\tx\nUid:\t7\t8\t9\t10\n"), Some(7));
    }

    #[test]
    fn markers_of_another_installation_are_not_ours() {
        let id = ClusterId::generate(&Ambient::system());
        let environ = format!("A=1\0KUBEBYON_INSTALLATION=i\0KUBEBYON_CLUSTER={id}\0KUBEBYON_COMPONENT=etcd\0KUBEBYON_PLAN=p\0");
        assert_eq!(parse_markers(&environ, "i"), Some((id, "etcd".into(), "p".into())));
        assert_eq!(parse_markers(&environ, "j"), None);
        assert_eq!(parse_markers(&environ.replace("KUBEBYON_PLAN", "X"), "i"), None);
    }

    #[tokio::test]
    async fn running_processes_are_found_and_ended_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = shell(folder.path(), "etcd", "exec sleep 600");
        spec.installation = format!("adopt-{}", spec.cluster);
        let (first, second) = (spec.spawn().unwrap(), spec.spawn().unwrap());
        let zombie = spec.spawn().unwrap();
        zombie.signal(rustix::process::Signal::KILL).unwrap();
        while zombie.running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(Path::new(&format!("/proc/{}", zombie.pid())).exists(), "not reaped yet");
        let found = scan(&spec.installation).unwrap();
        let pids: Vec<_> = found.iter().map(|f| f.process.pid()).collect();
        assert_eq!(pids, [first.pid(), second.pid()]);
        assert!(found.iter().all(|f| f.cluster == spec.cluster && f.component == "etcd" && f.process.plan() == spec.plan()));
        let (kept, surplus) = choose(found, Some(&spec.plan()));
        assert_eq!((kept.unwrap().process.pid(), surplus.len()), (first.pid(), 1));
        for process in [first, second, zombie] {
            process.signal(rustix::process::Signal::KILL).unwrap();
            process.exited().await;
        }
        assert!(scan(&spec.installation).unwrap().is_empty());
    }

    /// A helper that the next test runs as a process of its own: it starts a child and then is killed.
    #[tokio::test]
    async fn parent_that_is_killed() {
        // Without a folder somebody runs all tests: there is nothing to do then.
        let Ok(folder) = std::env::var("ADOPT_FOLDER") else { return };
        let mut spec = shell(Path::new(&folder), "etcd", "exec sleep 600");
        spec.installation = std::env::var("ADOPT_INSTALLATION").unwrap();
        spec.spawn().unwrap();
        std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn a_child_outlives_the_kill_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let installation = format!("orphan-{}", ClusterId::generate(&Ambient::system()));
        let status = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::adopt::tests::parent_that_is_killed"])
            .env("ADOPT_FOLDER", folder.path())
            .env("ADOPT_INSTALLATION", &installation)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .await
            .unwrap();
        assert_eq!(status.signal(), Some(9));
        let found = scan(&installation).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].process.stop(Duration::from_secs(5)).await.unwrap(), process::Exit::Unknown);
        assert!(scan(&installation).unwrap().is_empty());
    }
}
