//! What a joining machine asks of the platform, over the connection that its token pins. Proxies of the environment are followed.
//!
//! Every failure is a sentence that says whose it is: the name, the network, a proxy that puts its own certificate in between, the clock,
//! or the platform's refusal in its own words.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use reqwest::header::{CONTENT_RANGE, DATE, RANGE, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use rustls::CertificateError;
use serde::de::DeserializeOwned;

use super::trust::{self, Seen};
use crate::domain::join::{JoinRequest, Joined, StepReport, Trust};
use crate::domain::{Ambient, Timestamp};
use crate::node::preflight::CLOCK_REMEDY;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may stand still.
const STALL: Duration = Duration::from_secs(60);
/// How long the platform may be asked again while it is not there.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that an answer of JSON has, in bytes.
const MAX_ANSWER: usize = 4 << 20;
/// How long telling of a step may take.
const REPORT: Duration = Duration::from_secs(5);

/// A client of one platform.
pub struct Client {
    http: reqwest::Client,
    server: String,
    seen: Arc<Seen>,
    ambient: Ambient,
}

/// A refusal in the platform's own words.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// The problem's `type`, such as `/problems/name-taken`.
    pub kind: String,
    /// A sentence with what to do.
    pub detail: String,
}

#[derive(serde::Deserialize)]
struct Problem {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: Option<String>,
}

impl Client {
    /// A client for the server of a token.
    ///
    /// # Errors
    /// The URL is none; TLS cannot be set up.
    pub fn new(server: &str, trust: &Trust, ambient: &Ambient) -> anyhow::Result<Self> {
        let url = reqwest::Url::parse(server).with_context(|| format!("the token names {server:?}, which is no URL"))?;
        if url.scheme() != "https" || url.host_str().is_none() {
            bail!("the token names {server:?}; a platform is joined over https alone");
        }
        let (config, seen) = trust::configuration(trust)?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("kubebyon/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(STALL)
            .redirect(reqwest::redirect::Policy::none())
            .https_only(true)
            .tls_backend_preconfigured(config)
            .build()
            .context("no HTTPS client can be made")?;
        Ok(Self { http, server: server.trim_end_matches('/').to_owned(), seen, ambient: ambient.clone() })
    }

    /// The platform's URL, without a slash at its end.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Reaches the platform: its clock, and this machine's at that moment.
    ///
    /// # Errors
    /// It cannot be reached; the sentence says why and what to do.
    pub async fn reach(&self) -> anyhow::Result<Option<(Timestamp, Timestamp)>> {
        let response = self.http.get(format!("{}/healthz", self.server)).send().await.map_err(|error| self.unreachable(&error))?;
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok()).and_then(http_date);
        Ok(date.map(|theirs| (theirs, self.ambient.now())))
    }

    /// Asks for membership. The same request again uses nothing up, so it is repeated while the platform is not there.
    ///
    /// # Errors
    /// The platform refuses, as [`Refused`]; it cannot be reached.
    pub async fn join(&self, request: &JoinRequest, told: impl Fn(&str)) -> anyhow::Result<Joined> {
        let begun = tokio::time::Instant::now();
        let mut pause = Duration::from_secs(1);
        loop {
            let failure = match self.post("/join/v1/nodes", request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let passes = match failure.downcast_ref::<Refused>() {
                Some(refused) => refused.status.is_server_error() || refused.status == StatusCode::TOO_MANY_REQUESTS,
                None => failure.is::<Passing>(),
            };
            if !passes || begun.elapsed() >= PATIENCE {
                return Err(failure);
            }
            told(&format!("{failure:#}; asking again in {} s", pause.as_secs()));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(10));
        }
    }

    /// Tells of a step; that it fails is nobody's loss.
    pub async fn report(&self, report: &StepReport) {
        let send = self.http.post(format!("{}/join/v1/steps", self.server)).json(report).send();
        let _ = tokio::time::timeout(REPORT, send).await;
    }

    /// A file below `/assets/`, from byte `from` on, and where what comes begins.
    ///
    /// # Errors
    /// It is not there; the platform cannot be reached.
    pub async fn file(&self, path: &str, from: u64) -> anyhow::Result<(Response, u64)> {
        let mut request = self.http.get(format!("{}{path}", self.server));
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        match response.status() {
            StatusCode::OK => Ok((response, 0)),
            StatusCode::PARTIAL_CONTENT if starts_at(&response, from) => Ok((response, from)),
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                let whole = self.http.get(format!("{}{path}", self.server)).send().await.map_err(|error| self.unreachable(&error))?;
                if whole.status() == StatusCode::OK { Ok((whole, 0)) } else { Err(refusal(whole).await) }
            }
            _ => Err(refusal(response).await),
        }
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl serde::Serialize) -> anyhow::Result<T> {
        // Signing is a job: the answer may take a while.
        let request = self.http.post(format!("{}{path}", self.server)).json(body).timeout(Duration::from_secs(120));
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let bytes = bounded(response).await?;
        serde_json::from_slice(&bytes)
            .context("the platform's answer is of another version: use the kubebyon that the platform hands out (its /join.sh fetches it)")
    }

    /// Why a request did not come through, with what to do.
    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let server = &self.server;
        let proxy = proxy_in_use(server).map_or_else(String::new, |proxy| format!(" (through the proxy {proxy})"));
        match certificate_error(error) {
            Some(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
                anyhow!(
                    "the certificate of {server} begins in the future, so this machine's clock ({}) is behind. {CLOCK_REMEDY}",
                    self.ambient.now()
                )
            }
            Some(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => anyhow!(
                "the certificate of {server} has ended, or this machine's clock ({}) is ahead. {CLOCK_REMEDY} Else the platform's owner renews it",
                self.ambient.now()
            ),
            Some(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }) => {
                anyhow!(
                    "the certificate at {server}{proxy} is for other names: make a token anew, which names the platform as it is reached"
                )
            }
            Some(CertificateError::UnknownIssuer) => {
                let issuer = self.seen.issuer().unwrap_or_else(|| "somebody unknown".to_owned());
                anyhow!(
                    "what answers at {server}{proxy} is not the platform of the token: its certificate was issued by \"{issuer}\". Where that is a \
                     proxy or firewall which looks into TLS, have it leave this host alone, or set NO_PROXY; where the platform has a new \
                     authority, make a token anew"
                )
            }
            Some(other) => {
                anyhow!("the certificate at {server}{proxy} is not accepted ({other:?}): make a token anew, or look for a proxy in between")
            }
            None => {
                let why = innermost(error);
                let hint = if error.is_timeout() {
                    "it did not answer in time; look at the firewall of this network and at the platform's port"
                } else if why.contains("refused") {
                    "nothing listens there; look at whether the platform runs, and at host and port"
                } else if why.contains("resolve") || why.contains("dns") || why.contains("records found") {
                    "its name cannot be resolved; look at /etc/resolv.conf"
                } else {
                    "it cannot be reached"
                };
                anyhow::Error::new(Passing(format!("{server}{proxy}: {hint} ({why})")))
            }
        }
    }
}

