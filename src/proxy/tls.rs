//! The platform's own TLS: what ends the connections that are for the platform.
//!
//! Guarantees: the certificate can change while connections are open and new ones arrive; a certificate that is broken, or that
//! does not belong to its key, never takes the place of one that works; a handshake has a deadline. May import: nothing of ours.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// How often given files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path} cannot be read: {error}; tls.cert and tls.key must name files that this user may read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// There is no certificate in the certificate's PEM text.
    #[error("the certificate is no PEM text with at least one CERTIFICATE block; give the certificate first, then its intermediates")]
    Certificate,
    /// There is no private key in the key's PEM text.
    #[error("the key is no PEM text with a PRIVATE KEY block; PKCS #8, PKCS #1 and SEC 1 are taken, without a passphrase")]
    Key,
    /// The two do not belong together, or use an algorithm that is not supported.
    #[error("certificate and key cannot be used together: {0}; check that the key is the one that the certificate was made for")]
    Pair(#[from] rustls::Error),
}

/// The platform's certificate, exchangeable, and the configuration that serves it.
pub struct PlatformTls {
    resolver: Arc<Exchangeable>,
    config: Arc<ServerConfig>,
    files: Option<Files>,
}

/// The files that a certificate came from.
struct Files {
    cert: PathBuf,
    key: PathBuf,
    seen: Mutex<Seen>,
}

/// What tells one version of the files from the next.
type Seen = [Option<(SystemTime, u64)>; 2];

impl PlatformTls {
    /// Serves the given PEM texts; [`PlatformTls::replace`] exchanges them.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        Self::new(certified(cert, key)?, None)
    }

    /// Serves the given files; [`PlatformTls::reload`] and [`PlatformTls::watch`] follow them.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        // Looked at before they are read: a change in between is then seen by the next look.
        let seen = Mutex::new(look(cert, key));
        let pair = certified(&read(cert)?, &read(key)?)?;
        Self::new(pair, Some(Files { cert: cert.into(), key: key.into(), seen }))
    }

    fn new(pair: CertifiedKey, files: Option<Files>) -> Result<Self, TlsError> {
        let resolver = Arc::new(Exchangeable(ArcSwap::from_pointee(pair)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&resolver) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { resolver, config: Arc::new(config), files })
    }

    /// The configuration, which follows every exchange by itself.
    pub const fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// The certificates that are served at present, the platform's own first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.resolver.0.load().cert.clone()
    }

    /// Serves the given PEM texts to connections from here on; on an error the present ones stay.
    pub fn replace(&self, cert: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.resolver.0.store(Arc::new(certified(cert, key)?));
        Ok(())
    }

    /// Reads the given files again, whether they changed or not; on an error the present certificate stays. Without given files
    /// there is nothing to do.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Some(files) = &self.files else { return Ok(()) };
        *files.seen.lock().unwrap_or_else(PoisonError::into_inner) = look(&files.cert, &files.key);
        self.replace(&read(&files.cert)?, &read(&files.key)?)
    }

    /// Follows the given files until `shutdown`: looks at them every 10 seconds, and tells of a broken change in the log.
    pub async fn watch(&self, shutdown: &CancellationToken) {
        while shutdown.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            match self.reload_if_changed() {
                Ok(true) => tracing::info!("the platform's certificate was read again"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "the platform's certificate changed and cannot be used; the present one is kept"),
            }
        }
    }

    fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let Some(files) = &self.files else { return Ok(false) };
        let unchanged = *files.seen.lock().unwrap_or_else(PoisonError::into_inner) == look(&files.cert, &files.key);
        if unchanged { Ok(false) } else { self.reload().map(|()| true) }
    }

    /// Does the TLS handshake on `stream`, within 10 seconds.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(Arc::clone(&self.config)).accept(stream)).await?
    }
}

/// Gives the same certificate to everybody, and lets it be exchanged.
#[derive(Debug)]
struct Exchangeable(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Exchangeable {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Unreadable { path: path.into(), error })
}

fn look(cert: &Path, key: &Path) -> Seen {
    [cert, key].map(|path| std::fs::metadata(path).ok().and_then(|found| Some((found.modified().ok()?, found.len()))))
}

fn certified(cert: &[u8], key: &[u8]) -> Result<CertifiedKey, TlsError> {
    let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>().map_err(|_| TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
    let provider: CryptoProvider = ring::default_provider();
    Ok(CertifiedKey::from_der(chain, key, &provider)?)
}

#[cfg(test)]
mod tests;
