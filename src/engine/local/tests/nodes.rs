//! Nodes of a real control plane, without machines: what kubelets ask, what Kubernetes says of them, and how they go.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node as KubernetesNode, Pod, ResourceQuota, Service, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::super::nodes::Nodes;
use super::*;
use crate::domain::node::{Fate, KUBELET_GROUP, Machine, NodeStatus, Taint, kubelet_user};
use crate::domain::{Node, NodeId};
use crate::engine::kubernetes::nodes::tokens;
use crate::engine::kubernetes::{self, Access};
use crate::pki::{Authority, Issued, LeafProfile};
use crate::store::nodes::NodeCertificate;
use crate::tunnel::protocol::{Answer, Ask};
use crate::tunnel::terminator::nodes::NodeDesk as _;

/// A node's row and its kubelet's certificate, as a join makes them.
async fn join(bench: &Bench, engine: &LocalEngine, cluster: &Cluster, name: &str, address: &str) -> (Node, Issued) {
    let ambient = &bench.tools.ambient;
    let node = Node {
        id: NodeId::generate(ambient),
        cluster_id: cluster.id,
        name: name.to_owned(),
        address: address.parse().unwrap(),
        address_assigned: false,
        machine: Machine::default(),
        labels: [("disk", "ssd"), ("node-role.kubernetes.io/worker", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        taints: vec![Taint { key: "dedicated".into(), value: "gpu".into(), effect: "NoSchedule".into() }],
        status: NodeStatus::default(),
        join_token_id: None,
        joined_at: ambient.now(),
        removed_at: None,
        public_key: name.as_bytes().to_vec(),
    };
    let pki = engine.inner.pki(cluster).await.unwrap();
    let profile = LeafProfile {
        common_name: kubelet_user(name),
        organizations: vec![KUBELET_GROUP.to_owned()],
        sans: Vec::new(),
        server_auth: false,
        client_auth: true,
        ttl: Duration::from_secs(3600),
    };
    let issued = pki.authority(Authority::Client).issue(ambient, &profile).unwrap();
    let mut tx = bench.tools.store.begin().await.unwrap();
    store::nodes::insert(&mut tx, &node).await.unwrap();
    let certificate = NodeCertificate {
        fingerprint: issued.fingerprint.clone(),
        node_id: node.id,
        cluster_id: cluster.id,
        not_after: issued.not_after,
        revoked_at: None,
    };
    store::nodes::add_certificate(&mut tx, &certificate).await.unwrap();
    tx.commit().await.unwrap();
    (node, issued)
}

/// The API server as that kubelet sees it.
async fn kubelet(engine: &LocalEngine, cluster: &Cluster, issued: &Issued) -> Client {
    let pki = engine.inner.pki(cluster).await.unwrap();
    let access = Access {
        address: cluster.local.as_ref().unwrap().address.into(),
        tls_server_name: None,
        server_ca_pem: &pki.authority(Authority::Server).cert_pem,
        cert_pem: &issued.cert_pem,
        key_pem: &issued.key_pem,
    };
    kubernetes::clients(&access).unwrap().prompt
}

/// Asks for a certificate as a kubelet does; gives the name of the request, or why the API server does not even take it.
async fn ask(client: &Client, signer: &str, subject: &str, sans: &[&str]) -> Result<String, String> {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(sans.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, KUBELET_GROUP);
    params.distinguished_name.push(rcgen::DnType::CommonName, subject);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let usage = if signer.ends_with("serving") { "server auth" } else { "client auth" };
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    }))
    .unwrap();
    match Api::all(client.clone()).create(&PostParams::default(), &request).await {
        Ok(made) => Ok(made.name_any()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until a request was decided: its certificate, or why it was denied.
async fn decided(client: &Client, name: &str) -> Result<String, String> {
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    for _ in 0..300 {
        let status = api.get(name).await.unwrap().status.unwrap_or_default();
        if let Some(certificate) = status.certificate {
            return Ok(String::from_utf8(certificate.0).unwrap());
        }
        if let Some(denied) = status.conditions.into_iter().flatten().find(|c| c.type_ == "Denied" || c.type_ == "Failed") {
            return Err(denied.message.unwrap_or_default());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} is not decided");
}

/// Waits until a node's row is as it should be.
async fn until_node(bench: &Bench, id: NodeId, what: impl Fn(&Node) -> bool) -> Node {
    let mut changes = bench.tools.store.changes();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let now = store::nodes::find(&mut *bench.tools.store.read().await.unwrap(), id).await.unwrap().unwrap();
        if what(&now) {
            return now;
        }
        assert!(tokio::time::timeout_at(end, changes.recv()).await.is_ok(), "stays at {now:?}");
    }
}

fn node_object(name: &str, address: &str) -> KubernetesNode {
    let status = json!({"addresses": [{"type": "InternalIP", "address": address}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
}

async fn set_ready(client: &Client, name: &str) {
    let condition = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": null,
        "lastTransitionTime": null});
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    Api::<KubernetesNode>::all(client.clone()).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_node() {
    let bench = Bench::new();
    let engine = bench.engine().await;
    let id = row(&bench.tools.store, &bench.tools.ambient, "here").await.id;
    let (cluster, _) = bench.reconcile(&engine, id).await;
    let admin = engine.inner.client(&cluster).await.unwrap();
    add_ons_stand(&admin, &cluster, &engine).await;

    let (node, issued) = join(&bench, &engine, &cluster, "worker-1", "192.168.1.10").await;
    let (other, _) = join(&bench, &engine, &cluster, "worker-2", "192.168.1.11").await;
    let client = kubelet(&engine, &cluster, &issued).await;
    Api::<KubernetesNode>::all(client.clone()).create(&PostParams::default(), &node_object("worker-1", "192.168.1.10")).await.unwrap();
    set_ready(&client, "worker-1").await;
    let known = until_node(&bench, node.id, |n| n.status.ready && n.status.pod_cidr.is_some()).await;
    assert!("10.244.0.0/16".parse::<ipnet::IpNet>().unwrap().contains(&known.status.pod_cidr.unwrap()));
    introduced(&admin, &node).await;
    let table = engine.inner.plane(id).unwrap().nodes.subscribe().wait_for(|t| t.nodes.len() == 2).await.unwrap().clone();
    assert!(table.nodes[0].fingerprints.contains(&issued.fingerprint), "{table:?}");

    certificates(&bench, &engine, &cluster, (&node, &issued, &client)).await;
    token(&engine, &cluster, &node, &admin).await;
    a_policy_of_the_tenants_is_named(&engine, &cluster, &node, &admin).await;

    // Its membership ends: what it asks from then on is denied.
    let mut tx = bench.tools.store.begin().await.unwrap();
    store::nodes::end(&mut tx, node.id, Fate::Removed, bench.tools.ambient.now()).await.unwrap();
    tx.commit().await.unwrap();
    let why = decided(&admin, &ask(&client, "kubernetes.io/kubelet-serving", "system:node:worker-1", &["worker-1"]).await.unwrap())
        .await
        .unwrap_err();
    assert!(why.contains("no node of this cluster"), "{why}");
    let ended = engine.inner.plane(id).unwrap().nodes.subscribe().wait_for(|t| t.nodes.len() == 1).await.unwrap().clone();
    assert_eq!((ended.nodes[0].id, ended.ended[0].0, ended.ended[0].1), (other.id, node.id, Fate::Removed));
    engine.apply_revocations(&cluster).await.unwrap();
    let refused = Api::<KubernetesNode>::all(client.clone()).get("worker-1").await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403), "a removed node is refused by the API server");

    removed(&engine, &cluster, &node, &admin).await;
    engine.delete(&bench.find(id).await, &bring_up::Silent).await.unwrap();
}

async fn add_ons_stand(admin: &Client, cluster: &Cluster, engine: &LocalEngine) {
    let daemon_sets = Api::<DaemonSet>::namespaced(admin.clone(), "kube-system");
    let there = daemon_sets.get("coredns").await.unwrap();
    let service = Api::<Service>::namespaced(admin.clone(), "kube-system").get("kube-dns").await.unwrap().spec.unwrap();
    assert_eq!(service.cluster_ip.as_deref(), Some("10.96.0.10"));
    assert_eq!(service.internal_traffic_policy.as_deref(), Some("Local"));
    Api::<ServiceAccount>::namespaced(admin.clone(), "kube-system").get("kube-proxy").await.unwrap();

    // Applied again nothing is written; what was changed is put back, and what the owner took over is not.
    let image = &engine.inner.options.nodes.coredns_image;
    let apply = async || kubernetes::addons::apply(admin, &cluster.spec, image).await.unwrap();
    apply().await;
    assert_eq!(daemon_sets.get("coredns").await.unwrap().resource_version(), there.resource_version());
    let mine = json!({"spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": "mine"}]}}}});
    let patched = async || daemon_sets.patch("coredns", &PatchParams::default(), &Patch::Strategic(&mine)).await.unwrap();
    let image_of = async || {
        serde_json::to_value(daemon_sets.get("coredns").await.unwrap()).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"]
            .clone()
    };
    patched().await;
    apply().await;
    assert_eq!(image_of().await, image.as_str());
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), "kube-system");
    let taken = json!({"metadata": {"annotations": {kubernetes::addons::MANAGED: "false"}}, "data": {"Corefile": "# mine\n"}});
    maps.patch("coredns", &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    patched().await;
    apply().await;
    assert_eq!(image_of().await, "mine");
    let given_back = json!({"metadata": {"annotations": {kubernetes::addons::MANAGED: null}}});
    maps.patch("coredns", &PatchParams::default(), &Patch::Merge(given_back)).await.unwrap();
    apply().await;
    assert_eq!(image_of().await, image.as_str());
    assert_eq!(maps.get("coredns").await.unwrap().data.unwrap()["Corefile"], "# mine\n", "the Corefile is the owner's");
}

