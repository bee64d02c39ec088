//! Requests that are sent twice, and changes that race.

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use crate::domain::user::Role;

#[tokio::test]
async fn a_create_that_is_sent_twice_is_done_once() {
    let api = Api::new().await;
    let (ada, bob) = (api.user("ada", Some(Role::Admin)).await, api.user("bob", Some(Role::Admin)).await);
    let create = |who: &str, name: &str, key: &str| {
        api.post("/api/v1/clusters", json!({"name": name})).bearer(who).header("idempotency-key", key).send()
    };
    let first = create(&ada, "demo", "k-1").await.expect(StatusCode::CREATED);
    let second = create(&ada, "demo", "k-1").await.expect(StatusCode::CREATED);
    assert_eq!(first.json, second.json);
    assert_eq!(second.headers["idempotency-replayed"], "true");
    assert_eq!(second.headers["content-type"], "application/json");
    create(&ada, "other", "k-1").await.problem("idempotency-key-reused");
    create(&bob, "bobs", "k-1").await.expect(StatusCode::CREATED);
    create(&ada, "demo", "k-2").await.problem("name-taken");
    create(&ada, "demo", "k 2").await.problem("bad-request");
    create(&ada, "demo", &"k".repeat(256)).await.problem("bad-request");
    // What failed is not kept: the same key may do it once it can be done.
    *api.parts.full.lock().unwrap() = Some("full".into());
    create(&ada, "later", "k-3").await.problem("no-capacity");
    *api.parts.full.lock().unwrap() = None;
    create(&ada, "later", "k-3").await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn of_two_who_send_the_same_at_once_both_get_the_one_cluster() {
    let api = Api::new().await;
    let create = || api.post("/api/v1/clusters", json!({"name": "demo"})).local().header("idempotency-key", "k").send();
    let (a, b, c) = tokio::join!(create(), create(), create());
    assert_eq!((a.status, b.status, c.status), (StatusCode::CREATED, StatusCode::CREATED, StatusCode::CREATED));
    assert_eq!((&a.json["id"], &a.json["id"]), (&b.json["id"], &c.json["id"]));
}

#[tokio::test]
async fn if_match_keeps_a_change_from_being_overwritten() {
    let api = Api::new().await;
    let path = format!("/api/v1/clusters/{}", api.cluster("demo").await.id);
    let etag = api.get(&path).local().send().await.headers["etag"].to_str().unwrap().to_owned();
    let change = |value: &str, etag: &str| api.patch(&path, json!({"labels": {"by": value}})).local().header("if-match", etag).send();
    let changed = change("a", &etag).await.expect(StatusCode::OK);
    change("b", &etag).await.expect(StatusCode::PRECONDITION_FAILED).problem("stale");
    change("a", &etag).await.problem("stale");
    api.delete(&path).local().header("if-match", &etag).send().await.problem("stale");
    change("c", "*").await.expect(StatusCode::OK);
    for bad in ["7", "\"x\"", "W/\"1\"", "\"\"", "\"99999999999999999999\""] {
        change("d", bad).await.problem("bad-request");
    }
    let newest = api.get(&path).local().send().await.headers["etag"].to_str().unwrap().to_owned();
    assert_ne!(newest, changed.headers["etag"].to_str().unwrap());
    api.delete(&path).local().header("if-match", &newest).send().await.expect(StatusCode::ACCEPTED);
}
