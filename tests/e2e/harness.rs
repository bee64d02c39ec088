//! A platform of its own for a test: the binary, a data folder, free ports; and what tests ask of it.

use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything of a control plane may take on a busy machine with two cores.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The shipped binary: `KUBEBYON_BIN`, which `make test` sets, else the one that cargo built.
pub fn binary() -> PathBuf {
    std::env::var_os("KUBEBYON_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_kubebyon")), PathBuf::from)
}

/// A run of the binary. The variables of the tests are no keys of its configuration.
pub fn command() -> Command {
    let mut command = Command::new(binary());
    command.env_remove("KUBEBYON_BIN").env_remove("KUBEBYON_CACHE").stdin(Stdio::null());
    command
}

/// The folder of Kubernetes programs that `make assets` filled.
pub fn assets_dir() -> PathBuf {
    let cache = std::env::var_os("KUBEBYON_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/kubebyon"));
    let dir = cache.join("assets");
    assert!(dir.is_dir(), "{} is missing: run `make assets`", dir.display());
    dir
}

/// kubectl out of the assets.
pub fn kubectl() -> PathBuf {
    fn find(dir: &Path) -> Option<PathBuf> {
        let mut entries: Vec<_> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
        entries.sort();
        entries
            .iter()
            .find(|p| p.ends_with("kubectl") && p.exists())
            .cloned()
            .or_else(|| entries.iter().filter(|p| p.is_dir()).find_map(|p| find(p)))
    }
    find(&assets_dir()).expect("kubectl is among the assets: run `make assets`")
}

/// A running platform.
pub struct Platform {
    pub dir: tempfile::TempDir,
    /// The address that it listens on, and that it hands out.
    pub address: String,
    pub port: u16,
    pub config: PathBuf,
    daemon: Option<Child>,
    pub environment: Vec<(String, String)>,
    /// The uid that the daemon runs as; absent: the test's own.
    pub uid: Option<u32>,
    /// The daemon's binary; absent: the shipped one.
    pub binary: Option<PathBuf>,
}

