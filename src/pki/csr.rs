//! Certificate signing requests (PKCS #10): made, and checked before anything is signed for them.
//!
//! May import: `domain`.
use anyhow::{Context as _, ensure};
use rcgen::{CertificateParams, DnType, KeyPair, SubjectPublicKeyInfo};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

/// The longest CSR that is looked at, in bytes of PEM.
pub const MAX_CSR_BYTES: usize = 16 * 1024;

/// A new key and a CSR for it: (key PEM, CSR PEM).
pub fn key_and_csr(common_name: &str) -> anyhow::Result<(String, String)> {
    let key = KeyPair::generate().context("no key could be made")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let csr = params.serialize_request(&key).context("no CSR could be made")?;
    Ok((key.serialize_pem(), csr.pem().context("no CSR could be made")?))
}

/// The public key of a CSR whose signature proves that its sender holds the private one. Keys are ECDSA P-256 or P-384;
/// all else that the CSR says is left aside.
pub(super) fn verified_key(csr_pem: &str) -> anyhow::Result<SubjectPublicKeyInfo> {
    ensure!(csr_pem.len() <= MAX_CSR_BYTES, "the CSR has {} bytes; at most {MAX_CSR_BYTES} are read", csr_pem.len());
    let der = CertificateSigningRequestDer::from_pem_slice(csr_pem.as_bytes())
        .context("this is no CSR: give one PEM block CERTIFICATE REQUEST")?;
    let (rest, csr) = X509CertificationRequest::from_der(&der).context("this CSR is damaged")?;
    ensure!(rest.is_empty(), "this CSR is damaged: bytes follow it");
    csr.verify_signature().context("the CSR's signature does not match its key")?;
    let key =
        SubjectPublicKeyInfo::from_der(csr.certification_request_info.subject_pki.raw).context("the CSR's key is of no known kind")?;
    let algorithm = rcgen::PublicKeyData::algorithm(&key);
    ensure!(
        algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 || algorithm == &rcgen::PKCS_ECDSA_P384_SHA384,
        "the CSR's key must be ECDSA P-256 or P-384"
    );
    Ok(key)
}
