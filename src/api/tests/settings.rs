//! Settings: default, set, fixed.

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use crate::api::state::FixedSetting;

#[tokio::test]
async fn the_configuration_beats_a_setting_and_a_setting_the_default() {
    let api = Api::new().await;
    let path = "/api/v1/settings/kubernetes_version";
    let get = || api.get(path).local().send();
    assert_eq!(get().await.json["source"], "default");
    let set = api.put(path, json!({"value": "1.36.3"})).local().send().await.expect(StatusCode::OK);
    assert_eq!((&set.json["value"], &set.json["source"]), (&json!("1.36.3"), &json!("setting")));
    assert_eq!(api.cluster("demo").await.spec.kubernetes_version.to_string(), "1.36.3");
    let fixed = FixedSetting { value: "1.35.1".into(), source: "/etc/kubebyon/kubebyon.yaml:7".into() };
    api.parts.fixed.lock().unwrap().insert("kubernetes_version".into(), fixed);
    let now = get().await;
    assert_eq!((&now.json["value"], &now.json["source"]), (&json!("1.35.1"), &json!("configuration")));
    assert_eq!(now.json["fixed_by"], "/etc/kubebyon/kubebyon.yaml:7");
    let refused = api.put(path, json!({"value": "1.34.4"})).local().send().await.problem("setting-fixed");
    assert!(refused.json["detail"].as_str().unwrap().contains("/etc/kubebyon/kubebyon.yaml:7"));
    api.parts.fixed.lock().unwrap().clear();
    api.put(path, json!({"value": ""})).local().send().await.expect(StatusCode::OK);
    assert_eq!(get().await.json["source"], "default");
}

#[tokio::test]
async fn values_and_keys_are_checked() {
    let api = Api::new().await;
    for (key, value) in [
        ("kubernetes_version", "1.99.0"),
        ("kubernetes_version", "newest"),
        ("public_access_mode", "both"),
        ("public_base_url", "http://x"),
        ("control_plane_host", "a b"),
    ] {
        api.put(&format!("/api/v1/settings/{key}"), json!({"value": value})).local().send().await.problem("invalid");
    }
    let unknown = api.put("/api/v1/settings/colour", json!({"value": "red"})).local().send().await.problem("not-found");
    assert!(unknown.json["detail"].as_str().unwrap().contains("public_base_url"));
    let all = api.get("/api/v1/settings").local().send().await;
    let keys: Vec<_> = all.json["items"].as_array().unwrap().iter().map(|s| s["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, crate::domain::settings::KNOWN.iter().map(|(key, _)| *key).collect::<Vec<_>>());
    assert_eq!(all.json["items"][1]["value"], "https://203.0.113.7:8443");
}

#[tokio::test]
async fn another_host_reaches_every_cluster() {
    let api = Api::new().await;
    api.cluster("a").await;
    api.cluster("b").await;
    let before = api.jobs().await.len();
    api.put("/api/v1/settings/control_plane_host", json!({"value": "k.example"})).local().send().await.expect(StatusCode::OK);
    assert_eq!(api.jobs().await.len(), before, "the jobs that wait already are enough");
    let events = api.get("/api/v1/events").local().send().await;
    assert!(events.text.contains("control_plane_host is k.example"));
}
