//! Plain HTTPS to a control plane's programs: health and etcd's gateway, where no Kubernetes client is needed.
//!
//! Guarantees: only the given authority is trusted, no proxy of the environment is asked, redirects are not followed, every request and
//! every body is bounded. May import: nothing of ours.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The most that is read of an answer.
const MAX_BODY: usize = 256 << 10;

/// A certificate and its key, both PEM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    pub(super) cert_pem: &'a str,
    pub(super) key_pem: &'a str,
}

/// A client that trusts `ca_pem` alone and gives up on a request after `timeout`.
pub(super) fn client(ca_pem: &str, identity: Option<Identity<'_>>, timeout: Duration) -> anyhow::Result<reqwest::Client> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.context("an authority's certificate is no PEM")?).context("an authority's certificate is no X.509")?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { cert_pem, key_pem }) => {
            let chain =
                CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect::<Result<_, _>>().context("a client certificate is no PEM")?;
            let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).context("a client's key is no PEM")?;
            config.with_client_auth_cert(chain, key).context("a client certificate does not fit its key")?
        }
    };
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(3).min(timeout))
        .timeout(timeout)
        .pool_max_idle_per_host(1)
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
        .context("no HTTPS client can be made")
}

/// Status and body of an answer; a body beyond the bound is refused.
pub(super) async fn text(mut response: reqwest::Response) -> anyhow::Result<(u16, String)> {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        anyhow::ensure!(body.len() + chunk.len() <= MAX_BODY, "an answer is longer than {MAX_BODY} bytes");
        body.extend_from_slice(&chunk);
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Why a request got no answer, for people.
pub(super) fn why(error: &reqwest::Error) -> String {
    let mut root: &dyn std::error::Error = error;
    while let Some(source) = root.source() {
        root = source;
    }
    if error.is_timeout() {
        "it did not answer in time; it may be starting, or the machine is overloaded".to_owned()
    } else if error.is_connect() {
        format!("it cannot be reached ({root}); it is not running, or still starting")
    } else {
        format!("it did not answer properly ({root})")
    }
}
