//! How flows end: by both sides, by one, by a reset, by a cut, by shutdown.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::harness::*;
use crate::proxy::relay::unacknowledged;
use crate::proxy::*;

/// A flow through `door` to a back end that is accepted by hand.
async fn flow(door: &TestBed, name: &str) -> (TcpStream, TcpStream, Backend) {
    let (listener, backend) = listen().await;
    door.route(&[(name, backend)]);
    let client = door.ask(name).await;
    let mut server = listener.accept().await.unwrap().0;
    server.read_exact(&mut vec![0; hello(name).len()]).await.unwrap();
    (client, server, backend)
}

fn half_closing_after(timeout: Duration) -> FrontDoorOptions {
    FrontDoorOptions { forwarding: ForwardingOptions { half_close_timeout: timeout, ..ForwardingOptions::default() }, ..options() }
}

#[tokio::test]
async fn a_client_that_is_done_sending_still_gets_a_late_large_answer() {
    let door = start(options());
    let (mut client, mut server, _) = flow(&door, "one.example").await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let answer = noise(1 << 20);
    let serve = async {
        assert_eq!(rest(&mut server).await, b"question");
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.write_all(&answer).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let (received, ()) = tokio::join!(rest(&mut client), serve);
    assert!(received == answer, "{} of {} bytes", received.len(), answer.len());
}

#[tokio::test]
async fn a_back_end_that_is_done_sending_still_gets_the_clients_bytes() {
    let door = start(options());
    let (mut client, mut server, _) = flow(&door, "one.example").await;
    server.write_all(b"bye").await.unwrap();
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, b"bye");
    let late = noise(200_000);
    let send = async {
        client.write_all(&late).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let (received, ()) = tokio::join!(rest(&mut server), send);
    assert!(received == late);
}

#[tokio::test]
async fn a_half_closed_flow_has_a_bounded_life_and_an_open_one_may_be_silent() {
    let patience = Duration::from_millis(100);
    let door = start(half_closing_after(patience));
    let (mut client, mut server, _) = flow(&door, "one.example").await;
    tokio::time::sleep(patience * 6).await;
    server.write_all(b"still here").await.unwrap();
    client.read_exact(&mut [0; 10]).await.unwrap();

    client.shutdown().await.unwrap();
    for _ in 0..6 {
        tokio::time::sleep(patience / 2).await;
        server.write_all(b"x").await.unwrap();
        client.read_u8().await.expect("a half-closed flow that moves goes on");
    }
    let ended = tokio::time::timeout(Duration::from_secs(5), client.read_u8()).await.expect("it ends when nothing moves");
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_removed_cluster_loses_its_flow_and_another_keeps_its_own() {
    let door = start(options());
    let (removed, kept) = (echo().await, echo().await);
    door.route(&[("removed.example", removed), ("kept.example", kept)]);
    let (mut lost, mut stays) = (door.ask("removed.example").await, door.ask("kept.example").await);
    let length = hello("kept.example").len();
    stays.read_exact(&mut vec![0; length]).await.unwrap();
    lost.read_exact(&mut vec![0; hello("removed.example").len()]).await.unwrap();
    assert_eq!(door.door.active().len(), 2);

    door.route(&[("kept.example", kept)]);
    let error = tokio::time::timeout(Duration::from_secs(5), lost.read_u8()).await.expect("the flow is cut at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    stays.write_all(b"on").await.unwrap();
    stays.read_exact(&mut [0; 2]).await.unwrap();
    eventually("the count", || door.door.active().keys().eq([&kept.cluster])).await;
}

#[tokio::test]
async fn cutting_a_cluster_ends_its_flows_once() {
    let door = start(options());
    let (mut client, _server, backend) = flow(&door, "one.example").await;
    assert_eq!(door.door.hosts().cut(backend.cluster), 1);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let _again = flow(&door, "one.example").await;
}

#[tokio::test]
async fn a_reset_of_either_side_reaches_the_other() {
    let door = start(options());
    let (mut client, server, _) = flow(&door, "one.example").await;
    server.set_zero_linger().unwrap();
    drop(server);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);

    let (client, mut server, _) = flow(&door, "one.example").await;
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(server.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_answer_whose_sender_is_lost_right_after_it_still_arrives_whole() {
    let door = start(options());
    let answer = noise(400_000);
    for round in 0..5 {
        let (client, mut server, _) = flow(&door, "one.example").await;
        let (mut read, mut write) = client.into_split();
        // The client goes on sending, so that the back end's close becomes a reset, and reads late.
        let upload = tokio::spawn(async move { while write.write_all(&[7; 10_000]).await.is_ok() {} });
        server.readable().await.unwrap();
        server.write_all(&answer).await.unwrap();
        eventually("the answer's way into the front door", || unacknowledged(&server) == 0).await;
        drop(server);
        let mut received = Vec::new();
        while let Ok(1..) = read.read_buf(&mut received).await {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        upload.abort();
        assert!(received == answer, "round {round}: {} of {} bytes", received.len(), answer.len());
    }
}

#[tokio::test]
async fn bulk_both_ways_past_slow_readers_arrives_whole() {
    let door = start(options());
    let (client, server, _) = flow(&door, "one.example").await;
    let bulk = noise(6 << 20);
    let carry = async |stream: TcpStream| {
        let (mut read, mut write) = stream.into_split();
        let send = async {
            write.write_all(&bulk).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let receive = async {
            let mut received = Vec::new();
            while read.read_buf(&mut received).await.unwrap() > 0 {
                if received.len() % 7 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            received
        };
        tokio::join!(receive, send).0
    };
    let (at_client, at_server) = tokio::join!(carry(client), carry(server));
    assert!(at_client == bulk && at_server == bulk, "{} {} {}", at_client.len(), at_server.len(), bulk.len());
}

#[tokio::test]
async fn shutdown_stops_accepting_lets_flows_end_and_cuts_the_rest_at_the_deadline() {
    let door = start(options());
    let (listener, backend) = listen().await;
    door.route(&[("one.example", backend)]);
    let mut flows = Vec::new();
    for _ in 0..3 {
        flows.push((door.ask("one.example").await, listener.accept().await.unwrap().0));
    }
    door.shutdown.cancel();
    eventually("the listener's end", || std::net::TcpStream::connect(door.address).is_err()).await;
    let (mut client, mut server) = flows.pop().unwrap();
    server.write_all(b"last words").await.unwrap();
    drop(server);
    let mut words = [0; 10];
    client.read_exact(&mut words).await.unwrap();
    assert_eq!(&words, b"last words");
    drop(client);
    assert_eq!(door.serving.await.unwrap().unwrap(), Drained { cut: 2 });
    let (mut client, _server) = flows.pop().unwrap();
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}
