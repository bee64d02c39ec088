//! Node ports on loopback.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::harness::*;
use crate::proxy::*;

fn ports() -> NodePorts {
    NodePorts::new([127, 0, 0, 1].into(), 100, ForwardingOptions::default(), Arc::default())
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    bind("127.0.0.1:0".parse().unwrap()).unwrap().address().port()
}

/// A connection to `port` that got its first byte back.
async fn through(port: u16) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    client.write_all(b"x").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'x');
    client
}

#[tokio::test]
async fn a_port_forwards_whatever_the_name_and_whatever_the_protocol() {
    let (ports, identity) = (ports(), Identity::new(&["other.example"]));
    let (tls, raw) = (free_port(), free_port());
    let desired = BTreeMap::from([(tls, tls_echo(&identity, "1:").await), (raw, echo().await)]);
    assert!(ports.set(&desired).await.is_empty());
    let stream = TcpStream::connect(("127.0.0.1", tls)).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("other.example").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(identity.client()).connect(name, stream).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await, b"1:");
    let _open = through(raw).await;
    assert_eq!(ports.active().await.get(&desired[&raw].cluster), Some(&1));
}

#[tokio::test]
async fn ports_follow_what_is_desired_and_those_that_stay_keep_their_flows() {
    let ports = ports();
    let (stays, moves, goes) = (free_port(), free_port(), free_port());
    let (a, b, c) = (echo().await, echo().await, echo().await);
    assert!(ports.set(&BTreeMap::from([(stays, a), (moves, b), (goes, c)])).await.is_empty());
    let (mut kept, mut moved, mut gone) = (through(stays).await, through(moves).await, through(goes).await);

    assert!(ports.set(&BTreeMap::from([(stays, a), (moves, c)])).await.is_empty());
    for cut in [&mut moved, &mut gone] {
        assert_eq!(cut.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    kept.write_all(b"y").await.unwrap();
    assert_eq!(kept.read_u8().await.unwrap(), b'y');
    assert!(TcpStream::connect(("127.0.0.1", goes)).await.is_err());
    drop(through(moves).await);
    // A port that was closed can be opened at once.
    assert!(ports.set(&BTreeMap::from([(goes, b)])).await.is_empty());
    drop(through(goes).await);
}

#[tokio::test]
async fn a_taken_port_is_its_own_error_and_is_tried_again() {
    let ports = ports();
    let (foreign, free) = (bind("127.0.0.1:0".parse().unwrap()).unwrap(), free_port());
    let taken = foreign.address().port();
    let backend = echo().await;
    let desired = BTreeMap::from([(taken, backend), (free, backend)]);
    let errors = ports.set(&desired).await;
    assert_eq!(errors.iter().map(|error| (error.port, error.cluster)).collect::<Vec<_>>(), [(taken, backend.cluster)]);
    assert!(errors[0].to_string().contains(&format!("port {taken} ")), "{}", errors[0]);
    drop(through(free).await);
    drop(foreign);
    assert!(ports.set(&desired).await.is_empty());
    drop(through(taken).await);
}

#[tokio::test]
async fn cutting_and_draining_end_flows() {
    let ports = ports();
    let (port, backend) = (free_port(), echo().await);
    ports.set(&BTreeMap::from([(port, backend)])).await;
    let mut client = through(port).await;
    assert_eq!(ports.cut(backend.cluster).await, 1);
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut client = through(port).await;
    assert_eq!(ports.drain(Duration::from_millis(50)).await, Drained { cut: 1 });
    assert_eq!(client.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}
