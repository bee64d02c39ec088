//! One program as a process of this host: started so that it outlives the daemon, watched through a pidfd.
//!
//! Guarantees: the child runs in a session of its own, with exactly the environment of its plan and the markers by which
//! [`adopt`] finds it again; it writes to a file opened for append (a pipe would die with the daemon); nothing of
//! the daemon's descriptors stays open in it. A pidfd names one process for ever, so no signal can reach a stranger that was
//! given the same pid later.
//! May import: `domain`.

pub mod adopt;
pub mod backoff;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use nix::libc;
use nix::unistd::{Gid, Uid};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use sha2::{Digest, Sha256};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::domain::ClusterId;

/// Marks a process as one of an installation.
pub const MARK_INSTALLATION: &str = "KUBEBYON_INSTALLATION";
/// Marks the cluster that a process belongs to.
pub const MARK_CLUSTER: &str = "KUBEBYON_CLUSTER";
/// Marks which program of the control plane it is.
pub const MARK_COMPONENT: &str = "KUBEBYON_COMPONENT";
/// Marks what it was started with: [`ProcessSpec::plan`].
pub const MARK_PLAN: &str = "KUBEBYON_PLAN";

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The installation, a marker.
    pub installation: String,
    /// The cluster, a marker.
    pub cluster: ClusterId,
    /// The component, a marker; `argv[0]` too, since a multi-call program goes by it.
    pub component: String,
    /// The file to execute.
    pub program: PathBuf,
    /// What the file is: [`program_identity`].
    pub identity: String,
    /// Arguments after `argv[0]`.
    pub args: Vec<String>,
    /// The whole environment but for the markers.
    pub env: BTreeMap<String, String>,
    /// Where its output goes (appended; made 0600 where absent).
    pub log: PathBuf,
    /// The uid and gid to run as; absent: the daemon's own.
    pub uid: Option<u32>,
    /// cgroup folders that it joins before it is executed.
    pub cgroups: Vec<PathBuf>,
    /// Open files that it may have (no more than the daemon's own hard limit).
    pub open_files: u64,
    /// How willingly the kernel ends it when memory is short (-1000 to 1000, `proc(5)`); best effort.
    pub oom_score_adj: i16,
}

impl ProcessSpec {
    /// A hash of all that makes a running process the one that is wanted: program, arguments, environment, uid.
    pub fn plan(&self) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        part(&self.identity);
        part(&self.uid.map_or_else(String::new, |uid| uid.to_string()));
        self.args.iter().for_each(|arg| part(arg));
        for (key, value) in &self.env {
            part(key);
            part(value);
        }
        hex::encode(&hash.finalize()[..16])
    }

    fn markers(&self) -> [(&'static str, String); 4] {
        [
            (MARK_INSTALLATION, self.installation.clone()),
            (MARK_CLUSTER, self.cluster.to_string()),
            (MARK_COMPONENT, self.component.clone()),
            (MARK_PLAN, self.plan()),
        ]
    }

    /// Starts it. Returns once the program is being executed; an error says what could not be done, with the remedy where there is one.
    /// Must be called within a tokio runtime.
    pub fn spawn(&self) -> anyhow::Result<Process> {
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.log)
            .with_context(|| format!("cannot open the log {}", self.log.display()))?;
        let entry = Entry::prepare(self)?;
        let mut command = Command::new(&self.program);
        command
            .arg0(&self.component)
            .args(&self.args)
            .env_clear()
            .envs(&self.env)
            .envs(self.markers())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot duplicate the log's descriptor")?)
            .stderr(log);
        // SAFETY: the closure runs between fork and exec. It calls only async-signal-safe functions on values that were made before the
        // fork, and allocates nothing.
        unsafe { command.pre_exec(move || entry.enter()) };
        let child = command.spawn().with_context(|| format!("cannot start {} from {}", self.component, self.program.display()))?;
        let pid = Pid::from_child(&child);
        // The child is not reaped before the pidfd is open, so the pid is still its own.
        Process::open(pid, self.plan()).with_context(|| format!("cannot watch {} (pid {pid})", self.component))
    }
}

/// What the child does to itself before it becomes the program, prepared so that it need not allocate.
struct Entry {
    cgroups: Vec<File>,
    uid: Option<u32>,
    open_files: libc::rlimit,
    oom_score_adj: String,
}

