//! Sealing: XChaCha20-Poly1305 under the installation's key files.
//!
//! A sealed value is one byte of format, a nonce of 24 random bytes, and the ciphertext with its tag. May import: `domain`.
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::domain::Ambient;

const FORMAT: u8 = 1;
const NONCE: usize = 24;
const TAG: usize = 16;

/// A key that seals what the store keeps.
pub struct SealingKey {
    key: Zeroizing<[u8; 32]>,
    id: String,
}

impl SealingKey {
    /// Reads the key file (0600, 32 bytes as hex), or makes it where there is none: written whole or not at all.
    /// Refuses a file that others can read, and one that is cut.
    pub fn load_or_create(path: &Path, ambient: &Ambient) -> anyhow::Result<Self> {
        if let Some(key) = read(path)? {
            return Ok(Self::from_bytes(key));
        }
        write_new(path, &Zeroizing::new(ambient.random()))?;
        // Of two who make the file at once one wins, and both go on with what it wrote.
        read(path)?.map(Self::from_bytes).with_context(|| format!("the sealing key {} vanished while it was made", path.display()))
    }

    fn from_bytes(key: Zeroizing<[u8; 32]>) -> Self {
        let hash = Sha256::new().chain_update(b"kubebyon sealing key id\0").chain_update(key.as_slice()).finalize();
        Self { id: hex::encode(&hash[..8]), key }
    }

    /// The key's id: the first 16 hex digits of a hash of it; says nothing of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Seals `plain`; `context` (such as `cluster/<id>/pki`) is bound to it, so that it opens nowhere else.
    ///
    /// # Panics
    /// For more than 256 GiB, the cipher's limit.
    pub fn seal(&self, ambient: &Ambient, context: &str, plain: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE] = ambient.random();
        let ciphertext = self
            .cipher()
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: context.as_bytes() })
            .expect("XChaCha20-Poly1305 seals anything below 256 GiB");
        let mut sealed = Vec::with_capacity(1 + NONCE + ciphertext.len());
        sealed.push(FORMAT);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&ciphertext);
        sealed
    }

    /// Opens what [`Self::seal`] made.
    pub fn open(&self, context: &str, sealed: &[u8]) -> anyhow::Result<Zeroizing<Vec<u8>>> {
        let Some((&FORMAT, rest)) = sealed.split_first() else {
            bail!("the sealed value {context} is of an unknown format: it was written by a newer version, or is damaged")
        };
        let Some((nonce, ciphertext)) = rest.split_first_chunk::<NONCE>().filter(|(_, ciphertext)| ciphertext.len() >= TAG) else {
            bail!("the sealed value {context} is cut")
        };
        self.cipher().decrypt(&XNonce::from(*nonce), Payload { msg: ciphertext, aad: context.as_bytes() }).map(Zeroizing::new).map_err(
            |_| {
                anyhow::anyhow!(
                    "the sealed value {context} does not open with key {}: it was sealed with another key, or is damaged",
                    self.id
                )
            },
        )
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.key).into())
    }
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealingKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The key in a file; `None` where there is no file.
fn read(path: &Path) -> anyhow::Result<Option<Zeroizing<[u8; 32]>>> {
    let shown = path.display();
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("the sealing key {shown} cannot be read")),
    };
    let mode = file.metadata().with_context(|| format!("the sealing key {shown} cannot be read"))?.permissions().mode();
    let others = mode & 0o077;
    ensure!(others == 0, "the sealing key {shown} is open to others (mode {:o}): run chmod 600 {shown}", mode & 0o777);

    let mut text = Zeroizing::new(String::with_capacity(128));
    file.take(128).read_to_string(&mut text).with_context(|| format!("the sealing key {shown} cannot be read"))?;
    let mut key = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii_end(), key.as_mut_slice()).map_err(|_| {
        anyhow::anyhow!("the sealing key {shown} is not 64 hex digits: restore it from a backup, for no other key opens the store")
    })?;
    Ok(Some(key))
}

/// Writes a key file that was not there: under another name first, then by a link that refuses to replace.
fn write_new(path: &Path, key: &Zeroizing<[u8; 32]>) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let make = || -> std::io::Result<()> {
        let mut file =
            tempfile::Builder::new().prefix(".sealing-key-").permissions(std::fs::Permissions::from_mode(0o600)).tempfile_in(folder)?;
        let text = Zeroizing::new(hex::encode(key.as_slice()));
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Ok(_) => std::fs::File::open(folder)?.sync_all(),
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error),
        }
    };
    make().with_context(|| format!("the sealing key {} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_in(folder: &tempfile::TempDir) -> SealingKey {
        SealingKey::load_or_create(&folder.path().join("platform.key"), &Ambient::system()).unwrap()
    }

    #[test]
    fn opens_only_with_its_own_context_and_key() {
        let (ambient, one, two) = (Ambient::system(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (key, other) = (key_in(&one), key_in(&two));
        let sealed = key.seal(&ambient, "cluster/a/pki", b"secret");

        assert_eq!(key.open("cluster/a/pki", &sealed).unwrap().as_slice(), b"secret");
        assert!(key.open("cluster/b/pki", &sealed).is_err());
        assert!(other.open("cluster/a/pki", &sealed).is_err());
        assert_ne!(key.seal(&ambient, "cluster/a/pki", b"secret"), sealed, "nonces differ");
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn refuses_every_damage() {
        let folder = tempfile::tempdir().unwrap();
        let key = key_in(&folder);
        let sealed = key.seal(&Ambient::system(), "c", b"x");
        for cut in 0..sealed.len() {
            assert!(key.open("c", &sealed[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(key.open("c", &damaged).is_err(), "bit at {at}");
        }
    }

    #[test]
    fn the_file_lasts_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let (first, again) = (key_in(&folder), key_in(&folder));
        assert_eq!(first.id(), again.id());
        assert_eq!(first.id().len(), 16);
        let path = folder.path().join("platform.key");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = SealingKey::load_or_create(&path, &Ambient::system()).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }

    #[test]
    fn a_cut_file_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        key_in(&folder);
        let path = folder.path().join("platform.key");
        for content in ["", "abcd", &"g".repeat(64), &"a".repeat(66)] {
            std::fs::write(&path, content).unwrap();
            assert!(SealingKey::load_or_create(&path, &Ambient::system()).is_err(), "{content:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn racing_makers_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("platform.key");
        let ids: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
            let makers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| SealingKey::load_or_create(&path, &Ambient::system()).unwrap().id().to_owned())).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert_eq!(ids.len(), 1);
    }
}
