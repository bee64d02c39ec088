//! These start real processes. Those that switch uid need root.

use super::*;
use crate::domain::Ambient;

/// A spec that runs `/bin/sh -c script`.
pub(crate) fn shell(folder: &Path, component: &str, script: &str) -> ProcessSpec {
    ProcessSpec {
        installation: "test".into(),
        cluster: ClusterId::generate(&Ambient::system()),
        component: component.into(),
        program: "/bin/sh".into(),
        identity: "sh".into(),
        args: vec!["-c".into(), script.into()],
        env: BTreeMap::from([("PATH".into(), "/usr/bin:/bin".into())]),
        log: folder.join(format!("{component}.log")),
        uid: None,
        cgroups: vec![],
        open_files: 512,
        oom_score_adj: 100,
    }
}

#[tokio::test]
async fn runs_with_its_environment_alone_and_says_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let spec = shell(
        folder.path(),
        "etcd",
        "env; echo $0; ulimit -n; umask; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status; ls /proc/self/fd; exit 3",
    );
    let process = spec.spawn().unwrap();
    assert_eq!(process.exited().await, Exit::Code(3));
    let log = std::fs::read_to_string(&spec.log).unwrap();
    for line in ["PATH=/usr/bin:/bin", "KUBEBYON_COMPONENT=etcd", "KUBEBYON_INSTALLATION=test", "etcd", "512", "0077", "100"] {
        assert!(log.lines().any(|l| l == line), "{line} is missing in:\n{log}");
    }
    assert!(log.contains(&format!("KUBEBYON_PLAN={}", spec.plan())) && log.contains(&format!("KUBEBYON_CLUSTER={}", spec.cluster)));
    assert!(log.contains("NoNewPrivs:\t1"));
    assert!(!log.contains("CARGO"), "the daemon's environment leaks:\n{log}");
    // `ls` has 0 to 2 and the folder that it reads.
    assert_eq!(log.lines().rev().take_while(|l| l.parse::<u32>().is_ok()).count(), 4, "{log}");
    assert_eq!(std::fs::metadata(&spec.log).unwrap().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn is_reaped_and_told_by_signal() {
    let folder = tempfile::tempdir().unwrap();
    let process = shell(folder.path(), "etcd", "exec sleep 600").spawn().unwrap();
    assert!(process.running());
    assert_eq!(process.stop(Duration::from_secs(10)).await.unwrap(), Exit::Signal(15));
    assert!(!process.running());
    assert!(!Path::new(&format!("/proc/{}", process.pid())).exists(), "a zombie stays");
    process.signal(Signal::KILL).unwrap();
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let spec = shell(folder.path(), "etcd", "trap '' TERM; echo ready; while :; do sleep 0.1; done");
    let process = spec.spawn().unwrap();
    while std::fs::read(&spec.log).unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(process.stop(Duration::from_millis(200)).await.unwrap(), Exit::Signal(9));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = shell(folder.path(), "etcd", "true");
    spec.program = "/nonexistent/etcd".into();
    let error = format!("{:#}", spec.spawn().err().unwrap());
    assert!(error.contains("/nonexistent/etcd") && error.contains("etcd"), "{error}");
}

/// Needs root.
#[tokio::test]
async fn switches_uid_and_drops_every_group() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = shell(folder.path(), "etcd", "id -u; id -G; grep CapEff /proc/self/status");
    spec.uid = Some(965_001);
    assert_eq!(spec.spawn().unwrap().exited().await, Exit::Code(0));
    let log = std::fs::read_to_string(&spec.log).unwrap();
    assert_eq!(log, "965001\n965001\nCapEff:\t0000000000000000\n");
}

#[test]
fn the_plan_changes_with_what_matters_alone() {
    let folder = Path::new("/var/log");
    let spec = shell(folder, "etcd", "true");
    let changed = |change: fn(&mut ProcessSpec)| {
        let mut other = spec.clone();
        change(&mut other);
        other.plan() != spec.plan()
    };
    assert!(changed(|s| s.args.push("x".into())));
    assert!(changed(|s| s.args = vec!["-ctrue".into()]));
    assert!(changed(|s| s.identity = "other".into()));
    assert!(changed(|s| s.uid = Some(1)));
    assert!(changed(|s| {
        s.env.insert("GOGC".into(), "30".into());
    }));
    assert!(!changed(|s| s.log = "/elsewhere".into()));
    assert!(!changed(|s| s.program = "/elsewhere".into()));
}
