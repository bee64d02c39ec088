//! Bad input gets a clear error and loses nothing.

use crate::harness::{Platform, command, run};

#[test]
fn names_versions_and_ranges_are_checked_before_anything_is_made() {
    let platform = Platform::start();
    for (args, word) in [
        (vec!["cluster", "create", "Demo"], "RFC 1123"),
        (vec!["cluster", "create", "list"], "reserved"),
        (vec!["cluster", "create", "a234567890123456789012345678901234567890x"], "40"),
        (vec!["cluster", "create", "demo", "--kubernetes-version", "1.2.3"], "1.36.3"),
        (vec!["cluster", "create", "demo", "--pod-cidr", "10.96.0.0/12"], "overlaps"),
        (vec!["cluster", "create", "demo", "--pod-cidr", "10.244.1.1/16"], "10.244.0.0/16"),
        (vec!["cluster", "create", "demo", "--service-cidr", "127.0.0.0/16"], "loopback"),
        (vec!["cluster", "create", "demo", "--control-plane-host", "no host"], "host"),
        (vec!["cluster", "create", "demo", "--engine", "vcluster"], "local"),
        (vec!["cluster", "create", "demo", "-l", "_bad=1"], "label"),
        (vec!["cluster", "create", "demo", "--project", "absent"], "no such project"),
        (vec!["cluster", "get", "absent"], "absent"),
        (vec!["cluster", "list", "-l", "a b"], "a b"),
        (vec!["project", "create", "default"], "exists"),
        (vec!["settings", "set", "public_access_mode=both"], "nodeport"),
        (vec!["settings", "set", "nonsense=1"], "public_base_url"),
        (vec!["job", "get", "01890000-0000-7000-8000-000000000000"], "job"),
        (vec!["api-token", "revoke", "nobody"], "api-token list"),
        (vec!["assets", "fetch", "--from", "/nonexistent"], "there is no folder /nonexistent"),
    ] {
        let said = platform.fails(1, &args);
        assert!(said.contains(word), "{args:?} should name {word:?}: {said}");
    }
    platform.fails(2, &["cluster", "creat"]);
    platform.fails(2, &["cluster", "create", "demo", "--wat"]);
    platform.fails(2, &["kubeconfig", "demo", "--ttl", "8"]);
    platform.fails(2, &["kubeconfig", "demo", "--service-account", "default/ci"]);
    assert!(platform.json(&["cluster", "list"])["items"].as_array().unwrap().is_empty());
}

#[test]
fn a_name_that_is_taken_is_refused_and_a_dry_run_makes_nothing() {
    let platform = Platform::start();
    platform.json(&["cluster", "create", "demo", "--dry-run"]);
    assert!(platform.json(&["cluster", "list"])["items"].as_array().unwrap().is_empty());
    platform.create("demo", &[]);
    let said = platform.fails(1, &["cluster", "create", "demo"]);
    assert!(said.contains("demo") && said.contains("already"), "{said}");
    let plan = platform.json(&["cluster", "delete", "demo", "--dry-run"]);
    assert!(plan.to_string().contains("demo"), "{plan}");
    assert_eq!(platform.json(&["cluster", "get", "demo"])["status"]["phase"], "ready");
}

#[test]
fn a_wrong_configuration_is_refused_whole_with_exit_code_64() {
    let mut platform = Platform::prepare("lisen: 1\nlog:\n  level: loud\npublic_access_mode: both\n");
    let (code, said) = platform.refuse();
    assert_eq!(code, 64, "{said}");
    for word in ["lisen", "listen", "kubebyon.yaml:", "log.level", "public_access_mode"] {
        assert!(said.contains(word), "should name {word}: {said}");
    }
    assert!(!platform.data_dir().join("kubebyon.sock").exists());
    let said = platform.fails(64, &["--config", platform.config.to_str().unwrap(), "config", "check"]);
    assert!(said.contains("lisen"), "{said}");
    platform.environment.push(("KUBEBYON_LOG__LEVLE".into(), "info".into()));
    let (code, said) = platform.refuse();
    assert_eq!(code, 64);
    assert!(said.contains("KUBEBYON_LOG__LEVLE"), "{said}");
}

#[test]
fn a_second_daemon_and_a_taken_port_are_refused() {
    let mut platform = Platform::start();
    let (code, said) = platform.refuse();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&platform.pid().to_string()), "the first one's pid is named: {said}");

    let mut other = Platform::prepare("");
    let text = std::fs::read_to_string(&other.config)
        .unwrap()
        .replace(&format!("listen: 127.0.0.1:{}", other.port), &format!("listen: 127.0.0.1:{}", platform.port));
    std::fs::write(&other.config, text).unwrap();
    let (code, said) = other.refuse();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&platform.port.to_string()) && said.contains("taken"), "{said}");
    platform.ok(&["cluster", "list"]);
    platform.stop();
}

#[test]
fn a_database_of_a_newer_release_is_refused_untouched() {
    let mut platform = Platform::start();
    platform.stop();
    let database = std::fs::read_dir(platform.data_dir())
        .unwrap()
        .flatten()
        .map(|e| e.path())
        .find(|p| p.extension().is_some_and(|e| e == "db" || e == "sqlite"))
        .unwrap();
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection.execute("UPDATE schema_version SET version = 9999", []).unwrap();
    drop(connection);
    let (code, said) = platform.refuse();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("9999") && said.contains("newer"), "{said}");
}

#[test]
fn a_database_that_was_lost_beside_its_keys_is_refused() {
    let mut platform = Platform::start();
    platform.stop();
    for name in ["kubebyon.db", "kubebyon.db-wal", "kubebyon.db-shm"] {
        let _ = std::fs::remove_file(platform.data_dir().join(name));
    }
    let password = std::fs::read(platform.data_dir().join("initial-admin-password")).unwrap();
    let (code, said) = platform.refuse();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("platform.key") && said.contains("Restore kubebyon.db"), "{said}");
    assert_eq!(std::fs::read(platform.data_dir().join("initial-admin-password")).unwrap(), password, "nothing was overwritten");
}

#[test]
fn another_installations_sealing_key_is_refused() {
    let mut platform = Platform::start();
    platform.stop();
    let key = platform.data_dir().join("tenant.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let (code, said) = platform.refuse();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("tenant.key"), "{said}");
    std::fs::write(&key, &kept[..10]).unwrap();
    let (code, said) = platform.refuse();
    assert_eq!(code, 1, "{said}");
    std::fs::write(&key, &kept).unwrap();
    run("chmod", &["600", key.to_str().unwrap()]);
    platform.boot();
    platform.stop();
}

#[test]
fn help_teaches_and_unknown_commands_are_usage_errors() {
    for args in [vec!["--help"], vec!["cluster", "--help"], vec!["cluster", "create", "--help"], vec!["kubeconfig", "--help"]] {
        let output = command().args(&args).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("Usage"), "{args:?}");
    }
    assert_eq!(command().arg("nonsense").status().unwrap().code(), Some(2));
    let version = command().arg("version").output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).contains(env!("CARGO_PKG_VERSION")));
}
