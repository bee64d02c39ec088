//! Where connections end up, and that their bytes do.

use std::sync::Arc;
use std::time::Duration;

use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConfig};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::harness::*;
use crate::proxy::client_hello::tests::{in_records, padded};

#[tokio::test]
async fn each_name_reaches_its_own_back_end_whose_tls_is_not_ended() {
    let door = start(options());
    let (one, two) = (Identity::new(&["one.example"]), Identity::new(&["two.example"]));
    door.route(&[("one.example", tls_echo(&one, "1:").await), ("two.example", tls_echo(&two, "2:").await)]);
    assert_eq!(door.converse(one.client(), "one.example", b"hi").await.unwrap(), b"1:hi");
    assert_eq!(door.converse(two.client(), "two.example", b"hi").await.unwrap(), b"2:hi");
    assert!(door.converse(one.client(), "two.example", b"hi").await.is_err());
    assert_eq!(door.door.stats().forwarded(), 3);
    eventually("the end of all flows", || door.door.active().is_empty()).await;
}

#[tokio::test]
async fn the_platform_gets_its_names_and_connections_without_a_name() {
    let door = start(options());
    door.route(&[("one.example", echo().await)]);
    for name in ["platform.example", "127.0.0.1"] {
        assert_eq!(door.converse(door.platform.client(), name, b"hi").await.unwrap(), b"platform:hi", "{name}");
    }
    assert_eq!((door.door.stats().platform(), door.door.stats().forwarded()), (2, 0));
}

#[tokio::test]
async fn the_back_end_receives_the_clients_bytes_exactly_once() {
    let door = start(options());
    let (listener, backend) = listen().await;
    door.route(&[("one.example", backend)]);
    let sent = [hello("one.example"), noise(300_000)].concat();
    for first in [1, 100, 600, 5_000, 70_000] {
        let mut client = door.connect().await;
        client.write_all(&sent[..first]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let client = async {
            client.write_all(&sent[first..]).await.unwrap();
            client.shutdown().await.unwrap();
            rest(&mut client).await
        };
        let server = async {
            let (mut server, _) = listener.accept().await.unwrap();
            let received = rest(&mut server).await;
            server.write_all(b"done").await.unwrap();
            received
        };
        let (answer, received) = tokio::join!(client, server);
        assert!(received == sent, "first portion of {first}: {} of {} bytes", received.len(), sent.len());
        assert_eq!(answer, b"done");
    }
}

#[tokio::test]
async fn a_hello_arrives_in_any_portions() {
    let door = start(options());
    door.route(&[("api.tenant.example", echo().await)]);
    let large = padded(5_500);
    let split = in_records(&hello("api.tenant.example")[5..], 50);
    for (what, hello, ends) in [
        ("post-quantum hello in two segments", padded(1_700), vec![1_448]),
        ("three segments of one byte", hello("API.tenant.example"), vec![1, 2, 3]),
        ("5.5 KB at once", large.clone(), vec![]),
        ("5.5 KB by 512", large, (1..11).map(|i| i * 512).collect()),
        ("records of 50 bytes", split.clone(), vec![]),
        ("records of 50 bytes, cut within headers", split, vec![3, 57, 112]),
    ] {
        let mut client = door.connect().await;
        client.set_nodelay(true).unwrap();
        let mut from = 0;
        for end in ends {
            client.write_all(&hello[from..end]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
            from = end;
        }
        client.write_all(&hello[from..]).await.unwrap();
        let mut back = vec![0; hello.len()];
        tokio::time::timeout(Duration::from_secs(5), client.read_exact(&mut back)).await.expect(what).expect(what);
        assert!(back == hello, "{what}");
    }
}

#[tokio::test]
async fn tls_1_2_with_client_certificates_and_large_tickets_resumes_on_every_connection() {
    let door = start(options());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let names: Vec<String> = (0..60).map(|i| format!("member-{i}.of-a-large-certificate.example")).collect();
    let (server, client) =
        (rcgen::generate_simple_self_signed(["one.example".into()]).unwrap(), rcgen::generate_simple_self_signed(names).unwrap());
    let (mut server_roots, mut client_roots) = (RootCertStore::empty(), RootCertStore::empty());
    client_roots.add(server.cert.der().clone()).unwrap();
    server_roots.add(client.cert.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(server_roots), Arc::clone(&provider)).build().unwrap();
    let key = |pair: &rcgen::KeyPair| PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
    let mut server_config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.cert.der().clone()], key(&server.signing_key))
        .unwrap();
    server_config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    let client_config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(client_roots)
        .with_client_auth_cert(vec![client.cert.der().clone()], key(&client.signing_key))
        .unwrap();
    let (listener, backend) = listen().await;
    door.route(&[("one.example", backend)]);
    let (acceptor, connector) = (TlsAcceptor::from(Arc::new(server_config)), TlsConnector::from(Arc::new(client_config)));
    tokio::spawn(async move {
        loop {
            let mut stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            stream.write_all(b"hi").await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    for round in 0..4 {
        let mut stream = connector.connect(ServerName::try_from("one.example").unwrap(), door.connect().await).await.unwrap();
        assert_eq!(rest(&mut stream).await, b"hi");
        let expected = if round == 0 { HandshakeKind::Full } else { HandshakeKind::Resumed };
        assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected), "connection {round}");
    }
}
