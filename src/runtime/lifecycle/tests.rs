//! The stop order on a paused clock, and a process of its own that gets real signals and talks to a real notify socket.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal as Posix, kill};
use nix::unistd::Pid;

use super::*;

const DRAIN: Duration = Duration::from_secs(10);

async fn no_reload() -> anyhow::Result<String> {
    Ok(String::new())
}

#[tokio::test(start_paused = true)]
async fn a_task_that_obeys_ends_softly() {
    let lifecycle = Lifecycle::new(DRAIN).unwrap();
    let tasks = lifecycle.tasks();
    let (soft, hard) = (tasks.soft().clone(), tasks.hard().clone());
    tasks.spawn("polite", async move {
        soft.cancelled().await;
        anyhow::ensure!(!hard.is_cancelled(), "the hard stop came too early");
        Ok(())
    });
    assert_eq!(tasks.running(), ["polite"]);
    tasks.stop();
    let begun = tokio::time::Instant::now();
    let ended = lifecycle.run("running", no_reload).await;
    assert_eq!(ended.exit_code(), 0);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(tasks.hard().is_cancelled() && tasks.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_and_then_the_grace_end_a_task_that_does_not() {
    for (obeys_hard, seconds) in [(true, 10), (false, 12)] {
        let lifecycle = Lifecycle::new(DRAIN).unwrap();
        let tasks = lifecycle.tasks();
        let hard = tasks.hard().clone();
        tasks.spawn("stubborn", async move {
            hard.cancelled().await;
            if !obeys_hard {
                std::future::pending::<()>().await;
            }
            Ok(())
        });
        tasks.stop();
        let begun = tokio::time::Instant::now();
        assert_eq!(lifecycle.run("running", no_reload).await.exit_code(), 0);
        assert_eq!(begun.elapsed().as_secs(), seconds);
        assert_eq!(tasks.running().is_empty(), obeys_hard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_or_panics_ends_the_process() {
    for panics in [false, true] {
        let lifecycle = Lifecycle::new(DRAIN).unwrap();
        let tasks = lifecycle.tasks();
        let soft = tasks.soft().clone();
        tasks.spawn("bystander", async move {
            soft.cancelled().await;
            Ok(())
        });
        tasks.spawn("ends well", async { Ok(()) });
        tasks.spawn("listener", async move {
            assert!(!panics, "out of luck");
            anyhow::bail!("out of luck")
        });
        let ended = lifecycle.run("running", no_reload).await;
        let Ended::Failed { task, error } = &ended else { panic!("{ended:?}") };
        assert_eq!((task.as_str(), ended.exit_code()), ("listener", 1));
        assert!(error.to_string().contains("out of luck"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_while_stopping_counts() {
    let lifecycle = Lifecycle::new(DRAIN).unwrap();
    let tasks = lifecycle.tasks();
    let soft = tasks.soft().clone();
    tasks.spawn("store", async move {
        soft.cancelled().await;
        anyhow::bail!("the last write failed")
    });
    tasks.stop();
    assert_eq!(lifecycle.run("running", no_reload).await.exit_code(), 1);
}

/// The process under test: this test binary once more, running [`child`] alone.
struct Process {
    child: Child,
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Process {
    fn start(drain_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runtime::lifecycle::tests::child", "--nocapture"])
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "100000")
            .env("KUBEBYON_TEST_DRAIN_MS", drain_ms.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, socket, _folder: folder }
    }

    /// Waits for a message that contains `part`; returns it.
    fn heard(&self, part: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let length = self.socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{part} was not heard: {e}"));
            let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if message.contains(part) {
                return message;
            }
        }
    }

    fn signal(&self, signal: Posix) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    fn exit_code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn child() {
    let Some(drain) = std::env::var("KUBEBYON_TEST_DRAIN_MS").ok().and_then(|ms| ms.parse().ok()) else { return };
    let ended = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(async {
        let lifecycle = Lifecycle::new(Duration::from_millis(drain)).unwrap();
        let tasks = lifecycle.tasks();
        let hard = tasks.hard().clone();
        tasks.spawn("holds on", async move {
            hard.cancelled().await;
            Ok(())
        });
        let mut reloads = 0;
        let reload = || {
            reloads += 1;
            std::future::ready(if reloads == 1 { Ok("log.level".to_owned()) } else { Err(anyhow::anyhow!("broken file")) })
        };
        lifecycle.run("serving", reload).await
    });
    std::process::exit(40 + i32::from(ended.exit_code()));
}

#[test]
fn systemd_hears_of_start_reload_health_and_stop() {
    let process = Process::start(50);
    assert_eq!(process.heard("READY=1"), "READY=1\nSTATUS=serving\n");
    process.heard("WATCHDOG=1");
    process.signal(Posix::SIGHUP);
    assert!(process.heard("RELOADING=1").contains("MONOTONIC_USEC="));
    assert_eq!(process.heard("READY=1"), "READY=1\nSTATUS=serving; reloaded: log.level\n");
    process.signal(Posix::SIGHUP);
    process.heard("RELOADING=1");
    assert_eq!(process.heard("READY=1"), "READY=1\nSTATUS=serving; the last reload failed: broken file\n");
    process.signal(Posix::SIGTERM);
    process.heard("STOPPING=1");
    assert_eq!(process.exit_code(), Some(40));
}

#[test]
fn a_second_signal_does_not_wait() {
    let process = Process::start(600_000);
    process.heard("READY=1");
    process.signal(Posix::SIGINT);
    process.heard("STOPPING=1");
    process.signal(Posix::SIGTERM);
    assert_eq!(process.exit_code(), Some(40));
}
