//! Every command's `-o json` is JSON.

use crate::harness::Platform;

#[test]
fn every_command_speaks_json() {
    let platform = Platform::start();
    platform.json(&["project", "create", "blue"]);
    let cluster = platform.create("demo", &[]);
    platform.kubeconfig("demo", &[]);
    let kubeconfig = platform.json(&["kubeconfig", "list", "demo"])["items"][0]["id"].as_str().unwrap().to_owned();
    let job = platform.json(&["job", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    let token = platform.json(&["api-token", "list"]);
    assert!(token["items"].as_array().unwrap().is_empty());
    for args in [
        vec!["project", "list"],
        vec!["cluster", "list"],
        vec!["cluster", "list", "-A"],
        vec!["cluster", "get", "demo"],
        vec!["cluster", "get", cluster["id"].as_str().unwrap()],
        vec!["cluster", "get", "default/demo"],
        vec!["cluster", "events", "demo"],
        vec!["cluster", "label", "demo", "a=b"],
        vec!["cluster", "versions"],
        vec!["kubeconfig", "list", "demo"],
        vec!["kubeconfig", "demo"],
        vec!["kubeconfig", "revoke", "demo", &kubeconfig],
        vec!["job", "list"],
        vec!["job", "get", &job],
        vec!["settings", "get"],
        vec!["settings", "get", "public_access_mode"],
        vec!["settings", "set", "control_plane_host=127.0.0.1"],
        vec!["user", "create", "alice"],
        vec!["user", "list"],
        vec!["user", "get", "alice"],
        vec!["user", "role", "alice", "member"],
        vec!["user", "disable", "alice"],
        vec!["user", "delete", "alice", "--dry-run"],
        vec!["user", "delete", "alice"],
        vec!["assets", "list"],
        vec!["config", "print"],
        vec!["version"],
        vec!["cluster", "delete", "demo", "--dry-run"],
        vec!["cluster", "delete", "demo", "--wait"],
    ] {
        platform.json(&args);
    }
    let doctor = platform.cli(&["doctor", "-o", "json"]);
    serde_json::from_slice::<serde_json::Value>(&doctor.stdout).expect("doctor speaks JSON, well or not");
    serde_json::from_str::<serde_json::Value>(&platform.ok(&["openapi"])).expect("the OpenAPI file is JSON");
    for form in ["yaml", "name", "wide", "table"] {
        platform.ok(&["cluster", "list", "-o", form]);
        platform.ok(&["project", "list", "-o", form]);
    }
}
