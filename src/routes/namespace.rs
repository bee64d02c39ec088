//! For tests: network namespaces that go when they are dropped, and machines' wiring in them. Needs root and the program `ip`.

use std::fs::File;
use std::future::Future;
use std::os::fd::AsRawFd as _;
use std::process::Command;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace of its own, with `lo` up.
pub(crate) struct Namespace(File);

impl Namespace {
    /// A new one.
    pub(crate) fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("tests of the network need root");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        let namespace = Self(made.join().unwrap());
        namespace.ip("link set lo up");
        namespace
    }

    /// Where programs find it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// What a function returns inside.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let entered = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What a future gives inside, on a runtime of its own.
    pub(crate) fn block_on<F: Future>(&self, work: impl FnOnce() -> F + Send) -> F::Output
    where
        F::Output: Send,
    {
        self.inside(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work()))
    }

    /// Runs a program inside and returns what it prints; it must succeed.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.inside(|| Command::new(program).args(args).output().unwrap());
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `ip` inside with the words of a line.
    pub(crate) fn ip(&self, line: &str) -> String {
        self.run("ip", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `nft` inside on a text.
    pub(crate) fn nft(&self, rules: &str) {
        self.run("nft", &[rules]);
    }

    /// A cable: `here` on this side, `there` in the other namespace, both up.
    pub(crate) fn cable(&self, here: &str, other: &Self, there: &str) {
        self.ip(&format!("link add {here} type veth peer name {there} netns {}", other.path()));
        self.ip(&format!("link set {here} up"));
        other.ip(&format!("link set {there} up"));
    }

    /// Writes a setting below `/proc/sys/net`.
    pub(crate) fn sysctl(&self, name: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap());
    }
}