/// The first of 20 ports that nobody listens on, and that no other platform of this run has.
fn free_node_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(30_000);
    loop {
        let first = NEXT.fetch_add(20, Ordering::SeqCst);
        assert!(first <= 32_740, "no 20 free ports are left between 30000 and 32767");
        if (first..first + 20).all(|port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
}

fn free_port(address: &str) -> u16 {
    std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

impl Platform {
    /// Starts one with the defaults.
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// Starts one with further lines of configuration.
    pub fn start_with(extra: &str) -> Self {
        let mut platform = Self::prepare(extra);
        platform.boot();
        platform
    }

    /// Everything but the daemon.
    pub fn prepare(extra: &str) -> Self {
        Self::prepare_at("127.0.0.1", extra)
    }

    /// The same at another address of this machine.
    pub fn prepare_at(address: &str, extra: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("kubebyon-e2e-").tempdir().unwrap();
        let port = free_port(address);
        let first = free_node_ports();
        let config = dir.path().join("kubebyon.yaml");
        let text = format!(
            "data_dir: {data}\nlisten: {address}:{port}\nadvertise_address: {address}:{port}\nnodeport_range: {first}-{last}\nassets:\n  dir: {assets}\n{extra}",
            data = dir.path().join("data").display(),
            last = first + 19,
            assets = assets_dir().display(),
        );
        std::fs::write(&config, text).unwrap();
        Self { dir, address: address.to_owned(), port, config, daemon: None, environment: Vec::new(), uid: None, binary: None }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("daemon.log")).unwrap_or_default()
    }

    /// The daemon's process id.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.daemon.as_ref().expect("the daemon runs").id()).unwrap()
    }

    /// Starts the daemon and returns when it says that it is ready (sd_notify).
    pub fn boot(&mut self) {
        let (socket, path) = notify_socket(self.dir.path());
        self.spawn(Some(&path));
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = [0u8; 4096];
        loop {
            match socket.recv(&mut buffer) {
                Ok(n) if String::from_utf8_lossy(&buffer[..n]).lines().any(|l| l == "READY=1") => return,
                Ok(_) => {}
                Err(_) => {
                    let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
                    assert!(ended.is_none(), "the daemon ended with {ended:?}:\n{}", self.log());
                    assert!(Instant::now() < deadline, "the daemon was not ready in time:\n{}", self.log());
                }
            }
        }
    }

    fn spawn(&mut self, notify: Option<&Path>) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.dir.path().join("daemon.log")).unwrap();
        let mut command = match self.uid {
            None => command(),
            Some(uid) => {
                let mut as_user = Command::new("setpriv");
                as_user
                    .args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()])
                    .arg(self.binary.clone().unwrap_or_else(binary));
                as_user.env_remove("KUBEBYON_BIN").env_remove("KUBEBYON_CACHE").env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
                as_user
            }
        };
        command.arg("--config").arg(&self.config).stdout(log.try_clone().unwrap()).stderr(log);
        command.envs(self.environment.iter().cloned());
        if let Some(path) = notify {
            command.env("NOTIFY_SOCKET", path);
        }
        self.daemon = Some(command.spawn().expect("the binary starts"));
    }

    /// Runs the daemon when it is expected to refuse: gives its exit code and what it said.
    pub fn refuse(&mut self) -> (i32, String) {
        let output = command().arg("--config").arg(&self.config).envs(self.environment.iter().cloned()).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// kill -9 of the daemon.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// SIGTERM, and waits for its end.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        let mut daemon = self.daemon.take().expect("the daemon runs");
        signal(i32::try_from(daemon.id()).unwrap(), "TERM");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = daemon.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the daemon did not end on SIGTERM:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs a command of the CLI.
    pub fn cli(&self, args: &[&str]) -> Output {
        command().arg("--data-dir").arg(self.data_dir()).args(args).output().unwrap()
    }

    /// Runs a command that must go well, and gives its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.cli(args);
        assert!(
            output.status.success(),
            "kubebyon {args:?} failed:\n{}\n{}\n--- daemon:\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            tail(&self.log(), 60)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that must fail with exit code `code`, and gives what it said.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.cli(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "kubebyon {args:?}: {said}");
        said
    }

    /// Runs a command with `-o json`, and gives what it printed.
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("kubebyon {args:?} -o json: {error}:\n{text}"))
    }

    /// Creates a cluster and waits until it is ready.
    pub fn create(&self, name: &str, more: &[&str]) -> Value {
        self.json(&[&["cluster", "create", name, "--wait"], more].concat())
    }

    /// Writes a kubeconfig of a cluster to a file and gives its path.
    pub fn kubeconfig(&self, cluster: &str, more: &[&str]) -> PathBuf {
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let path = self.dir.path().join(format!("kubeconfig-{}", COUNT.fetch_add(1, Ordering::SeqCst)));
        self.ok(&[&["kubeconfig", cluster, "--file", path.to_str().unwrap()], more].concat());
        path
    }

    /// The live processes of control planes of this platform: (component, pid), from their markers.
    pub fn children(&self) -> Vec<(String, i32)> {
        let data = self.data_dir();
        let mut found = Vec::new();
        for process in processes() {
            let Some(environment) = process.environment() else { continue };
            let get = |key: &str| {
                environment.iter().find_map(|entry| entry.strip_prefix(key).and_then(|r| r.strip_prefix('=')).map(str::to_owned))
            };
            let (Some(cluster), Some(component)) = (get("KUBEBYON_CLUSTER"), get("KUBEBYON_COMPONENT")) else { continue };
            if data.join("clusters").join(&cluster).exists() || self.clusters_seen().contains(&cluster) {
                found.push((component, process.0));
            }
        }
        found.sort();
        found
    }

    fn clusters_seen(&self) -> Vec<String> {
        let seen = self.dir.path().join("seen");
        std::fs::read_to_string(seen).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Remembers a cluster's id, so that `children` finds its processes after its folder is gone.
    pub fn remember(&self, cluster: &Value) {
        let id = cluster["id"].as_str().unwrap();
        let path = self.dir.path().join("seen");
        let mut seen = std::fs::read_to_string(&path).unwrap_or_default();
        seen.push_str(id);
        seen.push('\n');
        std::fs::write(path, seen).unwrap();
    }

    /// The process of a component of this platform's one cluster.
    pub fn child(&self, component: &str) -> i32 {
        let children = self.children();
        let mut of_component = children.iter().filter(|(name, _)| name == component);
        let pid = of_component.next().unwrap_or_else(|| panic!("no {component} among {children:?}")).1;
        assert_eq!(of_component.next(), None, "two processes of {component}: {children:?}");
        pid
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the daemon's last lines:\n{}", tail(&self.log(), 80));
        }
        if self.daemon.as_mut().is_some_and(|d| d.try_wait().ok().flatten().is_none()) {
            let text = self.cli(&["cluster", "list", "-A", "-o", "name"]);
            for name in String::from_utf8_lossy(&text.stdout).lines() {
                self.cli(&["cluster", "delete", name, "--wait", "--timeout", "60s"]);
            }
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for (_, pid) in self.children() {
            signal(pid, "KILL");
        }
        for mount in mounts().into_iter().rev().filter(|m| m.starts_with(self.dir.path())) {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
    }
}

fn notify_socket(dir: &Path) -> (UnixDatagram, PathBuf) {
    let path = dir.join("notify");
    let _ = std::fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).unwrap();
    // A daemon that is not root's tells it too.
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    (socket, path)
}

