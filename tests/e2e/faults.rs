//! Death at any moment ends in the state that was asked for.

use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Platform, alive, eventually, kubectl_ok, kubectl_with, signal};

/// A different, even spread of moments: the golden ratio's multiples, scaled to `span`.
fn moments(count: u32, span: Duration) -> impl Iterator<Item = Duration> {
    (1..=count).map(move |i| span.mul_f64((f64::from(i) * 0.618_033_988_75).fract()))
}

#[test]
fn a_daemon_killed_at_20_moments_of_a_create_and_of_a_delete_ends_where_it_was_asked_to() {
    let mut platform = Platform::start();
    let (create, delete) = typical_times(&platform);
    let mut creates = moments(20, create);
    let mut deletes = moments(20, delete);
    for round in 0..20 {
        let name = format!("c{round}");
        let cluster = platform.json(&["cluster", "create", &name]);
        platform.remember(&cluster);
        std::thread::sleep(creates.next().unwrap());
        platform.kill();
        platform.boot();
        eventually(&format!("cluster {name} is ready"), || {
            (platform.json(&["cluster", "get", &name])["status"]["phase"] == "ready").then_some(())
        });
        assert_eq!(platform.children().len(), 4, "one of each program in round {round}: {:?}", platform.children());
        if round % 5 == 0 {
            assert_eq!(kubectl_ok(&platform.kubeconfig(&name, &[]), &["get", "--raw", "/readyz"]), "ok");
        }
        let children = platform.children();
        platform.ok(&["cluster", "delete", &name]);
        std::thread::sleep(deletes.next().unwrap());
        platform.kill();
        platform.boot();
        eventually(&format!("cluster {name} is gone"), || {
            platform.json(&["cluster", "list"])["items"].as_array().unwrap().is_empty().then_some(())
        });
        assert!(children.iter().all(|(_, pid)| !alive(*pid)), "no process stays in round {round}");
        assert_eq!(platform.children(), []);
        let id = cluster["id"].as_str().unwrap();
        assert!(!platform.data_dir().join("clusters").join(id).exists() && !std::path::Path::new("/run/kubebyon").join(id).exists());
    }
}

/// How long a create and a delete take here when nothing goes wrong.
fn typical_times(platform: &Platform) -> (Duration, Duration) {
    let started = Instant::now();
    let cluster = platform.create("typical", &[]);
    platform.remember(&cluster);
    let create = started.elapsed();
    let started = Instant::now();
    platform.ok(&["cluster", "delete", "typical", "--wait"]);
    (create, started.elapsed())
}

#[test]
fn every_child_that_is_killed_comes_back() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    let kubeconfig = platform.kubeconfig("demo", &[]);
    for component in ["kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"] {
        let pid = platform.child(component);
        signal(pid, "KILL");
        eventually(&format!("{component} is back and well"), || {
            let cluster = platform.json(&["cluster", "get", "demo"]);
            let status = cluster["status"]["components"].as_array()?.iter().find(|c| c["name"] == component)?.clone();
            (status["healthy"] == true && status["restarts"] == 1 && status["pid"] != pid && cluster["status"]["phase"] == "ready")
                .then_some(())
        });
        eventually("the API answers", || kubectl_with(&kubeconfig, &["get", "namespaces"]).status.success().then_some(()));
    }
    let events = platform.json(&["cluster", "events", "demo"]);
    let exits = events["items"].as_array().unwrap().iter().filter(|e| e["reason"] == "ComponentExited").count();
    assert!(exits >= 4, "each exit is told: {events}");
}

#[test]
fn a_part_that_is_down_is_named_with_the_reason() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    // Stopped, not dead: its pid lives, and only its answers are missing.
    let pid = platform.child("kube-scheduler");
    signal(pid, "STOP");
    eventually("the cluster is degraded by its scheduler", || {
        let cluster = platform.json(&["cluster", "get", "demo"]);
        let condition = cluster["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "SchedulerHealthy")?.clone();
        (cluster["status"]["phase"] == "degraded" && condition["status"] == false && condition["message"] != "").then_some(())
    });
    assert!(platform.ok(&["cluster", "list"]).contains("degraded (kube-scheduler)"));
    signal(pid, "CONT");
    eventually("it is ready again", || (platform.json(&["cluster", "get", "demo"])["status"]["phase"] == "ready").then_some(()));
}

#[test]
fn an_etcd_filled_to_its_quota_recovers_once_there_is_room() {
    let platform = Platform::start_with("limits:\n  etcd_quota_bytes: 20971520\n");
    platform.create("demo", &[]);
    let admin = platform.kubeconfig("demo", &[]);
    let filler = platform.dir.path().join("filler");
    std::fs::write(&filler, "x".repeat(900_000)).unwrap();
    let from = format!("--from-file=filler={}", filler.display());
    let space = || {
        let cluster = platform.json(&["cluster", "get", "demo"]);
        cluster["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "EtcdSpace").map(|c| c["status"] == true)
    };
    // What is deleted and overwritten is reclaimed by the platform without a word, so that it takes real data to fill the quota.
    let mut made = 0;
    let mut refusals = 0;
    eventually("the quota is held, and the condition says it", || {
        let output = kubectl_with(&admin, &["create", "configmap", &format!("filler-{made}"), &from]);
        if output.status.success() {
            made += 1;
            assert!(made < 60, "the quota is not held");
        } else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("space exceeded"), "{said}");
            refusals += 1;
        }
        (refusals > 0 && space() == Some(false)).then_some(())
    });
    for i in 0..made {
        kubectl_ok(&admin, &["delete", "configmap", &format!("filler-{i}")]);
    }
    eventually("writing works again, by itself", || kubectl_with(&admin, &["create", "configmap", "after"]).status.success().then_some(()));
    eventually("the condition is well again", || (space() == Some(true)).then_some(()));
    assert_eq!(platform.json(&["cluster", "get", "demo"])["status"]["phase"], "ready");
}

#[test]
fn a_dead_job_is_shown_with_its_error_and_can_be_retried() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    // The daemon's own folder of that cluster cannot be removed while an immutable file stands in it.
    let id = platform.json(&["cluster", "get", "demo"])["id"].as_str().unwrap().to_owned();
    let stone = platform.data_dir().join("clusters").join(&id).join("stone");
    std::fs::create_dir_all(stone.parent().unwrap()).unwrap();
    std::fs::write(&stone, "").unwrap();
    if !crate::harness::run("chattr", &["+i", stone.to_str().unwrap()]).status.success() {
        // A file system without the attribute: a mount does the same.
        assert!(crate::harness::run("mount", &["--bind", stone.to_str().unwrap(), stone.to_str().unwrap()]).status.success());
    }
    platform.ok(&["cluster", "delete", "demo"]);
    let job = eventually("the job's error is shown", || {
        let jobs = platform.json(&["job", "list"]);
        jobs["items"].as_array()?.iter().find(|j| j["kind"] == "reconcile-cluster" && j["last_error"].is_string()).cloned()
    });
    assert!(job["last_error"].as_str().unwrap().contains("cannot remove"), "{job}");
    crate::harness::run("chattr", &["-i", stone.to_str().unwrap()]);
    crate::harness::run("umount", &[stone.to_str().unwrap()]);
    let deadline = Instant::now() + PATIENCE;
    while !platform.json(&["cluster", "list"])["items"].as_array().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it is not gone after the obstacle was");
        std::thread::sleep(Duration::from_millis(200));
    }
}
