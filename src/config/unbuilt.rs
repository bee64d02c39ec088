//! What the configuration can say and this release does not do: asked for, it is refused rather than ignored. May import: `domain`.

use super::value::Listener;
use super::{AccessLog, AccessLogMode, Config, ConfigMode, Provider, Transport};
use crate::domain::{EngineKind, Invalid};

/// A key that asks for something that is not there.
struct Row {
    key: &'static str,
    /// Whether the configuration asks for it.
    asked: bool,
    what: &'static str,
    /// What to write instead.
    instead: &'static str,
}

/// Every such key, and whether `config` asks for it.
fn rows(config: &Config) -> Vec<Row> {
    let listens = |listener: Listener| listener.address().is_some();
    let records = AccessLog { mode: AccessLogMode::All, ..config.access_log.clone() } != AccessLog::default();
    let rows = [
        ("access_log.mode", config.access_log.mode == AccessLogMode::Sampled, "a record of connections comes", "leave it out"),
        ("access_log.keep", records, "a record of connections comes", "leave it out"),
        ("http.trusted_proxies", !config.http.trusted_proxies.is_empty(), "plain HTTP behind proxies comes", "leave it empty"),
        ("dns.resolvers", !config.dns.resolvers.is_empty(), "a choice of resolvers comes", "leave it empty"),
        ("cors.allowed_origins", !config.cors.allowed_origins.is_empty(), "calls from browsers of other sites come", "leave it empty"),
        ("database.dsn", !config.database.dsn.is_empty(), "PostgreSQL comes", "leave it empty for SQLite"),
        ("queue.transport", config.queue.transport != Transport::Embedded, "this transport comes", "use embedded"),
        ("engine.default", config.engine.default != EngineKind::Local, "this engine comes", "use local"),
        ("kubernetes.config_mode", config.kubernetes.config_mode != ConfigMode::None, "host clusters come", "use none"),
        ("kubernetes.kubeconfig", config.kubernetes.kubeconfig.is_some(), "host clusters come", "leave it out"),
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
        ("workload_domain", config.workload_domain.is_some(), "public names for applications come", "leave it out"),
        ("proxy_protocol.accept_from", !config.proxy_protocol.accept_from.is_empty(), "the PROXY protocol comes", "leave it empty"),
        ("proxy_protocol.send", config.proxy_protocol.send, "the PROXY protocol comes", "use false"),
        ("passthrough", !config.passthrough.is_empty(), "handing on others' names comes", "leave it empty"),
    ];
    rows.into_iter().map(|(key, asked, what, instead)| Row { key, asked, what, instead }).collect()
}

/// Sections and keys that are checked, and that no part of this release reads; those that are refused as well are in [`rows`].
const WITHOUT_EFFECT: [&str; 8] = ["rabbitmq", "kubernetes", "hosted", "vcluster", "platform", "gateway_api", "managed_ingress", "routes"];

/// What the reference says of a key that this release does nothing with; none of all others.
pub fn remark(key: &str) -> Option<String> {
    if let Some(row) = rows(&Config::default()).into_iter().find(|row| row.key == key) {
        return Some(match row.instead.strip_prefix("use ") {
            Some(only) => format!("Not in this release: refused when set to anything but {only}."),
            None => format!("Not in this release: refused when set; {}.", row.instead),
        });
    }
    let section = key.split('.').next().unwrap_or(key);
    WITHOUT_EFFECT.contains(&section).then(|| "Not in this release: checked, and without effect.".to_owned())
}

/// Adds a sentence for each thing that is asked for and not there.
pub fn check(config: &Config, problems: &mut Vec<Invalid>) {
    for Row { key, asked, what, instead } in rows(config) {
        // A value that is wrong in itself is told first.
        if asked && !problems.iter().any(|problem| problem.field == key) {
            problems.push(Invalid::new(key, format!("{what} with a later release; {instead}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn every_remark_is_of_a_key_that_there_is() {
        assert!(rows(&Config::default()).iter().all(|row| keys::find(row.key).is_some_and(|key| !key.is_section) && !row.asked));
        assert!(WITHOUT_EFFECT.iter().all(|section| keys::find(section).is_some_and(|key| key.is_section)));
    }

    #[test]
    fn what_is_refused_says_so_and_what_works_has_no_remark() {
        assert!(remark("database.dsn").is_some_and(|remark| remark.contains("refused when set; leave it empty for SQLite")));
        assert!(remark("engine.default").is_some_and(|remark| remark.ends_with("refused when set to anything but local.")));
        assert!(remark("routes.plan_file").is_some_and(|remark| remark.contains("refused")));
        assert!(remark("hosted.images").is_some_and(|remark| remark.contains("without effect")));
        assert!(["listen", "platform_host", "local.uid_range", "log.level"].iter().all(|key| remark(key).is_none()));
    }
}
