//! Certificate authorities and what they sign. Keys are ECDSA P-256.
use std::time::Duration;

use crate::domain::{Ambient, Timestamp};

/// What an authority is for; a certificate of one proves nothing to those who trust another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Authority {
    /// Serving certificates of API server, controller-manager, scheduler and terminator.
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
    /// The word for it, as in the ledger.
    pub const fn as_str(self) -> &'static str {
        todo!()
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

/// What a leaf is to say.
#[derive(Debug, Clone)]
pub struct LeafProfile {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations: Kubernetes' groups.
    pub organizations: Vec<String>,
    /// DNS names and IP addresses to prove.
    pub sans: Vec<String>,
    /// For TLS servers.
    pub server_auth: bool,
    /// For TLS clients.
    pub client_auth: bool,
    /// How long it is good for.
    pub ttl: Duration,
}

/// A certificate that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
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
        todo!()
    }
}

impl CertificateAuthority {
    /// A new authority, good for ten years.
    pub fn create(ambient: &Ambient, authority: Authority, common_name: &str) -> anyhow::Result<Self> {
        todo!()
    }
    /// Makes a key and signs a leaf for it.
    pub fn issue(&self, ambient: &Ambient, profile: &LeafProfile) -> anyhow::Result<Issued> {
        todo!()
    }
    /// Signs a leaf for the key of a CSR. Of the CSR only the key is taken (after its signature is checked); the profile says the rest.
    pub fn sign_csr(&self, ambient: &Ambient, csr_pem: &str, profile: &LeafProfile) -> anyhow::Result<Issued> {
        todo!()
    }
}

/// A new key and a CSR for it: (key PEM, CSR PEM).
pub fn key_and_csr(common_name: &str) -> anyhow::Result<(String, String)> {
    todo!()
}

/// When a PEM certificate begins and ends.
pub fn validity(cert_pem: &str) -> anyhow::Result<(Timestamp, Timestamp)> {
    todo!()
}

/// Whether a certificate is due for renewal: less than a third of its life is left, or it has not begun (a clock that jumped).
pub fn renewal_due(now: Timestamp, not_before: Timestamp, not_after: Timestamp) -> bool {
    todo!()
}
