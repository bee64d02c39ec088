//! Who a connection is from: a pure function of its certificate, its first words and the table.

use rustls_pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};

use super::{NodeEntry, NodeTable};
use crate::domain::NodeId;
use crate::domain::node::{Fate, kubelet_user};

/// What a client proved by its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proven {
    /// SHA-256 of the certificate, in hex.
    pub(super) fingerprint: String,
    /// Its subject's common name.
    pub(super) common_name: String,
}

impl Proven {
    /// Reads a certificate that TLS has verified. `None`: it names nobody.
    pub(super) fn by(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
        let common_name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
        Some(Self { fingerprint: hex::encode(Sha256::digest(certificate)), common_name })
    }
}

/// The member that a connection is from, or what it is told.
pub(super) fn admit<'a>(table: &'a NodeTable, proven: &Proven, claimed: NodeId) -> Result<&'a NodeEntry, (Fate, String)> {
    if let Some((_, fate, message)) = table.ended.iter().find(|(node, ..)| *node == claimed) {
        return Err((*fate, message.clone()));
    }
    let unknown = |why: &str| Err((Fate::Unknown, format!("this machine is not known as a node of the cluster: {why}")));
    let Some(member) = table.nodes.iter().find(|node| node.id == claimed) else {
        return unknown("run `kubebyon leave` here, and join again with a new token if it is to come back");
    };
    if proven.common_name != kubelet_user(&member.name) {
        return unknown("its certificate is of another node");
    }
    if !member.fingerprints.contains(&proven.fingerprint) {
        return unknown("its certificate is not the one that was given to this node, or was revoked");
    }
    Ok(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;
    use crate::domain::cluster::Addon;

    #[test]
    fn a_node_is_who_its_certificate_says_and_the_table_knows() {
        let ambient = Ambient::system();
        let (a, b, gone, stranger) =
            (NodeId::generate(&ambient), NodeId::generate(&ambient), NodeId::generate(&ambient), NodeId::generate(&ambient));
        let entry = |id, name: &str, fingerprint: &str| NodeEntry {
            id,
            name: name.into(),
            address: "192.168.1.10".parse().unwrap(),
            underlay: Vec::new(),
            pod_cidr: None,
            fingerprints: [fingerprint.to_owned()].into(),
        };
        let table = NodeTable {
            nodes: vec![entry(a, "a", "aa"), entry(b, "b", "bb"), entry(gone, "gone", "cc")],
            ended: vec![(gone, Fate::Removed, "it was removed".into())],
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            cni: Addon::Default,
            public_hosts: [].into(),
            tunnel_endpoints: Vec::new(),
            probe_key: String::new(),
        };
        let admitted = |fingerprint: &str, common_name: &str, claimed| {
            let proven = Proven { fingerprint: fingerprint.into(), common_name: common_name.into() };
            admit(&table, &proven, claimed).map(|node| node.id).map_err(|(fate, _)| fate)
        };
        assert_eq!(admitted("aa", "system:node:a", a), Ok(a));
        assert_eq!(admitted("aa", "system:node:a", b), Err(Fate::Unknown), "it says that it is another");
        assert_eq!(admitted("bb", "system:node:a", a), Err(Fate::Unknown), "a certificate of another node");
        assert_eq!(admitted("aa", "system:node:b", a), Err(Fate::Unknown), "a forged name");
        assert_eq!(admitted("ff", "system:node:a", a), Err(Fate::Unknown), "a certificate that nobody recorded");
        assert_eq!(admitted("aa", "system:node:a", stranger), Err(Fate::Unknown));
        assert_eq!(admitted("cc", "system:node:gone", gone), Err(Fate::Removed));
    }
}
