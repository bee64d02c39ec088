use std::collections::BTreeSet;
use std::sync::Arc;

use rustls_pki_types::{ServerName, UnixTime};
use x509_parser::prelude::*;

use super::*;
use crate::domain::{ClusterId, ManualClock, SystemEntropy};
use crate::pki::{ClusterPki, LeafOptions, control_plane_leaves, files, key_and_csr, platform_client};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn ambient() -> (Ambient, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new("2026-11-30T12:00:00.5Z".parse().unwrap()));
    (Ambient { clock: clock.clone(), entropy: Arc::new(SystemEntropy) }, clock)
}

fn profile(ttl: Duration) -> LeafProfile {
    LeafProfile {
        common_name: "jane".to_owned(),
        organizations: vec!["kubebyon:admins".to_owned(), "second".to_owned()],
        sans: vec!["demo.example".to_owned(), "*.demo.example".to_owned(), "127.64.0.1".to_owned(), "2001:db8::1".to_owned()],
        server_auth: true,
        client_auth: true,
        ttl,
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// What a TLS client that trusts `ca` says of `leaf` as the server `name`.
fn verify_server(ca: &CertificateAuthority, leaf: &str, name: &str, now: Timestamp) -> Result<(), rustls::Error> {
    use rustls::client::danger::ServerCertVerifier as _;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der(&ca.cert_pem)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let at = UnixTime::since_unix_epoch(since_epoch(now));
    verifier.verify_server_cert(&der(leaf), &[], &ServerName::try_from(name.to_owned()).unwrap(), &[], at).map(|_| ())
}

/// What a TLS server that trusts `ca` says of `leaf` as a client.
fn verify_client(ca: &CertificateAuthority, leaf: &str, now: Timestamp) -> Result<(), rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(der(&ca.cert_pem)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    verifier.verify_client_cert(&der(leaf), &[], UnixTime::since_unix_epoch(since_epoch(now))).map(|_| ())
}

#[test]
fn a_leaf_proves_its_names_under_its_own_authority_alone() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Server, "one").unwrap();
    let other = CertificateAuthority::create(&ambient, Authority::Server, "two").unwrap();
    let twin = CertificateAuthority::create(&ambient, Authority::Server, "one").unwrap();
    let leaf = ca.issue(&ambient, &profile(DAY)).unwrap();
    let now = ambient.now();

    for name in ["demo.example", "x.demo.example", "127.64.0.1", "2001:db8::1"] {
        verify_server(&ca, &leaf.cert_pem, name, now).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    for name in ["other.example", "127.64.0.2"] {
        assert!(verify_server(&ca, &leaf.cert_pem, name, now).is_err(), "{name}");
    }
    assert!(verify_server(&other, &leaf.cert_pem, "demo.example", now).is_err());
    assert!(verify_server(&twin, &leaf.cert_pem, "demo.example", now).is_err(), "an authority of the same name proves nothing");
    assert!(verify_server(&ca, &leaf.cert_pem, "demo.example", now.plus(2 * DAY)).is_err(), "ended");
    verify_server(&ca, &leaf.cert_pem, "demo.example", now.minus(Duration::from_secs(240))).unwrap();
    verify_client(&ca, &leaf.cert_pem, now).unwrap();
}

#[test]
fn an_authority_may_sign_leaves_and_nothing_else() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Client, "clients").unwrap();
    let der = der(&ca.cert_pem);
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    let constraints = cert.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca);
    assert_eq!(constraints.value.path_len_constraint, Some(0));
    let usage = cert.key_usage().unwrap().unwrap();
    assert!(usage.critical && usage.value.key_cert_sign() && usage.value.crl_sign() && !usage.value.key_encipherment());
    assert_eq!(cert.raw_serial().len(), 17);
}