/// A failure that may pass by itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Passing(pub String);

fn starts_at(response: &Response, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.and_then(|range| range.strip_prefix("bytes ")?.split_once('-')).is_some_and(|(start, _)| start.parse() == Ok(from))
}

async fn bounded(mut response: Response) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) =
        response.chunk().await.map_err(|error| Passing(format!("the platform's answer broke off ({})", innermost(&error))))?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_ANSWER {
            bail!("the platform's answer is longer than {MAX_ANSWER} bytes, which no answer of it is");
        }
    }
    Ok(bytes)
}

async fn refusal(response: Response) -> anyhow::Error {
    let status = response.status();
    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = bounded(response).await.unwrap_or_default();
    let (kind, detail) = match serde_json::from_slice::<Problem>(&bytes) {
        Ok(problem) => (problem.kind, problem.detail.unwrap_or(problem.title)),
        Err(_) => (String::new(), format!("the server answered {status}, and not as a platform does")),
    };
    let again = wait.map_or_else(String::new, |seconds| format!(" (again in {seconds} s)"));
    Refused { status, kind, detail: format!("{detail}{again}") }.into()
}

/// The time of a `Date` header (RFC 9110).
fn http_date(text: &str) -> Option<Timestamp> {
    let at = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp::from_micros(at.timestamp().as_microsecond()))
}

/// The causes of an error, those wrapped by I/O errors among them.
fn causes<'a>(error: &'a (dyn std::error::Error + 'static)) -> Vec<&'a (dyn std::error::Error + 'static)> {
    let mut found = vec![error];
    while let Some(last) = found.last().copied() {
        let inner =
            last.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref()).map(|inner| inner as &(dyn std::error::Error + 'static));
        match inner.or_else(|| last.source()) {
            Some(next) if found.len() < 20 => found.push(next),
            _ => break,
        }
    }
    found
}

fn certificate_error(error: &reqwest::Error) -> Option<CertificateError> {
    causes(error).into_iter().find_map(|cause| match cause.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(why)) => Some(why.clone()),
        _ => None,
    })
}

fn innermost(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

/// The proxy that the environment names for `server`, as far as that is told by one variable.
fn proxy_in_use(server: &str) -> Option<String> {
    let variable = |name: &str| std::env::var(name).or_else(|_| std::env::var(name.to_lowercase())).ok().filter(|value| !value.is_empty());
    let host = reqwest::Url::parse(server).ok()?.host_str()?.to_owned();
    let spared = variable("NO_PROXY").is_some_and(|list| list.split(',').any(|entry| entry.trim() == host || entry.trim() == "*"));
    let proxy = variable("HTTPS_PROXY").or_else(|| variable("ALL_PROXY")).filter(|_| !spared)?;
    // Never with what proves who asks.
    Some(proxy.rsplit_once('@').map_or(proxy.clone(), |(_, host)| host.to_owned()))
}

/// The address of the platform as this machine resolves it; `None` where a proxy stands in between or it is not known.
pub async fn address_of(server: &str) -> Option<IpAddr> {
    if proxy_in_use(server).is_some() {
        return None;
    }
    let url = reqwest::Url::parse(server).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
    let port = url.port_or_known_default()?;
    let mut found = tokio::net::lookup_host((host, port)).await.ok()?;
    found.next().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(http_date("Tue, 01 Dec 2026 03:00:00 GMT").unwrap().to_string(), "2026-12-01T03:00:00Z");
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn only_https_is_joined() {
        let trust = Trust::Authority("ab".repeat(32));
        let ambient = Ambient::system();
        for bad in ["http://platform.example", "platform.example", "https://"] {
            assert!(Client::new(bad, &trust, &ambient).is_err(), "{bad}");
        }
        assert_eq!(Client::new("https://platform.example/", &trust, &ambient).unwrap().server(), "https://platform.example");
    }

    #[tokio::test]
    async fn a_platform_that_is_not_there_is_said_to_be() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let client = Client::new(&format!("https://127.0.0.1:{port}"), &Trust::Authority("ab".repeat(32)), &Ambient::system()).unwrap();
        let said = client.reach().await.unwrap_err().to_string();
        assert!(said.contains("nothing listens there"), "{said}");
    }
}
