//! Signing in and out, cookies and their dangers, and the first administrator.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use crate::api::Peer;
use crate::api::auth::{COOKIE, COOKIE_PLAIN, ensure_first_admin};

const PASSWORD: &str = "correct horse battery";

async fn with_user() -> Api {
    let api = Api::new().await;
    let body = json!({"name": "ada", "password": PASSWORD, "roles": [{"project": "default", "role": "admin"}]});
    let made = api.post("/api/v1/users", body).local().send().await.expect(StatusCode::CREATED);
    assert!(made.json.get("password").is_none());
    api
}

fn from(last: u8) -> Peer {
    Peer::Remote { address: std::net::SocketAddr::from(([203, 0, 113, last], 40_000)), tls: true }
}

#[tokio::test]
async fn a_program_gets_a_bearer_secret_and_ends_it() {
    let api = with_user().await;
    let body = json!({"name": "ada", "password": PASSWORD, "kind": "token"});
    let session = api.post("/api/v1/sessions", body).peer(from(1)).send().await.expect(StatusCode::CREATED);
    assert!(!session.headers.contains_key("set-cookie"));
    let token = session.json["token"].as_str().unwrap().to_owned();
    let me = api.get("/api/v1/sessions/current").bearer(&token).send().await.expect(StatusCode::OK);
    assert_eq!((&me.json["user"]["name"], &me.json["via"]), (&json!("ada"), &json!("session")));
    api.delete("/api/v1/sessions/current").bearer(&token).send().await.expect(StatusCode::NO_CONTENT);
    api.get("/api/v1/sessions/current").bearer(&token).send().await.problem("unauthenticated");
}

#[tokio::test]
async fn a_browser_gets_a_cookie_that_works_from_our_own_pages_alone() {
    let api = with_user().await;
    let body = json!({"name": "ada", "password": PASSWORD});
    let login = || api.post("/api/v1/sessions", body.clone()).peer(from(1));
    login().header("sec-fetch-site", "cross-site").send().await.problem("cross-site");
    let session = login().header("sec-fetch-site", "same-origin").send().await.expect(StatusCode::CREATED);
    assert!(session.json.get("token").is_none());
    let cookie = session.headers["set-cookie"].to_str().unwrap();
    for part in [&format!("{COOKIE}=kbs_"), "; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    api.get("/api/v1/clusters").header("cookie", &format!("theme=dark; {cookie}")).send().await.expect(StatusCode::OK);
    let create = || api.post("/api/v1/clusters", json!({"name": "demo"})).header("cookie", cookie).header("host", "k.example");
    create().send().await.problem("cross-site");
    create().header("origin", "https://evil.example").send().await.problem("cross-site");
    create().header("sec-fetch-site", "same-site").send().await.problem("cross-site");
    create().header("origin", "https://k.example").send().await.expect(StatusCode::CREATED);
    api.clock.advance(Duration::from_secs(12 * 3600 + 1));
    api.get("/api/v1/clusters").header("cookie", cookie).send().await.problem("unauthenticated");
}

#[tokio::test]
async fn a_cookie_of_another_name_and_a_second_one_of_ours_are_refused() {
    let api = with_user().await;
    let session = api.post("/api/v1/sessions", json!({"name": "ada", "password": PASSWORD})).peer(from(1)).send().await;
    let ours = session.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let ask = |cookies: String| api.get("/api/v1/clusters").header("cookie", &cookies).send();
    ask(ours.clone()).await.expect(StatusCode::OK);
    ask(ours.replace(COOKIE, COOKIE_PLAIN)).await.problem("unauthenticated");
    ask(format!("{ours}; {COOKIE}=kbs_x")).await.problem("unauthenticated");
    ask(format!("{COOKIE}=; {ours}")).await.problem("unauthenticated");
    ask(format!("{COOKIE_PLAIN}=kbs_x; {ours}")).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_wrong_name_and_a_wrong_password_get_the_same_answer() {
    let api = with_user().await;
    let attempt =
        |name: &str, password: &str| api.post("/api/v1/sessions", json!({"name": name, "password": password})).peer(from(1)).send();
    let (a, b) = (attempt("ada", "not this one!").await, attempt("nobody", PASSWORD).await);
    assert_eq!((a.status, &a.text), (b.status, &b.text));
    a.problem("bad-credentials");
    attempt("ada", &"x".repeat(2000)).await.problem("bad-credentials");
}

#[tokio::test]
async fn who_guesses_must_wait_and_others_need_not() {
    let api = with_user().await;
    let attempt = |password: &str, last| api.post("/api/v1/sessions", json!({"name": "ada", "password": password})).peer(from(last)).send();
    for _ in 0..5 {
        attempt("wrong", 1).await.problem("bad-credentials");
    }
    let refused = attempt(PASSWORD, 1).await.expect(StatusCode::TOO_MANY_REQUESTS).problem("throttled");
    assert_eq!(refused.headers["retry-after"], "2");
    attempt(PASSWORD, 2).await.expect(StatusCode::CREATED);
    api.clock.advance(Duration::from_secs(2));
    attempt(PASSWORD, 1).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_barred_user_is_refused_at_once() {
    let api = with_user().await;
    let sign_in = || api.post("/api/v1/sessions", json!({"name": "ada", "password": PASSWORD, "kind": "token"})).peer(from(1)).send();
    let session = sign_in().await.expect(StatusCode::CREATED);
    let (token, id) = (session.json["token"].as_str().unwrap(), session.json["user"]["id"].as_str().unwrap());
    let secret =
        api.post("/api/v1/api-tokens", json!({"name": "ci"})).bearer(token).send().await.json["secret"].as_str().unwrap().to_owned();
    api.patch(&format!("/api/v1/users/{id}"), json!({"disabled": true})).local().send().await.expect(StatusCode::OK);
    api.get("/api/v1/clusters").bearer(token).send().await.problem("unauthenticated");
    api.get("/api/v1/clusters").bearer(&secret).send().await.problem("unauthenticated");
    sign_in().await.problem("bad-credentials");
}

#[tokio::test]
async fn the_first_administrator_is_made_once_with_a_password_in_a_file() {
    let api = Api::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("initial-admin-password");
    assert!(ensure_first_admin(&api.state.store, &api.state.ambient, &path).await.unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let password = std::fs::read_to_string(&path).unwrap();
    let body = json!({"name": "admin", "password": password.trim(), "kind": "token"});
    let session = api.post("/api/v1/sessions", body).peer(from(1)).send().await.expect(StatusCode::CREATED);
    assert_eq!(session.json["user"]["platform_admin"], true);
    assert!(!ensure_first_admin(&api.state.store, &api.state.ambient, &path).await.unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), password);
}
