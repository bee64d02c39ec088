//! Certificate authorities and what they sign.
//!
//! Keys are ECDSA P-256. A leaf begins five minutes before it is signed (clocks differ), never outlives its authority, and
//! has a random serial of 128 bits. May import: `domain`.
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::domain::{Ambient, Timestamp};

/// How long before its signing a certificate begins.
pub const BACKDATED: Duration = Duration::from_secs(5 * 60);
/// How long an authority is good for.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(3650 * 24 * 3600);

/// What an authority is for; a certificate of one proves nothing to those who trust another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authority {
    /// Serving certificates of API server, controller-manager and scheduler.
    Server,
    /// Clients of the API server.
    Client,
    /// Serving certificates of kubelets.
    KubeletServing,
    /// The aggregator (`--requestheader-client-ca-file`).
    FrontProxy,
    /// etcd: its members and their client.
    Etcd,
    /// Calls between the API server and the terminator (revocation webhook).
    Terminator,
    /// The platform's own host.
    Platform,
}

impl Authority {
    /// Those that each cluster has of its own.
    pub const OF_A_CLUSTER: [Self; 6] = [Self::Server, Self::Client, Self::KubeletServing, Self::FrontProxy, Self::Etcd, Self::Terminator];

    /// The word for it, as in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::KubeletServing => "kubelet-serving",
            Self::FrontProxy => "front-proxy",
            Self::Etcd => "etcd",
            Self::Terminator => "terminator",
            Self::Platform => "platform",
        }
    }
}

/// An authority with its key.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct CertificateAuthority {
    /// What it is for.
    pub authority: Authority,
    /// Its certificate.
    pub cert_pem: String,
    /// Its key (PKCS #8).
    pub key_pem: String,
}

impl Drop for CertificateAuthority {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key_pem);
    }
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateAuthority").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// What a leaf is to say.
#[derive(Debug, Clone)]
pub struct LeafProfile {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations, Kubernetes' groups: at most two.
    pub organizations: Vec<String>,
    /// DNS names and IP addresses to prove; what parses as an address is one.
    pub sans: Vec<String>,
    /// For TLS servers.
    pub server_auth: bool,
    /// For TLS clients.
    pub client_auth: bool,
    /// How long it is good for.
    pub ttl: Duration,
}

/// A certificate that was signed.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// Which authority signed it.
    pub authority: Authority,
    /// Its subject's common name.
    pub common_name: String,
    /// The certificate.
    pub cert_pem: String,
    /// Its key (PKCS #8); empty where a CSR brought the key.
    pub key_pem: String,
    /// SHA-256 of its DER, in hex.
    pub fingerprint: String,
    /// When it begins (5 min before it was signed, against clocks that differ).
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

impl Issued {
    /// Kubernetes' credential id of a client certificate: `X509SHA256=<hex>`
    /// (`authentication.kubernetes.io/credential-id`, KEP-4193).
    pub fn credential_id(&self) -> String {
        format!("X509SHA256={}", self.fingerprint)
    }
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued")
            .field("authority", &self.authority)
            .field("common_name", &self.common_name)
            .field("fingerprint", &self.fingerprint)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// A new authority, good for ten years, that may sign leaves but no further authority.
    pub fn create(ambient: &Ambient, authority: Authority, common_name: &str) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("no key could be made for an authority")?;
        let begins = whole_seconds(ambient.now().minus(BACKDATED));
        let mut params = params(ambient, common_name, begins, begins.plus(BACKDATED).plus(AUTHORITY_LIFE));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let cert = params.self_signed(&key).with_context(|| format!("the authority {common_name} could not be signed"))?;
        Ok(Self { authority, cert_pem: cert.pem(), key_pem: key.serialize_pem() })
    }

    /// Makes a key and signs a leaf for it.
    pub fn issue(&self, ambient: &Ambient, profile: &LeafProfile) -> anyhow::Result<Issued> {
        let key = KeyPair::generate().context("no key could be made for a certificate")?;
        let mut issued = self.sign(ambient, &key, profile)?;
        issued.key_pem = key.serialize_pem();
        Ok(issued)
    }

    /// Signs a leaf for the key of a CSR. Of the CSR only the key is taken (after its signature is checked); the profile says the rest.
    pub fn sign_csr(&self, ambient: &Ambient, csr_pem: &str, profile: &LeafProfile) -> anyhow::Result<Issued> {
        self.sign(ambient, &super::csr::verified_key(csr_pem)?, profile)
    }

    fn sign(&self, ambient: &Ambient, key: &impl rcgen::PublicKeyData, profile: &LeafProfile) -> anyhow::Result<Issued> {
        let now = ambient.now();
        let (_, authority_ends) = validity(&self.cert_pem)?;
        let begins = whole_seconds(now.minus(BACKDATED));
        let ends = whole_seconds(now.plus(profile.ttl)).min(authority_ends);
        ensure!(ends > now, "the {} authority ended at {authority_ends}: it signs nothing any more", self.authority.as_str());

        let mut params = params(ambient, &profile.common_name, begins, ends);
        describe(&mut params, profile)?;
        let signer =
            KeyPair::from_pem(&self.key_pem).with_context(|| format!("the {} authority's key is damaged", self.authority.as_str()))?;
        let issuer = Issuer::from_ca_cert_pem(&self.cert_pem, &signer)
            .with_context(|| format!("the {} authority's certificate is damaged", self.authority.as_str()))?;
        let cert = params.signed_by(key, &issuer).with_context(|| format!("{} could not be signed", profile.common_name))?;
        Ok(Issued {
            authority: self.authority,
            common_name: profile.common_name.clone(),
            cert_pem: cert.pem(),
            key_pem: String::new(),
            fingerprint: hex::encode(Sha256::digest(cert.der())),
            not_before: begins,
            not_after: ends,
        })
    }
}

