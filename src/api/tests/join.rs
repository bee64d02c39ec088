//! Machines that ask for membership, tell how it goes, and ask what became of it.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;

use super::harness::{Api, Reply};
use super::machines::{Machine, platform, token};
use crate::domain::join::TokenContent;
use crate::domain::node::Fate;
use crate::domain::{Ambient, Cluster, JoinTokenId, NodeId};
use crate::store;

async fn used(api: &Api, token: &TokenContent) -> u32 {
    store::join_tokens::find(&mut *api.state.store.read().await.unwrap(), token.id).await.unwrap().unwrap().0.used
}

async fn join(api: &Api, machine: &Machine, token: &TokenContent) -> Reply {
    api.post("/join/v1/nodes", machine.request(token)).from("192.0.2.1").send().await
}

#[tokio::test]
async fn a_machine_becomes_a_node_and_is_told_what_it_needs() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({"uses": 1})).await;
    let machine = Machine::new("worker-1");
    let joined = join(&api, &machine, &token).await.expect(StatusCode::OK).json;
    assert!(joined["certificate_pem"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE"));
    let of = &joined["cluster"];
    assert_eq!(of["label"], cluster.label);
    assert_eq!((&of["api_local_address"], &of["api_port"]), (&json!("198.51.100.1"), &json!(6443)));
    assert_eq!((&of["dns_address"], &of["dns_domain"]), (&json!("10.96.0.10"), &json!("cluster.local")));
    assert_eq!(of["tunnel_name"], format!("{}-node.kubebyon.internal", cluster.label));
    assert_eq!(of["tunnel_endpoints"], json!([{"host": "203.0.113.7", "port": 8443}]));
    assert_eq!(of["pause_image"], "registry.k8s.io/pause:3.10.1");
    let names = |list: &str| joined[list].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(names("programs"), ["kubebyon", "kube-proxy", "kubelet"]);
    assert_eq!(names("images"), ["pause.tar"]);
    for file in joined["programs"].as_array().unwrap().iter().chain(joined["images"].as_array().unwrap()) {
        let fetched = api.get(file["path"].as_str().unwrap()).send().await.expect(StatusCode::OK);
        assert_eq!(fetched.headers["etag"], format!("\"{}\"", file["sha256"].as_str().unwrap()));
        assert_eq!(fetched.headers["content-length"], file["size"].to_string());
    }
    // Asked again with its key it is the same node, though the one use is made and the time is over.
    api.clock.advance(Duration::from_secs(7200));
    let again = join(&api, &machine, &token).await.expect(StatusCode::OK).json;
    assert_eq!((&again["node_id"], used(&api, &token).await), (&joined["node_id"], 1));
    join(&api, &Machine::new("worker-2"), &token).await.expect(StatusCode::FORBIDDEN).problem("join-token-expired");
}

#[tokio::test]
async fn a_token_that_is_not_there_and_a_wrong_secret_get_one_answer() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let machine = Machine::new("worker-1");
    let absent = TokenContent { id: JoinTokenId::generate(&Ambient::system()), ..token.clone() };
    let wrong = TokenContent { secret: "x".repeat(43), ..token.clone() };
    let absent = join(&api, &machine, &absent).await.expect(StatusCode::FORBIDDEN).problem("join-token-unknown");
    // What else is wrong with a token is not told to who does not know its secret.
    api.delete(&format!("/api/v1/clusters/{}/join-tokens/{}", cluster.id, token.id)).local().send().await.expect(StatusCode::OK);
    let wrong = join(&api, &machine, &wrong).await.expect(StatusCode::FORBIDDEN);
    assert_eq!(absent.text, wrong.text);
    join(&api, &machine, &token).await.expect(StatusCode::FORBIDDEN).problem("join-token-revoked");
    assert_eq!(api.jobs().await.iter().filter(|(kind, _)| kind == "sign-node").count(), 1);
}

