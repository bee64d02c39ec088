//! Waiting until an API server works by a new authorization configuration.
//!
//! The API server tells the hash of the file that it works by as a metric
//! (`apiserver_authorization_config_controller_last_config_info`, Kubernetes 1.34 and newer). A file that differs only in how it is written
//! is not taken as new there, so its hash never shows: write the file only when what it says has changed.

use std::time::Duration;

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use super::{EngineError, failed};
use crate::tunnel::authorization_config_hash;

const PREFIX: &str = "apiserver_authorization_config_controller_";
/// The most that is read of the metrics.
const MAX_METRICS: usize = 64 << 20;

/// What the API server says of its authorization configuration.
#[derive(Debug, Default, PartialEq)]
struct Report {
    hash: Option<String>,
    last_success: f64,
    last_failure: f64,
}

/// The hash (`sha256:<hex>`) of the authorization configuration that the API server works by; absent where it tells none.
pub async fn current_authorization_config_hash(client: &Client) -> Result<Option<String>, EngineError> {
    Ok(report(client).await?.hash)
}

/// Returns when the API server works by exactly `yaml`, or fails when it does not within `deadline`.
pub async fn wait_for_authorization_config(client: &Client, yaml: &str, deadline: Duration) -> Result<(), EngineError> {
    let wanted = authorization_config_hash(yaml);
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(100);
    loop {
        let last = match report(client).await {
            Ok(report) if report.hash.as_deref() == Some(wanted.as_str()) => return Ok(()),
            other => other,
        };
        if Instant::now() + pause >= end {
            return Err(EngineError::Retry(not_in_force(last, deadline)));
        }
        tokio::time::sleep(pause).await;
        // The metrics are a large answer: ask less and less often.
        pause = (pause * 3 / 2).min(Duration::from_secs(2));
    }
}

fn not_in_force(last: Result<Report, EngineError>, deadline: Duration) -> anyhow::Error {
    let seconds = deadline.as_secs();
    match last {
        Err(error) => anyhow::anyhow!("the API server does not say which authorization configuration it works by: {error:#}"),
        Ok(report) if report.last_failure > report.last_success => {
            anyhow::anyhow!("the API server refuses the new authorization configuration and goes on by the old one; its log says why")
        }
        Ok(_) => anyhow::anyhow!("the API server has not taken up the new authorization configuration within {seconds} s"),
    }
}

async fn report(client: &Client) -> Result<Report, EngineError> {
    let request = hyper::Request::get("/metrics").body(Body::empty()).context("a request for /metrics")?;
    let response = client.send(request).await.map_err(|e| failed("its metrics", e))?;
    let status = response.status();
    if !status.is_success() {
        return Err(EngineError::Retry(anyhow::anyhow!("the API server answers {status} for its metrics")));
    }
    let mut body = response.into_body();
    let mut lines = Lines::default();
    let mut report = Report::default();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|e| failed("its metrics", e))?.into_data() else { continue };
        read += data.len();
        if read > MAX_METRICS {
            return Err(EngineError::Retry(anyhow::anyhow!("the API server's metrics are longer than {MAX_METRICS} bytes")));
        }
        lines.feed(&data, |line| take(&mut report, line));
    }
    Ok(report)
}

/// Cuts what comes in pieces into lines, and keeps no more than the line it is in.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn feed(&mut self, data: &[u8], mut each: impl FnMut(&str)) {
        let mut parts = data.split(|&b| b == b'\n');
        let mut part = parts.next().unwrap_or_default();
        for next in parts {
            self.0.extend_from_slice(part);
            if let Ok(line) = std::str::from_utf8(&self.0) {
                each(line);
            }
            self.0.clear();
            part = next;
        }
        self.0.extend_from_slice(part);
    }
}

/// Takes what a line of the metrics says of the authorization configuration.
fn take(report: &mut Report, line: &str) {
    let Some(line) = line.strip_prefix(PREFIX) else { return };
    let value = || line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
    if line.starts_with("last_config_info{") {
        report.hash = label(line, "hash").map(str::to_owned);
    } else if line.starts_with("automatic_reload_last_timestamp_seconds{") {
        match label(line, "status") {
            Some("success") => report.last_success = value(),
            Some("failure") => report.last_failure = value(),
            _ => {}
        }
    }
}

/// The value of a label; those read here hold neither quotes nor commas.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = line.split_once('{')?;
    let (labels, _) = labels.split_once('}')?;
    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# HELP apiserver_authorization_config_controller_last_config_info x
apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds{apiserver_id_hash=\"sha256:aa\",status=\"failure\"} 1.7e+09
apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds{apiserver_id_hash=\"sha256:aa\",status=\"success\"} 1.6e+09
apiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:bb\"} 1
apiserver_authentication_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:cc\"} 1
";

    fn read(text: &str, piece: usize) -> Report {
        let (mut lines, mut report) = (Lines::default(), Report::default());
        text.as_bytes().chunks(piece).for_each(|data| lines.feed(data, |line| take(&mut report, line)));
        report
    }

    #[test]
    fn reads_the_hash_of_the_configuration_however_the_answer_is_cut() {
        let whole = Report { hash: Some("sha256:bb".into()), last_success: 1.6e9, last_failure: 1.7e9 };
        for piece in [1, 7, 64, METRICS.len()] {
            assert_eq!(read(METRICS, piece), whole, "pieces of {piece}");
        }
        assert_eq!(read("go_goroutines 7\n", 3), Report::default());
    }

    #[test]
    fn tells_a_refused_configuration_from_a_slow_one() {
        let refused = not_in_force(Ok(read(METRICS, 64)), Duration::from_secs(5));
        assert!(refused.to_string().contains("refuses"), "{refused}");
        let slow = not_in_force(Ok(Report::default()), Duration::from_secs(5));
        assert!(slow.to_string().contains("within 5 s"), "{slow}");
    }
}