/// When a PEM certificate begins and ends (the first one, where several follow each other).
pub fn validity(cert_pem: &str) -> anyhow::Result<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(cert_pem.as_bytes()).context("this is no PEM certificate")?;
    let (_, cert) = x509_parser::parse_x509_certificate(&der).context("this certificate is damaged")?;
    let time = |at: x509_parser::time::ASN1Time| Timestamp::from_micros(at.timestamp().saturating_mul(1_000_000));
    Ok((time(cert.validity().not_before), time(cert.validity().not_after)))
}

/// Who issued a certificate that a stranger showed, for people: cut, and without what a terminal would obey. `None` where it does not say.
pub fn shown_issuer(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let shown: String = parsed.issuer().to_string().chars().filter(|character| !character.is_control()).take(200).collect();
    (!shown.is_empty()).then_some(shown)
}

/// Whether a certificate is due for renewal: less than a third of its life is left, or it has not begun (a clock that jumped).
pub fn renewal_due(now: Timestamp, not_before: Timestamp, not_after: Timestamp) -> bool {
    now < not_before || not_after.since(now) < not_after.since(not_before) / 3
}

/// What every certificate has: subject, validity, serial.
fn params(ambient: &Ambient, common_name: &str, begins: Timestamp, ends: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(begins);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(ends);
    params.serial_number = Some(SerialNumber::from(serial(ambient)));
    params.use_authority_key_identifier_extension = true;
    params
}

/// 128 random bits below a leading 1, so that the number is positive and of one length (RFC 5280, 4.1.2.2).
fn serial(ambient: &Ambient) -> Vec<u8> {
    let mut bytes = ambient.random::<17>();
    bytes[0] = 1;
    bytes.to_vec()
}

/// Puts a leaf's groups, names and uses into `params`.
fn describe(params: &mut CertificateParams, profile: &LeafProfile) -> anyhow::Result<()> {
    ensure!(!profile.common_name.is_empty(), "a certificate needs a common name");
    match profile.organizations.as_slice() {
        [] => {}
        [one] => params.distinguished_name.push(DnType::OrganizationName, one.as_str()),
        [one, two] => {
            params.distinguished_name.push(DnType::OrganizationName, one.as_str());
            // rcgen keeps one value for each type; by its number (X.520 organizationName) the type can be given once more.
            params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), two.as_str());
        }
        more => bail!("a certificate carries at most two organizations, not {}", more.len()),
    }
    params.subject_alt_names = profile.sans.iter().map(|san| subject_alt_name(san)).collect::<anyhow::Result<_>>()?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if profile.server_auth {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if profile.client_auth {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    ensure!(!params.extended_key_usages.is_empty(), "a certificate is for servers, for clients, or for both");
    Ok(())
}

fn subject_alt_name(san: &str) -> anyhow::Result<SanType> {
    if let Ok(address) = san.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let checked = san.strip_prefix("*.").unwrap_or(san);
    rustls_pki_types::DnsName::try_from(checked).map_err(|_| anyhow::anyhow!("{san:?} is neither an IP address nor a DNS name"))?;
    Ok(SanType::DnsName(san.try_into().with_context(|| format!("{san:?} is no DNS name"))?))
}

/// X.509 counts whole seconds.
fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_secs().saturating_mul(1_000_000))
}

fn since_epoch(at: Timestamp) -> Duration {
    at.since(Timestamp::from_micros(0))
}

#[cfg(test)]
mod tests;
