//! Exchange of the certificate, with real handshakes over memory.

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::*;

fn pair() -> (String, String, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["platform.example".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem(), made.cert.der().clone())
}

/// The certificate that a client is shown, and the protocol that is agreed on.
async fn shown(tls: &PlatformTls, trusted: &CertificateDer<'static>) -> Result<(CertificateDer<'static>, Option<Vec<u8>>), io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let (near, far) = tokio::io::duplex(16 * 1024);
    let connector = TlsConnector::from(Arc::new(config));
    let (client, _server) = tokio::join!(connector.connect(ServerName::try_from("platform.example").unwrap(), near), tls.accept(far));
    let client = client?;
    let session = client.get_ref().1;
    Ok((session.peer_certificates().unwrap()[0].clone(), session.alpn_protocol().map(<[u8]>::to_vec)))
}

#[tokio::test]
async fn serves_its_certificate_and_prefers_http_2() {
    let (cert, key, der) = pair();
    let tls = PlatformTls::from_pem(cert.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(shown(&tls, &der).await.unwrap(), (der, Some(b"h2".to_vec())));
}

#[tokio::test]
async fn a_certificate_can_be_exchanged_and_a_broken_one_is_not_taken() {
    let ((cert, key, first), (new_cert, new_key, second)) = (pair(), pair());
    let tls = PlatformTls::from_pem(cert.as_bytes(), key.as_bytes()).unwrap();
    assert!(matches!(tls.replace(new_cert.as_bytes(), key.as_bytes()), Err(TlsError::Pair(_))));
    assert!(matches!(tls.replace(b"no PEM", key.as_bytes()), Err(TlsError::Certificate)));
    assert!(matches!(tls.replace(cert.as_bytes(), b"no PEM"), Err(TlsError::Key)));
    assert_eq!(shown(&tls, &first).await.unwrap().0, first);
    tls.replace(new_cert.as_bytes(), new_key.as_bytes()).unwrap();
    assert_eq!(shown(&tls, &second).await.unwrap().0, second);
    assert!(shown(&tls, &first).await.is_err());
}

#[tokio::test]
async fn files_are_followed_and_a_broken_change_keeps_the_present_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (cert_file, key_file) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let write = |cert: &str, key: &str, age: u64| {
        for (path, text) in [(&cert_file, cert), (&key_file, key)] {
            std::fs::write(path, text).unwrap();
            std::fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age))
                .unwrap();
        }
    };
    let ((cert, key, first), (new_cert, new_key, second)) = (pair(), pair());
    write(&cert, &key, 1);
    let tls = PlatformTls::from_files(&cert_file, &key_file).unwrap();
    assert!(!tls.reload_if_changed().unwrap());

    write(&new_cert, "half a ke", 2);
    assert!(matches!(tls.reload_if_changed(), Err(TlsError::Key)));
    assert!(!tls.reload_if_changed().unwrap(), "a broken change is told once");
    assert_eq!(shown(&tls, &first).await.unwrap().0, first);

    write(&new_cert, &new_key, 3);
    assert!(tls.reload_if_changed().unwrap());
    assert_eq!(shown(&tls, &second).await.unwrap().0, second);

    std::fs::remove_file(&cert_file).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Unreadable { .. })));
    assert_eq!(shown(&tls, &second).await.unwrap().0, second);
}
