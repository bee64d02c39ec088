//! Jobs seen and begun anew.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::json;

use super::harness::{Api, Ends};
use crate::domain::job::JobState;
use crate::domain::user::Role;
use crate::domain::work::RECONCILE_CLUSTER;
use crate::{queue, store};

#[tokio::test]
async fn a_dead_job_is_seen_with_its_error_and_begun_anew() {
    let api = Api::new().await.with_worker(vec![Arc::new(Ends(RECONCILE_CLUSTER, Err("no disk")))]);
    let cluster = api.cluster("demo").await;
    let listed = api.get(&format!("/api/v1/jobs?cluster={}", cluster.id)).local().send().await;
    let id = listed.json["items"][0]["id"].as_str().unwrap().to_owned();
    let ended = queue::wait(&api.state.store, id.parse().unwrap(), std::time::Duration::from_secs(10)).await.unwrap();
    assert_eq!(ended, queue::Outcome::Dead("no disk".into()));
    let path = format!("/api/v1/jobs/{id}");
    let viewer = api.user("v", Some(Role::Viewer)).await;
    let dead = api.get(&path).bearer(&viewer).send().await.expect(StatusCode::OK);
    assert_eq!((&dead.json["state"], &dead.json["last_error"]), (&json!(JobState::Dead), &json!("no disk")));
    assert!(dead.json.get("payload").is_none());
    api.post(&format!("{path}/retry"), json!({})).bearer(&viewer).send().await.problem("forbidden");
    let stranger = api.user("s", None).await;
    api.get(&path).bearer(&stranger).send().await.problem("not-found");
    let again = api.post(&format!("{path}/retry"), json!({})).local().send().await.expect(StatusCode::OK);
    assert_eq!(again.json["state"], "pending");
    assert!(api.get("/api/v1/events").local().send().await.text.contains("JobRetried"));
    for (query, count) in [("state=succeeded", 0), ("limit=1", 1)] {
        let reply = api.get(&format!("/api/v1/jobs?{query}")).local().send().await;
        assert_eq!(reply.json["items"].as_array().unwrap().len(), count, "{query}");
    }
    api.get("/api/v1/jobs?state=lost").local().send().await.problem("bad-request");
}

#[tokio::test]
async fn a_job_that_waits_is_hurried() {
    let api = Api::new().await;
    api.cluster("demo").await;
    let id = api.get("/api/v1/jobs").local().send().await.json["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/jobs/{id}/retry");
    let due = api.post(&path, json!({})).local().send().await.expect(StatusCode::OK);
    assert_eq!(due.json["state"], "pending");
    let set = |update: &'static str, value: store::Value| {
        let (store, id) = (api.state.store.clone(), id.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            assert_eq!(tx.sql().execute(update, vec![id.into(), value]).await.unwrap(), 1);
            tx.commit().await.unwrap();
        }
    };
    let later = api.state.ambient.now().plus(std::time::Duration::from_secs(600));
    set("update jobs set attempts = 4, run_after = $2 where id = $1", later.into()).await;
    let hurried = api.post(&path, json!({})).local().send().await.expect(StatusCode::OK);
    assert_eq!((&hurried.json["attempts"], &hurried.json["run_after"]), (&json!(0), &json!(api.state.ambient.now())));
    assert_eq!(api.get("/api/v1/events").local().send().await.text.matches("was hurried").count(), 1);
    for state in ["running", "succeeded"] {
        set("update jobs set state = $2 where id = $1", state.into()).await;
        api.post(&path, json!({})).local().send().await.problem("conflict");
    }
}
