//! `tls.*`: the platform's own certificate. Imports nothing of ours beside the section.

use std::path::{Path, PathBuf};

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::section::section;
use crate::domain::Invalid;

section! {
    /// The certificate of the platform's own names. Without one, the platform's own CA signs it.
    pub struct Tls {
        /// A file with the certificate chain in PEM, the leaf first; read again when it changes.
        cert: Option<PathBuf> = None,
        /// A file with the leaf's private key in PEM.
        key: Option<PathBuf> = None,
    }
}

impl Tls {
    /// Both or none, each readable, and the key the certificate's.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let (cert, key) = match (&self.cert, &self.key) {
            (None, None) => return,
            (Some(cert), Some(key)) => (cert, key),
            (Some(_), None) => return problems.push(Invalid::new("tls.cert", "tls.key is missing beside it; give both or none")),
            (None, Some(_)) => return problems.push(Invalid::new("tls.key", "tls.cert is missing beside it; give both or none")),
        };
        let chain = certificates(cert).map_err(|message| problems.push(Invalid::new("tls.cert", message)));
        let signer = private_key(key).map_err(|message| problems.push(Invalid::new("tls.key", message)));
        if let (Ok(chain), Ok(signer)) = (chain, signer)
            && let Err(e) = rustls::sign::CertifiedKey::new(chain, signer).keys_match()
        {
            let message = format!("the key in {} does not belong to the certificate in {} ({e})", key.display(), cert.display());
            problems.push(Invalid::new("tls.key", message));
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(format!("{} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)", path.display())),
    }
}

fn private_key(path: &Path) -> Result<std::sync::Arc<dyn rustls::sign::SigningKey>, String> {
    let pem = zeroize::Zeroizing::new(read(path)?);
    let key = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| format!("{} holds no private key in PEM (-----BEGIN PRIVATE KEY-----, not encrypted)", path.display()))?;
    rustls::crypto::ring::sign::any_supported_type(&key)
        .map_err(|e| format!("the key in {} cannot be used ({e}); use ECDSA P-256 or P-384, Ed25519, or RSA", path.display()))
}
