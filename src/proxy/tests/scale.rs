//! Many connections at once.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::harness::*;
use crate::proxy::*;

/// How many connections, with both ends in this process, may be opened of the `wanted` ones.
fn affordable(wanted: usize) -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    wanted.min(hard as usize / 4)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_connections_at_once_do_not_mix() {
    affordable(500);
    let door = std::sync::Arc::new(start(options()));
    let (one, two) = (Identity::new(&["one.example"]), Identity::new(&["two.example"]));
    door.route(&[("one.example", tls_echo(&one, "1:").await), ("two.example", tls_echo(&two, "2:").await)]);
    let mut clients = JoinSet::new();
    for i in 0..500 {
        let (door, config) = (std::sync::Arc::clone(&door), if i % 2 == 0 { one.client() } else { two.client() });
        clients.spawn(async move {
            let (name, greeting) = if i % 2 == 0 { ("one.example", "1:") } else { ("two.example", "2:") };
            let said = noise(1_000 + i);
            assert!(door.converse(config, name, &said).await.unwrap() == [greeting.as_bytes(), &said].concat(), "{i}");
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert_eq!(door.door.stats().forwarded(), 500);
    eventually("the end of all flows", || door.door.active().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_silent_connections_hinder_nobody_and_end_at_the_deadline() {
    let count = affordable(5_000);
    let door = start(FrontDoorOptions { hello_timeout: Duration::from_secs(4), ..options() });
    door.route(&[("one.example", echo().await)]);
    let mut silent = Vec::with_capacity(count);
    for _ in 0..count {
        silent.push(door.connect().await);
    }
    let mut client = door.ask("one.example").await;
    tokio::time::timeout(Duration::from_secs(2), client.read_u8()).await.expect("one who speaks is served").unwrap();
    for stream in &mut silent {
        assert_eq!(tokio::time::timeout(Duration::from_secs(10), stream.read(&mut [0])).await.expect("it is closed").unwrap(), 0);
    }
    assert_eq!(door.refused(Refusal::HelloTimeout), count as u64);
    client.write_all(b"on").await.unwrap();
}