#[test]
fn a_leaf_says_what_the_profile_says() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Client, "clients").unwrap();
    let leaf = ca.issue(&ambient, &LeafProfile { server_auth: false, ..profile(DAY) }).unwrap();
    let der = der(&leaf.cert_pem);
    let (_, cert) = parse_x509_certificate(&der).unwrap();

    let groups: Vec<_> = cert.subject().iter_organization().map(|group| group.as_str().unwrap()).collect();
    assert_eq!(groups, ["kubebyon:admins", "second"]);
    assert_eq!(cert.subject().iter_common_name().next().unwrap().as_str().unwrap(), "jane");
    assert!(!cert.is_ca());
    let uses = cert.extended_key_usage().unwrap().unwrap().value;
    assert!(uses.client_auth && !uses.server_auth);
    assert_eq!(leaf.fingerprint, hex::encode(Sha256::digest(&der)));
    assert_eq!(leaf.credential_id(), format!("X509SHA256={}", leaf.fingerprint));
    assert_eq!(validity(&leaf.cert_pem).unwrap(), (leaf.not_before, leaf.not_after));
    assert_eq!(leaf.not_before.to_string(), "2026-11-30T11:55:00Z");
    assert_eq!(leaf.not_after.to_string(), "2026-12-01T12:00:00Z");
    assert!(verify_server(&ca, &leaf.cert_pem, "demo.example", ambient.now()).is_err(), "not for servers");
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let (ambient, clock) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Server, "one").unwrap();
    let (_, ends) = validity(&ca.cert_pem).unwrap();
    clock.set(ends.minus(DAY));
    assert_eq!(ca.issue(&ambient, &profile(30 * DAY)).unwrap().not_after, ends);
    clock.set(ends.plus(DAY));
    assert!(ca.issue(&ambient, &profile(DAY)).unwrap_err().to_string().contains("signs nothing any more"));
}

#[test]
fn bad_profiles_are_refused() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Server, "one").unwrap();
    let bad = [
        LeafProfile { common_name: String::new(), ..profile(DAY) },
        LeafProfile { sans: vec!["not a name".to_owned()], ..profile(DAY) },
        LeafProfile { sans: vec![String::new()], ..profile(DAY) },
        LeafProfile { organizations: vec!["a".to_owned(), "b".to_owned(), "c".to_owned()], ..profile(DAY) },
        LeafProfile { server_auth: false, client_auth: false, ..profile(DAY) },
    ];
    for profile in bad {
        assert!(ca.issue(&ambient, &profile).is_err(), "{profile:?}");
    }
}

#[test]
fn of_a_csr_only_the_key_is_taken() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Client, "clients").unwrap();
    let (key, csr) = key_and_csr("mallory").unwrap();
    let leaf = ca.sign_csr(&ambient, &csr, &profile(DAY)).unwrap();
    assert!(leaf.key_pem.is_empty());
    let der = der(&leaf.cert_pem);
    let (_, cert) = parse_x509_certificate(&der).unwrap();
    assert_eq!(cert.subject().iter_common_name().next().unwrap().as_str().unwrap(), "jane");
    let public = rcgen::PublicKeyData::subject_public_key_info(&KeyPair::from_pem(&key).unwrap());
    assert_eq!(cert.public_key().raw, public.as_slice());
    verify_client(&ca, &leaf.cert_pem, ambient.now()).unwrap();
}

#[test]
fn a_csr_that_lies_is_refused() {
    let (ambient, _) = ambient();
    let ca = CertificateAuthority::create(&ambient, Authority::Client, "clients").unwrap();
    let refuse = |csr: &str| ca.sign_csr(&ambient, csr, &profile(DAY)).unwrap_err().to_string();

    let (_, csr) = key_and_csr("a").unwrap();
    let mut bytes = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(csr.as_bytes()).unwrap().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &bytes);
    let forged = format!("-----BEGIN CERTIFICATE REQUEST-----\n{encoded}\n-----END CERTIFICATE REQUEST-----\n");
    assert!(refuse(&forged).contains("signature"), "{}", refuse(&forged));

    assert!(refuse("no csr").contains("no CSR"));
    assert!(refuse(&ca.cert_pem).contains("no CSR"));
    assert!(refuse(&format!("{csr}{}", "\n".repeat(crate::pki::csr::MAX_CSR_BYTES))).contains("at most"));
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let odd = CertificateParams::default().serialize_request(&ed25519).unwrap().pem().unwrap();
    assert!(refuse(&odd).contains("P-256"));
}

