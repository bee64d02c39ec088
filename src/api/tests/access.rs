//! Who may do what, and that what may not be seen looks like what is not there.

use axum::http::StatusCode;
use serde_json::json;

use super::harness::Api;
use crate::api::Peer;
use crate::domain::user::Role;

#[tokio::test]
async fn without_a_credential_nothing_is_served_but_health_and_the_document() {
    let api = Api::new().await;
    for path in ["/api/v1/clusters", "/api/v1/events", "/api/v1/settings", "/api/v1/sessions/current", "/api/v1/users"] {
        let reply = api.get(path).send().await.expect(StatusCode::UNAUTHORIZED).problem("unauthenticated");
        assert!(reply.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
    }
    for path in ["/healthz", "/readyz", "/api/openapi.json"] {
        api.get(path).send().await.expect(StatusCode::OK);
    }
}

#[tokio::test]
async fn the_socket_is_for_root_and_the_daemons_own_uid() {
    let api = Api::new().await;
    let own = nix::unistd::geteuid().as_raw();
    for (peer, status) in [
        (Peer::Local { uid: 0 }, StatusCode::OK),
        (Peer::Local { uid: own }, StatusCode::OK),
        (Peer::Local { uid: own + 4321 }, StatusCode::UNAUTHORIZED),
        (Peer::Remote { address: "127.0.0.1:5000".parse().unwrap(), tls: true }, StatusCode::UNAUTHORIZED),
    ] {
        api.get("/api/v1/clusters").peer(peer).send().await.expect(status);
    }
    let me = api.get("/api/v1/sessions/current").local().send().await;
    assert_eq!((&me.json["name"], &me.json["via"], &me.json["platform_admin"]), (&json!("root"), &json!("socket"), &json!(true)));
}

#[tokio::test]
async fn secrets_that_are_wrong_are_refused() {
    let api = Api::new().await;
    let good = api.user("ada", Some(Role::Viewer)).await;
    let changed = format!("{}{}", &good[..good.len() - 1], if good.ends_with('A') { 'B' } else { 'A' });
    for bad in ["", "x", &changed, "kbt_short"] {
        api.get("/api/v1/clusters").bearer(bad).local().send().await.problem("unauthenticated");
    }
    api.get("/api/v1/clusters").header("authorization", &format!("Basic {good}")).send().await.problem("unauthenticated");
    api.get("/api/v1/clusters").bearer(&good).send().await.expect(StatusCode::OK);
}

#[tokio::test]
async fn roles_decide_and_other_projects_do_not_exist() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let (viewer, member, admin) =
        (api.user("v", Some(Role::Viewer)).await, api.user("m", Some(Role::Member)).await, api.user("a", Some(Role::Admin)).await);
    let stranger = api.user_with("s", false, Some((api.other_project, Role::Admin))).await;
    let nobody = api.user("n", None).await;
    let path = format!("/api/v1/clusters/{id}");
    for (who, read, change) in [(&viewer, 200, 403), (&member, 200, 403), (&admin, 200, 200), (&stranger, 404, 404), (&nobody, 404, 404)] {
        assert_eq!(api.get(&path).bearer(who).send().await.status.as_u16(), read);
        assert_eq!(api.get(&format!("{path}/events")).bearer(who).send().await.status.as_u16(), read);
        assert_eq!(api.get(&format!("{path}/logs")).bearer(who).send().await.status.as_u16(), read);
        assert_eq!(api.get(&format!("{path}/kubeconfigs")).bearer(who).send().await.status.as_u16(), read);
        let body = json!({"labels": {"by": "them"}});
        assert_eq!(api.patch(&path, body).bearer(who).send().await.status.as_u16(), change);
        assert_eq!(api.delete(&format!("{path}?dry_run=true")).bearer(who).send().await.status.as_u16(), change);
        let created = api.post("/api/v1/clusters", json!({"name": "x", "dry_run": true})).bearer(who).send().await.status.as_u16();
        assert_eq!(created, change);
    }
    for who in [&stranger, &nobody] {
        assert_eq!(api.get("/api/v1/clusters").bearer(who).send().await.json["items"], json!([]));
        assert_eq!(api.get(&format!("/api/v1/events?cluster={id}")).bearer(who).send().await.json["items"], json!([]));
    }
}

