//! What nodes and the platform say to each other.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::harness::*;
use crate::domain::node::Fate;
use crate::tunnel::node::{NodeTunnel, Status};
use crate::tunnel::protocol::{Answer, Ask, Aspect, Report};

#[tokio::test]
async fn questions_are_answered_with_their_steps() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let steps = Arc::new(Mutex::new(Vec::new()));
    let verified = tunnel
        .ask(Ask::Verify, {
            let steps = Arc::clone(&steps);
            move |step, message| steps.lock().unwrap().push(format!("{step}: {message}"))
        })
        .await;
    assert_eq!(verified, Ok(Answer::Verified { steps: Vec::new() }));
    assert_eq!(*steps.lock().unwrap(), ["PodRuns: a pod runs", "Exec: exec answers"]);
    assert_eq!(world.next().await, Heard::Asked(machine.id, Ask::Verify));
    assert_eq!(tunnel.ask(Ask::KubeProxyToken, |_, _| {}).await, Ok(Answer::Token { token: "t".into(), seconds: 600 }));
    assert_eq!(tunnel.ask(Ask::Leave { drain_seconds: 1 }, |_, _| {}).await, Err("not now".to_owned()));
}

#[tokio::test]
async fn a_node_that_leaves_is_told_that_it_is_out() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let asked = tokio::spawn({
        let tunnel = tunnel.clone();
        // The desk never answers it: the end of the membership does.
        async move { tunnel.ask(Ask::Leave { drain_seconds: 0 }, |_, _| {}).await }
    });
    assert_eq!(world.next().await, Heard::Asked(machine.id, Ask::Leave { drain_seconds: 0 }));
    world.change(|table| {
        table.nodes.clear();
        table.ended.push((machine.id, Fate::Left, "it has left".into()));
    });
    assert_eq!(timeout(PATIENCE, asked).await.unwrap().unwrap(), Ok(Answer::Done));
    assert_eq!(ended(&tunnel).await.0, Fate::Left);
}

#[tokio::test]
async fn states_come_when_something_of_them_changed_and_reports_go() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let mut state = tunnel.state();
    let first = timeout(PATIENCE, state.wait_for(Option::is_some)).await.unwrap().unwrap().clone().unwrap();
    assert_eq!((first.address, first.peers.len(), first.probe_key.as_str()), (machine.address, 0, "key"));

    let peer = world.member("b", "198.18.7.2".parse().unwrap());
    world.change(|table| table.nodes[0].pod_cidr = Some("10.244.3.0/24".parse().unwrap()));
    let changed = |state: &Option<Arc<crate::tunnel::protocol::NodeState>>| state.as_ref().is_some_and(|state| state.pod_cidr.is_some());
    let second = timeout(PATIENCE, state.wait_for(changed)).await.unwrap().unwrap().clone().unwrap();
    assert_eq!(second.peers.iter().map(|peer| (peer.node, peer.address)).collect::<Vec<_>>(), [(peer.id, peer.address)]);
    // What changes nothing for a node is not said to it.
    world.change(|table| assert!(table.public_hosts.insert("x".into())));
    assert!(timeout(std::time::Duration::from_millis(600), state.changed()).await.is_err());

    let report = |reason: &str| Report {
        aspects: vec![Aspect { kind: "KubeProxyHealthy".into(), status: false, reason: reason.into(), message: String::new() }],
        ..Report::default()
    };
    tunnel.report(report("One"));
    assert_eq!(world.next().await, Heard::Reported(machine.id, report("One")));
    for reason in ["Two", "Three", "Four"] {
        tunnel.report(report(reason));
    }
    assert_eq!(world.next().await, Heard::Reported(machine.id, report("Four")), "the latest is told");
    drop(tunnel);
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));
}

#[tokio::test]
async fn a_second_connection_of_a_node_takes_the_place_of_the_first() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let first = world.connected(&machine).await;
    let second = world.connected(&machine).await;
    let down = wait(&first, |status| matches!(status, Status::Disconnected { .. })).await;
    assert!(matches!(down, Status::Disconnected { refused: 0, .. }), "{down:?}");
    drop(first);
    assert!(world.dial(format!("{}:{}", machine.address, world.here.port())).await.0.starts_with("200 "));
    second.api_stream().await.unwrap();
    // The node was connected all the time, so nothing else is told; unless the first was quick to come back.
    while let Some(Some(heard)) = world.heard.recv().now_or_never() {
        assert!(matches!(heard, Heard::Connected(..)), "{heard:?}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_gap() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let renewed = world.certificate("a");
    world.change(|table| assert!(table.nodes[0].fingerprints.insert(renewed.fingerprint.clone())));
    // As the kubelet does: another file, and a link that moves.
    let file = world.folder.path().join("renewed.pem");
    std::fs::write(&file, format!("{}{}", renewed.cert_pem, renewed.key_pem)).unwrap();
    std::fs::remove_file(&machine.pem).unwrap();
    std::os::unix::fs::symlink(&file, &machine.pem).unwrap();
    let status = tunnel.status();
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)));
    assert!(matches!(*status.borrow(), Status::Connected { .. }));
    // The old certificate may go.
    world.change(|table| table.nodes[0].fingerprints = [renewed.fingerprint].into());
    tunnel.api_stream().await.unwrap();
    assert!(world.heard.recv().now_or_never().is_none(), "it was never down");
}

#[tokio::test]
async fn the_terminators_certificate_is_renewed_under_open_tunnels() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let tunnels = world.terminator.as_ref().unwrap().tunnels().unwrap().clone();
    assert_eq!(tunnels.connected(), 1);
    let mut mismatched = world.tunnel_tls();
    mismatched.key_pem.clone_from(&world.pki.service_account_key_pem);
    assert!(tunnels.renew(&mismatched).is_err());
    world.files.extend(crate::pki::leaves::leaf_files(&leaves(&world.pki)));
    tunnels.renew(&world.tunnel_tls()).unwrap();
    let shown = world.tls_of(&machine).await;
    let expected: rustls_pki_types::CertificateDer =
        rustls_pki_types::pem::PemObject::from_pem_slice(world.tunnel_tls().cert_pem.as_bytes()).unwrap();
    assert_eq!(shown.get_ref().1.peer_certificates().unwrap()[0], expected);
    tunnel.api_stream().await.unwrap();
}

#[tokio::test]
async fn nodes_of_a_deleted_cluster_are_told_before_the_terminator_goes() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    world.change(|table| {
        table.ended = table.nodes.drain(..).map(|node| (node.id, Fate::ClusterDeleted, "the cluster was deleted".into())).collect();
    });
    world.terminator.take().unwrap().stop().await;
    assert_eq!(ended(&tunnel).await, (Fate::ClusterDeleted, "the cluster was deleted".into()));
    assert!(NodeTunnel::start(world.options(&machine)).is_ok());
}
