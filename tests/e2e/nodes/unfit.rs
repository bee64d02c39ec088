//! Joins that cannot go well say why, and leave the machine exactly as it was.

use kubebyon::domain::join::{TokenContent, Trust};
use kubebyon::domain::{Ambient, JoinTokenId};
use sha2::{Digest as _, Sha256};

use super::host::{KUBEBYON, Options, TestHost};
use super::network::Network;
use crate::harness::Platform;

/// A token for a platform that is known by an authority.
fn token(server: String, authority: &[u8]) -> TokenContent {
    TokenContent {
        server,
        cluster: "demo-abc234".into(),
        id: JoinTokenId::generate(&Ambient::system()),
        secret: "s".repeat(43),
        trust: Trust::Authority(hex::encode(authority)),
    }
}

/// The SHA-256 of the platform's own authority.
fn authority(platform: &Platform) -> Vec<u8> {
    let text = std::fs::read(platform.data_dir().join("platform-ca.crt")).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(&text).unwrap();
    Sha256::digest(&pem.contents).to_vec()
}

#[test]
fn a_join_that_cannot_go_well_says_why_and_changes_nothing() {
    let network = Network::new();
    let router = network.router(2, "192.168.1");
    let host = TestHost::start(&network, &router.lan, "u1", "192.168.1.10", Options::default());
    let mut platform = Platform::prepare_at(&network.address, "");
    platform.boot();
    let server = format!("https://{}:{}", platform.address, platform.port);
    let right = token(server.clone(), &authority(&platform));
    let before = host.listing();
    let unchanged = |after: &str| {
        let differences = before.differences(&host.listing());
        assert!(differences.is_empty(), "after {after}:\n{}", differences.join("\n"));
    };
    let refused = |what: &str, args: &[&str], expected: &[&str]| {
        let said = host.fails(&[&[KUBEBYON, "join", "--no-service", "--no-packages"], args].concat());
        for words in expected {
            assert!(said.contains(words), "{what}: {words:?} is not in:\n{said}");
        }
        unchanged(what);
    };

    let whole = right.encode();
    refused("a token that was cut off", &[&whole[..whole.len() - 9]], &["not whole", "copy the line again"]);
    refused("no token", &[], &["a token is needed", "join-token create"]);
    refused("something else", &["abcdef"], &["no join token"]);
    refused("a port that is not open", &[&whole], &[&server]);
    network.open(platform.port);
    network.cut(&router.address);
    refused("a line that is cut", &[&whole], &[&server]);
    network.mend(&router.address);
    let stranger = token(server.clone(), &Sha256::digest("another authority"));
    refused("another authority", &[&stranger.encode()], &["certificate", "KubeBYON platform"]);
    let preview = host.run(&[KUBEBYON, "join", "--dry-run", &whole]);
    let said = String::from_utf8_lossy(&preview.stdout).into_owned();
    assert!(said.contains("A join would") && said.contains("SHA-256"), "{said}\n{}", String::from_utf8_lossy(&preview.stderr));
    unchanged("a dry run");
    // Somebody else's kubelet is none of ours.
    host.write("/var/lib/kubelet/config.yaml", "a stranger's");
    let left = host.ok(&[KUBEBYON, "leave"]);
    assert!(left.contains("there is nothing left of one"), "{left}");
    assert_eq!(host.read("/var/lib/kubelet/config.yaml"), "a stranger's");
    host.shell("rm /var/lib/kubelet/config.yaml");
    unchanged("leaving without having joined");
    let status = host.fails(&[KUBEBYON, "status"]);
    assert!(status.contains("this machine is no node"), "{status}");
    assert_eq!(network.opened(), 0, "the platform opens nothing towards machines");
}