#[tokio::test]
async fn what_may_not_be_seen_answers_as_what_is_not_there() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id.to_string();
    let absent = "0190163d-8694-739b-aea5-966c26f8ad90";
    let stranger = api.user_with("s", false, Some((api.other_project, Role::Admin))).await;
    for (hidden, missing) in [
        (format!("/api/v1/clusters/{id}"), format!("/api/v1/clusters/{absent}")),
        (format!("/api/v1/clusters/{id}/events"), format!("/api/v1/clusters/{absent}/events")),
        (format!("/api/v1/clusters/{id}/kubeconfigs"), format!("/api/v1/clusters/{absent}/kubeconfigs")),
        ("/api/v1/projects/default".to_owned(), "/api/v1/projects/absent".to_owned()),
        (format!("/api/v1/projects/{}", api.default_project), format!("/api/v1/projects/{absent}")),
        ("/api/v1/clusters?project=default".to_owned(), "/api/v1/clusters?project=absent".to_owned()),
    ] {
        let (hidden, missing) = (api.get(&hidden).bearer(&stranger).send().await, api.get(&missing).bearer(&stranger).send().await);
        assert_eq!(hidden.status, StatusCode::NOT_FOUND);
        assert_eq!((hidden.status, hidden.text), (missing.status, missing.text));
    }
}

#[tokio::test]
async fn platform_things_are_for_platform_administrators() {
    let api = Api::new().await;
    let (admin, owner) = (api.admin().await, api.user("a", Some(Role::Admin)).await);
    for (who, status) in [(&admin, StatusCode::CREATED), (&owner, StatusCode::FORBIDDEN)] {
        api.post("/api/v1/projects", json!({"name": "team-a"})).bearer(who).send().await.expect(status);
        api.post("/api/v1/users", json!({"name": "bob"})).bearer(who).send().await.expect(status);
    }
    let body = json!({"value": "domain"});
    api.put("/api/v1/settings/public_access_mode", body.clone()).bearer(&owner).send().await.problem("forbidden");
    api.put("/api/v1/settings/public_access_mode", body).bearer(&admin).send().await.expect(StatusCode::OK);
    let seen = |reply: super::harness::Reply| reply.json["items"].as_array().unwrap().len();
    assert_eq!(seen(api.get("/api/v1/users").bearer(&owner).send().await), 1);
    assert_eq!(seen(api.get("/api/v1/users").bearer(&admin).send().await), 3);
    let events = api.get("/api/v1/events").bearer(&owner).send().await;
    assert!(!events.text.contains("SettingChanged") && !events.text.contains("UserCreated"), "{}", events.text);
}

