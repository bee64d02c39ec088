use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;

type Running = JoinHandle<io::Result<()>>;

struct Ends {
    node: Session,
    platform: Session,
    at_node: Inbound,
    at_platform: Inbound,
    running: [Running; 2],
}

/// Both ends of a connection over a pipe that holds `room` bytes.
fn ends(room: usize) -> Ends {
    let (near, far) = tokio::io::duplex(room);
    let (node, at_node, node_driver) = session(near, Side::Node);
    let (platform, at_platform, platform_driver) = session(far, Side::Platform);
    let running = [tokio::spawn(node_driver.run()), tokio::spawn(platform_driver.run())];
    Ends { node, platform, at_node, at_platform, running }
}

impl Ends {
    /// A stream from the platform to the node: both of its ends.
    async fn stream(&mut self) -> (TunnelStream, TunnelStream) {
        let mut near = self.platform.open().await.unwrap();
        near.write_all(b"!").await.unwrap();
        near.flush().await.unwrap();
        let mut far = self.at_node.next().await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'!');
        (near, far)
    }
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

#[tokio::test]
async fn a_direction_ends_after_its_last_byte_and_leaves_the_other_running() {
    let mut ends = ends(1000);
    let (mut near, mut far) = ends.stream().await;
    let request = noise(700_000, 1);
    let (sent, got) = tokio::join!(
        async {
            near.write_all(&request).await.unwrap();
            near.shutdown().await
        },
        async {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.map(|_| got)
        }
    );
    sent.unwrap();
    assert!(got.unwrap() == request);

    far.write_all(b"the answer").await.unwrap();
    far.flush().await.unwrap();
    let mut answer = [0; 10];
    near.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"the answer");
    far.shutdown().await.unwrap();
    assert_eq!(near.read(&mut answer).await.unwrap(), 0);
    assert_eq!(near.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe, "its own direction has ended");
}

#[tokio::test]
async fn a_stream_that_was_cut_does_not_read_as_ended() {
    let mut ends = ends(100_000);
    for ended_before in [false, true] {
        let (mut near, mut far) = ends.stream().await;
        if ended_before {
            near.shutdown().await.unwrap();
            assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
        }
        far.write_all(b"half of it").await.unwrap();
        far.flush().await.unwrap();
        drop(far);
        let mut got = Vec::new();
        let error = near.read_to_end(&mut got).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(got, b"half of it", "what came before is read");
    }
}

#[tokio::test]
async fn a_lost_connection_cuts_every_stream() {
    let mut ends = ends(100_000);
    let (mut near, mut far) = ends.stream().await;
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    let [node, platform] = ends.running;
    node.abort();
    assert!(node.await.is_err());
    assert!(near.read(&mut [0]).await.is_err(), "half-closed ones too");
    assert!(far.read(&mut [0]).await.is_ok_and(|count| count == 0), "its end came before");
    assert!(far.write_all(&[0; 1000]).await.is_err());
    assert!(platform.await.unwrap().is_err());
    assert!(ends.platform.is_closed());
    assert_eq!(ends.platform.open().await.unwrap_err().kind(), io::ErrorKind::NotConnected);
}

#[tokio::test]
async fn a_stream_that_nobody_reads_stalls_no_other_and_holds_what_is_stated() {
    let mut ends = ends(10_000);
    let (mut stalled, _unread) = ends.stream().await;
    let (mut near, mut far) = ends.stream().await;
    let mut taken = 0;
    let chunk = [0; 10_000];
    while tokio::time::timeout(Duration::from_millis(200), stalled.write_all(&chunk)).await.is_ok() {
        taken += chunk.len();
    }
    assert!((200_000..600_000).contains(&taken), "{taken}");

    let data = noise(3_000_000, 2);
    let (sent, got) = tokio::join!(
        async {
            near.write_all(&data).await.unwrap();
            near.shutdown().await
        },
        async {
            let mut got = Vec::new();
            far.read_to_end(&mut got).await.map(|_| got)
        }
    );
    sent.unwrap();
    assert!(got.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_do_not_cross() {
    let mut ends = ends(5000);
    let mut at_node = ends.at_node;
    let echo = tokio::spawn(async move {
        while let Some(stream) = at_node.next().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                writer.shutdown().await.unwrap();
            });
        }
    });
    let mut all = tokio::task::JoinSet::new();
    for number in 0..200_u64 {
        let session = ends.platform.clone();
        all.spawn(async move {
            let data = noise(20_000 + (number as usize * 977) % 60_000, number);
            let (mut reader, mut writer) = tokio::io::split(session.open().await.unwrap());
            let mut got = Vec::new();
            let (sent, read) = tokio::join!(
                async {
                    for part in data.chunks(1 + (number as usize * 131) % 9000) {
                        writer.write_all(part).await?;
                    }
                    writer.shutdown().await
                },
                reader.read_to_end(&mut got)
            );
            sent.unwrap();
            read.unwrap();
            assert!(got == data, "stream {number}");
        });
    }
    while let Some(one) = all.join_next().await {
        one.unwrap();
    }
    assert!(ends.at_platform.0.try_recv().is_err());
    ends.node.close();
    echo.await.unwrap();
}

#[tokio::test]
async fn the_last_words_arrive() {
    let mut ends = ends(100);
    let (mut near, mut far) = ends.stream().await;
    near.write_all(&noise(50_000, 3)).await.unwrap();
    near.shutdown().await.unwrap();
    ends.platform.close();
    let mut got = Vec::new();
    far.read_to_end(&mut got).await.unwrap();
    assert!(got == noise(50_000, 3));
    let [node, platform] = ends.running;
    platform.await.unwrap().unwrap();
    assert!(node.await.unwrap().is_err());
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    for garbage in [vec![0xff; 64], noise(5000, 4), vec![0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]] {
        let (mut near, far): (DuplexStream, _) = tokio::io::duplex(10_000);
        let (_session, mut inbound, driver) = session(far, Side::Platform);
        let running = tokio::spawn(driver.run());
        near.write_all(&garbage).await.unwrap();
        near.shutdown().await.unwrap();
        assert!(running.await.unwrap().is_err());
        while let Some(mut stream) = inbound.next().await {
            assert!(stream.read(&mut [0]).await.is_err());
        }
    }
}

#[tokio::test]
async fn who_opens_too_many_streams_loses_the_connection() {
    let ends = ends(100_000);
    let mut open = Vec::new();
    for _ in 0..=MAX_STREAMS {
        let Ok(mut stream) = ends.node.open().await else { break };
        if stream.write_all(b"x").await.is_err() {
            break;
        }
        open.push(stream);
        if open.len() % 32 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for running in ends.running {
        assert!(running.await.unwrap().is_err());
    }
}
