//! Writing a control plane's files: authorities, leaves, configurations.
//!
//! Guarantees: a certificate is in the ledger before it is on a disk; each file is whole at every moment (written beside and renamed); what
//! stands as it should is not touched, so nothing is read again for nothing; a leaf is replaced when it is due, when what it must say has
//! changed, or when it does not fit its key. May import: `domain`, `store`, `pki`.

use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use anyhow::Context;
use x509_parser::pem::parse_x509_pem;

use crate::domain::{Ambient, ClusterId, Timestamp};
use crate::pki::Issued;
use crate::pki::authority::{renewal_due, validity};
use crate::pki::cluster::{ClusterPki, Files};
use crate::pki::leaves::{Leaf, LeafOptions, control_plane_leaves, leaf_files};
use crate::store::certificates::CertificateRecord;
use crate::store::{self, Store};

/// Who may read the files.
#[derive(Debug, Clone, Copy)]
pub struct Readers {
    /// The group that may, beside the daemon; absent: the daemon's own user alone.
    pub gid: Option<u32>,
}

/// Brings the leaves up to date and gives the purposes of those that were written.
pub async fn leaves(
    store: &Store,
    ambient: &Ambient,
    cluster: ClusterId,
    pki: &ClusterPki,
    options: &LeafOptions,
    run_dir: &Path,
    readers: Readers,
) -> anyhow::Result<Vec<&'static str>> {
    let now = ambient.now();
    let mut due = control_plane_leaves(pki, ambient, options)?;
    due.retain(|leaf| !stands(run_dir, leaf, now));
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let records: Vec<_> = due.iter().map(|leaf| record(cluster, leaf.purpose, &leaf.issued)).collect();
    let mut tx = store.begin().await?;
    store::certificates::record(&mut tx, &records).await?;
    tx.commit().await?;
    // Keys first: a certificate without its key would be taken for whole.
    for leaf in &due {
        write(run_dir, leaf.key_path, &leaf.issued.key_pem, readers)?;
    }
    files(run_dir, &leaf_files(&due), readers)?;
    Ok(due.iter().map(|leaf| leaf.purpose).collect())
}

/// Writes those files that are not as they should be.
pub fn files(run_dir: &Path, files: &Files, readers: Readers) -> anyhow::Result<()> {
    files.iter().try_for_each(|(path, text)| write(run_dir, path, text, readers))
}

/// Whether any certificate below a run folder must be renewed, or is not there.
pub fn renewal_is_due(run_dir: &Path, certificates: &[&str], now: Timestamp) -> bool {
    certificates.iter().any(|path| {
        let valid = std::fs::read_to_string(run_dir.join(path)).map_err(anyhow::Error::from).and_then(|pem| validity(&pem));
        valid.map_or(true, |(from, to)| renewal_due(now, from, to))
    })
}

/// Whether the leaf on the disk does for the one that was just made.
fn stands(run_dir: &Path, fresh: &Leaf, now: Timestamp) -> bool {
    let read = |path: &str| std::fs::read_to_string(run_dir.join(path)).ok();
    let (Some(cert), Some(key)) = (read(fresh.cert_path), read(fresh.key_path)) else { return false };
    let not_due = validity(&cert).is_ok_and(|(from, to)| !renewal_due(now, from, to));
    not_due && says_the_same(&cert, &fresh.issued.cert_pem) && fits(&cert, &key)
}

/// Whether two certificates come from the same authority (by its key) and prove the same to the same.
fn says_the_same(one: &str, other: &str) -> bool {
    let parsed = |pem: &str| {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).ok()?;
        let cert = pem.parse_x509().ok()?;
        let own = x509_parser::oid_registry::OID_X509_EXT_SUBJECT_KEY_IDENTIFIER;
        let mut extensions: Vec<_> =
            cert.extensions().iter().filter(|e| e.oid != own).map(|e| (e.oid.to_id_string(), e.value.to_vec())).collect();
        extensions.sort();
        Some((cert.issuer().as_raw().to_vec(), cert.subject().as_raw().to_vec(), extensions))
    };
    parsed(one).is_some_and(|one| Some(one) == parsed(other))
}

fn fits(cert: &str, key: &str) -> bool {
    let Ok((_, pem)) = parse_x509_pem(cert.as_bytes()) else { return false };
    let (Ok(cert), Ok(key)) = (pem.parse_x509(), rcgen::KeyPair::from_pem(key)) else { return false };
    *cert.public_key().subject_public_key.data == *rcgen::PublicKeyData::der_bytes(&key)
}

