//! `kubebyon pod-check`: what a pod finds of its cluster, for the verification of a node. Hidden: only the platform runs it.
//!
//! Prints one line of JSON for each step, and then waits, so that a command can be run in its pod.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use hickory_resolver::TokioResolver;
use tokio::time::Instant;

use crate::engine::kubernetes::nodes::verify::{API_SERVER_REACHED, NAME_RESOLVED};
use crate::tunnel::protocol::Aspect;

/// How long the API server may take to be reached: rules for Services follow pods by some seconds.
const REACHED_WITHIN: Duration = Duration::from_secs(45);
/// How long DNS may take: its image may still be on its way.
const RESOLVED_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);
/// How long it stays, unless it is asked to go.
const STAYS: Duration = Duration::from_secs(240);
/// Where Kubernetes puts a pod's ServiceAccount.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Runs the steps, and waits.
pub async fn run() -> anyhow::Result<()> {
    let mut asked_to_go = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let work = async {
        if step(API_SERVER_REACHED, REACHED_WITHIN, reach_api_server).await {
            step(NAME_RESOLVED, RESOLVED_WITHIN, resolve).await;
        }
        tokio::time::sleep(STAYS).await;
    };
    tokio::select! {
        () = work => {}
        _ = asked_to_go.recv() => {}
    }
    Ok(())
}

/// Tries until it goes well or the time is up, and tells.
async fn step<F: Future<Output = anyhow::Result<String>>>(kind: &str, within: Duration, attempt: impl Fn() -> F) -> bool {
    let end = Instant::now() + within;
    let outcome = loop {
        match attempt().await {
            Err(_) if Instant::now() + PAUSE < end => tokio::time::sleep(PAUSE).await,
            other => break other,
        }
    };
    let status = outcome.is_ok();
    let (reason, message) = match outcome {
        Ok(message) => (kind.to_owned(), message),
        Err(error) => (format!("Not{kind}"), format!("{error:#}")),
    };
    let told = Aspect { kind: kind.to_owned(), status, reason, message };
    super::output::line(&serde_json::to_string(&told).unwrap_or_default());
    status
}

/// Reaches the API server by its Service, with the pod's own trust and token.
async fn reach_api_server() -> anyhow::Result<String> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").context("Kubernetes did not tell where the API server is")?;
    let port = std::env::var("KUBERNETES_SERVICE_PORT").unwrap_or_else(|_| "443".to_owned());
    let authority = std::fs::read(format!("{ACCOUNT}/ca.crt")).context("the pod has no authority to trust")?;
    let token = std::fs::read_to_string(format!("{ACCOUNT}/token")).context("the pod has no token")?;
    let url = format!("{}/livez", crate::domain::access::url(&host, port.parse().context("the API server's port is no number")?));
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&authority).context("the pod's authority is no certificate")?])
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()?;
    let answer = client.get(&url).bearer_auth(token.trim()).send().await;
    let answer = answer.with_context(|| format!("a pod here does not reach the API server at {host}:{port}: is kube-proxy well?"))?;
    let status = answer.status();
    ensure!(status.is_success(), "the API server at {host}:{port} answers {status}");
    Ok(format!("a pod reaches the API server at {host}:{port}"))
}

/// Resolves the API server's name by the resolver that the pod was given.
async fn resolve() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/etc/resolv.conf").context("the pod has no /etc/resolv.conf")?;
    let server = words_of(&text, "nameserver").next().context("the pod's /etc/resolv.conf names no resolver")?.to_owned();
    let name = format!("kubernetes.default.svc.{}.", domain(&text));
    let mut resolver = TokioResolver::builder_tokio().context("the pod's /etc/resolv.conf cannot be read")?;
    resolver.options_mut().timeout = Duration::from_secs(3);
    resolver.options_mut().attempts = 1;
    let resolver = resolver.build()?;
    let found = resolver.lookup_ip(name.as_str()).await;
    let found = found.with_context(|| format!("{server} does not resolve {name} for a pod here: is CoreDNS well?"))?;
    let address = found.iter().next().with_context(|| format!("{server} gives no address for {name}"))?;
    Ok(format!("{name} resolves to {address} (by {server})"))
}

/// The words behind a keyword of `resolv.conf(5)`.
fn words_of<'a>(text: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.trim().strip_prefix(keyword)).flat_map(str::split_whitespace)
}

/// The cluster's domain: what stands behind `svc.` in the names that are searched.
fn domain(text: &str) -> &str {
    words_of(text, "search").find_map(|name| name.strip_prefix("svc.")).unwrap_or("cluster.local").trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clusters_domain_is_read_from_what_is_searched() {
        let text = "search kubebyon-system.svc.k8s.example svc.k8s.example k8s.example lan\nnameserver 10.96.0.10\noptions ndots:5\n";
        assert_eq!(domain(text), "k8s.example");
        assert_eq!(words_of(text, "nameserver").collect::<Vec<_>>(), ["10.96.0.10"]);
        assert_eq!(domain("nameserver 10.0.0.1\n"), "cluster.local");
    }
}