impl Entry {
    fn prepare(spec: &ProcessSpec) -> anyhow::Result<Self> {
        let mut cgroups = Vec::new();
        for folder in &spec.cgroups {
            let path = folder.join("cgroup.procs");
            cgroups.push(OpenOptions::new().write(true).open(&path).with_context(|| format!("cannot open {}", path.display()))?);
        }
        let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).context("cannot read RLIMIT_NOFILE")?;
        let open_files = libc::rlimit { rlim_cur: spec.open_files.min(hard), rlim_max: hard };
        Ok(Self { cgroups, uid: spec.uid, open_files, oom_score_adj: format!("{}\n", spec.oom_score_adj) })
    }

    fn enter(&self) -> io::Result<()> {
        for cgroup in &self.cgroups {
            let mut cgroup: &File = cgroup;
            cgroup.write_all(b"0\n")?;
        }
        nix::unistd::setsid()?;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        self.oom_score();
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: plain system calls on values of ours; close_range marks descriptors and closes none before exec.
        unsafe {
            check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.open_files))?;
            check(libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core))?;
            // Kernels before 5.11 do not know the flag; the standard library opens everything close-on-exec anyway.
            let _ = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        }
        if let Some(uid) = self.uid {
            nix::unistd::setgroups(&[])?;
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
            nix::unistd::setresgid(gid, gid, gid)?;
            nix::unistd::setresuid(uid, uid, uid)?;
        }
        nix::sys::prctl::set_no_new_privs()?;
        Ok(())
    }

    /// Best effort: lowering it needs a privilege that a container may lack.
    fn oom_score(&self) {
        // SAFETY: a constant path, a buffer of ours, and a descriptor that is closed again.
        unsafe {
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, self.oom_score_adj.as_ptr().cast(), self.oom_score_adj.len());
                libc::close(file);
            }
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a program file is, so that another file of the same name restarts what runs from it: the version
/// it is of (empty where only the file counts), its name, size and time of change.
pub fn program_identity(version: &str, name: &str, file: &Path) -> anyhow::Result<String> {
    let meta = std::fs::metadata(file).with_context(|| format!("cannot read the program {}", file.display()))?;
    Ok(format!("{version}/{name}/{}/{}", meta.len(), meta.mtime()))
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// With a status.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// Unknown: it was a child of an earlier daemon, and the kernel tells only the parent.
    Unknown,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(name) => write!(f, "signal {signal} ({name})"),
                Err(_) => write!(f, "signal {signal}"),
            },
            Self::Unknown => f.write_str("an exit status that is not known (an earlier daemon had started it)"),
        }
    }
}

/// A process that was started or adopted. Clones name the same process. Dropping it lets the process run on.
#[derive(Clone)]
pub struct Process {
    pid: Pid,
    plan: Arc<str>,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    exit: Arc<OnceLock<Exit>>,
}

impl Process {
    /// Opens a pidfd for a pid. The caller makes sure afterwards ([`Self::running`]) that the pid is still the one it means.
    pub fn open(pid: Pid, plan: String) -> io::Result<Self> {
        let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        // SAFETY: an OwnedFd is valid and names the same description until it is dropped, which is when the AsyncFd is.
        let pidfd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Self { pid, plan: plan.into(), pidfd: Arc::new(pidfd), exit: Arc::default() })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// The hash of the plan that it was started with.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// Whether it has not ended.
    pub fn running(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd of ours, no wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }

    /// Waits until it has ended, reaps it where it is ours, and says how it ended.
    pub async fn exited(&self) -> Exit {
        // A pidfd becomes readable once and stays so.
        if let Err(error) = self.pidfd.readable().await.map(|mut guard| guard.retain_ready()) {
            tracing::error!(pid = self.pid(), %error, "cannot watch a process; asking every second instead");
            while self.running() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        *self.exit.get_or_init(|| self.reap())
    }

    fn reap(&self) -> Exit {
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(status)) => {
                status.exit_status().map(Exit::Code).or(status.terminating_signal().map(Exit::Signal)).unwrap_or(Exit::Unknown)
            }
            Ok(None) | Err(_) => Exit::Unknown,
        }
    }

    /// Sends a signal; one that has ended already is well.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(self.pidfd.get_ref(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// SIGTERM, and SIGKILL after `grace`; returns when it has ended.
    pub async fn stop(&self, grace: Duration) -> anyhow::Result<Exit> {
        self.signal(Signal::TERM).with_context(|| format!("cannot end pid {}", self.pid()))?;
        if let Ok(exit) = tokio::time::timeout(grace, self.exited()).await {
            return Ok(exit);
        }
        self.signal(Signal::KILL).with_context(|| format!("cannot kill pid {}", self.pid()))?;
        tokio::time::timeout(Duration::from_secs(30), self.exited())
            .await
            .with_context(|| format!("pid {} did not end within 30 s of SIGKILL: it hangs in the kernel (see /proc/{0}/stack)", self.pid()))
    }
}

#[cfg(test)]
pub(crate) mod tests;
