//! Clusters created, listed, changed and deleted.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::harness::Api;
use crate::domain::ClusterId;
use crate::domain::user::Role;
use crate::store;

#[tokio::test]
async fn a_cluster_comes_with_its_event_and_its_job() {
    let api = Api::new().await;
    let admin = api.user("ada", Some(Role::Admin)).await;
    let body = json!({"name": "demo", "labels": {"team": "web"}});
    let made = api.post("/api/v1/clusters", body).bearer(&admin).send().await.expect(StatusCode::CREATED);
    assert_eq!(made.json["spec"]["kubernetes_version"], "1.34.4");
    assert_eq!(made.json["spec"]["pod_cidr"], "10.244.0.0/16");
    assert_eq!((&made.json["node_port"], &made.json["host"]), (&json!(30000), &json!("host-a")));
    assert_eq!(made.json["status"]["phase"], "pending");
    assert!(made.json.get("local").is_none());
    assert_eq!(api.jobs().await, [("reconcile-cluster".to_owned(), "pending".to_owned())]);
    let events = api.get(&format!("/api/v1/clusters/{}/events", made.id())).bearer(&admin).send().await;
    assert_eq!(events.json["items"][0]["reason"], "ClusterCreated");
    assert_eq!(events.json["items"][0]["actor"], "ada");
    let got = api.get(&format!("/api/v1/clusters/{}", made.id())).bearer(&admin).send().await.expect(StatusCode::OK);
    assert_eq!(got.json, made.json);
    assert_eq!(got.headers["etag"], format!("\"{}\"", made.json["resource_version"]).as_str());
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_field_and_leaves_nothing() {
    let api = Api::new().await;
    for (body, field) in [
        (json!({"name": "Demo"}), "name"),
        (json!({"name": "list"}), "name"),
        (json!({"name": "a".repeat(41)}), "name"),
        (json!({}), "name"),
        (json!({"name": "demo", "kubernetes_version": "1.99.0"}), "kubernetes_version"),
        (json!({"name": "demo", "kubernetes_version": "latest"}), "kubernetes_version"),
        (json!({"name": "demo", "pod_cidr": "10.96.0.0/16"}), "service_cidr"),
        (json!({"name": "demo", "pod_cidr": "10.244.0.1/16"}), "pod_cidr"),
        (json!({"name": "demo", "api_local_address": "10.244.3.4"}), "api_local_address"),
        (json!({"name": "demo", "api_local_address": "127.0.0.1"}), "api_local_address"),
        (json!({"name": "demo", "api_local_address": "::1"}), "api_local_address"),
        (json!({"name": "demo", "control_plane_host": "a b"}), "control_plane_host"),
        (json!({"name": "demo", "engine": "hosted"}), "engine"),
        (json!({"name": "demo", "engine": "magic"}), "engine"),
        (json!({"name": "demo", "cni": "mine"}), "cni"),
        (json!({"name": "demo", "labels": {"-": "x"}}), "labels"),
        (json!({"name": "demo", "colour": "red"}), "colour"),
        (json!({"name": 7}), "name"),
    ] {
        let reply = api.post("/api/v1/clusters", body.clone()).local().send().await;
        let status = reply.status;
        let reply = reply.problem("invalid");
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        if body != json!({}) {
            assert_eq!(reply.field(), field, "{body}: {}", reply.text);
        }
    }
    let unknown = api.post("/api/v1/clusters", json!({"name": "demo", "kubernetes_version": "1.99.0"})).local().send().await;
    assert!(unknown.json["detail"].as_str().unwrap().contains("1.34.4, 1.35.1, 1.36.3"));
    api.post("/api/v1/clusters", json!({"name": "demo", "project": "absent"})).local().send().await.problem("not-found");
    assert_eq!(api.get("/api/v1/clusters").local().send().await.json["items"], json!([]));
    assert!(api.jobs().await.is_empty());
}

#[tokio::test]
async fn names_are_unique_in_a_project_and_ports_run_out() {
    let api = Api::new().await;
    api.cluster("demo").await;
    api.post("/api/v1/clusters", json!({"name": "demo"})).local().send().await.problem("name-taken");
    let other = api.post("/api/v1/clusters", json!({"name": "demo", "project": "other"})).local().send().await.expect(StatusCode::CREATED);
    assert_eq!((&other.json["project"], &other.json["node_port"]), (&json!("other"), &json!(30001)));
    api.cluster("third").await;
    api.post("/api/v1/clusters", json!({"name": "fourth"})).local().send().await.problem("no-capacity");
    let body = json!({"name": "fourth", "public_access_mode": "domain"});
    let domain = api.post("/api/v1/clusters", body).local().send().await.expect(StatusCode::CREATED);
    assert!(domain.json.get("node_port").is_none());
    assert_eq!(api.get("/api/v1/clusters?name=demo").local().send().await.json["items"].as_array().unwrap().len(), 2);
    let one = api.get("/api/v1/clusters?name=demo&project=other").local().send().await;
    assert_eq!(one.json["items"][0]["id"], other.json["id"]);
}

#[tokio::test]
async fn a_full_platform_says_what_is_short() {
    let api = Api::new().await;
    *api.parts.full.lock().unwrap() = Some("only 7 % of the disk is free; free some, 10 % are needed".into());
    let reply = api.post("/api/v1/clusters", json!({"name": "demo"})).local().send().await.problem("no-capacity");
    assert!(reply.json["detail"].as_str().unwrap().contains("7 %"));
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_creates_nothing() {
    let api = Api::new().await;
    let body = json!({"name": "demo", "dry_run": true});
    let reply = api.post("/api/v1/clusters", body.clone()).local().send().await.expect(StatusCode::OK);
    assert_eq!(reply.json["node_port"], 30000);
    assert_eq!(api.get("/api/v1/clusters").local().send().await.json["items"], json!([]));
    api.cluster("demo").await;
    api.post("/api/v1/clusters", body).local().send().await.problem("name-taken");
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_nothing_else() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let path = format!("/api/v1/clusters/{id}");
    let first = api.patch(&path, json!({"labels": {"a": "1", "b": "2"}})).local().send().await.expect(StatusCode::OK);
    assert_eq!(first.json["generation"], 1);
    let body = json!({"labels": {"a": null, "c": "3"}, "kubernetes_version": "1.35.1", "control_plane_host": "k.example"});
    let second = api.patch(&path, body).local().send().await.expect(StatusCode::OK);
    assert_eq!(second.json["labels"], json!({"b": "2", "c": "3"}));
    assert_eq!(second.json["spec"]["kubernetes_version"], "1.35.1");
    assert_eq!(second.json["spec"]["control_plane_host"], "k.example");
    assert_eq!(second.json["generation"], 2);
    let third = api.patch(&path, json!({"control_plane_host": null})).local().send().await;
    assert!(third.json["spec"].get("control_plane_host").is_none());
    assert_eq!(api.patch(&path, json!({})).local().send().await.json["resource_version"], third.json["resource_version"]);
    for (body, field) in [
        (json!({"pod_cidr": "10.0.0.0/16"}), "pod_cidr"),
        (json!({"name": "other"}), "name"),
        (json!({"size": 3}), "size"),
        (json!({"kubernetes_version": "1.34.4"}), "kubernetes_version"),
        (json!({"kubernetes_version": "1.37.0"}), "kubernetes_version"),
        (json!({"control_plane_host": "http://x"}), "control_plane_host"),
        (json!({"labels": {"a": "-"}}), "labels"),
    ] {
        assert_eq!(api.patch(&path, body.clone()).local().send().await.problem("invalid").field(), field, "{body}");
    }
}

#[tokio::test]
async fn a_deletion_is_told_first_and_asked_for_once() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let path = format!("/api/v1/clusters/{id}");
    let plan = api.delete(&format!("{path}?dry_run=true")).local().send().await.expect(StatusCode::OK);
    let kinds: Vec<_> = plan.json["removes"].as_array().unwrap().iter().map(|r| r["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["control-plane", "data", "authorities", "kubeconfigs", "name", "port"]);
    assert!(api.get(&path).local().send().await.json.get("deleted_at").is_none());
    let gone = api.delete(&path).local().send().await.expect(StatusCode::ACCEPTED);
    assert_eq!(gone.json["status"]["phase"], "deleting");
    let again = api.delete(&path).local().send().await.expect(StatusCode::ACCEPTED);
    assert_eq!(again.json["deleted_at"], gone.json["deleted_at"]);
    let events = api.get(&format!("{path}/events")).local().send().await;
    assert_eq!(events.text.matches("ClusterDeletionRequested").count(), 1);
    assert_eq!(api.jobs().await.len(), 1, "one waiting job is enough");
    api.patch(&path, json!({"labels": {"a": "b"}})).local().send().await.problem("conflict");
    api.post("/api/v1/clusters", json!({"name": "demo"})).local().send().await.problem("name-taken");
}

#[tokio::test]
async fn lists_page_and_select() {
    let api = Api::new().await;
    for n in 0..5 {
        let body = json!({"name": format!("c{n}"), "public_access_mode": "domain", "labels": {"odd": (n % 2).to_string()}});
        api.post("/api/v1/clusters", body).local().send().await.expect(StatusCode::CREATED);
    }
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/api/v1/clusters?limit=2{next}")).local().send().await.expect(StatusCode::OK);
        let items = page.json["items"].as_array().unwrap().clone();
        assert!((1..=2).contains(&items.len()));
        names.extend(items.iter().map(|c| c["name"].as_str().unwrap().to_owned()));
        match &page.json["continue"] {
            Value::String(token) => next = format!("&continue={token}"),
            _ => break,
        }
    }
    names.sort();
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4"]);
    let odd = api.get("/api/v1/clusters?label_selector=odd%3D1").local().send().await;
    assert_eq!(odd.json["items"].as_array().unwrap().len(), 2);
    for (query, problem) in [
        ("limit=0", "bad-request"),
        ("limit=1001", "bad-request"),
        ("limit=many", "bad-request"),
        ("continue=nonsense", "bad-request"),
        ("colour=red", "bad-request"),
        ("limit=1&limit=2", "bad-request"),
        ("label_selector=a%3D%3D%3Db", "invalid"),
    ] {
        api.get(&format!("/api/v1/clusters?{query}")).local().send().await.problem(problem);
    }
}

#[tokio::test]
async fn logs_are_text_and_audit_is_for_administrators() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let viewer = api.user("v", Some(Role::Viewer)).await;
    let path = format!("/api/v1/clusters/{id}/logs");
    let reply = api.get(&format!("{path}?component=kube-scheduler&tail=7")).bearer(&viewer).send().await.expect(StatusCode::OK);
    assert_eq!(reply.text, "kube-scheduler tail=Some(7)\n");
    assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    assert!(api.get(&path).bearer(&viewer).send().await.text.starts_with("kube-apiserver tail=Some(100)"));
    api.get(&format!("{path}?component=etcd")).bearer(&viewer).send().await.problem("conflict");
    api.get(&format!("{path}?component=audit")).bearer(&viewer).send().await.problem("forbidden");
    api.get(&format!("{path}?component=audit")).local().send().await.expect(StatusCode::OK);
    api.get(&format!("{path}?component=kernel")).local().send().await.problem("bad-request");
    api.get(&format!("{path}?tail=100001")).local().send().await.problem("bad-request");
}

/// What the worker writes once a version runs.
async fn runs(api: &Api, id: ClusterId, version: &str) {
    api.make_ready(id).await;
    let mut tx = api.state.store.begin().await.unwrap();
    let cluster = store::clusters::find(tx.sql(), id).await.unwrap().unwrap();
    let mut status = cluster.status;
    status.kubernetes_version = Some(version.parse().unwrap());
    status.observed_generation = cluster.generation;
    store::clusters::set_status(&mut tx, id, &status).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_version_is_one_step_from_what_runs() {
    let api = Api::new().await;
    let id = api.cluster("shop").await.id;
    let path = format!("/api/v1/clusters/{id}");
    runs(&api, id, "1.34.4").await;
    let to = |version: &str| api.patch(&path, json!({ "kubernetes_version": version })).local().send();
    let under_way = to("1.35.1").await.expect(StatusCode::OK);
    assert_eq!((&under_way.json["status"]["phase"], &under_way.json["generation"]), (&json!("updating"), &json!(2)));
    let refused = to("1.36.3").await.problem("conflict");
    assert_eq!(refused.json["detail"], "shop still runs 1.34.4; wait for 1.35.1 or set it back");
    to("1.35.1").await.expect(StatusCode::OK);
    let back = to("1.34.4").await.expect(StatusCode::OK);
    assert_eq!((&back.json["spec"]["kubernetes_version"], &back.json["generation"]), (&json!("1.34.4"), &json!(3)));
    to("1.35.1").await.expect(StatusCode::OK);
    runs(&api, id, "1.35.1").await;
    to("1.34.4").await.problem("invalid");
    to("1.36.3").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_version_that_came_up_while_it_was_taken_back_can_be_kept() {
    let api = Api::new().await;
    let id = api.cluster("shop").await.id;
    let path = format!("/api/v1/clusters/{id}");
    runs(&api, id, "1.35.1").await;
    let to = |version: &str| api.patch(&path, json!({ "kubernetes_version": version })).local().send();
    let refused = to("1.34.4").await.problem("conflict");
    assert_eq!(refused.json["detail"], "shop still runs 1.35.1; a control plane cannot go back to 1.34.4; set it to 1.35.1 first");
    to("1.35.1").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn an_event_says_when_programs_are_fetched_first() {
    let api = Api::new().await;
    let id = api.cluster("shop").await.id;
    let path = format!("/api/v1/clusters/{id}");
    let events = || async { api.get(&format!("{path}/events")).local().send().await.text };
    assert!(!events().await.contains("fetched first"), "1.34.4 is there");
    api.patch(&path, json!({"kubernetes_version": "1.35.1"})).local().send().await.expect(StatusCode::OK);
    assert!(events().await.contains("Kubernetes 1.34.4 to 1.35.1; its programs are not on the platform's host and are fetched first"));
    api.patch(&path, json!({"kubernetes_version": "1.35.1", "labels": {"a": "b"}})).local().send().await.expect(StatusCode::OK);
    assert_eq!(events().await.matches("fetched first").count(), 1);
    let body = json!({"name": "young", "kubernetes_version": "1.35.1"});
    let young = api.post("/api/v1/clusters", body).local().send().await.expect(StatusCode::CREATED);
    let told = api.get(&format!("/api/v1/clusters/{}/events", young.id())).local().send().await.text;
    assert!(told.contains("are fetched first"), "{told}");
}
