//! Addresses and credentials: who gets in, with what, and who no longer does.

use std::time::{Duration, Instant};

use crate::harness::{Platform, eventually, kubectl_fails, kubectl_ok, kubectl_with};

#[test]
fn clusters_of_the_same_name_in_two_projects_do_not_take_each_others_credentials() {
    let platform = Platform::start();
    platform.ok(&["project", "create", "blue"]);
    let one = platform.create("twin", &[]);
    let two = platform.create("twin", &["--project", "blue"]);
    assert_ne!(one["label"], two["label"]);
    let mine = platform.kubeconfig("twin", &[]);
    let theirs = platform.kubeconfig("blue/twin", &[]);
    kubectl_ok(&mine, &["get", "namespaces"]);
    kubectl_ok(&theirs, &["get", "namespaces"]);

    // My credentials at their server: first as a client that trusts the right authority there.
    let (mine_text, theirs_text) = (std::fs::read_to_string(&mine).unwrap(), std::fs::read_to_string(&theirs).unwrap());
    let field = |text: &str, key: &str| text.lines().find_map(|l| l.trim().strip_prefix(&format!("{key}: ")).map(str::to_owned)).unwrap();
    let mut mixed = theirs_text.clone();
    for key in ["client-certificate-data", "client-key-data"] {
        mixed = mixed.replace(&field(&theirs_text, key), &field(&mine_text, key));
    }
    let path = platform.dir.path().join("mixed");
    std::fs::write(&path, &mixed).unwrap();
    let said = kubectl_fails(&path, &["get", "namespaces"]);
    assert!(said.contains("Unauthorized") || said.contains("must be logged in") || said.contains("certificate"), "{said}");
    // Then as one that trusts my authority: their server cannot prove itself to it.
    let wrong_ca =
        theirs_text.replace(&field(&theirs_text, "certificate-authority-data"), &field(&mine_text, "certificate-authority-data"));
    std::fs::write(&path, wrong_ca).unwrap();
    assert!(kubectl_fails(&path, &["get", "namespaces"]).contains("x509"));
}

#[test]
fn domain_mode_goes_through_the_one_port_by_name_alone() {
    let platform = Platform::start();
    let domain = platform.create("byname", &["--public-access-mode", "domain"]);
    let endpoint = &domain["status"]["endpoint"];
    assert_eq!(endpoint["server"], format!("https://127.0.0.1:{}", platform.port));
    let sni = endpoint["tls_server_name"].as_str().unwrap().to_owned();
    assert_eq!(sni, format!("{}.kubebyon.internal", domain["label"].as_str().unwrap()));
    let kubeconfig = platform.kubeconfig("byname", &[]);
    assert!(std::fs::read_to_string(&kubeconfig).unwrap().contains(&format!("tls-server-name: {sni}")));
    assert_eq!(kubectl_ok(&kubeconfig, &["get", "--raw", "/readyz"]), "ok");
    assert!(domain["node_port"].is_null(), "no port of its own");

    let port = platform.create("byport", &["--public-access-mode", "nodeport", "--control-plane-host", "localhost"]);
    let server = port["status"]["endpoint"]["server"].as_str().unwrap();
    assert_eq!(server, format!("https://localhost:{}", port["node_port"]));
    assert_eq!(kubectl_ok(&platform.kubeconfig("byport", &[]), &["get", "--raw", "/readyz"]), "ok");
}

#[test]
fn roles_hold_what_they_promise() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    let admin = platform.kubeconfig("demo", &[]);
    kubectl_ok(&admin, &["create", "namespace", "team"]);
    kubectl_ok(&admin, &["create", "clusterrole", "anything", "--verb=get", "--resource=pods"]);

    let view = platform.kubeconfig("demo", &["--role", "view"]);
    kubectl_ok(&view, &["get", "pods", "-A"]);
    kubectl_ok(&view, &["get", "nodes"]);
    assert!(kubectl_fails(&view, &["create", "configmap", "x"]).contains("forbidden"));
    assert!(kubectl_fails(&view, &["get", "secrets", "-A"]).contains("forbidden"));

    let edit = platform.kubeconfig("demo", &["--role", "edit"]);
    kubectl_ok(&edit, &["create", "configmap", "x"]);
    assert!(kubectl_fails(&edit, &["create", "clusterrole", "x", "--verb=get", "--resource=pods"]).contains("forbidden"));

    let scoped = platform.kubeconfig("demo", &["--role", "edit", "--namespace", "team"]);
    kubectl_ok(&scoped, &["create", "configmap", "y"]);
    assert_eq!(kubectl_ok(&admin, &["-n", "team", "get", "configmap", "y", "-o", "name"]).trim(), "configmap/y");
    assert!(kubectl_fails(&scoped, &["-n", "default", "get", "configmaps"]).contains("forbidden"));
    let said = platform.fails(1, &["kubeconfig", "demo", "--namespace", "absent"]);
    assert!(said.contains("absent"), "{said}");

    // No certificate that is handed out precedes the authorizers.
    let who = kubectl_ok(&admin, &["auth", "whoami", "-o", "json"]);
    assert!(!who.contains("system:masters"), "{who}");
}

