//! What streams carry.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::harness::*;
use crate::tunnel::CLUSTER_SOCKET;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_carry_much_both_ways_and_do_not_cross() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;
    let target = format!("{}:{}", machine.address, world.here.port());
    let socket = world.folder.path().join(CLUSTER_SOCKET);
    let mut all = JoinSet::new();
    for number in 0..100_u64 {
        let (socket, target, tunnel) = (socket.clone(), target.clone(), tunnel.clone());
        all.spawn(async move {
            let (line, stream) = dial(socket, target).await;
            assert!(line.starts_with("200 "), "{line}");
            round_trip(stream, number).await;
        });
        all.spawn(async move { round_trip(tunnel.api_stream().await.unwrap(), 1000 + number).await });
    }
    while let Some(one) = all.join_next().await {
        one.unwrap();
    }
}

/// Sends noise through an echo, and ends its own direction before all of it came back.
async fn round_trip(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite, seed: u64) {
    let data = noise(10_000 + (seed as usize * 7919) % 400_000, seed);
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut back = Vec::new();
    let (sent, came) = tokio::join!(
        async {
            for part in data.chunks(1 + (seed as usize * 131) % 70_000) {
                writer.write_all(part).await?;
            }
            writer.shutdown().await
        },
        reader.read_to_end(&mut back)
    );
    sent.unwrap();
    came.unwrap();
    assert!(back == data, "stream {seed}: {} of {} bytes", back.len(), data.len());
}

/// A stream of the API server to a listener on the node: both ends.
async fn pair(world: &World, machine: &Member) -> (tokio::net::UnixStream, TcpStream) {
    let listener = TcpListener::bind((machine.address, 0)).await.unwrap();
    let (line, near) = world.dial(listener.local_addr().unwrap()).await;
    assert!(line.starts_with("200 "), "{line}");
    (near, listener.accept().await.unwrap().0)
}

#[tokio::test]
async fn ends_pass_through_in_each_direction_by_themselves() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let _tunnel = world.connected(&machine).await;
    for platform_first in [true, false] {
        let (mut near, mut far) = pair(&world, &machine).await;
        let (first, second): (&mut dyn Both, &mut dyn Both) = if platform_first { (&mut near, &mut far) } else { (&mut far, &mut near) };
        first.write_all(b"question").await.unwrap();
        first.shutdown().await.unwrap();
        let mut came = String::new();
        second.read_to_string(&mut came).await.unwrap();
        assert_eq!(came, "question");
        second.write_all(b"answer").await.unwrap();
        second.shutdown().await.unwrap();
        came.clear();
        first.read_to_string(&mut came).await.unwrap();
        assert_eq!(came, "answer");
    }
}

trait Both: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Both for T {}

#[tokio::test]
async fn a_reset_passes_through() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let tunnel = world.connected(&machine).await;

    // A pod's reset reaches the API server as the end of the connection.
    let (mut near, far) = pair(&world, &machine).await;
    far.set_zero_linger().unwrap();
    drop(far);
    assert_eq!(near.read(&mut [0]).await.unwrap_or(0), 0);

    // The API server's leaving in the midst of an answer reaches the pod, though it had ended its own direction.
    let (mut near, mut far) = pair(&world, &machine).await;
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    drop(near);
    let chunk = vec![0; 100_000];
    tokio::time::timeout(PATIENCE, async { while far.write_all(&chunk).await.is_ok() {} }).await.expect("it learns that nobody listens");

    // A client of the node's API address, likewise.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let carried = tokio::spawn({
        let (tunnel, socket) = (tunnel.clone(), listener.accept().await.unwrap().0);
        async move { tunnel.carry(socket).await }
    });
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
    client.set_zero_linger().unwrap();
    drop(client);
    assert!(carried.await.unwrap().is_err());
}

#[tokio::test]
async fn a_stalled_stream_holds_up_no_other() {
    let mut world = World::new().await;
    let machine = world.member("a", own_address());
    let _tunnel = world.connected(&machine).await;
    let (mut stalled, _unread) = pair(&world, &machine).await;
    let chunk = noise(100_000, 5);
    let mut sent = 0_usize;
    while tokio::time::timeout(std::time::Duration::from_millis(300), stalled.write_all(&chunk)).await.is_ok() {
        sent += chunk.len();
        assert!(sent < 50_000_000, "what nobody reads is not taken without end");
    }
    let (_, stream) = world.dial(format!("{}:{}", machine.address, world.here.port())).await;
    tokio::time::timeout(PATIENCE, round_trip(stream, 42)).await.expect("others go on");
}
