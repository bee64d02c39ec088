//! What the configuration can say and this release does not do: asked for, it is refused rather than ignored. May import: `domain`.

use super::value::Listener;
use super::{Config, ConfigMode, Provider, Transport};
use crate::domain::{EngineKind, Invalid};

/// Adds a sentence for each thing that is asked for and not there.
pub fn check(config: &Config, problems: &mut Vec<Invalid>) {
    let listens = |listener: Listener| listener.address().is_some();
    let asked = [
        ("database.dsn", !config.database.dsn.is_empty(), "PostgreSQL", "leave it empty for SQLite"),
        ("queue.transport", config.queue.transport != Transport::Embedded, "this transport", "use embedded"),
        ("engine.default", config.engine.default != EngineKind::Local, "this engine", "use local"),
        ("kubernetes.config_mode", config.kubernetes.config_mode != ConfigMode::None, "host clusters", "use none"),
        (
            "public_access.provider",
            config.public_access.provider == Provider::Gatewayapi,
            "Gateways",
            "use haproxy, the built-in front door",
        ),
        ("routes.plan_file", config.routes.plan_file.is_some(), "a route agent that reads plans", "leave it out"),
        ("internal_listen", listens(config.internal_listen), "a listener for Gateways", "leave it out"),
        ("webhook.listen", listens(config.webhook.listen), "an admission webhook", "leave it out"),
        ("metrics.api_listen", listens(config.metrics.api_listen), "metrics", "leave it out"),
        ("metrics.worker_listen", listens(config.metrics.worker_listen), "metrics", "leave it out"),
        ("egress.public_hosts", !config.egress.public_hosts.is_empty(), "egress to public names", "leave it empty"),
        ("workload_domain", config.workload_domain.is_some(), "public names for applications", "leave it out"),
        ("proxy_protocol.accept_from", !config.proxy_protocol.accept_from.is_empty(), "the PROXY protocol", "leave it empty"),
        ("proxy_protocol.send", config.proxy_protocol.send, "the PROXY protocol", "use false"),
        ("passthrough", !config.passthrough.is_empty(), "passing on of others' names", "leave it empty"),
    ];
    for (key, asked, what, instead) in asked {
        if asked {
            problems.push(Invalid::new(key, format!("this release has not {what} yet; {instead}")));
        }
    }
}