#[test]
fn a_revoked_kubeconfig_is_refused_and_its_neighbour_is_not() {
    let mut platform = Platform::start();
    platform.create("demo", &[]);
    let kept = platform.kubeconfig("demo", &[]);
    let revoked = platform.kubeconfig("demo", &["--role", "edit"]);
    kubectl_ok(&revoked, &["get", "pods"]);
    let listed = platform.json(&["kubeconfig", "list", "demo"]);
    let id = listed["items"].as_array().unwrap().iter().find(|k| k["role"] == "edit").unwrap()["id"].as_str().unwrap().to_owned();
    platform.ok(&["kubeconfig", "revoke", "demo", &id]);
    let said = kubectl_fails(&revoked, &["get", "pods"]);
    assert!(said.to_lowercase().contains("forbidden") && said.contains("revoked"), "{said}");
    kubectl_ok(&kept, &["get", "pods"]);
    // The revocation outlives the daemon and the API server.
    platform.kill();
    let said = kubectl_with(&revoked, &["get", "pods"]);
    assert!(!said.status.success(), "nobody answers the webhook now, and it still is refused");
    platform.boot();
    kubectl_ok(&kept, &["get", "pods"]);
    assert!(kubectl_fails(&revoked, &["get", "pods"]).contains("revoked"));
    crate::harness::signal(platform.child("kube-apiserver"), "KILL");
    eventually("the API server is back", || kubectl_with(&kept, &["get", "pods"]).status.success().then_some(()));
    assert!(kubectl_fails(&revoked, &["get", "pods"]).contains("revoked"));
}

#[test]
fn a_service_accounts_kubeconfig_works_until_it_is_revoked() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    let token = platform.kubeconfig("demo", &["--service-account", "default/deployer", "--role", "edit", "--ttl", "1h"]);
    kubectl_ok(&token, &["create", "configmap", "from-ci"]);
    assert!(kubectl_ok(&token, &["auth", "whoami"]).contains("system:serviceaccount:default:deployer"));
    let listed = platform.json(&["kubeconfig", "list", "demo"]);
    let record = &listed["items"][0];
    assert_eq!(record["service_account"], "default/deployer");
    platform.ok(&["kubeconfig", "revoke", "demo", record["id"].as_str().unwrap()]);
    kubectl_fails(&token, &["get", "configmaps"]);
    let said = platform.fails(1, &["kubeconfig", "demo", "--service-account", "default/x", "--role", "edit", "--ttl", "1m"]);
    assert!(said.contains("600"), "the shortest life of a token is said: {said}");
}

#[test]
fn a_kubeconfig_ends_by_itself() {
    let platform = Platform::start();
    platform.create("demo", &[]);
    let started = Instant::now();
    let short = platform.kubeconfig("demo", &["--ttl", "15s"]);
    kubectl_ok(&short, &["get", "namespaces"]);
    assert!(started.elapsed() < Duration::from_secs(15), "the machine was too slow for this test to mean anything");
    let said = eventually("the kubeconfig is refused", || {
        let output = kubectl_with(&short, &["get", "namespaces"]);
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    assert!(started.elapsed() >= Duration::from_secs(14), "it ended too early");
    assert!(
        said.contains("Unauthorized") || said.contains("logged in") || said.contains("expired") || said.contains("credentials"),
        "{said}"
    );
    for bad in ["1s", "9999d"] {
        platform.fails(1, &["kubeconfig", "demo", "--ttl", bad]);
    }
}

#[test]
fn anonymous_clients_see_health_and_nothing_else() {
    let platform = Platform::start();
    let cluster = platform.create("demo", &[]);
    let server = cluster["status"]["endpoint"]["server"].as_str().unwrap();
    let status = |path: &str| {
        let output = crate::harness::run("curl", &["-sk", "-o", "/dev/null", "-w", "%{http_code}", &format!("{server}{path}")]);
        String::from_utf8(output.stdout).unwrap()
    };
    for (path, expected) in [
        ("/readyz", "200"),
        ("/livez", "200"),
        ("/healthz", "200"),
        ("/version", "401"),
        ("/readyz/etcd", "401"),
        ("/api", "401"),
        ("/metrics", "401"),
    ] {
        assert_eq!(status(path), expected, "{path}");
    }
}