#[tokio::test]
async fn who_tries_secrets_is_slowed_down_and_nobody_else_is() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let wrong = TokenContent { secret: "x".repeat(43), ..token.clone() };
    let machine = Machine::new("worker-1");
    for _ in 0..5 {
        join(&api, &machine, &wrong).await.problem("join-token-unknown");
    }
    let slowed = join(&api, &machine, &wrong).await.expect(StatusCode::TOO_MANY_REQUESTS).problem("throttled");
    assert!(slowed.headers.contains_key("retry-after"));
    let report = json!({"token": token.id, "secret": token.secret, "name": "w", "step": "Signed", "message": ""});
    api.post("/join/v1/steps", report).from("192.0.2.1").send().await.problem("throttled");
    let elsewhere = api.post("/join/v1/nodes", machine.request(&token)).from("192.0.2.2").send().await;
    elsewhere.expect(StatusCode::OK);
    api.clock.advance(Duration::from_secs(2));
    join(&api, &machine, &token).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn what_cannot_be_a_node_is_told_why_and_uses_nothing_up() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({"uses": 1})).await;
    let change = |path: &str, value: serde_json::Value| {
        let mut body = Machine::new("worker-1").request(&token);
        *body.pointer_mut(path).unwrap() = value;
        body
    };
    for (body, field) in [
        (change("/name", json!("Worker_1")), "name"),
        (change("/labels", json!({"kubernetes.io/arch": "x"})), "labels"),
        (change("/taints/0/effect", json!("Never")), "taints"),
        (change("/machine/architecture", json!("riscv64")), "machine.architecture"),
        (change("/address", json!("nowhere")), "address"),
    ] {
        let reply = api.post("/join/v1/nodes", body).send().await.problem("invalid");
        assert_eq!(reply.field(), field, "{}", reply.text);
    }
    api.post("/join/v1/nodes", change("/csr_pem", json!("none"))).send().await.problem("invalid");
    let huge = change("/csr_pem", json!("x".repeat(70_000)));
    api.post("/join/v1/nodes", huge).send().await.expect(StatusCode::PAYLOAD_TOO_LARGE).problem("too-large");
    *api.parts.missing.lock().unwrap() = Some("run `kubebyon assets fetch --nodes`".into());
    let machine = Machine::new("worker-1");
    let missing = join(&api, &machine, &token).await.expect(StatusCode::CONFLICT).problem("programs-missing");
    assert_eq!(missing.json["detail"], "run `kubebyon assets fetch --nodes`");
    *api.parts.missing.lock().unwrap() = None;
    assert_eq!(used(&api, &token).await, 0);
    join(&api, &machine, &token).await.expect(StatusCode::OK);
    let other = super::machines::token(&api, &cluster, json!({})).await;
    let taken = join(&api, &Machine::new("worker-1"), &other).await.expect(StatusCode::CONFLICT).problem("name-taken");
    assert!(taken.json["detail"].as_str().unwrap().contains("--name"), "{}", taken.text);
    join(&api, &Machine::new("worker-2"), &token).await.expect(StatusCode::FORBIDDEN).problem("join-token-used-up");
}

#[tokio::test]
async fn what_a_machine_says_of_itself_is_plain_and_short() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let mut body = Machine::new("worker-1").request(&token);
    body["machine"]["operating_system"] = json!(format!("Evil\u{1b}[31m\nOS{}", "x".repeat(500)));
    api.post("/join/v1/nodes", body).send().await.expect(StatusCode::OK);
    let node = api.get(&format!("/api/v1/clusters/{}/nodes/worker-1", cluster.id)).local().send().await.json;
    let said = node["machine"]["operating_system"].as_str().unwrap();
    assert!(said.starts_with("Evil[31m OSxxx") && said.chars().count() <= 128, "{said:?}");
}

async fn steps(api: &Api, cluster: &Cluster) -> Vec<(String, String, String)> {
    let events = api.get(&format!("/api/v1/clusters/{}/events", cluster.id)).local().send().await.json;
    let text = |event: &serde_json::Value, key: &str| event[key].as_str().unwrap().to_owned();
    let items =
        events["items"].as_array().unwrap().iter().filter(|event| event["actor"].as_str().is_some_and(|a| a.starts_with("join token")));
    items.map(|event| (text(event, "reason"), text(event, "severity"), text(event, "message"))).collect()
}

