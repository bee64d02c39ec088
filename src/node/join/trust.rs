//! How the platform is known: by the hash of its authority that the token carries, or by the machine's own authorities.
//!
//! With a hash, the authority's certificate is looked for among those that the server sends, and the server's own must then chain to it, be
//! valid now and be for that host. Nobody is trusted on sight. What a server sent is remembered by its issuer's name, so that an
//! intercepting proxy can be named.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::domain::join::Trust;
use crate::pki;

/// What was last seen of a server.
#[derive(Debug, Default)]
pub struct Seen {
    issuer: Mutex<Option<String>>,
}

impl Seen {
    /// Who issued the certificate that the server sent last, for people.
    pub fn issuer(&self) -> Option<String> {
        self.issuer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, certificate: &CertificateDer<'_>) {
        *self.issuer.lock().unwrap_or_else(PoisonError::into_inner) = pki::shown_issuer(certificate);
    }
}

/// The TLS configuration for a platform, and where the issuers of what it sends are noted.
///
/// # Errors
/// The machine's authorities cannot be read; the hash is none.
pub fn configuration(trust: &Trust) -> anyhow::Result<(ClientConfig, Arc<Seen>)> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(Seen::default());
    let known = match trust {
        Trust::System => {
            let verifier = rustls_platform_verifier::Verifier::new(provider.clone())
                .context("this machine's trusted authorities cannot be read: install the package ca-certificates")?;
            Known::System(Arc::new(verifier))
        }
        Trust::Authority(hash) => {
            let hash = hex::decode(hash).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            Known::Authority(hash.context("the token's hash of the platform's authority is none: copy the line again")?)
        }
    };
    let verifier = Verifier { known, provider: provider.clone(), seen: seen.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS can be set up")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((config, seen))
}

#[derive(Debug)]
enum Known {
    System(Arc<dyn ServerCertVerifier>),
    Authority([u8; 32]),
}

#[derive(Debug)]
struct Verifier {
    known: Known,
    provider: Arc<CryptoProvider>,
    seen: Arc<Seen>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.seen.note(end_entity);
        match &self.known {
            Known::System(verifier) => verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            Known::Authority(hash) => {
                let is_it = |sent: &&CertificateDer<'_>| bool::from(Sha256::digest(sent).as_slice().ct_eq(hash));
                let authority = intermediates.iter().find(is_it).ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
                let mut roots = RootCertStore::empty();
                roots.add(authority.clone().into_owned())?;
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
                    .build()
                    .map_err(|error| Error::General(error.to_string()))?;
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    struct Platform {
        authority: CertificateDer<'static>,
        leaf: CertificateDer<'static>,
    }

    fn platform(name: &str) -> Platform {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate().unwrap();
        let leaf =
            CertificateParams::new(vec!["platform.example".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap().der().clone();
        Platform { authority, leaf }
    }

    fn verify(
        hash: &[u8],
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        host: &str,
        at: u64,
    ) -> (Result<(), Error>, Option<String>) {
        let seen = Arc::new(Seen::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Verifier { known: Known::Authority(hash.try_into().unwrap()), provider, seen: seen.clone() };
        let name = ServerName::try_from(host).unwrap();
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        (verifier.verify_server_cert(leaf, chain, &name, &[], at).map(drop), seen.issuer())
    }

    #[test]
    fn the_authority_of_that_hash_alone_is_believed_and_only_for_its_own_hosts() {
        let (ours, theirs) = (platform("ours"), platform("Corporate Proxy"));
        let hash = Sha256::digest(&ours.authority);
        let now = 1_800_000_000;
        let chain = std::slice::from_ref(&ours.authority);
        assert_eq!(verify(&hash, &ours.leaf, chain, "platform.example", now).0, Ok(()));
        assert!(verify(&hash, &ours.leaf, chain, "other.example", now).0.is_err());
        assert!(verify(&hash, &ours.leaf, &[], "platform.example", now).0.is_err(), "the authority was not sent");
        let (refused, issuer) = verify(&hash, &theirs.leaf, std::slice::from_ref(&theirs.authority), "platform.example", now);
        assert_eq!(refused, Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
        assert!(issuer.unwrap().contains("Corporate Proxy"));
        let both = [theirs.authority.clone(), ours.authority.clone()];
        assert!(verify(&hash, &theirs.leaf, &both, "platform.example", now).0.is_err(), "who sends our authority does not become it");
        assert!(verify(&hash, &ours.authority, chain, "platform.example", now).0.is_err());
    }

    #[test]
    fn a_hash_that_is_none_is_refused() {
        assert!(configuration(&Trust::Authority("ab".into())).is_err());
    }
}
