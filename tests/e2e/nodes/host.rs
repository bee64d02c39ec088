//! Machines for tests: each has namespaces of its own (network, mounts over an overlay of this machine's root, processes, host name,
//! cgroups), so that several can be nodes beside each other. One ends with the test, however that ends.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::network::{Lan, Network};
use super::sweep;
use crate::harness::{alive, binary, eventually, signal};

/// Where the program under test is, on each machine.
pub const KUBEBYON: &str = "/run/test/kubebyon";

/// What a machine is to be like.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether systemd is its first process.
    pub systemd: bool,
    /// The size of its disk in MiB; absent: as this machine's.
    pub disk_mib: Option<u32>,
}

/// A machine.
pub struct TestHost {
    /// Its host name.
    pub name: String,
    /// Its address on its network.
    pub address: String,
    options: Options,
    lan: Lan,
    folder: PathBuf,
    group: String,
    life: Option<Life>,
}

/// One boot of a machine.
struct Life {
    shell: Child,
    /// Held open: when it closes, the machine ends.
    _held: ChildStdin,
    init: i32,
}

impl TestHost {
    /// Starts a machine in a network, with that address there.
    pub fn start(network: &Network, lan: &Lan, name: &str, address: &str, options: Options) -> Self {
        let folder = sweep::folder().join(name);
        assert!(!folder.exists(), "two machines of this run have the name {name}");
        std::fs::create_dir_all(&folder).unwrap();
        let group = format!("{}-{name}", network.id());
        let mut host = Self { name: name.into(), address: address.into(), options, lan: lan.clone(), folder, group, life: None };
        host.boot();
        host
    }

