//! Kubeconfigs handed out and revoked, with a worker that does the jobs.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::harness::{Api, Ends, Signer, TokenMaker};
use crate::domain::user::Role;
use crate::domain::work::REVOKE;

async fn platform() -> (Api, String) {
    let api = Api::new().await.with_worker(vec![Arc::new(Signer), Arc::new(TokenMaker), Arc::new(Ends(REVOKE, Ok(())))]);
    let id = api.cluster("demo").await.id;
    api.make_ready(id).await;
    (api, format!("/api/v1/clusters/{id}/kubeconfigs"))
}

#[tokio::test]
async fn nobody_gets_more_than_they_have() {
    let (api, path) = platform().await;
    let label = api.get(path.trim_end_matches("/kubeconfigs")).local().send().await.json["label"].as_str().unwrap().to_owned();
    for (role, most, more) in [(Role::Viewer, "view", Some("edit")), (Role::Member, "edit", Some("admin")), (Role::Admin, "admin", None)] {
        let who = api.user(role.as_str(), Some(role)).await;
        let made = api.post(&path, json!({})).bearer(&who).send().await.expect(StatusCode::CREATED);
        assert_eq!(made.json["record"]["role"], most);
        assert_eq!(made.json["record"]["owner"], role.as_str());
        let file = made.json["kubeconfig"].as_str().unwrap();
        let context = if most == "admin" { label.clone() } else { format!("{label}-{most}") };
        assert!(file.starts_with(&format!("{context} ")), "{file}");
        assert!(file.contains("https://203.0.113.7:30000") && file.contains(&format!("key of {}", role.as_str())), "{file}");
        let lesser = api.post(&path, json!({"role": "view", "namespace": "all", "ttl_seconds": 600})).bearer(&who).send().await;
        let lesser = lesser.expect(StatusCode::CREATED).json;
        assert_eq!(lesser["record"]["namespace"], "all");
        assert!(lesser["kubeconfig"].as_str().unwrap().starts_with(&format!("{label}-view-all ")));
        if let Some(more) = more {
            api.post(&path, json!({"role": more})).bearer(&who).send().await.problem("forbidden");
        }
    }
}

#[tokio::test]
async fn a_private_key_enters_no_job() {
    let (api, path) = platform().await;
    api.post(&path, json!({})).local().send().await.expect(StatusCode::CREATED);
    let mut sql = api.state.store.read().await.unwrap();
    let rows = sql.query("select payload, coalesce(result, '') from jobs where kind = 'sign'", Vec::new()).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!format!("{rows:?}").contains("key of"));
}

#[tokio::test]
async fn service_accounts_are_for_administrators() {
    let (api, path) = platform().await;
    let member = api.user("m", Some(Role::Member)).await;
    let body = json!({"service_account": "ci/deployer", "role": "edit"});
    api.post(&path, body.clone()).bearer(&member).send().await.problem("forbidden");
    let made = api.post(&path, body).local().send().await.expect(StatusCode::CREATED);
    assert_eq!(made.json["record"]["service_account"], "ci/deployer");
    assert!(made.json["kubeconfig"].as_str().unwrap().ends_with("the-token"));
    let mut sql = api.state.store.read().await.unwrap();
    let left = sql.query("select id from jobs where kind = 'service-account-token' and result is not null", Vec::new()).await.unwrap();
    assert!(left.is_empty(), "the sealed token is not kept");
    drop(sql);
    let short = api.post(&path, json!({"service_account": "argocd", "namespace": "argo"})).local().send().await;
    assert_eq!(short.json["record"]["service_account"], "argo/argocd");
}

