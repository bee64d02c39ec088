//! Secrets of sessions and API tokens: 256 random bits with a prefix that says which; kept as their SHA-256.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::domain::Ambient;

/// What a secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// A session; `kbs_…`.
    Session,
    /// An API token; `kbt_…`.
    ApiToken,
}

impl SecretKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "kbs_",
            Self::ApiToken => "kbt_",
        }
    }
}

/// A secret; wiped from memory when dropped, and never printed.
#[derive(Clone)]
pub struct Secret {
    kind: SecretKind,
    text: Zeroizing<String>,
}

impl Secret {
    /// A new one.
    pub fn generate(ambient: &Ambient, kind: SecretKind) -> Self {
        let random: Zeroizing<[u8; 32]> = Zeroizing::new(ambient.random());
        Self { kind, text: Zeroizing::new(format!("{}{}", kind.prefix(), URL_SAFE_NO_PAD.encode(random.as_slice()))) }
    }

    /// One that a request carries; `None` when it has not the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let kind = [SecretKind::Session, SecretKind::ApiToken].into_iter().find(|kind| text.starts_with(kind.prefix()))?;
        let body = &text[kind.prefix().len()..];
        let well_formed = body.len() == 43 && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        well_formed.then(|| Self { kind, text: Zeroizing::new(text.to_owned()) })
    }

    /// What it is for.
    pub const fn kind(&self) -> SecretKind {
        self.kind
    }

    /// Its SHA-256, by which the store knows it. The secret has 256 random bits: a plain hash is not to be guessed back.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// The secret itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("kind", &self.kind).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_generated_is_read_again() {
        let secret = Secret::generate(&Ambient::system(), SecretKind::ApiToken);
        assert!(secret.reveal().starts_with("kbt_"));
        assert_eq!(Secret::parse(secret.reveal()).unwrap().hash(), secret.hash());
        assert!(!format!("{secret:?}").contains(&secret.reveal()[4..]));
    }

    #[test]
    fn other_text_is_no_secret() {
        for bad in ["", "kbt_", "kbs_short", &format!("kbx_{}", "a".repeat(43)), &format!("kbt_{}", "ä".repeat(22))] {
            assert!(Secret::parse(bad).is_none(), "{bad}");
        }
    }
}