/// Labels, reserved ones too, and taints that were asked for are on the node, once.
async fn introduced(admin: &Client, node: &Node) {
    let api = Api::<KubernetesNode>::all(admin.clone());
    for _ in 0..100 {
        let object = api.get(&node.name).await.unwrap();
        if object.annotations().contains_key("kubebyon.app/joined") {
            assert_eq!(object.labels()["disk"], "ssd");
            assert!(object.labels().contains_key("node-role.kubernetes.io/worker"));
            assert!(object.spec.unwrap().taints.unwrap().iter().any(|t| t.key == "dedicated"));
            let own = Patch::Merge(json!({"metadata": {"labels": {"disk": "hdd"}}}));
            api.patch(&node.name, &PatchParams::default(), &own).await.unwrap();
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the node has not got what was asked for");
}

async fn certificates(bench: &Bench, engine: &LocalEngine, cluster: &Cluster, (node, issued, client): (&Node, &Issued, &Client)) {
    const SERVING: &str = "kubernetes.io/kubelet-serving";
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let admin = engine.inner.client(cluster).await.unwrap();
    let user = "system:node:worker-1";
    decided(&admin, &ask(client, SERVING, user, &["worker-1", "192.168.1.10"]).await.unwrap()).await.unwrap();
    let renewed = decided(&admin, &ask(client, CLIENT, user, &[]).await.unwrap()).await.unwrap();
    let (_, not_after) = crate::pki::validity(&renewed).unwrap();
    let recorded = store::nodes::issued_certificates(&mut *bench.tools.store.read().await.unwrap(), node.id).await.unwrap();
    assert!(
        recorded.iter().any(|c| c.not_after == not_after && c.fingerprint != issued.fingerprint),
        "it is recorded before it is written"
    );

    for (signer, subject, sans, why) in [
        (SERVING, user, &["worker-1", "192.168.1.11"][..], "asks for the address"),
        (SERVING, user, &["worker-2"], "asks for the name"),
        (SERVING, "system:node:worker-2", &["worker-2", "192.168.1.11"], "common name"),
        (CLIENT, "system:node:worker-2", &[], "common name"),
        (CLIENT, user, &["worker-1"], "names no hosts"),
    ] {
        // A subject that is not its own the API server does not take from a kubelet (NodeRestriction).
        let denied = match ask(client, signer, subject, sans).await {
            Ok(name) => decided(&admin, &name).await.unwrap_err(),
            Err(refused) => {
                assert_eq!(why, "common name", "{refused}");
                assert!(refused.contains("can only create a node CSR with CN=system:node:worker-1"), "{refused}");
                continue;
            }
        };
        assert!(denied.contains(why), "{signer} {subject} {sans:?}: {denied}");
    }
    // Somebody who is no node, and whose request somebody approved: it is nobody's to sign but the controller-manager's, which has no such signer.
    let people = ask(&admin, CLIENT, user, &[]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = Api::<CertificateSigningRequest>::all(admin.clone()).get(&people).await.unwrap().status.unwrap_or_default();
    assert!(status.certificate.is_none() && status.conditions.is_none(), "{status:?}");
}

async fn token(engine: &Arc<LocalEngine>, cluster: &Cluster, node: &Node, admin: &Client) {
    let nodes = Nodes::of(&engine.inner, cluster).await.unwrap();
    let Answer::Token { token, seconds } = tokens::kube_proxy(&nodes.scope, node).await.unwrap() else { panic!("no token") };
    assert!((3600..=7200).contains(&seconds), "{seconds}");
    let review: TokenReview = serde_json::from_value(json!({"spec": {"token": token}})).unwrap();
    let review = Api::<TokenReview>::all(admin.clone()).create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    let user = serde_json::to_value(review.user.unwrap()).unwrap();
    assert_eq!(user["username"], "system:serviceaccount:kube-system:kube-proxy");
    assert_eq!(user["extra"]["authentication.kubernetes.io/node-name"], json!(["worker-1"]));
    let mut stranger = node.clone();
    stranger.name = "worker-9".into();
    assert!(tokens::kube_proxy(&nodes.scope, &stranger).await.err().unwrap().to_string().contains("not registered"));
}

async fn a_policy_of_the_tenants_is_named(engine: &Arc<LocalEngine>, cluster: &Cluster, node: &Node, admin: &Client) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "kubebyon-system"}})).unwrap();
    Api::all(admin.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let quotas = Api::<ResourceQuota>::namespaced(admin.clone(), "kubebyon-system");
    let quota = serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    while quotas.get("none").await.unwrap().status.and_then(|s| s.hard).is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let desk = Nodes::of(&engine.inner, cluster).await.unwrap().desk;
    let shown = Arc::new(Mutex::new(Vec::new()));
    let steps: crate::tunnel::terminator::nodes::Steps = Arc::new({
        let shown = Arc::clone(&shown);
        move |step: &str, _: &str| locked(&shown).push(step.to_owned())
    });
    let Answer::Verified { steps } = desk.ask(node.id, Ask::Verify, steps).await.unwrap() else { panic!("no steps") };
    assert_eq!(steps.iter().map(|s| (s.kind.as_str(), s.status)).collect::<Vec<_>>(), [("NodeReady", true), ("PodCreated", false)]);
    assert_eq!(steps[1].reason, "ResourceQuota");
    assert_eq!(*locked(&shown), ["NodeReady", "PodCreated"]);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
}