    /// Starts it, where it does not run.
    pub fn boot(&mut self) {
        assert!(self.life.is_none(), "{} runs already", self.name);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/nodes/host.sh");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("boot.log")).unwrap();
        let mut shell = Command::new("bash")
            .arg(script)
            .args([self.folder.as_os_str(), self.group.as_ref()])
            .arg(self.options.disk_mib.unwrap_or(0).to_string())
            .arg(if self.options.systemd { "systemd" } else { "plain" })
            .env("KUBEBYON_BIN", binary().canonicalize().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let held = shell.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = || std::fs::read_to_string(self.folder.join("boot.log")).unwrap_or_default();
        assert_eq!(line.trim(), "ready", "the machine {} did not start:\n{}", self.name, said());
        let init = init_of(i32::try_from(shell.id()).unwrap());
        self.life = Some(Life { shell, _held: held, init });
        self.plug_in();
        if self.options.systemd {
            eventually(&format!("systemd runs on {}", self.name), || {
                let state = self.run(&["systemctl", "is-system-running"]);
                let state = String::from_utf8_lossy(&state.stdout).trim().to_owned();
                ["running", "degraded"].contains(&state.as_str()).then_some(())
            });
        }
    }

    /// Connects it with its network.
    fn plug_in(&self) {
        let init = self.init().to_string();
        self.lan.plug(&self.group, &init, &self.address);
        let resolv = format!("nameserver {}\n", self.lan.gateway);
        self.write("/etc/resolv.conf", &resolv);
    }

    /// Its first process, as this machine numbers it.
    pub fn init(&self) -> i32 {
        self.life.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name)).init
    }

    /// A command in it; its environment is a fresh root's.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("bash");
        // The first words move into the machine's cgroups, as everything in it is.
        let enter = "for f in /sys/fs/cgroup/$0/cgroup.procs /sys/fs/cgroup/*/$0/cgroup.procs; do if [ -e $f ]; then echo $$ >$f; fi; done; \
                     init=$1; shift; exec nsenter --target $init --mount --uts --ipc --net --pid --cgroup --root --wd=/ -- \"$@\"";
        command.args(["-c", enter, &self.group, &self.init().to_string()]).args(args);
        command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command in it.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must go well, and gives its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (said, errors) = (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "on {}, {args:?} failed ({}):\n{said}\n{errors}\n{}", self.name, output.status, self.logs());
        said
    }

    /// Runs a command that must fail, and gives what it said.
    pub fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success(), "on {}, {args:?} went well:\n{said}", self.name);
        said
    }

    /// Runs a line of shell, which must go well, and gives its output.
    pub fn shell(&self, line: &str) -> String {
        self.ok(&["bash", "-ec", line])
    }

    /// Starts a program that goes on by itself, as a supervisor would; its output goes to `/var/log/test-NAME.log`.
    pub fn spawn(&self, name: &str, args: &[&str]) {
        let start = format!("setsid \"$@\" >>/var/log/test-{name}.log 2>&1 </dev/null &");
        let output = self.run(&[&["bash", "-c", &start, "start"], args].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Writes a file in it.
    pub fn write(&self, path: &str, text: &str) {
        let at = PathBuf::from(format!("/proc/{}/root{path}", self.init()));
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(&at, text).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    }

    /// Reads a file in it; empty where there is none.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/root{path}", self.init())).unwrap_or_default()
    }

    /// Its processes, as this machine numbers them, with their command lines.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = space(self.init());
        let mut found: Vec<(i32, String)> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| space(*pid) == own && alive(*pid))
            .map(|pid| (pid, std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")))
            .collect();
        found.sort();
        found
    }

    /// The process of a program, by the file that it was started from: `kubelet`, `containerd`, `kube-proxy`; or `node` for the node role.
    pub fn process(&self, program: &str) -> Option<i32> {
        let fits = |line: &str| {
            let first = line.split(' ').next().unwrap_or("");
            let file = first.rsplit('/').next().unwrap_or("");
            if program == "node" { file == "kubebyon" && line.contains("--role=node") } else { file == program }
        };
        self.processes().into_iter().find(|(_, line)| fits(line)).map(|(pid, _)| pid)
    }

    /// Kills a process of it at once.
    pub fn kill(&self, pid: i32) {
        signal(pid, "KILL");
        let end = Instant::now() + Duration::from_secs(10);
        while alive(pid) {
            assert!(Instant::now() < end, "process {pid} of {} does not end", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Cuts its power and starts it anew: what is on its disk stays.
    pub fn reboot(&mut self) {
        self.halt();
        self.boot();
    }

    /// Cuts its power.
    pub fn halt(&mut self) {
        let Some(mut life) = self.life.take() else { return };
        drop(life._held);
        let _ = life.shell.wait();
    }

    /// The end of what its node's programs said.
    pub fn logs(&self) -> String {
        let mut all = String::new();
        for folder in ["var/log", "var/log/kubebyon-node"] {
            let at = PathBuf::from(format!("/proc/{}/root/{folder}", self.init()));
            for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if folder == "var/log/kubebyon-node" || name.starts_with("test-") {
                    let text = std::fs::read(entry.path()).unwrap_or_default();
                    let text = String::from_utf8_lossy(&text).into_owned();
                    all += &format!("--- {}: {name}\n{}\n", self.name, crate::harness::tail(&text, 25));
                }
            }
        }
        all
    }

    /// The folder on this machine's disk that keeps the changes to its root.
    pub fn upper(&self) -> PathBuf {
        self.folder.join("kept/upper")
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::thread::panicking() && self.life.is_some() {
            eprintln!("{}", self.logs());
        }
        self.halt();
        let _ = std::fs::remove_dir_all(&self.folder);
        // Gone with the last of them.
        let _ = std::fs::remove_dir(sweep::folder());
    }
}

/// The first process of the machine that a shell started: the child of its `unshare`.
pub fn init_of(shell: i32) -> i32 {
    let children = |pid: i32| -> Vec<i32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
    children(shell)
        .into_iter()
        .flat_map(children)
        .find(|pid| std::fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|space| space != own))
        .expect("the machine has a first process")
}
