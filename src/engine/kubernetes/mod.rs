//! What the platform does inside a control plane, through its API: default roles, bindings, ServiceAccount tokens, add-ons ([`addons`]), its
//! nodes ([`nodes`]), and waiting until a revocation is in force.
//!
//! Guarantees: every function may run twice, or be cut and run again, and ends the same; nothing is written where it already stands. The
//! caller's credential is a short-lived one of the platform's own, held in memory (`pki::leaves::platform_client`).
//! May import: `domain`, `pki`, `tunnel`, in [`nodes`] also `store` and `queue`, and `engine`'s own types.

pub mod addons;
mod authorization;
pub mod nodes;
mod roles;
mod tokens;

pub use authorization::{current_authorization_config_hash, wait_for_authorization_config};
pub use roles::{bind_default_roles, bind_namespace_role, bootstrap};
pub use tokens::{revoke_service_account_token, service_account_token};

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use kube::Client;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::EngineError;
use super::plan::ports;

/// The field manager of what the platform applies (server-side apply, KEP-555).
pub const FIELD_MANAGER: &str = "kubebyon";

/// How long the API server has to answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long a stream may be silent: longer than a watch lasts.
const SILENCE: Duration = Duration::from_secs(300);

/// How the platform reaches an API server.
#[derive(Clone, Copy)]
pub struct Access<'a> {
    /// The control plane's address.
    pub address: IpAddr,
    /// The name to verify where the certificate does not say the address.
    pub tls_server_name: Option<&'a str>,
    /// The authority of its serving certificate (PEM).
    pub server_ca_pem: &'a str,
    /// The platform's client certificate (PEM).
    pub cert_pem: &'a str,
    /// Its key (PEM).
    pub key_pem: &'a str,
}

/// Clients of one API server, by the same credential.
#[derive(Clone)]
pub struct Clients {
    /// Gives up on a request after 15 s.
    pub prompt: Client,
    /// For watches, logs and `exec`: gives up on what is silent for five minutes.
    pub patient: Client,
}

/// Clients of that API server. They ask no proxy of the environment.
pub fn clients(access: &Access<'_>) -> anyhow::Result<Clients> {
    Ok(Clients { prompt: client(access, TIMEOUT)?, patient: client(access, SILENCE)? })
}

fn client(access: &Access<'_>, answers_within: Duration) -> anyhow::Result<Client> {
    // kube takes the process's provider; an error says that one is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let url = format!("https://{}", SocketAddr::new(access.address, ports::API_SERVER));
    let mut config = kube::Config::new(url.parse().context("the control plane's address makes no URL")?);
    let roots = CertificateDer::pem_slice_iter(access.server_ca_pem.as_bytes());
    let roots: Vec<Vec<u8>> = roots.map(|c| c.map(|c| c.to_vec())).collect::<Result<_, _>>().context("the server authority is no PEM")?;
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    config.root_cert = Some(roots);
    config.auth_info.client_certificate_data = Some(encode(access.cert_pem));
    config.auth_info.client_key_data = Some(encode(access.key_pem).into());
    config.tls_server_name = access.tls_server_name.map(str::to_owned);
    config.connect_timeout = Some(Duration::from_secs(3));
    config.read_timeout = Some(answers_within);
    config.write_timeout = Some(TIMEOUT);
    config.reset_reader_on_write = true;
    Client::try_from(config).context("no client of the API server can be made")
}

/// What went wrong, with what was being done. A refusal of the object itself does not go away by asking again.
fn failed(what: impl std::fmt::Display, error: kube::Error) -> EngineError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
            EngineError::Fatal(anyhow::anyhow!("the API server refuses {what}: {}", status.message))
        }
        kube::Error::Api(status) => EngineError::Retry(anyhow::anyhow!("the API server refuses {what} for now: {}", status.message)),
        other => EngineError::Retry(anyhow::Error::new(other).context(format!("the API server does not answer for {what}"))),
    }
}

/// Whether an error says that the object is not there.
fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether an error says that the object is there already.
fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}
