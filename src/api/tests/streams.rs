//! Streams of events and logs: resumed, narrowed to what may be seen, and cut.

use std::time::Duration;

use axum::body::BodyDataStream;
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::harness::{Api, Call};
use crate::domain::user::Role;

/// A stream of server-sent events as a browser reads it.
struct Events {
    body: BodyDataStream,
    text: String,
}

impl Events {
    async fn open(call: Call<'_>) -> Self {
        let response = call.header("accept", "text/event-stream").open().await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert!(!response.headers().contains_key("content-encoding"));
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next block; `None` at the end of the stream.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let next = tokio::time::timeout(Duration::from_secs(10), self.body.next()).await.expect("something within 10 s");
            self.text.push_str(std::str::from_utf8(&next?.unwrap()).unwrap());
        }
    }

    /// The next event: (id, data).
    async fn event(&mut self) -> Option<(i64, Value)> {
        loop {
            let block = self.block().await?;
            let line = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(|v| v.trim().to_owned());
            if let (Some(id), Some(data)) = (line("id:"), line("data:")) {
                return Some((id.parse().unwrap(), serde_json::from_str(&data).unwrap()));
            }
        }
    }
}

#[tokio::test]
async fn a_stream_begins_now_or_after_the_last_event_that_was_seen() {
    let api = Api::new().await;
    let first = api.cluster("first").await;
    let mut live = Events::open(api.get("/api/v1/events").local().header("accept-encoding", "gzip")).await;
    let opening = live.block().await.unwrap();
    assert!(opening.contains("id: ") && opening.contains("retry: 2000"), "{opening}");
    let second = api.cluster("second").await;
    let (id, event) = live.event().await.unwrap();
    assert_eq!(event["cluster_id"], json!(second.id));
    assert_eq!(event["id"], id);

    let mut resumed = Events::open(api.get("/api/v1/events").local().header("last-event-id", "0")).await;
    assert_eq!(resumed.event().await.unwrap().1["cluster_id"], json!(first.id));
    assert_eq!(resumed.event().await.unwrap().0, id);

    let path = format!("/api/v1/clusters/{}/events", second.id);
    let mut narrowed = Events::open(api.get(&path).local().header("last-event-id", "0")).await;
    assert_eq!(narrowed.event().await.unwrap().0, id);
    api.delete(&format!("/api/v1/clusters/{}", first.id)).local().send().await.expect(StatusCode::ACCEPTED);
    api.delete(&format!("/api/v1/clusters/{}", second.id)).local().send().await.expect(StatusCode::ACCEPTED);
    assert_eq!(narrowed.event().await.unwrap().1["cluster_id"], json!(second.id));
    for bad in ["x", "-1", ""] {
        api.get("/api/v1/events")
            .local()
            .header("accept", "text/event-stream")
            .header("last-event-id", bad)
            .send()
            .await
            .problem("bad-request");
    }
}

#[tokio::test]
async fn a_stream_shows_what_its_caller_may_see() {
    let api = Api::new().await;
    let viewer = api.user_with("v", false, Some((api.other_project, Role::Viewer))).await;
    let mut seen = Events::open(api.get("/api/v1/events").bearer(&viewer).header("last-event-id", "0")).await;
    api.cluster("hidden").await;
    let body = json!({"name": "shown", "project": "other"});
    let shown = api.post("/api/v1/clusters", body).local().send().await.expect(StatusCode::CREATED);
    assert_eq!(seen.event().await.unwrap().1["cluster_id"], shown.json["id"]);
}

#[tokio::test]
async fn a_stream_ends_with_its_session_and_with_the_process() {
    let api = Api::new().await;
    let (ada, bob) = (api.user("ada", Some(Role::Viewer)).await, api.user("bob", Some(Role::Viewer)).await);
    let id = api.cluster("demo").await.id;
    let mut adas = Events::open(api.get("/api/v1/events").bearer(&ada)).await;
    let mut bobs = Events::open(api.get(&format!("/api/v1/clusters/{id}/events")).bearer(&bob)).await;
    let mut roots = Events::open(api.get("/api/v1/events").local()).await;
    let mut log = api.get(&format!("/api/v1/clusters/{id}/logs?follow=true")).bearer(&ada).open().await.into_body().into_data_stream();
    assert!(log.next().await.unwrap().is_ok());
    for stream in [&mut adas, &mut bobs, &mut roots] {
        stream.block().await.unwrap();
    }
    api.delete("/api/v1/sessions/current").bearer(&ada).send().await.expect(StatusCode::NO_CONTENT);
    assert!(adas.event().await.is_none());
    let end = tokio::time::timeout(Duration::from_secs(10), log.next()).await.expect("the log ends with the session");
    assert!(end.is_none());

    let users = api.get("/api/v1/users?name=bob").local().send().await;
    let path = format!("/api/v1/users/{}", users.json["items"][0]["id"].as_str().unwrap());
    let body = json!({"roles": [{"project": "default", "role": null}]});
    api.patch(&path, body).local().send().await.expect(StatusCode::OK);
    assert!(bobs.event().await.is_none());

    api.state.draining.cancel();
    while let Some((_, event)) = roots.event().await {
        assert_eq!(event["reason"], "UserChanged");
    }
}

#[tokio::test]
async fn streams_of_one_caller_are_bounded_and_given_back() {
    let api = Api::new().await;
    let who = api.user("ada", Some(Role::Viewer)).await;
    let open = || api.get("/api/v1/events").bearer(&who).header("accept", "text/event-stream").open();
    let mut held = Vec::new();
    for _ in 0..32 {
        let response = open().await;
        assert_eq!(response.status(), StatusCode::OK);
        held.push(response);
    }
    assert_eq!(open().await.status(), StatusCode::TOO_MANY_REQUESTS);
    held.pop();
    assert_eq!(open().await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_log_ends_when_the_role_that_it_needs_is_gone() {
    let api = Api::new().await;
    let ada = api.user("ada", Some(Role::Admin)).await;
    let id = api.cluster("demo").await.id;
    let follow = async |component: &str| {
        let path = format!("/api/v1/clusters/{id}/logs?follow=true&component={component}");
        let mut log = api.get(&path).bearer(&ada).open().await.into_body().into_data_stream();
        assert!(log.next().await.unwrap().is_ok());
        log
    };
    let (mut audit, mut server) = (follow("audit").await, follow("kube-apiserver").await);
    let users = api.get("/api/v1/users?name=ada").local().send().await;
    let path = format!("/api/v1/users/{}", users.json["items"][0]["id"].as_str().unwrap());
    let set = async |role: Value| {
        let body = json!({"roles": [{"project": "default", "role": role}]});
        api.patch(&path, body).local().send().await.expect(StatusCode::OK);
    };
    set(json!("viewer")).await;
    let end = tokio::time::timeout(Duration::from_secs(10), audit.next()).await.expect("the audit log ends with the role");
    assert!(end.is_none());
    assert!(tokio::time::timeout(Duration::from_millis(200), server.next()).await.is_err(), "a viewer goes on with other logs");
    set(Value::Null).await;
    let end = tokio::time::timeout(Duration::from_secs(10), server.next()).await.expect("the log ends with the last role");
    assert!(end.is_none());
}