/// A process, by its id.
pub struct Process(pub i32);

impl Process {
    /// Its environment; `None` where it is gone, a zombie, or not ours to read.
    pub fn environment(&self) -> Option<Vec<String>> {
        let mut bytes = Vec::new();
        std::fs::File::open(format!("/proc/{}/environ", self.0)).ok()?.read_to_end(&mut bytes).ok()?;
        (!bytes.is_empty()).then(|| bytes.split(|b| *b == 0).map(|e| String::from_utf8_lossy(e).into_owned()).collect())
    }
}

/// Every process of the machine.
pub fn processes() -> Vec<Process> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).map(Process).collect()
}

/// Whether a process lives (a zombie does not).
pub fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

/// Every mount point.
pub fn mounts() -> Vec<PathBuf> {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter_map(|l| l.split(' ').nth(4)).map(PathBuf::from).collect()
}

/// Sends a signal.
pub fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// Runs a program and gives its output; fails where it cannot be started.
pub fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs kubectl with a kubeconfig.
pub fn kubectl_with(kubeconfig: &Path, args: &[&str]) -> Output {
    let path = kubectl();
    Command::new(path).arg("--kubeconfig").arg(kubeconfig).arg("--request-timeout=20s").args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs kubectl, which must go well, and gives its output.
pub fn kubectl_ok(kubeconfig: &Path, args: &[&str]) -> String {
    let output = kubectl_with(kubeconfig, args);
    assert!(
        output.status.success(),
        "kubectl {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Runs kubectl, which must fail, and gives what it said.
pub fn kubectl_fails(kubeconfig: &Path, args: &[&str]) -> String {
    let output = kubectl_with(kubeconfig, args);
    assert!(!output.status.success(), "kubectl {args:?} went well: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Applies a manifest.
pub fn apply(kubeconfig: &Path, manifest: &str) -> Output {
    use std::io::Write as _;
    let mut child = Command::new(kubectl())
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Asks again until `condition` gives something, or fails after [`PATIENCE`].
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "in {PATIENCE:?} it did not come about that {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
