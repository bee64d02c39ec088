//! Every rejection is a problem, whoever makes it; and what every answer carries.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::harness::Api;
use crate::api::Peer;

#[tokio::test]
async fn every_rejection_is_a_problem() {
    let api = Api::new().await;
    api.get("/nowhere").local().send().await.expect(StatusCode::NOT_FOUND).problem("not-found");
    api.get("/api/v1/nowhere").local().send().await.problem("not-found");
    let reply = api.call(Method::PATCH, "/api/v1/clusters").local().send().await.expect(StatusCode::METHOD_NOT_ALLOWED);
    let allow = reply.headers["allow"].to_str().unwrap().to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    reply.problem("method-not-allowed");
    let post = || api.call(Method::POST, "/api/v1/clusters").local();
    let json = "application/json";
    post().header("content-type", json).raw("{").send().await.problem("bad-request");
    post().header("content-type", json).raw(&b"\xff"[..]).send().await.problem("bad-request");
    post().header("content-type", json).raw(r#"["demo"]"#).send().await.problem("invalid");
    post().header("content-type", json).send().await.problem("bad-request");
    post().header("content-type", "text/plain").raw("{}").send().await.problem("unsupported-media-type");
    post().send().await.problem("unsupported-media-type");
    post().header("content-type", json).raw("x".repeat(1024 * 1024 + 1)).send().await.problem("too-large");
    api.get("/api/v1/clusters/7").local().send().await.problem("bad-request");
    api.get("/api/v1/clusters/%ff").local().send().await.problem("bad-request");
    api.get("/api/v1/clusters?limit=%ff").local().send().await.problem("bad-request");
}

#[tokio::test]
async fn what_a_browser_must_heed_is_on_every_answer() {
    let api = Api::new().await;
    let remote = |tls| Peer::Remote { address: "203.0.113.9:40000".parse().unwrap(), tls };
    for (path, tls) in [("/api/v1/clusters", true), ("/api/nowhere", false), ("/healthz", true)] {
        let reply = api.get(path).peer(remote(tls)).send().await;
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["x-request-id"].len(), 16);
        assert_eq!(reply.headers.contains_key("strict-transport-security"), tls, "{path}");
        assert_eq!(reply.headers.get("cache-control").is_some_and(|v| v == "no-store"), path.starts_with("/api/"));
    }
}

#[tokio::test]
async fn a_panic_is_a_problem_and_says_nothing_of_itself() {
    let reply = crate::api::middleware::panicked(Box::new("the secret is 42"));
    assert_eq!(reply.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let bytes = axum::body::to_bytes(reply.into_body(), 10_000).await.unwrap();
    assert!(!String::from_utf8(bytes.to_vec()).unwrap().contains("42"));
}

#[tokio::test]
async fn a_process_that_drains_is_not_ready_but_lives() {
    let api = Api::new().await;
    api.state.draining.cancel();
    api.get("/readyz").send().await.expect(StatusCode::SERVICE_UNAVAILABLE).problem("unavailable");
    api.get("/healthz").send().await.expect(StatusCode::OK);
}

#[tokio::test]
async fn large_answers_are_compressed_when_asked() {
    let api = Api::new().await;
    let reply = api.get("/api/openapi.json").header("accept-encoding", "gzip").open().await;
    assert_eq!(reply.headers()["content-encoding"], "gzip");
    let versions = api.get("/api/v1/versions").local().send().await;
    assert_eq!(versions.json["items"][0], json!({"version": "1.34.4", "installed": true, "default": true}));
}