#[tokio::test]
async fn what_cannot_be_handed_out_is_told() {
    let (api, path) = platform().await;
    for (body, field) in [
        (json!({"ttl_seconds": 9}), "ttl_seconds"),
        (json!({"ttl_seconds": 599, "service_account": "ci"}), "ttl_seconds"),
        (json!({"ttl_seconds": 31_536_001}), "ttl_seconds"),
        (json!({"ttl_seconds": -1}), "ttl_seconds"),
        (json!({"namespace": "A"}), "namespace"),
        (json!({"service_account": "a/b/c"}), "service_account"),
        (json!({"role": "owner"}), "role"),
    ] {
        assert_eq!(api.post(&path, body.clone()).local().send().await.problem("invalid").field(), field, "{body}");
    }
    let reply = api.post(&path, json!({"namespace": "absent"})).local().send().await.problem("conflict");
    assert!(reply.json["detail"].as_str().unwrap().contains("no namespace"));
    assert!(api.jobs().await.iter().all(|(_, state)| state != "dead"), "a user's mistake leaves no dead job");
    let reply = api.post(&path, json!({"ttl_seconds": 9})).local().send().await;
    assert!(reply.json["detail"].as_str().unwrap().contains("10s to 365d"), "{}", reply.text);
    let pending = api.cluster("young").await.id;
    let reply = api.post(&format!("/api/v1/clusters/{pending}/kubeconfigs"), json!({})).local().send().await.problem("not-ready");
    assert!(reply.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn a_revocation_is_for_the_owner_and_administrators() {
    let (api, path) = platform().await;
    let (ada, bob) = (api.user("ada", Some(Role::Member)).await, api.user("bob", Some(Role::Member)).await);
    let made = api.post(&path, json!({})).bearer(&ada).send().await.expect(StatusCode::CREATED);
    let own = format!("{path}/{}", made.json["record"]["id"].as_str().unwrap());
    assert_eq!(api.get(&path).bearer(&bob).send().await.json["items"], json!([]));
    api.delete(&own).bearer(&bob).send().await.problem("not-found");
    let revoked = api.delete(&own).bearer(&ada).send().await.expect(StatusCode::OK);
    assert!(revoked.json["revoked_at"].is_string());
    let again = api.delete(&own).local().send().await.expect(StatusCode::OK);
    assert_eq!(again.json["revoked_at"], revoked.json["revoked_at"]);
    let listed = api.get(&path).local().send().await;
    assert!(listed.json["items"][0]["revoked_at"].is_string());
    let other = api.post("/api/v1/clusters", json!({"name": "other"})).local().send().await;
    let elsewhere = own.replace(&path, &format!("/api/v1/clusters/{}/kubeconfigs", other.id()));
    api.delete(&elsewhere).local().send().await.problem("not-found");
}

#[tokio::test]
async fn a_revocation_that_waits_says_so() {
    let mut api = Api::new().await.with_worker(vec![Arc::new(Signer)]);
    let mut options = (*api.state.options).clone();
    options.job_wait = std::time::Duration::from_millis(300);
    api.state.options = Arc::new(options);
    api.router = crate::api::router(api.state.clone());
    let id = api.cluster("demo").await.id;
    api.make_ready(id).await;
    let path = format!("/api/v1/clusters/{id}/kubeconfigs");
    let mut made = Value::Null;
    // The first may come late on a busy machine; what matters is that one comes.
    for _ in 0..20 {
        let reply = api.post(&path, json!({})).local().send().await;
        if reply.status == StatusCode::CREATED {
            made = reply.json;
            break;
        }
        reply.problem("timeout");
    }
    let own = format!("{path}/{}", made["record"]["id"].as_str().unwrap());
    let revoked = api.delete(&own).local().send().await.expect(StatusCode::ACCEPTED);
    assert!(revoked.json["revoked_at"].is_string());
}

#[tokio::test]
async fn a_token_revokes_no_more_than_it_could_do() {
    let (api, path) = platform().await;
    let ada = api.user("ada", Some(Role::Admin)).await;
    let make = async |role: &str| {
        let made = api.post(&path, json!({"role": role})).bearer(&ada).send().await.expect(StatusCode::CREATED);
        format!("{path}/{}", made.json["record"]["id"].as_str().unwrap())
    };
    let (view, edit, admin) = (make("view").await, make("edit").await, make("admin").await);
    let made = api.post("/api/v1/api-tokens", json!({"name": "t", "role": "viewer"})).bearer(&ada).send().await;
    let viewer = made.json["secret"].as_str().unwrap();
    for more in [&edit, &admin] {
        api.delete(more).bearer(viewer).send().await.problem("forbidden");
    }
    api.delete(&view).bearer(viewer).send().await.expect(StatusCode::OK);
    api.delete(&admin).bearer(&ada).send().await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_later_user_of_the_same_name_does_not_own_the_kubeconfigs_of_the_earlier() {
    let (api, path) = platform().await;
    let earlier = api.user("ada", Some(Role::Member)).await;
    let made = api.post(&path, json!({})).bearer(&earlier).send().await.expect(StatusCode::CREATED);
    let own = format!("{path}/{}", made.json["record"]["id"].as_str().unwrap());
    assert_eq!(api.get(&path).bearer(&earlier).send().await.json["items"].as_array().unwrap().len(), 1);
    let users = api.get("/api/v1/users?name=ada").local().send().await;
    let user = format!("/api/v1/users/{}", users.json["items"][0]["id"].as_str().unwrap());
    api.delete(&user).local().send().await.expect(StatusCode::NO_CONTENT);
    api.clock.advance(std::time::Duration::from_secs(1));
    let later = api.user("ada", Some(Role::Member)).await;
    assert_eq!(api.get(&path).bearer(&later).send().await.json["items"], json!([]));
    api.delete(&own).bearer(&later).send().await.problem("not-found");
    api.delete(&own).local().send().await.expect(StatusCode::OK);
}
