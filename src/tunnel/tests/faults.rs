//! What goes wrong.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::harness::*;
use crate::tunnel::frame::{self, Frames, MAX_FROM_NODE, MAX_FROM_PLATFORM, MAX_OPENING};
use crate::tunnel::node::proxy::Proxies;
use crate::tunnel::node::{NodeTunnel, Status};
use crate::tunnel::protocol::{FromNode, FromPlatform, Opening};

/// Forwards to `to` while `open` says so, and cuts what is open when it does not.
async fn gate(to: std::net::SocketAddr) -> (std::net::SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (open, opened) = watch::channel(true);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut opened = opened.clone();
            if !*opened.borrow() {
                near.set_zero_linger().unwrap();
                continue;
            }
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = opened.wait_for(|open| !open) => {}
                }
                near.set_zero_linger().unwrap();
                far.set_zero_linger().unwrap();
            });
        }
    });
    (address, open)
}

#[tokio::test]
async fn a_cut_tunnel_is_made_again() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let (way, open) = gate(world.address).await;
    let mut options = world.options(&machine);
    options.endpoints = vec![endpoint("127.0.0.1:1".parse().unwrap()), endpoint(way)];
    let tunnel = NodeTunnel::start(options).unwrap();
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)));
    let target = format!("{}:{}", machine.address, world.here.port());
    let (line, mut dialled) = world.dial(&target).await;
    assert!(line.starts_with("200 "), "{line}");
    let mut api = tunnel.api_stream().await.unwrap();

    open.send_replace(false);
    assert!(api.read(&mut [0]).await.is_err(), "streams are cut, not ended");
    assert_eq!(dialled.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));
    let down = wait(&tunnel, |status| matches!(status, Status::Disconnected { error, .. } if error.contains("cannot be reached"))).await;
    assert!(matches!(&down, Status::Disconnected { refused: 0, error } if error.contains("127.0.0.1:1:")), "{down:?}");
    let waiting = tokio::spawn({
        let tunnel = tunnel.clone();
        async move { tunnel.api_stream().await }
    });

    open.send_replace(true);
    tunnel.wake();
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)));
    waiting.await.unwrap().expect("who waits for the tunnel gets a stream when it is back");
    assert!(world.dial(&target).await.0.starts_with("200 "));
}

#[tokio::test]
async fn the_terminator_may_come_back_after_a_restart() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    world.terminator.take().unwrap().stop().await;
    wait(&tunnel, |status| matches!(status, Status::Disconnected { .. })).await;
    world.start();
    tunnel.wake();
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)), "and nobody was told that it was gone");
}

#[tokio::test]
async fn what_is_no_node_is_closed_in_time() {
    let world = World::new().await;
    let machine = world.member("a", own_address());
    // Garbage after TLS.
    let mut tls = world.tls_of(&machine).await;
    tls.write_all(&noise(5000, 9)).await.unwrap();
    timeout(PATIENCE, to_end(&mut tls)).await.unwrap();
    // Garbage where the first words should be.
    let (session, _inbound) = over(world.tls_of(&machine).await);
    let mut control = session.open().await.unwrap();
    control.write_all(b"\0\0\0\x05hello").await.unwrap();
    control.flush().await.unwrap();
    assert!(timeout(PATIENCE, control.read(&mut [0])).await.unwrap().is_err());

    // Nothing at all: before TLS, after it, and within the first words.
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let mut after_tls = world.tls_of(&machine).await;
    let (session, _inbound) = over(world.tls_of(&machine).await);
    let mut half = session.open().await.unwrap();
    frame::write(&mut half, &Opening::Control, MAX_OPENING).await.unwrap();
    half.write_all(b"\0\0\0\x80{\"hel").await.unwrap();
    half.flush().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    tokio::time::pause();
    to_end(&mut silent).await;
    to_end(&mut after_tls).await;
    assert!(half.read(&mut [0]).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_given_up() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let (_session, mut inbound, control) = introduced(&mut world, &machine).await;
    let mut frames = Frames::new(control, MAX_FROM_PLATFORM);
    assert!(matches!(frames.next().await.unwrap(), Some(FromPlatform::State(_))));

    // It takes streams and leaves them.
    let target = format!("{}:{}", machine.address, world.here.port());
    let taken = tokio::spawn(async move { inbound.next().await });
    let began = Instant::now();
    tokio::time::pause();
    let (line, _) = world.dial(&target).await;
    assert!(line.starts_with("502 node a did not answer in time"), "{line}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(taken.await.unwrap().is_some());

    // It is asked whether it is there, and then given up.
    assert!(matches!(frames.next().await.unwrap(), Some(FromPlatform::Ping)));
    assert_eq!(world.heard.recv().await, Some(Heard::Disconnected(machine.id)));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_node_may_not_say_or_open_too_much() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let (session, _inbound, mut control) = introduced(&mut world, &machine).await;
    let mut dial = session.open().await.unwrap();
    let opening = Opening::Dial { host: "127.0.0.1".into(), port: 22, public: false };
    frame::write(&mut dial, &opening, MAX_OPENING).await.unwrap();
    let answer: crate::tunnel::protocol::Opened = frame::read(&mut dial, MAX_OPENING).await.unwrap();
    assert!(matches!(answer, crate::tunnel::protocol::Opened::Refused { status: 403, .. }), "{answer:?}");

    let mut streams = Vec::new();
    for _ in 0..crate::tunnel::terminator::nodes::MAX_API_STREAMS + 20 {
        let mut stream = session.open().await.unwrap();
        frame::write(&mut stream, &Opening::Api, MAX_OPENING).await.unwrap();
        let granted: Result<crate::tunnel::protocol::Opened, _> = frame::read(&mut stream, MAX_OPENING).await;
        streams.push((stream, granted.is_ok_and(|answer| answer == crate::tunnel::protocol::Opened::Ok)));
    }
    let granted = streams.iter().filter(|(_, granted)| *granted).count();
    assert!(granted <= crate::tunnel::terminator::nodes::MAX_API_STREAMS && granted > 100, "{granted}");

    for _ in 0..1000 {
        if frame::write(&mut control, &FromNode::Pong, MAX_FROM_NODE).await.is_err() {
            break;
        }
    }
    assert_eq!(world.next().await, Heard::Disconnected(machine.id));
}

/// A proxy that forwards CONNECTs to `to`, whatever they name; gives what it is asked for.
async fn proxy(to: std::net::SocketAddr) -> (std::net::SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, asks) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(near.read_u8().await.unwrap());
                }
                asked.send(String::from_utf8(head).unwrap()).unwrap();
                near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                let mut far = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    (address, asks)
}

#[tokio::test]
async fn a_proxy_may_lie_between() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let (way, mut asks) = proxy(world.address).await;
    let mut options = world.options(&machine);
    options.endpoints = vec![crate::domain::join::TunnelEndpoint { host: "platform.invalid".into(), port: 443 }];
    options.proxies = Proxies::from_variables(&[("HTTPS_PROXY".to_owned(), format!("http://ada:pw@{way}"))].into()).unwrap();
    let tunnel = NodeTunnel::start(options).unwrap();
    wait(&tunnel, |status| matches!(status, Status::Connected { .. })).await;
    let asked = asks.recv().await.unwrap();
    assert!(
        asked.starts_with("CONNECT platform.invalid:443 HTTP/1.1\r\n") && asked.contains("Proxy-Authorization: Basic YWRhOnB3\r\n"),
        "{asked}"
    );
    assert_eq!(world.next().await, Heard::Connected(machine.id, hello(&machine)));
    tunnel.api_stream().await.unwrap();
}
