//! Join tokens made, listed, revoked.

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use super::machines::platform;
use crate::api::state::JoinTrust;
use crate::domain::join::{TokenContent, Trust, secret_hash};
use crate::domain::user::Role;
use crate::store;

#[tokio::test]
async fn a_token_comes_with_the_line_that_uses_it_and_its_secret_is_kept_as_a_hash_alone() {
    let (api, cluster) = platform().await;
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    let member = api.user("ada", Some(Role::Member)).await;
    let made = api.post(&path, json!({})).bearer(&member).send().await.expect(StatusCode::CREATED);
    let text = made.json["token"].as_str().unwrap();
    let content = TokenContent::parse(text).unwrap();
    assert_eq!((content.server.as_str(), &content.cluster), ("https://203.0.113.7:8443", &cluster.label));
    assert_eq!(content.trust, Trust::Authority("ab".repeat(32)));
    let line = format!("curl -fsSLk --pinnedpubkey 'sha256//cGlu' https://203.0.113.7:8443/join.sh | sudo sh -s -- {text}");
    assert_eq!(made.json["command"], line);
    assert_eq!(made.json["warnings"], json!([]));
    let cloud_init = made.json["cloud_init"].as_str().unwrap();
    assert!(cloud_init.starts_with("#cloud-config\n"), "{cloud_init}");
    let parsed: serde_json::Value = serde_saphyr::from_str(cloud_init).unwrap();
    assert_eq!(parsed["write_files"][0]["content"], text);
    assert_eq!(parsed["write_files"][0]["permissions"], "0600");
    let run = parsed["runcmd"][0].as_str().unwrap();
    assert!(run.contains("| sh -s -- --token-file /run/kubebyon-join-token\n") && !run.contains("kbj1_"), "{run}");
    let record = &made.json["record"];
    assert_eq!((&record["owner"], &record["uses"], &record["used"]), (&json!("ada"), &json!(10), &json!(0)));
    let (_, hash) = store::join_tokens::find(&mut *api.state.store.read().await.unwrap(), content.id).await.unwrap().unwrap();
    assert_eq!(hash, secret_hash(&content.secret));
    let listed = api.get(&path).bearer(&member).send().await.expect(StatusCode::OK);
    assert_eq!(listed.json["items"][0]["id"], record["id"]);
    let events = api.get(&format!("/api/v1/clusters/{}/events", cluster.id)).local().send().await;
    assert!(events.text.contains("JoinTokenCreated") && events.text.contains("\"actor\":\"ada\""), "{}", events.text);
    for reply in [&listed, &events] {
        assert!(!reply.text.contains(&content.secret));
    }
}

#[tokio::test]
async fn a_certificate_that_everybody_trusts_needs_no_pin_and_one_that_nobody_can_check_gets_no_token() {
    let (api, cluster) = platform().await;
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    api.put("/api/v1/settings/join_base_url", json!({"value": "https://join.example:8443"})).local().send().await.expect(StatusCode::OK);
    *api.parts.trust.lock().unwrap() = Some(Ok(JoinTrust { trust: Trust::System, pin: None }));
    let made = api.post(&path, json!({"uses": 1, "ttl_seconds": 60})).local().send().await.expect(StatusCode::CREATED);
    let command = made.json["command"].as_str().unwrap();
    assert!(command.starts_with("curl -fsSL https://join.example:8443/join.sh | sudo sh -s -- kbj1_"), "{command}");
    assert_eq!(TokenContent::parse(made.json["token"].as_str().unwrap()).unwrap().trust, Trust::System);
    *api.parts.trust.lock().unwrap() = Some(Err("append its authority".into()));
    let refused = api.post(&path, json!({})).local().send().await.problem("conflict");
    assert_eq!(refused.json["detail"], "append its authority");
}

