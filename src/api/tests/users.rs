//! Users created, changed and deleted.

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use crate::domain::user::Role;

#[tokio::test]
async fn a_password_is_made_where_none_is_given_and_shown_once() {
    let api = Api::new().await;
    let made = api.post("/api/v1/users", json!({"name": "ada"})).local().send().await.expect(StatusCode::CREATED);
    let password = made.json["password"].as_str().unwrap();
    assert_eq!(password.len(), 24);
    api.post("/api/v1/sessions", json!({"name": "ada", "password": password})).send().await.expect(StatusCode::CREATED);
    let id = made.json["user"]["id"].as_str().unwrap();
    assert!(!api.get(&format!("/api/v1/users/{id}")).local().send().await.text.contains(password));
    api.post("/api/v1/users", json!({"name": "ada"})).local().send().await.problem("name-taken");
    for (body, field) in [
        (json!({"name": "root"}), "name"),
        (json!({"name": "system:admin"}), "name"),
        (json!({"name": "bob", "password": "short"}), "password"),
        (json!({"name": "bob", "roles": [["default", "admin"]]}), "roles[0]"),
        (json!({"name": "bob", "roles": vec![json!({"project": "default", "role": "admin"}); 101]}), "roles"),
        (json!({"name": "bob", "roles": [{"project": "absent", "role": "admin"}]}), "roles[0].project"),
    ] {
        assert_eq!(api.post("/api/v1/users", body.clone()).local().send().await.problem("invalid").field(), field, "{body}");
    }
    assert_eq!(api.get("/api/v1/users?name=bob").local().send().await.json["items"], json!([]));
}

#[tokio::test]
async fn roles_are_given_and_taken_away() {
    let api = Api::new().await;
    let who = api.user("ada", None).await;
    let id = api.get("/api/v1/users?name=ada").local().send().await.json["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/users/{id}");
    let body = json!({"roles": [{"project": "default", "role": "member"}, {"project": "other", "role": "viewer"}]});
    let changed = api.patch(&path, body).local().send().await.expect(StatusCode::OK);
    assert_eq!(changed.json["roles"].as_array().unwrap().len(), 2);
    let names = |reply: super::harness::Reply| -> Vec<String> {
        reply.json["items"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(api.get("/api/v1/projects").bearer(&who).send().await), ["default", "other"]);
    api.patch(&path, json!({"roles": [{"project": "default", "role": null}]})).local().send().await.expect(StatusCode::OK);
    assert_eq!(names(api.get("/api/v1/projects").bearer(&who).send().await), ["other"]);
}

#[tokio::test]
async fn users_change_their_own_password_and_nothing_else() {
    let api = Api::new().await;
    let old = "correct horse battery";
    api.post("/api/v1/users", json!({"name": "ada", "password": old})).local().send().await.expect(StatusCode::CREATED);
    let sign_in = |password: &str| api.post("/api/v1/sessions", json!({"name": "ada", "password": password, "kind": "token"})).send();
    let session = sign_in(old).await.expect(StatusCode::CREATED);
    let (token, path) =
        (session.json["token"].as_str().unwrap(), format!("/api/v1/users/{}", session.json["user"]["id"].as_str().unwrap()));
    let change = |body| api.patch(&path, body).bearer(token).send();
    change(json!({"platform_admin": true})).await.problem("forbidden");
    change(json!({"disabled": false})).await.problem("forbidden");
    assert_eq!(change(json!({"password": "a new password"})).await.problem("invalid").field(), "current_password");
    change(json!({"password": "a new password", "current_password": "wrong"})).await.problem("forbidden");
    assert_eq!(change(json!({"password": "short", "current_password": old})).await.problem("invalid").field(), "password");
    change(json!({"password": "a new password", "current_password": old})).await.expect(StatusCode::OK);
    api.get("/api/v1/clusters").bearer(token).send().await.problem("unauthenticated");
    sign_in(old).await.problem("bad-credentials");
    sign_in("a new password").await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn the_last_platform_administrator_stays() {
    let api = Api::new().await;
    let admin = api.admin().await;
    let id = api.get("/api/v1/sessions/current").bearer(&admin).send().await.json["user"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/users/{id}");
    api.delete(&path).local().send().await.problem("conflict");
    api.patch(&path, json!({"disabled": true})).local().send().await.problem("conflict");
    api.patch(&path, json!({"platform_admin": false})).local().send().await.problem("conflict");
    api.post("/api/v1/users", json!({"name": "second", "platform_admin": true})).local().send().await.expect(StatusCode::CREATED);
    api.delete(&path).local().send().await.expect(StatusCode::NO_CONTENT);
    api.get("/api/v1/clusters").bearer(&admin).send().await.problem("unauthenticated");
    api.get(&path).local().send().await.problem("not-found");
}

#[tokio::test]
async fn others_are_not_to_be_seen() {
    let api = Api::new().await;
    let (ada, _) = (api.user("ada", Some(Role::Admin)).await, api.user("bob", Some(Role::Admin)).await);
    let bob = api.get("/api/v1/users?name=bob").local().send().await.json["items"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/users/{bob}");
    api.get(&path).bearer(&ada).send().await.problem("not-found");
    api.patch(&path, json!({"disabled": true})).bearer(&ada).send().await.problem("not-found");
    api.delete(&path).bearer(&ada).send().await.problem("not-found");
    assert_eq!(api.get("/api/v1/users?name=bob").bearer(&ada).send().await.json["items"], json!([]));
}