#[tokio::test]
async fn an_api_token_narrows_its_user_and_ends() {
    let api = Api::new().await;
    api.cluster("demo").await;
    let admin = api.admin().await;
    let make = async |body| api.post("/api/v1/api-tokens", body).bearer(&admin).send().await.expect(StatusCode::CREATED);
    let reader = make(json!({"name": "reader", "ttl_seconds": 120})).await;
    let secret = reader.json["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("kbt_"));
    assert_eq!(api.get("/api/v1/clusters").bearer(&secret).send().await.json["items"].as_array().unwrap().len(), 1);
    api.post("/api/v1/clusters", json!({"name": "x"})).bearer(&secret).send().await.problem("forbidden");
    api.post("/api/v1/projects", json!({"name": "x"})).bearer(&secret).send().await.problem("forbidden");
    api.post("/api/v1/api-tokens", json!({"name": "more"})).bearer(&secret).send().await.problem("forbidden");

    let elsewhere = make(json!({"name": "other", "role": "admin", "project": "other"})).await;
    let elsewhere = elsewhere.json["secret"].as_str().unwrap();
    assert_eq!(api.get("/api/v1/clusters").bearer(elsewhere).send().await.json["items"], json!([]));
    api.post("/api/v1/clusters", json!({"name": "x", "project": "other"})).bearer(elsewhere).send().await.expect(StatusCode::CREATED);
    api.post("/api/v1/projects", json!({"name": "y"})).bearer(elsewhere).send().await.problem("forbidden");

    let list = api.get("/api/v1/api-tokens").bearer(&admin).send().await;
    assert!(!list.text.contains(&secret[4..]));
    assert!(list.json["items"].as_array().unwrap().iter().any(|token| token["last_used_at"].is_string()));
    let other = list.json["items"].as_array().unwrap().iter().find(|t| t["name"] == "other").unwrap()["id"].as_str().unwrap().to_owned();
    api.delete(&format!("/api/v1/api-tokens/{other}")).bearer(&admin).send().await.expect(StatusCode::NO_CONTENT);
    api.get("/api/v1/clusters").bearer(elsewhere).send().await.problem("unauthenticated");
    api.clock.advance(std::time::Duration::from_secs(121));
    api.get("/api/v1/clusters").bearer(&secret).send().await.problem("unauthenticated");
}

#[tokio::test]
async fn a_token_can_be_made_on_the_socket_for_a_named_user() {
    let api = Api::new().await;
    let owner = api.user("ada", Some(Role::Admin)).await;
    let body = json!({"name": "ci", "role": "admin"});
    assert_eq!(api.post("/api/v1/api-tokens", body).local().send().await.problem("invalid").field(), "user");
    let body = json!({"name": "ci", "role": "admin", "user": "ada"});
    let made = api.post("/api/v1/api-tokens", body).local().send().await.expect(StatusCode::CREATED);
    let me = api.get("/api/v1/sessions/current").bearer(made.json["secret"].as_str().unwrap()).send().await;
    assert_eq!((&me.json["name"], &me.json["via"]), (&json!("ada"), &json!("api-token")));
    let body = json!({"name": "ci", "user": "root"});
    api.post("/api/v1/api-tokens", body).bearer(&owner).send().await.problem("forbidden");
}

#[tokio::test]
async fn an_api_token_manages_no_tokens_and_sees_itself_alone() {
    let api = Api::new().await;
    let admin = api.admin().await;
    let make = async |body| {
        let made = api.post("/api/v1/api-tokens", body).bearer(&admin).send().await.expect(StatusCode::CREATED);
        (made.json["secret"].as_str().unwrap().to_owned(), made.json["api_token"]["id"].as_str().unwrap().to_owned())
    };
    let (_, other) = make(json!({"name": "other"})).await;
    for body in
        [json!({"name": "reader"}), json!({"name": "all", "role": "admin"}), json!({"name": "narrow", "role": "admin", "project": "other"})]
    {
        let (secret, id) = make(body).await;
        let list = api.get("/api/v1/api-tokens").bearer(&secret).send().await;
        let ids: Vec<_> = list.json["items"].as_array().unwrap().iter().map(|token| token["id"].as_str().unwrap()).collect();
        assert_eq!(ids, [id.as_str()]);
        for id in [&id, &other] {
            api.delete(&format!("/api/v1/api-tokens/{id}")).bearer(&secret).send().await.problem("forbidden");
        }
    }
    assert_eq!(api.get("/api/v1/api-tokens").bearer(&admin).send().await.json["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_lesser_token_of_an_administrator_does_not_see_the_platforms_own() {
    let api = Api::new().await;
    let id = api.cluster("demo").await.id;
    let admin = api.admin().await;
    api.post("/api/v1/users", json!({"name": "bob"})).bearer(&admin).send().await.expect(StatusCode::CREATED);
    let mut tx = api.state.store.begin().await.unwrap();
    let job = crate::store::jobs::NewJob {
        kind: "platform",
        project_id: None,
        cluster_id: None,
        host: None,
        payload: json!({}),
        max_attempts: 1,
        coalesce: false,
    };
    let job = crate::store::jobs::enqueue(&mut tx, &api.state.ambient, job).await.unwrap().to_string();
    tx.commit().await.unwrap();
    for (role, sees) in [("member", false), ("admin", true)] {
        let made = api.post("/api/v1/api-tokens", json!({"name": "t", "role": role})).bearer(&admin).send().await;
        let secret = made.json["secret"].as_str().unwrap();
        let events = api.get("/api/v1/events").bearer(secret).send().await.expect(StatusCode::OK);
        assert_eq!((events.text.contains("UserCreated"), events.text.contains(&id.to_string())), (sees, true), "{role}");
        let jobs = api.get("/api/v1/jobs").bearer(secret).send().await.expect(StatusCode::OK);
        assert_eq!((jobs.text.contains(&job), jobs.text.contains(&id.to_string())), (sees, true), "{role}");
        let status = api.get(&format!("/api/v1/jobs/{job}")).bearer(secret).send().await.status;
        assert_eq!(status == StatusCode::OK, sees, "{role}");
    }
}
