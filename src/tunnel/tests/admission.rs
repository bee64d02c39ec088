//! Who gets in.

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::harness::*;
use crate::domain::node::Fate;
use crate::pki::{Authority, CertificateAuthority, ClusterPki};
use crate::tunnel::node::{NodeTunnel, Status};
use crate::tunnel::protocol::ALPN;

#[tokio::test]
async fn a_certificate_of_another_tenant_is_refused_by_tls() {
    let mut world = World::new().await;
    let member = world.member("a", own_address());
    let other = ClusterPki::create(&world.ambient, crate::domain::ClusterId::generate(&world.ambient)).unwrap();
    for authority in
        [other.authority(Authority::Client), world.pki.authority(Authority::KubeletServing), world.pki.authority(Authority::Server)]
    {
        let foreign = kubelet_certificate(authority, "a");
        let machine = Member { id: member.id, ..world.machine("a", own_address(), &foreign) };
        let tunnel = NodeTunnel::start(world.options(&machine)).unwrap();
        let error = refused(&tunnel).await;
        assert!(error.contains("refuses this node's certificate"), "{error}");
    }
    assert!(world.heard.recv().now_or_never().is_none(), "the desk hears nothing of it");
    world.connected(&member).await;
}

#[tokio::test]
async fn who_the_table_does_not_know_is_turned_away_with_a_reason() {
    let mut world = World::new().await;
    let member = world.member("a", own_address());
    let unrecorded = world.certificate("a");
    let stranger = world.certificate("b");
    for (machine, why) in [
        (Member { id: member.id, ..world.machine("a", own_address(), &unrecorded) }, "not the one that was given"),
        (Member { id: member.id, ..world.machine("b", own_address(), &stranger) }, "of another node"),
        (world.machine("b", own_address(), &stranger), "join again"),
        (Member { id: crate::domain::NodeId::generate(&world.ambient), ..member.clone() }, "join again"),
    ] {
        let tunnel = NodeTunnel::start(world.options(&machine)).unwrap();
        let error = refused(&tunnel).await;
        assert!(error.contains("not known as a node") && error.contains(why), "{error}");
    }
    assert!(world.heard.recv().now_or_never().is_none());
}

#[tokio::test]
async fn a_removed_node_is_cut_at_once_told_why_and_never_let_in_again() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let mut api = tunnel.api_stream().await.unwrap();
    let (line, mut dialled) = world.dial(format!("{}:{}", machine.address, world.here.port())).await;
    assert!(line.starts_with("200 "), "{line}");

    world.change(|table| {
        table.nodes.clear();
        table.ended.push((machine.id, Fate::Removed, "it was removed".into()));
    });
    assert_eq!(ended(&tunnel).await, (Fate::Removed, "it was removed".into()));
    assert!(api.read(&mut [0]).await.is_err());
    assert_eq!(dialled.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));
    assert_eq!(tunnel.api_stream().await.unwrap_err().to_string(), "it was removed");
    assert_eq!(tunnel.ask(crate::tunnel::protocol::Ask::Verify, |_, _| {}).await.unwrap_err(), "it was removed");

    let again = NodeTunnel::start(world.options(&machine)).unwrap();
    assert_eq!(ended(&again).await.0, Fate::Removed);
    assert!(world.heard.recv().now_or_never().is_none());
    let (line, _) = world.dial(format!("{}:{}", machine.address, world.here.port())).await;
    assert!(line.starts_with("403 "), "{line}");
}

#[tokio::test]
async fn a_revoked_certificate_ends_the_connection_and_a_renewed_one_serves() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let renewed = world.certificate("a");
    world.change(|table| table.nodes[0].fingerprints = [renewed.fingerprint.clone()].into());
    let error = refused(&tunnel).await;
    assert!(error.contains("was revoked"), "{error}");
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));

    std::fs::write(&machine.pem, format!("{}{}", renewed.cert_pem, renewed.key_pem)).unwrap();
    tunnel.wake();
    wait(&tunnel, |status| matches!(status, Status::Connected { .. })).await;
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)));
}

#[tokio::test]
async fn connections_with_one_certificate_are_bounded() {
    let world = World::new().await;
    let machine = world.member("a", own_address());
    let mut open = Vec::new();
    for _ in 0..crate::tunnel::terminator::nodes::MAX_OF_A_CERTIFICATE {
        open.push(world.tls_of(&machine).await);
    }
    // The terminator counts when the handshake is done there, which is after it is done here: any of them may be the one too many.
    open.push(world.tls_of(&machine).await);
    let closed = futures_util::future::select_all(open.iter_mut().map(|stream| to_end(stream).boxed()));
    let ((), _, others) = tokio::time::timeout(PATIENCE, closed).await.expect("one of them is closed");
    assert!(futures_util::future::select_all(others).now_or_never().is_none(), "the others are not");
}

#[tokio::test]
async fn another_protocol_is_not_spoken() {
    let world = World::new().await;
    let issued = world.certificate("a");
    assert!(world.tls(&issued, b"http/1.1").await.is_err());
    assert!(world.tls(&issued, b"kubebyon-tunnel/2").await.is_err());
    assert!(world.tls(&issued, ALPN).await.is_ok());
    let mut plain = tokio::net::TcpStream::connect(world.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[tokio::test]
async fn the_platform_is_known_by_its_authority_and_name() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let status = |options| async move {
        let tunnel = NodeTunnel::start(options).unwrap();
        match wait(&tunnel, |status| matches!(status, Status::Disconnected { .. })).await {
            Status::Disconnected { error, refused } => (error, refused),
            other => panic!("{other:?}"),
        }
    };
    let stranger = CertificateAuthority::create(&world.ambient, Authority::Server, "Inspecting Proxy CA").unwrap();
    let mut options = world.options(&machine);
    options.server_ca_pem.clone_from(&stranger.cert_pem);
    let (error, refused) = status(options).await;
    let cluster_authority = format!("kubebyon:{}", "");
    assert!(error.contains("opens TLS") && error.contains(&cluster_authority) && refused == 0, "{error}");

    let mut options = world.options(&machine);
    options.tunnel_name = "other-node.kubebyon.internal".into();
    let (error, _) = status(options).await;
    assert!(error.contains("a certificate of another name"), "{error}");

    let mut options = world.options(&machine);
    options.client_pem = world.folder.path().join("nothing");
    let (error, _) = status(options).await;
    assert!(error.contains("cannot be read"), "{error}");
    assert!(world.heard.recv().now_or_never().is_none());
}