async fn removed(engine: &LocalEngine, cluster: &Cluster, node: &Node, admin: &Client) {
    let tolerates = json!([{"operator": "Exists"}]);
    let pod: Value = json!({"metadata": {"name": "p"}, "spec": {"nodeName": node.name, "tolerations": tolerates,
        "containers": [{"name": "c", "image": "x"}]}});
    let pods = Api::<Pod>::namespaced(admin.clone(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    assert_eq!(engine.node_ready(cluster, &node.name).await.unwrap(), Some(true));
    let steps = Steps::default();
    engine.remove_node(cluster, node, Duration::from_secs(4), &steps).await.unwrap();
    let told = std::mem::take(&mut *locked(&steps.0));
    assert_eq!(
        (told.first().map(String::as_str), told.last().map(String::as_str)),
        (Some("NodeCordoned"), Some("NodeDeleted")),
        "{told:?}"
    );
    assert!(told.contains(&"NodeDraining".to_owned()), "{told:?}");
    assert!(pods.get_opt("p").await.unwrap().is_none_or(|p| p.metadata.deletion_timestamp.is_some()), "the pod was not evicted");
    engine.remove_node(cluster, node, Duration::from_secs(4), &steps).await.unwrap();
    assert!(locked(&steps.0).is_empty(), "run again, nothing is left to do");
    assert_eq!(engine.node_ready(cluster, &node.name).await.unwrap(), None);
}
