//! The main job: create, use, patch, delete; and what a restart leaves alone.

use crate::harness::{Platform, alive, apply, eventually, kubectl_ok, mounts, run};

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.invalid/web}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, namespace: default}
data: {answer: \"42\"}
";

#[test]
fn a_cluster_is_created_used_and_deleted_without_a_trace() {
    let platform = Platform::start();
    let cluster = platform.create("demo", &[]);
    platform.remember(&cluster);
    assert_eq!(cluster["status"]["phase"], "ready");
    let kubeconfig = platform.kubeconfig("demo", &[]);
    assert_eq!(kubectl_ok(&kubeconfig, &["get", "--raw", "/readyz"]), "ok");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    assert!(text.contains("certificate-authority-data") && !text.contains("insecure-skip-tls-verify"), "TLS is verified:\n{text}");

    assert!(apply(&kubeconfig, DEPLOYMENT).status.success());
    assert_eq!(kubectl_ok(&kubeconfig, &["get", "configmap", "notes", "-o", "jsonpath={.data.answer}"]), "42");
    // The controller-manager works: it makes the Deployment's pods; nobody schedules them, for there is no node.
    eventually("the Deployment has two pods", || {
        (kubectl_ok(&kubeconfig, &["get", "pods", "-l", "app=web", "-o", "name"]).lines().count() == 2).then_some(())
    });

    let children = platform.children();
    assert_eq!(
        children.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    );
    let id = cluster["id"].as_str().unwrap();
    let uid = uid_of(children[0].1);
    assert_ne!(uid, 0, "control planes do not run as root");
    let port = cluster["node_port"].as_u64().unwrap();
    assert!(run("nft", &["list", "tables"]).stdout.windows(8).any(|w| w == b"kubebyon"), "the uid is confined");

    platform.ok(&["cluster", "delete", "demo", "--wait"]);
    assert!(children.iter().all(|(_, pid)| !alive(*pid)), "no process stays");
    assert!(!platform.data_dir().join("clusters").join(id).exists(), "no file stays");
    assert!(!std::path::Path::new("/run/kubebyon").join(id).exists(), "no key stays");
    assert!(!mounts().iter().any(|m| m.to_string_lossy().contains(id)), "no mount stays");
    assert!(std::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).is_err(), "no port stays");
    let tables = String::from_utf8(run("nft", &["list", "ruleset"]).stdout).unwrap();
    assert!(!tables.contains(&format!("skuid {uid} ")), "no rule stays:\n{tables}");
    assert!(
        !run("find", &["/sys/fs/cgroup", "-name", &format!("*{id}*")]).stdout.windows(4).any(|w| w == &id.as_bytes()[..4]),
        "no cgroup stays"
    );
    let claims = String::from_utf8(run("grep", &["-rl", id, "/run/kubebyon"]).stdout).unwrap();
    assert_eq!(claims, "", "no claim stays");
    assert_eq!(platform.json(&["cluster", "list"])["items"].as_array().unwrap().len(), 0);
    let rows = rows_that_name(&platform, id);
    assert_eq!(rows, Vec::<String>::new(), "no row but events and finished jobs stays");
}

fn uid_of(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|l| l.strip_prefix("Uid:")).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Tables of the store in which a cluster's id stands, but for events and jobs, which are history.
fn rows_that_name(platform: &Platform, id: &str) -> Vec<String> {
    let database = std::fs::read_dir(platform.data_dir())
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "db" || e == "sqlite"));
    let connection =
        rusqlite::Connection::open_with_flags(database.expect("a database"), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let tables: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('events', 'jobs', 'idempotency', 'idempotency_answers') AND name NOT LIKE 'sqlite_%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut found = Vec::new();
    for table in tables {
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            if (0..columns)
                .any(|c| matches!(row.get_ref(c).unwrap(), rusqlite::types::ValueRef::Text(t) if String::from_utf8_lossy(t).contains(id)))
            {
                found.push(table.clone());
            }
        }
    }
    found
}

#[test]
fn a_restarted_daemon_adopts_the_same_processes() {
    let mut platform = Platform::start();
    platform.create("demo", &[]);
    let kubeconfig = platform.kubeconfig("demo", &[]);
    let before = platform.children();
    assert_eq!(before.len(), 4);

    assert!(platform.stop().success(), "SIGTERM ends in exit code 0:\n{}", platform.log());
    assert_eq!(platform.children(), before, "control planes outlive the daemon");
    platform.boot();
    eventually("the cluster is ready again", || (platform.json(&["cluster", "get", "demo"])["status"]["phase"] == "ready").then_some(()));
    assert_eq!(platform.children(), before);

    platform.kill();
    assert_eq!(platform.children(), before, "and its death");
    platform.boot();
    assert_eq!(kubectl_ok(&kubeconfig, &["get", "--raw", "/readyz"]), "ok");
    assert_eq!(platform.children(), before);
    let components = platform.json(&["cluster", "get", "demo"])["status"]["components"].clone();
    assert!(components.as_array().unwrap().iter().all(|c| c["restarts"] == 0), "{components}");
}

#[test]
fn a_change_of_labels_and_of_the_address_takes_effect_without_a_new_process() {
    let platform = Platform::start();
    platform.create("demo", &["-l", "team=web"]);
    let before = platform.children();
    platform.ok(&["cluster", "label", "demo", "team-", "tier=gold"]);
    let selected = platform.json(&["cluster", "list", "-l", "tier=gold,!team"]);
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    assert_eq!(platform.json(&["cluster", "list", "-l", "team=web"])["items"].as_array().unwrap().len(), 0);
    assert_eq!(platform.children(), before);
}

#[test]
fn logs_of_every_part_are_read() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    for component in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "audit"] {
        let lines = platform.ok(&["cluster", "logs", "demo", component, "--tail", "3"]);
        assert!((1..=3).contains(&lines.lines().count()), "{component}: {lines:?}");
    }
    let reasons: Vec<String> = platform.json(&["cluster", "events", "demo"])["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["reason"].as_str().unwrap().to_owned())
        .collect();
    assert!(reasons.iter().any(|r| r == "Ready"), "{reasons:?}");
}