#[test]
fn renewal_is_due_in_the_last_third_or_before_the_beginning() {
    let (begin, end) = (Timestamp::from_micros(0), Timestamp::from_micros(0).plus(90 * DAY));
    assert!(!renewal_due(begin, begin, end));
    assert!(!renewal_due(begin.plus(60 * DAY), begin, end));
    assert!(renewal_due(begin.plus(60 * DAY + Duration::from_secs(1)), begin, end));
    assert!(renewal_due(end.plus(DAY), begin, end));
    assert!(renewal_due(begin.minus(DAY), begin, end));
}

#[test]
fn a_control_plane_gets_every_leaf_under_its_own_authority() {
    let (ambient, _) = ambient();
    let pki = ClusterPki::create(&ambient, ClusterId::generate(&ambient)).unwrap();
    let options = LeafOptions {
        address: "127.64.0.7".parse().unwrap(),
        api_server_sans: vec!["demo.kubebyon.internal".to_owned(), "10.96.0.1".to_owned(), "kubernetes".to_owned()],
        tunnel_name: "demo-node.kubebyon.internal".to_owned(),
        ttl: DAY,
    };
    let leaves = control_plane_leaves(&pki, &ambient, &options).unwrap();
    let now = ambient.now();
    for leaf in &leaves {
        for authority in Authority::OF_A_CLUSTER {
            let ca = pki.authority(authority);
            let as_client = verify_client(ca, &leaf.issued.cert_pem, now).is_ok();
            let named = ["127.64.0.7", "revocation.invalid", "demo-node.kubebyon.internal"]
                .iter()
                .any(|name| verify_server(ca, &leaf.issued.cert_pem, name, now).is_ok());
            assert_eq!(as_client || named, authority == leaf.issued.authority, "{} under {authority:?}", leaf.cert_path);
        }
        let der = der(&leaf.issued.cert_pem);
        let (_, cert) = parse_x509_certificate(&der).unwrap();
        assert_eq!(cert.subject().iter_organization().count(), 0, "{}: no leaf on a disk has groups", leaf.cert_path);
    }
    let api_server = leaves.iter().find(|leaf| leaf.cert_path == files::API_SERVER_CERT).unwrap();
    for name in ["demo.kubebyon.internal", "10.96.0.1", "kubernetes.default.svc", "127.64.0.7"] {
        verify_server(pki.authority(Authority::Server), &api_server.issued.cert_pem, name, now).unwrap();
    }
    let paths: BTreeSet<_> = leaves.iter().flat_map(|leaf| [leaf.cert_path, leaf.key_path]).collect();
    assert_eq!(paths.len(), leaves.len() * 2);
    let fingerprints: BTreeSet<_> = leaves.iter().map(|leaf| &leaf.issued.fingerprint).collect();
    assert_eq!(fingerprints.len(), leaves.len());
}

#[test]
fn one_authority_key_alone_is_materialised() {
    let (ambient, _) = ambient();
    let pki = ClusterPki::create(&ambient, ClusterId::generate(&ambient)).unwrap();
    let text: String = pki.lasting_files().into_values().collect();
    for ca in &pki.authorities {
        assert_eq!(text.contains(ca.key_pem.trim()), ca.authority == Authority::KubeletServing, "{:?}", ca.authority);
        assert!(text.contains(&ca.cert_pem));
    }
    let again: ClusterPki = serde_json::from_str(&serde_json::to_string(&pki).unwrap()).unwrap();
    assert_eq!(again.lasting_files(), pki.lasting_files());
}

#[test]
fn the_daemons_own_credential_is_short() {
    let (ambient, _) = ambient();
    let pki = ClusterPki::create(&ambient, ClusterId::generate(&ambient)).unwrap();
    let own = platform_client(&pki, &ambient).unwrap();
    verify_client(pki.authority(Authority::Client), &own.cert_pem, ambient.now()).unwrap();
    assert!(own.not_after.since(ambient.now()) <= Duration::from_secs(3600));
}