#[tokio::test]
async fn steps_become_events_that_cannot_be_taken_for_the_platforms_own() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let report = |step: &str, message: &str, failed: bool| json!({"token": token.id, "secret": token.secret, "name": "worker-1", "step": step, "message": message, "failed": failed});
    api.post("/join/v1/steps", report("Packages", "installing\u{7} nft\n", false)).send().await.expect(StatusCode::NO_CONTENT);
    api.post("/join/v1/steps", report("Failed", &"é".repeat(600), true)).send().await.expect(StatusCode::NO_CONTENT);
    let told = steps(&api, &cluster).await;
    assert_eq!(told[1], ("JoinPackages".into(), "normal".into(), "node worker-1: installing nft".into()));
    assert_eq!(
        (told[0].0.as_str(), told[0].1.as_str(), told[0].2.chars().count()),
        ("JoinFailed", "warning", "node worker-1: ".len() + 500)
    );
    for bad in ["", "two words", "Node/Removed", &"x".repeat(41)] {
        assert_eq!(api.post("/join/v1/steps", report(bad, "m", false)).send().await.problem("invalid").field(), "step");
    }
    let wrong = json!({"token": token.id, "secret": "x", "name": "worker-1", "step": "Signed", "message": "m"});
    api.post("/join/v1/steps", wrong).send().await.problem("join-token-unknown");
    // A join that began in time is told of though the token has ended meanwhile, and not for ever.
    api.clock.advance(Duration::from_secs(3600 + 1800));
    api.post("/join/v1/steps", report("Signed", "m", false)).send().await.expect(StatusCode::NO_CONTENT);
    api.clock.advance(Duration::from_secs(3600));
    api.post("/join/v1/steps", report("Signed", "m", false)).send().await.problem("join-token-expired");
    assert_eq!(steps(&api, &cluster).await.len(), 3);
}

#[tokio::test]
async fn a_machine_that_proves_its_key_is_told_its_fate() {
    let (api, cluster) = platform().await;
    let token = token(&api, &cluster, json!({})).await;
    let (machine, other) = (Machine::new("worker-1"), Machine::new("worker-2"));
    let joined = join(&api, &machine, &token).await.expect(StatusCode::OK).json;
    let node: NodeId = joined["node_id"].as_str().unwrap().parse().unwrap();
    let now = api.state.ambient.now();
    let ask = async |body| api.post("/join/v1/fate", body).from("192.0.2.1").send().await;
    let member = ask(machine.fate(node, now)).await.expect(StatusCode::OK).json;
    assert_eq!((&member["fate"], &member["tunnel_endpoints"]), (&json!("member"), &joined["cluster"]["tunnel_endpoints"]));
    let stranger = NodeId::generate(&Ambient::system());
    let unknown = ask(machine.fate(stranger, now)).await.expect(StatusCode::OK);
    let forged = ask(other.fate(node, now)).await.expect(StatusCode::OK);
    let mut moved = machine.fate(node, now);
    moved["at"] = json!(now.plus(Duration::from_secs(1)));
    let moved = ask(moved).await.expect(StatusCode::OK);
    assert_eq!(unknown.json["fate"], "unknown");
    assert_eq!((&unknown.text, &unknown.text), (&forged.text, &moved.text));
    for (at, fits) in [
        (now.plus(Duration::from_secs(599)), true),
        (now.plus(Duration::from_secs(601)), false),
        (now.minus(Duration::from_secs(601)), false),
    ] {
        let reply = ask(machine.fate(node, at)).await;
        assert_eq!(reply.status == StatusCode::OK, fits, "{}", reply.text);
        if !fits {
            assert_eq!(reply.problem("invalid").field(), "at");
        }
    }
    let mut tx = api.state.store.begin().await.unwrap();
    store::nodes::remove(&mut tx, node, Fate::Removed, now).await.unwrap();
    tx.commit().await.unwrap();
    let removed = ask(machine.fate(node, now)).await.expect(StatusCode::OK).json;
    assert_eq!((&removed["fate"], &removed["tunnel_endpoints"]), (&json!("removed"), &json!([])));
    assert!(removed["message"].as_str().unwrap().contains("kubebyon leave"), "{removed}");
    for garbage in [json!("%%%"), json!(""), json!("A".repeat(4000)), json!("QUJD")] {
        let reply = ask(json!({"node": node, "at": now, "signature": garbage})).await;
        assert!(reply.json["fate"] == "unknown" || reply.json["type"] == "/problems/invalid", "{}", reply.text);
    }
}

#[tokio::test]
async fn who_guesses_at_a_node_is_slowed_down() {
    let (api, _) = platform().await;
    let (machine, node) = (Machine::new("w"), NodeId::generate(&Ambient::system()));
    let ask = async || api.post("/join/v1/fate", machine.fate(node, api.state.ambient.now())).from("192.0.2.1").send().await;
    for _ in 0..5 {
        assert_eq!(ask().await.json["fate"], "unknown");
    }
    ask().await.problem("throttled");
}
