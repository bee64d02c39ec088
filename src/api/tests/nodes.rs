//! Nodes listed, counted, removed.

use axum::http::StatusCode;
use serde_json::json;

use super::machines::{Machine, platform, token};
use crate::domain::user::Role;
use crate::domain::{Condition, NodeId};
use crate::store;

#[tokio::test]
async fn nodes_are_listed_counted_and_read() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let mut ids = Vec::new();
    for name in ["b", "a", "c"] {
        let joined = api.post("/join/v1/nodes", Machine::new(name).request(&token)).send().await.expect(StatusCode::OK);
        ids.push(joined.json["node_id"].as_str().unwrap().parse::<NodeId>().unwrap());
    }
    let at = api.state.ambient.now();
    let mut tx = api.state.store.begin().await.unwrap();
    for (number, id) in ids.iter().enumerate() {
        let mut status = store::nodes::find(tx.sql(), *id).await.unwrap().unwrap().status;
        status.ready = number < 2;
        status.conditions.push(Condition {
            kind: "Verified".into(),
            status: number == 0,
            reason: "Verified".into(),
            message: String::new(),
            last_transition_at: at,
        });
        store::nodes::set_status(&mut tx, *id, &status).await.unwrap();
    }
    tx.commit().await.unwrap();
    let path = format!("/api/v1/clusters/{}", cluster.id);
    let viewer = api.user("v", Some(Role::Viewer)).await;
    let first = api.get(&format!("{path}/nodes?limit=2")).bearer(&viewer).send().await.expect(StatusCode::OK);
    let names = |json: &serde_json::Value| {
        json["items"].as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first.json), ["a", "b"]);
    let rest = api.get(&format!("{path}/nodes?limit=2&continue={}", first.json["continue"].as_str().unwrap())).bearer(&viewer).send().await;
    assert_eq!(names(&rest.json), ["c"]);
    let one = api.get(&format!("{path}/nodes/b")).bearer(&viewer).send().await.expect(StatusCode::OK);
    assert_eq!((&one.json["status"]["ready"], &one.json["labels"]["team"]), (&json!(true), &json!("web")));
    assert!(!one.text.contains("public_key"));
    api.get(&format!("{path}/nodes/d")).bearer(&viewer).send().await.problem("not-found");
    let nodes = json!({"total": 3, "ready": 2, "verified": 1, "api_address": "198.51.100.1:6443"});
    assert_eq!(api.get(&path).local().send().await.json["nodes"], nodes);
    api.cluster("empty").await;
    let listed = api.get("/api/v1/clusters").local().send().await.json;
    let of = |name: &str| listed["items"].as_array().unwrap().iter().find(|cluster| cluster["name"] == name).unwrap()["nodes"].clone();
    assert_eq!((of("demo"), &of("empty")["total"]), (nodes, &json!(0)));
}

#[tokio::test]
async fn a_removal_is_asked_for_and_done() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    api.post("/join/v1/nodes", Machine::new("worker-1").request(&token)).send().await.expect(StatusCode::OK);
    let path = format!("/api/v1/clusters/{}/nodes/worker-1", cluster.id);
    let (viewer, member) = (api.user("v", Some(Role::Viewer)).await, api.user("ada", Some(Role::Member)).await);
    let stranger = api.user_with("s", false, Some((api.other_project, Role::Admin))).await;
    api.delete(&path).bearer(&viewer).send().await.problem("forbidden");
    api.delete(&path).bearer(&stranger).send().await.problem("not-found");
    api.get(&path).bearer(&stranger).send().await.problem("not-found");
    api.delete(&format!("{path}?drain_seconds=3601")).bearer(&member).send().await.problem("bad-request");
    let would = api.delete(&format!("{path}?dry_run=true")).bearer(&member).send().await.expect(StatusCode::OK);
    assert!(would.json["job_id"].is_null() && would.json["node"]["removed_at"].is_null(), "{}", would.text);
    let removed = api.delete(&format!("{path}?drain_seconds=0")).bearer(&member).send().await.expect(StatusCode::ACCEPTED);
    assert!(removed.json["node"]["removed_at"].is_string());
    let job = removed.json["job_id"].as_str().unwrap().parse().unwrap();
    let ended = crate::queue::wait(&api.state.store, job, std::time::Duration::from_secs(20)).await.unwrap();
    assert!(matches!(ended, crate::queue::Outcome::Succeeded(_)), "{ended:?}");
    api.get(&path).bearer(&member).send().await.problem("not-found");
    api.delete(&path).bearer(&member).send().await.problem("not-found");
    let events = api.get(&format!("/api/v1/clusters/{}/events", cluster.id)).local().send().await;
    let events = events.json["items"].as_array().unwrap().iter();
    let asked: Vec<_> = events.filter(|event| event["reason"] == "NodeRemovalRequested").map(|event| event["actor"].clone()).collect();
    assert_eq!(asked, ["ada"]);
}

#[tokio::test]
async fn the_plan_of_a_deletion_names_the_nodes() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let path = format!("/api/v1/clusters/{}?dry_run=true", cluster.id);
    assert!(!api.delete(&path).local().send().await.text.contains("kubebyon leave"));
    api.post("/join/v1/nodes", Machine::new("worker-1").request(&token)).send().await.expect(StatusCode::OK);
    assert!(api.delete(&path).local().send().await.text.contains("1 nodes; their machines"));
}
