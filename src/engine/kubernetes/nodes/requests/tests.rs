use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequestCondition, CertificateSigningRequestStatus};
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::*;

const FINGERPRINT: &str = "aa11";

fn asker() -> Asker {
    Asker {
        name: "worker-1".into(),
        address: "192.168.1.10".parse().unwrap(),
        fingerprints: BTreeSet::from([FINGERPRINT.to_owned(), "bb22".to_owned()]),
    }
}

/// A CSR that says this, with `worker-1` as its common name unless another is given.
fn csr(common_name: &str, organizations: &[&str], sans: &[&str]) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    for (nth, organization) in organizations.iter().enumerate() {
        let kind = if nth == 0 { DnType::OrganizationName } else { DnType::CustomDnType(vec![2, 5, 4, 10]) };
        params.distinguished_name.push(kind, *organization);
    }
    params.subject_alt_names = sans
        .iter()
        .map(|san| match san.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) if san.contains(':') => SanType::URI((*san).try_into().unwrap()),
            Err(_) => SanType::DnsName((*san).try_into().unwrap()),
        })
        .collect();
    params.serialize_request(&key).unwrap().pem().unwrap().into_bytes()
}

fn request(signer: &str, csr: Vec<u8>) -> CertificateSigningRequest {
    let usage = if signer == SERVING { "server auth" } else { "client auth" };
    CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(csr),
            signer_name: signer.to_owned(),
            username: Some("system:node:worker-1".into()),
            groups: Some(vec![KUBELET_GROUP.into(), "system:authenticated".into()]),
            extra: Some([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={FINGERPRINT}")])].into()),
            usages: Some(vec!["digital signature".into(), usage.into()]),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    }
}

const USER: &str = "system:node:worker-1";

fn serving(sans: &[&str]) -> CertificateSigningRequest {
    request(SERVING, csr(USER, &[KUBELET_GROUP], sans))
}

fn client() -> CertificateSigningRequest {
    request(CLIENT, csr(USER, &[KUBELET_GROUP], &[]))
}

#[test]
fn what_a_kubelet_asks_for_is_granted() {
    for sans in [&["worker-1", "192.168.1.10"][..], &["worker-1"], &["192.168.1.10"]] {
        assert_eq!(judge(&serving(sans), Some(&asker())), Verdict::Approve, "{sans:?}");
    }
    assert_eq!(judge(&client(), Some(&asker())), Verdict::Sign);
    let mut rsa_like = client();
    rsa_like.spec.usages = Some(["key encipherment", "digital signature", "client auth"].map(str::to_owned).into());
    assert_eq!(judge(&rsa_like, Some(&asker())), Verdict::Sign);
}

#[test]
fn what_is_not_that_nodes_is_denied_and_says_why() {
    let with = |mut request: CertificateSigningRequest, change: &dyn Fn(&mut CertificateSigningRequestSpec)| {
        change(&mut request.spec);
        request
    };
    let extra = |id: &str| Some([(CREDENTIAL_ID.to_owned(), vec![id.to_owned()])].into());
    let cases: Vec<(&str, CertificateSigningRequest, &str)> = vec![
        ("another's address", serving(&["worker-1", "192.168.1.11"]), "asks for the address 192.168.1.11"),
        ("loopback", serving(&["127.0.0.1"]), "asks for the address 127.0.0.1"),
        ("another's name", serving(&["worker-2", "192.168.1.10"]), "asks for the name \"worker-2\""),
        ("a service's name", serving(&["kubernetes.default.svc"]), "asks for the name"),
        ("a wildcard", serving(&["*.example"]), "asks for the name"),
        ("no name", serving(&[]), "names no host"),
        ("a URI", serving(&["worker-1", "spiffe://a/b"]), "more than a kubelet needs"),
        ("another node's subject", request(CLIENT, csr("system:node:worker-2", &[KUBELET_GROUP], &[])), "its common name is not"),
        ("a user", request(CLIENT, csr("kubernetes-admin", &["system:masters"], &[])), "its common name is not"),
        ("masters", request(CLIENT, csr(USER, &["system:masters"], &[])), "its organization is not"),
        ("masters beside", request(CLIENT, csr(USER, &[KUBELET_GROUP, "system:masters"], &[])), "its organization is not"),
        ("no group", request(CLIENT, csr(USER, &[], &[])), "its organization is not"),
        ("a client with names", request(CLIENT, csr(USER, &[KUBELET_GROUP], &["worker-1"])), "names no hosts"),
        ("another requestor", with(client(), &|s| s.username = Some("system:node:worker-2".into())), "does not come from"),
        ("no group of its own", with(client(), &|s| s.groups = Some(vec!["system:authenticated".into()])), "not of the group"),
        ("a token", with(client(), &|s| s.extra = None), "not made with a node's client certificate"),
        ("another's credential", with(client(), &|s| s.extra = extra("X509SHA256=cc33")), "not, or no longer, one of node"),
        ("a JWT", with(client(), &|s| s.extra = extra(&format!("JTI={FINGERPRINT}"))), "not, or no longer, one of node"),
        ("for servers", with(client(), &|s| s.usages = Some(vec!["digital signature".into(), "server auth".into()])), "the usage"),
        ("for signing", with(client(), &|s| s.usages = Some(vec!["cert sign".into(), "client auth".into()])), "the usage \"cert sign\""),
        ("for nothing", with(client(), &|s| s.usages = Some(vec!["client auth".into()])), "does not ask for the usages"),
        ("no PEM", request(SERVING, b"\xff\xfe".to_vec()), "it is no PEM"),
        ("no CSR", request(SERVING, b"hello".to_vec()), "it cannot be read"),
        ("too long", request(SERVING, vec![b'a'; 20_000]), "it cannot be read"),
    ];
    for (what, request, why) in cases {
        match judge(&request, Some(&asker())) {
            Verdict::Deny(said) => assert!(said.contains(why), "{what}: {said}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(matches!(judge(&client(), None), Verdict::Deny(why) if why.contains("no node of this cluster")));
}

#[test]
fn a_certificate_that_was_revoked_asks_in_vain() {
    let mut asker = asker();
    asker.fingerprints.remove(FINGERPRINT);
    for request in [client(), serving(&["worker-1"])] {
        assert!(matches!(judge(&request, Some(&asker)), Verdict::Deny(why) if why.contains("no longer")));
    }
}

#[test]
fn one_node_does_not_collect_certificates() {
    let mut asker = asker();
    asker.fingerprints.extend((asker.fingerprints.len()..MAX_CERTIFICATES).map(|nth| format!("f{nth}")));
    assert!(matches!(judge(&client(), Some(&asker)), Verdict::Deny(why) if why.contains("16 good client certificates")));
    assert_eq!(judge(&serving(&["worker-1"]), Some(&asker)), Verdict::Approve, "serving certificates open nothing");
}

#[test]
fn a_damaged_csr_never_passes() {
    let whole = csr(USER, &[KUBELET_GROUP], &[]);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        // What PEM ignores may differ; the signature covers the rest.
        match judge(&request(CLIENT, damaged), Some(&asker())) {
            Verdict::Deny(_) => {}
            other => assert!(whole[at].is_ascii_whitespace(), "{at}: {other:?}"),
        }
        match judge(&request(CLIENT, whole[..at].to_vec()), Some(&asker())) {
            Verdict::Deny(_) => {}
            other => assert_eq!(at, whole.len() - 1, "{other:?}"),
        }
    }
}

#[test]
fn what_is_anothers_or_decided_is_left_alone() {
    let status = |kind: &str, certificate: Option<&str>| {
        let condition = CertificateSigningRequestCondition {
            type_: kind.into(),
            status: "True".into(),
            ..CertificateSigningRequestCondition::default()
        };
        Some(CertificateSigningRequestStatus {
            certificate: certificate.map(|text| ByteString(text.as_bytes().to_vec())),
            conditions: Some(vec![condition]),
        })
    };
    assert_eq!(concerns(&client()), Some("worker-1"));
    assert_eq!(concerns(&CertificateSigningRequest { status: status("Approved", None), ..client() }), Some("worker-1"));
    let serving = serving(&["worker-1"]);
    assert_eq!(concerns(&serving), Some("worker-1"));
    assert_eq!(concerns(&CertificateSigningRequest { status: status("Approved", None), ..serving }), None, "the controller-manager's");
    for done in [status("Denied", None), status("Failed", None), status("Approved", Some("-----BEGIN"))] {
        assert_eq!(concerns(&CertificateSigningRequest { status: done, ..client() }), None);
    }
    let mut others = client();
    others.spec.signer_name = "kubernetes.io/kube-apiserver-client".into();
    assert_eq!(concerns(&others), None);
    let mut people = client();
    people.spec.username = Some("jane".into());
    assert_eq!(concerns(&people), None);
}