#[tokio::test]
async fn who_may_change_a_cluster_may_let_machines_in_and_others_do_not_see_it() {
    let (api, cluster) = platform().await;
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    let stranger = api.user_with("s", false, Some((api.other_project, Role::Admin))).await;
    for (who, create, read) in [
        (api.user("v", Some(Role::Viewer)).await, 403, 200),
        (api.user("m", Some(Role::Member)).await, 201, 200),
        (api.user("a", Some(Role::Admin)).await, 201, 200),
        (stranger.clone(), 404, 404),
        (api.user("n", None).await, 404, 404),
    ] {
        assert_eq!(api.post(&path, json!({})).bearer(&who).send().await.status.as_u16(), create);
        assert_eq!(api.get(&path).bearer(&who).send().await.status.as_u16(), read);
    }
    let made = api.post(&path, json!({})).local().send().await;
    let own = format!("{path}/{}", made.json["record"]["id"].as_str().unwrap());
    let absent = api.delete(&own.replace(&cluster.id.to_string(), "0190163d-8694-739b-aea5-966c26f8ad90")).bearer(&stranger).send().await;
    let hidden = api.delete(&own).bearer(&stranger).send().await.expect(StatusCode::NOT_FOUND);
    assert_eq!(hidden.text, absent.text);
}

#[tokio::test]
async fn a_revocation_is_one_and_only_of_its_own_cluster() {
    let (api, cluster) = platform().await;
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    let made = api.post(&path, json!({})).local().send().await;
    let id = made.json["record"]["id"].as_str().unwrap().to_owned();
    let other = api.cluster("other").await.id;
    api.delete(&format!("/api/v1/clusters/{other}/join-tokens/{id}")).local().send().await.problem("not-found");
    let viewer = api.user("v", Some(Role::Viewer)).await;
    api.delete(&format!("{path}/{id}")).bearer(&viewer).send().await.problem("forbidden");
    let revoked = api.delete(&format!("{path}/{id}")).local().send().await.expect(StatusCode::OK);
    assert!(revoked.json["revoked_at"].is_string());
    api.clock.advance(std::time::Duration::from_secs(5));
    let again = api.delete(&format!("{path}/{id}")).local().send().await.expect(StatusCode::OK);
    assert_eq!(again.json["revoked_at"], revoked.json["revoked_at"]);
    let events = api.get(&format!("/api/v1/clusters/{}/events", cluster.id)).local().send().await.text;
    assert_eq!(events.matches("JoinTokenRevoked").count(), 1);
}

#[tokio::test]
async fn what_cannot_be_made_is_told() {
    let (api, cluster) = platform().await;
    let path = format!("/api/v1/clusters/{}/join-tokens", cluster.id);
    for (body, field) in [
        (json!({"ttl_seconds": 59}), "ttl_seconds"),
        (json!({"ttl_seconds": 2_592_001}), "ttl_seconds"),
        (json!({"uses": 0}), "uses"),
        (json!({"uses": 1001}), "uses"),
        (json!({"uses": 4_294_967_297_u64}), "uses"),
        (json!({"uses": -1}), "uses"),
        (json!({"secret": "mine"}), "secret"),
    ] {
        assert_eq!(api.post(&path, body.clone()).local().send().await.problem("invalid").field(), field, "{body}");
    }
    *api.parts.missing.lock().unwrap() = Some("run `kubebyon assets fetch --nodes`".into());
    let made = api.post(&path, json!({})).local().send().await.expect(StatusCode::CREATED);
    assert!(made.json["warnings"][0].as_str().unwrap().contains("assets fetch --nodes"));
    api.delete(&format!("/api/v1/clusters/{}", cluster.id)).local().send().await.expect(StatusCode::ACCEPTED);
    let refused = api.post(&path, json!({})).local().send().await;
    assert!(refused.status == StatusCode::NOT_FOUND || refused.json["type"] == "/problems/cluster-deleting", "{}", refused.text);
}

#[tokio::test]
async fn a_cluster_whose_engine_takes_no_machines_gets_no_token() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let mut tx = api.state.store.begin().await.unwrap();
    let mut cluster = store::clusters::find(tx.sql(), id).await.unwrap().unwrap();
    cluster.spec.engine = crate::domain::EngineKind::Vcluster;
    store::clusters::update(&mut tx, id, None, &cluster.spec, &cluster.labels).await.unwrap();
    tx.commit().await.unwrap();
    let refused = api.post(&format!("/api/v1/clusters/{id}/join-tokens"), json!({})).local().send().await.problem("takes-no-nodes");
    assert!(refused.json["detail"].as_str().unwrap().contains("engine local or hosted"), "{}", refused.text);
}
