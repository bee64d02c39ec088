//! Who is turned away, and what they are told.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::harness::*;
use crate::proxy::client_hello::tests::padded;
use crate::proxy::*;

const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 0x70];

#[tokio::test]
async fn an_unknown_name_gets_the_alert_even_with_bytes_left_unread() {
    let door = start(options());
    door.route(&[("one.example", echo().await)]);
    for name in ["unknown.example", "x.one.example", "one.example.evil"] {
        let mut client = door.connect().await;
        client.write_all(&[hello(name), noise(20_000)].concat()).await.unwrap();
        assert_eq!(rest(&mut client).await, UNRECOGNIZED_NAME, "{name}");
    }
    assert_eq!(door.refused(Refusal::UnknownName), 3);
    let error = door.converse(door.platform.client(), "unknown.example", b"").await.unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "a real client says: {error}");
}

#[tokio::test]
async fn plain_http_is_told_to_use_https() {
    let door = start(options());
    let mut client = door.connect().await;
    client.write_all(b"GET /api/v1/clusters HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(rest(&mut client).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("https://"), "{answer}");
    assert_eq!(door.refused(Refusal::PlainHttp), 1);
}

#[tokio::test]
async fn broken_hellos_get_an_alert_and_strangers_are_closed() {
    let door = start(options());
    for (bytes, answer, reason) in [
        (&[22, 3, 1, 0, 0][..], &[0x15, 3, 1, 0, 2, 2, 50][..], Refusal::Malformed),
        (&[22, 3, 1, 0x40, 0, 1, 1, 0, 0], &[0x15, 3, 1, 0, 2, 2, 50], Refusal::TooLarge),
        (b"SSH-2.0-OpenSSH\r\n", &[], Refusal::NotTls),
        (&[0x80, 0x2e, 1, 0, 2], &[], Refusal::SslV2),
    ] {
        let mut client = door.connect().await;
        client.write_all(bytes).await.unwrap();
        assert_eq!(rest(&mut client).await, answer, "{reason:?}");
        assert_eq!(door.refused(reason), 1, "{reason:?}");
    }
}

#[tokio::test]
async fn silence_and_slowness_end_at_the_one_deadline() {
    let door = start(FrontDoorOptions { hello_timeout: Duration::from_millis(300), ..options() });
    let begun = Instant::now();
    let mut silent = door.connect().await;
    assert_eq!(rest(&mut silent).await, b"");
    assert!(begun.elapsed() >= Duration::from_millis(290), "closed after {:?}", begun.elapsed());

    let (begun, mut slow) = (Instant::now(), door.connect().await);
    let (mut read, mut write) = slow.split();
    let drip = async {
        for byte in padded(1_700) {
            if write.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = drip => panic!("the slow client was never closed"),
        _ = read.read_u8() => {}
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "a byte now and then must not extend the deadline");
    assert_eq!(door.refused(Refusal::HelloTimeout), 2);
}

#[tokio::test]
async fn a_source_is_limited_until_it_is_routed_and_not_after() {
    let door = start(FrontDoorOptions { max_per_source_before_routing: 2, ..options() });
    door.route(&[("one.example", echo().await)]);
    let mut routed = Vec::new();
    for _ in 0..5 {
        let mut client = door.ask("one.example").await;
        client.read_u8().await.unwrap();
        routed.push(client);
    }
    let _waiting = (door.connect().await, door.connect().await);
    eventually("admission", || door.door.stats().accepted() == 7).await;
    let mut third = door.connect().await;
    assert_eq!(third.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(door.refused(Refusal::SourceLimit), 1);
}

#[tokio::test]
async fn connections_in_all_are_limited_those_of_the_platform_too() {
    let door = start(FrontDoorOptions { max_connections: 1, ..options() });
    door.route(&[]);
    let platform = door.ask("platform.example").await;
    eventually("hand-over", || door.door.stats().platform() == 1).await;
    assert_eq!(door.connect().await.read(&mut [0]).await.unwrap_or(0), 0);
    assert_eq!(door.refused(Refusal::ConnectionLimit), 1);
    drop(platform);
}

#[tokio::test]
async fn a_back_end_that_is_down_is_told_as_an_internal_error() {
    let door = start(options());
    let (listener, down) = listen().await;
    drop(listener);
    door.route(&[("down.example", down)]);
    assert_eq!(rest(&mut door.ask("down.example").await).await, [0x15, 3, 1, 0, 2, 2, 80]);
    assert_eq!(door.refused(Refusal::BackendUnreachable), 1);
    eventually("the end of the flow", || door.door.active().is_empty()).await;
}

#[tokio::test]
async fn a_back_end_that_does_not_answer_is_given_up_in_time() {
    let forwarding = ForwardingOptions { connect_timeout: Duration::from_millis(200), ..ForwardingOptions::default() };
    let door = start(FrontDoorOptions { forwarding, ..options() });
    // A listener whose queue is full: the kernel drops what would connect.
    let full = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let _queued = std::net::TcpStream::connect(address).unwrap();
    door.route(&[("stuck.example", backend(address))]);
    assert_eq!(rest(&mut door.ask("stuck.example").await).await, [0x15, 3, 1, 0, 2, 2, 80]);
    assert_eq!(door.refused(Refusal::BackendTimeout), 1);
}
