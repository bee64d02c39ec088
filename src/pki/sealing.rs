//! Sealing: XChaCha20-Poly1305 under the installation's key files.
use crate::domain::Ambient;

/// A key that seals what the store keeps.
pub struct SealingKey {
    _private: (),
}

impl SealingKey {
    /// Reads the key file (0600, 32 bytes as hex), or makes it where there is none: written whole or not at all.
    /// Refuses a file that others can read, and one that is cut.
    pub fn load_or_create(path: &std::path::Path, ambient: &Ambient) -> anyhow::Result<Self> {
        todo!()
    }
    /// The key's id: the first 16 hex digits of a hash of it; says nothing of the key.
    pub fn id(&self) -> &str {
        todo!()
    }
    /// Seals `plain`; `context` (such as `cluster/<id>/pki`) is bound to it, so that it opens nowhere else.
    pub fn seal(&self, ambient: &Ambient, context: &str, plain: &[u8]) -> Vec<u8> {
        todo!()
    }
    /// Opens what [`Self::seal`] made.
    pub fn open(&self, context: &str, sealed: &[u8]) -> anyhow::Result<zeroize::Zeroizing<Vec<u8>>> {
        todo!()
    }
}
