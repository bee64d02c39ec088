//! The sections of the configuration: their keys, defaults and checks.
//!
//! Each `validate()` looks at its own section alone; what stands between sections is checked in `config::check`.
//! May import: `domain`.

mod access_log;
mod assets;
mod database;
mod engine;
mod gateway;
mod kubernetes;
mod limits;
mod log;
mod network;
mod nodes;
mod passthrough;
mod queue;
mod routes;
mod site;
mod tls;

pub use access_log::{AccessLog, AccessLogMode};
pub use assets::Assets;
pub use database::Database;
pub use engine::{Engine, Local};
pub use gateway::{
    AddressMode, CertManager, GatewayApi, GatewayClassProfiles, IngressChart, ManagedIngress, NodeAddressType, Platform, PlatformBootstrap,
    PlatformGateway, PodCidrRoute, PodRouteMode, Provider, PublicAccess, SelfManagedCertificates, WorkloadGateway, WorkloadTls,
};
pub use kubernetes::{ConfigMode, Hosted, Kubernetes, Vcluster, VclusterChart};
pub use limits::{Limits, Retention};
pub use log::{Log, LogFormat};
pub use network::{Dns, Egress, Http, ProxyProtocol, Webhook};
pub use nodes::Nodes;
pub use passthrough::{Passthrough, validate as validate_passthrough};
pub use queue::{Queue, Rabbitmq, Transport, validate as validate_queue};
pub use routes::Routes;
pub use site::{Cors, Metrics, Session};
pub use tls::Tls;

/// Whether a text is an HTTP URL with a host, and without signs that have no place in one.
fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.is_empty() && !rest.starts_with(['/', ':']) && !rest.contains(|c: char| c.is_whitespace() || "\"<>?#@".contains(c))
    })
}
