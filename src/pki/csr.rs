//! Certificate signing requests (PKCS #10): made, and checked before anything is signed for them.
//!
//! May import: `domain`.
use std::net::IpAddr;

use anyhow::{Context as _, ensure};
use rcgen::{CertificateParams, DnType, KeyPair, SubjectPublicKeyInfo};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509CertificationRequest};

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

/// The public key of a CSR (DER of the SubjectPublicKeyInfo), after its signature proved that its sender holds the private one.
///
/// # Errors
/// It is no CSR, its signature is another's, or its key is neither ECDSA P-256 nor P-384.
pub fn public_key_der(csr_pem: &str) -> anyhow::Result<Vec<u8>> {
    Ok(rcgen::PublicKeyData::subject_public_key_info(&verified_key(csr_pem)?))
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

/// What a CSR says of its subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Described {
    /// Its common names.
    pub common_names: Vec<String>,
    /// Its organizations.
    pub organizations: Vec<String>,
    /// DNS names that it asks for.
    pub dns_names: Vec<String>,
    /// IP addresses that it asks for.
    pub addresses: Vec<IpAddr>,
    /// What else it says: further parts of the subject and names of other kinds, for people.
    pub others: Vec<String>,
}

/// What a CSR says, after its signature and its key are checked.
///
/// # Errors
/// It is no CSR, is damaged, or its key is of a kind that is not signed.
pub fn describe(csr_pem: &str) -> anyhow::Result<Described> {
    verified_key(csr_pem)?;
    let der = CertificateSigningRequestDer::from_pem_slice(csr_pem.as_bytes()).context("this is no CSR")?;
    let (_, csr) = X509CertificationRequest::from_der(&der).context("this CSR is damaged")?;
    let mut described = Described::default();
    for attribute in csr.certification_request_info.subject.iter_attributes() {
        let text = || attribute.as_str().map(str::to_owned).context("the CSR's subject holds what is no text");
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            described.common_names.push(text()?);
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            described.organizations.push(text()?);
        } else {
            described.others.push(format!("subject {}", attribute.attr_type().to_id_string()));
        }
    }
    for extension in csr.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => described.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => match **bytes {
                    [a, b, c, d] => described.addresses.push(IpAddr::from([a, b, c, d])),
                    _ => match <[u8; 16]>::try_from(*bytes) {
                        Ok(bytes) => described.addresses.push(IpAddr::from(bytes)),
                        Err(_) => described.others.push("an address of an odd length".to_owned()),
                    },
                },
                other => described.others.push(format!("{other:?}").chars().take(80).collect()),
            }
        }
    }
    Ok(described)
}
