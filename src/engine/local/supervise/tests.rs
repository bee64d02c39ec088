//! The supervisor over real processes (shells that sleep).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::process::tests::shell;

#[derive(Default)]
struct Told(Mutex<Vec<(String, String)>>);

#[async_trait]
impl Journal for Told {
    async fn tell(&self, _: Severity, reason: &str, message: String) {
        self.0.lock().unwrap().push((reason.to_owned(), message));
    }
}

/// Well are those that are not named.
#[derive(Default)]
struct Unwell(Mutex<BTreeSet<&'static str>>);

#[async_trait]
impl Probes for Unwell {
    async fn probe(&self, component: &'static str) -> Result<(), String> {
        if self.0.lock().unwrap().contains(component) { Err("these checks fail: ping".into()) } else { Ok(()) }
    }
}

struct Bench {
    folder: tempfile::TempDir,
    told: Arc<Told>,
    unwell: Arc<Unwell>,
    supervisor: Supervisor,
}

impl Bench {
    fn new(adopted: &BTreeMap<&'static str, Process>) -> Self {
        let told = Arc::new(Told::default());
        let supervisor = Supervisor::start(Ambient::system(), told.clone(), adopted, &[]);
        Self { folder: tempfile::tempdir().unwrap(), told, unwell: Arc::default(), supervisor }
    }

    /// Programs that write their starts and SIGTERMs, in order, to one file.
    fn desired(&self, mark: &str) -> Desired {
        Desired {
            specs: COMPONENTS.map(|name| (name, Arc::new(spec(self.folder.path(), name, mark)))).into(),
            probes: self.unwell.clone(),
            data: None,
        }
    }

    async fn until(&self, what: impl Fn(&Observed) -> bool + Send) -> Observed {
        let mut observed = self.supervisor.observed();
        let seen = tokio::time::timeout(Duration::from_secs(20), observed.wait_for(|o| what(o))).await;
        let seen = seen.unwrap_or_else(|_| panic!("stays at {:?}", self.supervisor.observed().borrow().clone()));
        seen.unwrap().clone()
    }

    fn order(&self) -> Vec<String> {
        std::fs::read_to_string(self.folder.path().join("order")).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn spec(folder: &Path, name: &str, mark: &str) -> ProcessSpec {
    let order = folder.join("order");
    let order = order.display();
    let script = format!(
        "trap 'echo stop {name} >> {order}; kill $child; exit 0' TERM; sleep 600 & child=$!; echo start {name} >> {order}; echo {mark}; wait"
    );
    shell(folder, name, &script)
}

fn pids(observed: &Observed) -> Vec<i32> {
    observed.components.iter().filter_map(|c| c.pid).collect()
}

#[tokio::test]
async fn starts_in_order_and_stops_in_order() {
    let bench = Bench::new(&BTreeMap::new());
    bench.unwell.0.lock().unwrap().insert("etcd");
    bench.supervisor.apply(bench.desired("a")).await.unwrap();
    let seen = bench.until(|o| o.component("etcd").is_some_and(|c| c.message.contains("these checks fail"))).await;
    assert_eq!(pids(&seen).len(), 1, "the API server must wait for etcd");
    assert_eq!(seen.component("kube-apiserver").unwrap().message, "it waits for etcd");
    bench.unwell.0.lock().unwrap().clear();
    bench.until(Observed::ready).await;
    while bench.order().len() < 4 {
        tokio::task::yield_now().await;
    }
    bench.supervisor.stop().await.unwrap();
    let order = bench.order();
    assert_eq!(order[..2], ["start etcd", "start kube-apiserver"]);
    let stops: Vec<_> = STOP_ORDER.iter().map(|name| format!("stop {name}")).collect();
    assert_eq!(order[4..], stops);
}

#[tokio::test]
async fn what_is_killed_comes_back_and_the_others_stay() {
    let bench = Bench::new(&BTreeMap::new());
    bench.supervisor.apply(bench.desired("a")).await.unwrap();
    let before = pids(&bench.until(Observed::ready).await);
    let log = bench.folder.path().join("kube-apiserver.log");
    while std::fs::read(&log).unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    // Its whole session, so that no child of the shell stays.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(-before[1]), nix::sys::signal::Signal::SIGKILL).unwrap();
    let down = bench.until(|o| o.component("kube-apiserver").is_some_and(|c| c.pid.is_none())).await;
    assert_eq!(down.component("kube-apiserver").unwrap().message, "it ended with signal 9 (SIGKILL)");
    let after = bench.until(|o| o.ready() && o.component("kube-apiserver").is_some_and(|c| c.restarts == 1)).await;
    let after = pids(&after);
    assert_ne!(after[1], before[1]);
    assert_eq!((after[0], after[2], after[3]), (before[0], before[2], before[3]));
    let told = bench.told.0.lock().unwrap().clone();
    assert_eq!(told.iter().map(|t| t.0.as_str()).collect::<Vec<_>>(), ["ComponentExited", "ComponentRestarted"]);
    assert!(told[0].1.contains("signal 9 (SIGKILL)") && told[0].1.contains("Its last words: a"), "{}", told[0].1);
    bench.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn only_what_differs_is_started_anew() {
    let bench = Bench::new(&BTreeMap::new());
    bench.supervisor.apply(bench.desired("a")).await.unwrap();
    let before = pids(&bench.until(Observed::ready).await);
    let mut changed = bench.desired("a");
    let specs = bench.desired("b").specs;
    for name in ["kube-apiserver", "kube-scheduler"] {
        changed.specs.insert(name, specs[name].clone());
    }
    let number = bench.supervisor.apply(changed).await.unwrap();
    let after = pids(&bench.until(|o| o.applied == number && o.ready()).await);
    assert_eq!([after[0] == before[0], after[1] == before[1], after[2] == before[2], after[3] == before[3]], [true, false, true, false]);
    assert!(bench.told.0.lock().unwrap().is_empty(), "a change is no failure");
    bench.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn adopted_programs_keep_their_pids() {
    let first = Bench::new(&BTreeMap::new());
    let desired = first.desired("a");
    first.supervisor.apply(desired.clone()).await.unwrap();
    let before = first.until(Observed::ready).await;
    let Bench { supervisor, folder, unwell, .. } = first;
    drop(supervisor);
    let adopted = before
        .components
        .iter()
        .zip(COMPONENTS)
        .map(|(c, name)| {
            let pid = rustix::process::Pid::from_raw(c.pid.unwrap()).unwrap();
            (name, Process::open(pid, desired.specs[name].plan()).unwrap())
        })
        .collect();
    let second = Bench { folder, unwell, ..Bench::new(&adopted) };
    second.supervisor.apply(desired).await.unwrap();
    assert_eq!(pids(&second.until(Observed::ready).await), pids(&before));
    second.supervisor.stop().await.unwrap();
    assert!(pids(&before).iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
}

#[tokio::test]
async fn a_program_that_cannot_start_is_told_and_tried_again() {
    let bench = Bench::new(&BTreeMap::new());
    let mut desired = bench.desired("a");
    let mut broken = (*desired.specs["etcd"]).clone();
    broken.program = bench.folder.path().join("etcd");
    desired.specs.insert("etcd", Arc::new(broken));
    bench.supervisor.apply(desired).await.unwrap();
    bench.until(|o| o.component("etcd").is_some_and(|c| c.message.contains("cannot start etcd"))).await;
    std::fs::copy("/bin/sh", bench.folder.path().join("etcd")).unwrap();
    bench.until(Observed::ready).await;
    assert_eq!(bench.told.0.lock().unwrap()[0].0, "ComponentNotStarted");
    bench.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn etcd_is_not_started_without_the_data_that_it_had() {
    let bench = Bench::new(&BTreeMap::new());
    let folder = bench.folder.path().join("member");
    let mut desired = bench.desired("a");
    desired.data = Some(Data { folder: folder.clone(), expected: false });
    bench.supervisor.apply(desired.clone()).await.unwrap();
    let before = pids(&bench.until(Observed::ready).await);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(-before[0]), nix::sys::signal::Signal::SIGKILL).unwrap();
    let down = bench.until(|o| o.component("etcd").is_some_and(|c| c.message.contains("its data is missing"))).await;
    assert_eq!(down.component("etcd").unwrap().pid, None);
    std::fs::create_dir(&folder).unwrap();
    bench.supervisor.apply(desired).await.unwrap();
    bench.until(Observed::ready).await;
    bench.supervisor.stop().await.unwrap();
}

#[tokio::test]
async fn one_that_was_well_and_falls_silent_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let process = shell(folder.path(), "kube-scheduler", "exec sleep 600").spawn().unwrap();
    let pid = process.pid();
    let mut slot = Slot::new("kube-scheduler", None, 0);
    slot.started(process);
    tokio::time::pause();
    let silent = || Err("it did not answer in time".to_owned());
    let unwell = || Err("these checks fail: ping".to_owned());
    let mut ask = async |result, excused| {
        slot.probed(pid, result, excused, Duration::ZERO);
        let hangs = slot.hangs();
        tokio::time::advance(SILENCE).await;
        hangs
    };
    assert!(!ask(silent(), false).await && !ask(silent(), false).await, "it was never well");
    assert!(!ask(Ok(()), false).await);
    assert!(!ask(silent(), false).await, "it has only begun to be silent");
    assert!(!ask(unwell(), false).await && !ask(unwell(), false).await, "that is an answer");
    assert!(!ask(silent(), true).await && !ask(silent(), true).await, "what it needs is not well");
    assert!(!ask(silent(), false).await);
    assert!(ask(silent(), false).await);
    tokio::time::resume();
    slot.end_hung().await.unwrap();
    assert!(slot.process.is_none() && !slot.may_start());
    let next = shell(folder.path(), "kube-scheduler", "exec sleep 600").spawn().unwrap();
    assert_eq!(slot.started(next.clone()), Some(next.pid()), "it counts as a restart");
    slot.stop().await.unwrap();
}
