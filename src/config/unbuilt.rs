//! What the configuration can say and this release does not do: asked for, it is refused rather than ignored. May import: `domain`.

use super::value::Listener;
use super::{AccessLog, AccessLogMode, Config, ConfigMode, Provider, Transport};
use crate::domain::{EngineKind, Invalid};

/// Adds a sentence for each thing that is asked for and not there.
pub fn check(config: &Config, problems: &mut Vec<Invalid>) {
    let listens = |listener: Listener| listener.address().is_some();
    let records = AccessLog { mode: AccessLogMode::All, ..config.access_log.clone() } != AccessLog::default();
    let asked = [
        ("access_log.mode", config.access_log.mode == AccessLogMode::Sampled, "a record of connections comes", "leave it out"),
        ("access_log.keep", records, "a record of connections comes", "leave it out"),
        ("http.trusted_proxies", !config.http.trusted_proxies.is_empty(), "plain HTTP behind proxies comes", "leave it empty"),
        ("dns.resolvers", !config.dns.resolvers.is_empty(), "a choice of resolvers comes", "leave it empty"),
        ("cors.allowed_origins", !config.cors.allowed_origins.is_empty(), "calls from browsers of other sites come", "leave it empty"),
        ("database.dsn", !config.database.dsn.is_empty(), "PostgreSQL comes", "leave it empty for SQLite"),
        ("queue.transport", config.queue.transport != Transport::Embedded, "this transport comes", "use embedded"),
        ("engine.default", config.engine.default != EngineKind::Local, "this engine comes", "use local"),
        ("kubernetes.config_mode", config.kubernetes.config_mode != ConfigMode::None, "host clusters come", "use none"),
        (
            "public_access.provider",
            config.public_access.provider == Provider::Gatewayapi,
            "Gateways come",
            "use haproxy, the built-in front door",
        ),
        ("routes.plan_file", config.routes.plan_file.is_some(), "a route agent that reads plans comes", "leave it out"),
        ("internal_listen", listens(config.internal_listen), "a listener for Gateways comes", "leave it out"),
        ("webhook.listen", listens(config.webhook.listen), "an admission webhook comes", "leave it out"),
        ("metrics.api_listen", listens(config.metrics.api_listen), "metrics come", "leave it out"),
        ("metrics.worker_listen", listens(config.metrics.worker_listen), "metrics come", "leave it out"),
        ("egress.public_hosts", !config.egress.public_hosts.is_empty(), "egress to public names comes", "leave it empty"),
        ("workload_domain", config.workload_domain.is_some(), "public names for applications come", "leave it out"),
        ("proxy_protocol.accept_from", !config.proxy_protocol.accept_from.is_empty(), "the PROXY protocol comes", "leave it empty"),
        ("proxy_protocol.send", config.proxy_protocol.send, "the PROXY protocol comes", "use false"),
        ("passthrough", !config.passthrough.is_empty(), "handing on others' names comes", "leave it empty"),
    ];
    for (key, asked, what, instead) in asked {
        // A value that is wrong in itself is told first.
        if asked && !problems.iter().any(|problem| problem.field == key) {
            problems.push(Invalid::new(key, format!("{what} with a later release; {instead}")));
        }
    }
}
