//! Where targets of the API server lead.

use super::harness::*;
use crate::domain::cluster::Addon;
use crate::tunnel::frame::{self, MAX_OPENING};
use crate::tunnel::node::NodeTunnel;
use crate::tunnel::protocol::{Opened, Opening};

#[tokio::test]
async fn nothing_but_the_cluster_is_dialled() {
    let mut world = World::new().await;
    let bait = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let machine = world.member("a", own_address());
    let _tunnel = world.connected(&machine).await;
    let port = bait.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "0.0.0.0", "198.51.100.1", "203.0.113.1", "[::ffff:127.0.0.1]"] {
        let (line, _) = world.dial(format!("{host}:{port}")).await;
        assert!(line.starts_with("403 "), "{host}: {line}");
    }
    // A node decides for itself: neither a forged table nor a forged name leads it elsewhere.
    world.change(|table| {
        table.service_cidr = "198.18.7.0/24".parse().unwrap();
        table.public_hosts = ["localhost".to_owned(), format!("localhost:{port}"), format!("203.0.113.1:{port}")].into();
    });
    for host in ["198.18.7.1", "localhost", "203.0.113.1"] {
        let (line, _) = world.dial(format!("{host}:{port}")).await;
        assert!(line.starts_with("403 node a: "), "{host}: {line}");
    }
    assert!(futures_util::FutureExt::now_or_never(bait.accept()).is_none());
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let target = format!("{}:{}", machine.address, world.here.port());
    let (line, _) = world.dial(&target).await;
    assert!(line.starts_with("502 node a is not connected"), "{line}");
    let (line, _) = world.dial("10.96.0.10:53").await;
    assert!(line.starts_with("502 no node of this cluster is connected"), "{line}");

    let tunnel = world.connected(&machine).await;
    let (line, _) = world.dial(&target).await;
    assert!(line.starts_with("200 "), "{line}");
    let closed = tokio::net::TcpListener::bind((machine.address, 0)).await.unwrap().local_addr().unwrap();
    let (line, _) = world.dial(closed).await;
    assert!(line.starts_with("502 node a: ") && line.ends_with("nothing listens there"), "{line}");
    let (line, _) = world.dial("10.244.9.9:80").await;
    assert!(line.starts_with("502 no node of this cluster has the pod address"), "{line}");

    drop(tunnel);
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));
    let (line, _) = world.dial(&target).await;
    assert!(line.starts_with("502 node a is not connected (its tunnel is down since 20"), "{line}");
}

#[tokio::test]
async fn services_lead_to_any_node() {
    let mut world = World::new().await;
    let here = own_address();
    let node = world.member("a", "198.18.7.1".parse().unwrap());
    world.member("b", "198.18.7.2".parse().unwrap());
    world.change(|table| table.service_cidr = format!("{here}/32").parse().unwrap());
    let mut options = world.options(&node);
    options.reach.service_cidr = format!("{here}/32").parse().unwrap();
    let _tunnel = NodeTunnel::start(options).unwrap();
    assert_eq!(world.next().await, Heard::Connected(node.id, hello(&node)));
    let (line, _) = world.dial(format!("{here}:{}", world.here.port())).await;
    assert!(line.starts_with("200 "), "{line}");
}

#[tokio::test]
async fn pods_of_unknown_place_are_asked_for_on_one_node_after_the_other() {
    let mut world = World::new().await;
    let here = own_address();
    let (a, b) = (world.member("a", "198.18.7.1".parse().unwrap()), world.member("b", "198.18.7.2".parse().unwrap()));
    world.change(|table| {
        table.pod_cidr = format!("{here}/32").parse().unwrap();
        table.cni = Addon::None;
    });
    // One that reaches no pod.
    let (_session, mut inbound, _control) = introduced(&mut world, &a).await;
    let asked = tokio::spawn(async move {
        let mut asked = 0;
        while let Some(mut stream) = inbound.next().await {
            asked += 1;
            let _: Opening = frame::read(&mut stream, MAX_OPENING).await.unwrap();
            let refused = Opened::Refused { status: 502, reason: "there is no way to it".into() };
            frame::write(&mut stream, &refused, MAX_OPENING).await.unwrap();
        }
        asked
    });
    let target = format!("{here}:{}", world.here.port());
    let (line, _) = world.dial(&target).await;
    assert_eq!(line, "502 node a: there is no way to it");

    let mut options = world.options(&b);
    options.reach.pod_cidr = format!("{here}/32").parse().unwrap();
    let _tunnel = NodeTunnel::start(options).unwrap();
    assert_eq!(world.next().await, Heard::Connected(b.id, hello(&b)));
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (line, stream) = world.dial(&target).await;
        assert!(line.starts_with("200 "), "{line}");
        streams.push(stream);
    }
    world.terminator.take().unwrap().stop().await;
    assert!((1..=2).contains(&asked.await.unwrap()), "the one that answered is asked first from then on");
}
