//! How the platform is known: by the cluster's authority and the tunnel's name. What else is shown is named in the error.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::pki;

/// Verifies as rustls does, and keeps who issued what it refused.
#[derive(Debug)]
pub(super) struct Remembering {
    verifier: Arc<WebPkiServerVerifier>,
    refused: Mutex<Option<String>>,
}

impl Remembering {
    pub(super) fn new(verifier: Arc<WebPkiServerVerifier>) -> Self {
        Self { verifier, refused: Mutex::default() }
    }

    /// Who issued the certificate that was refused.
    pub(super) fn refused_issuer(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for Remembering {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        if verified.is_err() {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = pki::shown_issuer(end_entity);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// What a certificate's refusal means for whoever runs the machine: a sentence.
pub(super) fn explain(error: &CertificateError, place: &str, name: &str, issuer: Option<&str>) -> String {
    let by = issuer.map_or_else(String::new, |issuer| format!(" (its issuer: {issuer})"));
    match error {
        CertificateError::UnknownIssuer => format!(
            "{place} shows a certificate for {name} that is not of the cluster's authority{by}: something between here and the platform opens \
             TLS; have it let {name} through untouched"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "{place} shows a certificate of another name than {name}{by}: the platform does not know this tunnel, or it is another server"
            )
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate of {name} begins in the future: set this machine's clock")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate of {name} has ended: check this machine's clock, else the platform's control plane must renew it")
        }
        other => format!("the certificate that {place} shows for {name} is not good{by}: {other}"),
    }
}