/// What the ledger says of a certificate.
pub fn record(cluster: ClusterId, purpose: &str, issued: &Issued) -> CertificateRecord {
    CertificateRecord {
        fingerprint: issued.fingerprint.clone(),
        cluster_id: Some(cluster),
        authority: issued.authority.as_str().to_owned(),
        purpose: purpose.to_owned(),
        common_name: issued.common_name.clone(),
        not_before: issued.not_before,
        not_after: issued.not_after,
    }
}

fn write(run_dir: &Path, path: &str, text: &str, readers: Readers) -> anyhow::Result<()> {
    let target = run_dir.join(path);
    let mode = if readers.gid.is_some() { 0o640 } else { 0o600 };
    if std::fs::read(&target).is_ok_and(|there| there == text.as_bytes())
        && std::fs::metadata(&target).is_ok_and(|m| m.permissions().mode() & 0o777 == mode)
    {
        return Ok(());
    }
    let draft = run_dir.join(format!("{path}.new"));
    let make = || -> std::io::Result<()> {
        // Not another's: what a cut-off write left is removed, and the file is made anew.
        let _ = std::fs::remove_file(&draft);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if let Some(gid) = readers.gid {
            fchown(&file, Some(0), Some(gid))?;
            file.set_permissions(PermissionsExt::from_mode(mode))?;
        }
        std::fs::rename(&draft, &target)
    };
    make().with_context(|| format!("cannot write {}", target.display()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::domain::ManualClock;
    use crate::pki::cluster::files as paths;

    #[tokio::test]
    async fn leaves_are_recorded_and_renewed_in_place_when_they_must_be() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pki")).unwrap();
        let clock = Arc::new(ManualClock::new(Ambient::system().now()));
        let ambient = Ambient { clock: clock.clone(), ..Ambient::system() };
        let store = Store::new(store::sqlite::temporary().unwrap());
        let cluster = crate::engine::local::tests::row(&store, &ambient, "here").await.id;
        let pki = ClusterPki::create(&ambient, cluster).unwrap();
        let options = |san: &str| LeafOptions {
            address: "127.64.0.9".parse().unwrap(),
            api_server_sans: vec![san.to_owned()],
            tunnel_name: "demo-node.kubebyon.internal".into(),
            ttl: Duration::from_secs(24 * 3600),
        };
        let readers = Readers { gid: None };
        let run = async |san: &str| leaves(&store, &ambient, cluster, &pki, &options(san), folder.path(), readers).await.unwrap();

        let first = run("a.example").await;
        assert_eq!(first.len(), 13);
        let recorded = store::certificates::list(&mut *store.read().await.unwrap(), Some(cluster)).await.unwrap();
        assert_eq!(recorded.len(), 13);
        assert!(recorded.iter().any(|r| r.authority == "etcd" && r.purpose == "etcd-peer" && r.common_name == "etcd-peer"), "{recorded:?}");
        assert!(run("a.example").await.is_empty());
        let mode = std::fs::metadata(folder.path().join(paths::API_SERVER_KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        assert_eq!(run("b.example").await, ["kube-apiserver"]);
        // A key whose certificate was not written before the daemon was killed.
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(folder.path().join(paths::SCHEDULER_KEY), other).unwrap();
        assert_eq!(run("b.example").await, ["kube-scheduler"]);
        std::fs::write(folder.path().join(paths::ETCD_PEER_CERT), "half a certif").unwrap();
        assert_eq!(run("b.example").await, ["etcd-peer"]);

        let all = [paths::API_SERVER_CERT, paths::ETCD_PEER_CERT];
        assert!(!renewal_is_due(folder.path(), &all, ambient.now()));
        clock.advance(Duration::from_secs(17 * 3600));
        assert!(renewal_is_due(folder.path(), &all, ambient.now()));
        assert_eq!(run("b.example").await.len(), 13);
        assert!(!renewal_is_due(folder.path(), &all, ambient.now()));
    }

    #[test]
    fn a_file_that_stands_is_not_touched() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |text: &str| {
            files(folder.path(), &Files::from([("a.yaml".to_owned(), text.to_owned())]), Readers { gid: None }).unwrap();
            std::fs::metadata(folder.path().join("a.yaml")).unwrap().ino()
        };
        let first = at("one");
        std::fs::write(folder.path().join("a.yaml.new"), "cut off").unwrap();
        assert_eq!(at("one"), first);
        assert_ne!(at("two"), first);
        assert_eq!(std::fs::read_to_string(folder.path().join("a.yaml")).unwrap(), "two");
    }
}
