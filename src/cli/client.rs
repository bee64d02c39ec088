//! The client of the API: over the Unix socket of the data folder, or over HTTPS with a token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::called;
use super::credentials::Login;
use crate::domain::page::Page;

/// Where the API is, and what proves who asks.
#[derive(Debug, Clone)]
pub struct Target {
    /// `--server`.
    pub server: Option<String>,
    /// `--token`.
    pub token: Option<String>,
    /// `--ca-file`.
    pub ca_file: Option<PathBuf>,
    /// The socket of the data folder.
    pub socket: PathBuf,
    /// Whether the data folder was named: then no login elsewhere stands in for a daemon that is gone.
    pub local: bool,
}

/// A client of the API.
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    /// The socket, where that is the way.
    socket: Option<PathBuf>,
}

/// What the API answered when it refused.
#[derive(Debug, serde::Deserialize)]
struct Problem {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    errors: Vec<FieldError>,
}

#[derive(Debug, serde::Deserialize)]
struct FieldError {
    field: String,
    message: String,
}

/// An answer that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// What the server said, for people.
    pub message: String,
}

impl Client {
    /// A client for the target: what the command line names, else the login that was kept, else the socket.
    pub fn new(target: &Target) -> anyhow::Result<Self> {
        let login = if target.server.is_none() && !target.local && !target.socket.exists() { Login::load()? } else { None };
        let server = target.server.clone().or_else(|| login.as_ref().map(|l| l.server.clone()));
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("kubebyon/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(Duration::from_secs(120));
        let Some(server) = server else {
            if !target.socket.exists() {
                bail!("{}", no_daemon(&target.socket));
            }
            let http = builder.unix_socket(target.socket.as_path()).no_proxy().build()?;
            return Ok(Self { http, base: "http://localhost".to_owned(), token: None, socket: Some(target.socket.clone()) });
        };
        let ca = match (&target.ca_file, &login) {
            (Some(file), _) => Some(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?),
            (None, Some(login)) => login.ca_pem.clone().map(String::into_bytes),
            (None, None) => None,
        };
        builder = builder.https_only(true);
        if let Some(pem) = ca {
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).context("--ca-file holds no PEM certificate")?;
            builder = builder.tls_certs_only(certificates);
        }
        let token = target.token.clone().or_else(|| login.map(|l| l.token));
        Ok(Self { http: builder.build()?, base: server.trim_end_matches('/').to_owned(), token, socket: None })
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = response.bytes().await.unwrap_or_default();
        Err(Refused { status, message: refusal(status, &body) }.into())
    }

    fn unreachable(&self, error: reqwest::Error) -> anyhow::Error {
        if let Some(socket) = &self.socket {
            return match Failure::of(&error) {
                Failure::Refused | Failure::Absent => anyhow::anyhow!("{}", no_daemon(socket)),
                _ if error.is_timeout() => anyhow::anyhow!("the daemon at {} did not answer in time", socket.display()),
                _ => anyhow::Error::new(error).context(format!("the connection to the daemon at {} failed", socket.display())),
            };
        }
        let hint = match Failure::of(&error) {
            Failure::Certificate => {
                "its certificate is not trusted; when that is its own authority's, give --ca-file (on its host: <data dir>/platform-ca.crt)"
            }
            Failure::Refused => "nothing listens there; look at the host and the port, and whether the platform runs",
            _ if error.is_timeout() => "it did not answer in time",
            _ if error.is_connect() => "it cannot be reached; look at the host and the port",
            _ => "the connection broke",
        };
        anyhow::Error::new(error).context(format!("{}: {hint}", self.base))
    }

    /// GET of JSON; `query` pairs are encoded.
    pub async fn get<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        Ok(self.send(self.request(Method::GET, path).query(query)).await?.json().await?)
    }

    /// Every page of a list.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Vec<T>> {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.push(("limit", "500".to_owned()));
            query.extend(next.take().map(|token| ("continue", token)));
            let page: Page<T> = self.get(path, &query).await?;
            items.extend(page.items);
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(items),
            }
        }
    }

    /// A request with a JSON body and a JSON answer.
    pub async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let mut request = self.request(method.clone(), path).json(body);
        if method == Method::POST {
            // A retry inside the HTTP client, or of the person, then does nothing twice.
            request = request.header("Idempotency-Key", hex::encode(crate::domain::Ambient::system().random::<16>()));
        }
        let body = self.send(request).await?.bytes().await?;
        Ok(serde_json::from_slice(if body.is_empty() { b"null" } else { &body })?)
    }

    /// DELETE; gives the body, `null` when there is none.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        let body = self.send(self.request(Method::DELETE, path).query(query)).await?.bytes().await?;
        Ok(serde_json::from_slice(if body.is_empty() { b"null" } else { &body })?)
    }

    /// A stream without an end of its own: logs, server-sent events.
    pub async fn stream(&self, path: &str, query: &[(&str, String)], headers: &[(&str, String)]) -> anyhow::Result<reqwest::Response> {
        let request = self.request(Method::GET, path).query(query);
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(*name, value))).await
    }
}

fn refusal(status: StatusCode, body: &[u8]) -> String {
    use std::fmt::Write as _;
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return format!("the server answered {status}");
    };
    let mut message = problem.detail.unwrap_or(problem.title);
    for FieldError { field, message: what } in problem.errors {
        if !message.contains(&what) {
            let _ = write!(message, "\n  {field}: {what}");
        }
    }
    if status == StatusCode::UNAUTHORIZED && problem.kind != "/problems/bad-credentials" {
        let _ = write!(message, "; sign in with `{}`, or give --token", called::command("login URL"));
    }
    message
}

/// What to do where no daemon answers.
fn no_daemon(socket: &Path) -> String {
    format!(
        "no daemon answers at {}: start it (`systemctl start kubebyon`, or `make up` in a checkout), name its data folder with --data-dir \
         or its configuration with --config, or reach one elsewhere with `{}`",
        socket.display(),
        called::command("login URL")
    )
}

/// Why a connection could not be made.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The server's certificate does not stand the check.
    Certificate,
    /// Nothing listens there.
    Refused,
    /// There is no such socket.
    Absent,
    /// Anything else.
    Other,
}

impl Failure {
    /// Looks through the causes of `error`.
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(cause) = next {
            if cause.downcast_ref::<rustls::Error>().is_some_and(|e| matches!(e, rustls::Error::InvalidCertificate(_))) {
                return Self::Certificate;
            }
            next = cause.source();
            let Some(io) = cause.downcast_ref::<std::io::Error>() else { continue };
            match io.kind() {
                std::io::ErrorKind::ConnectionRefused => return Self::Refused,
                std::io::ErrorKind::NotFound => return Self::Absent,
                // What such an error wraps is not among its sources.
                _ => next = io.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static)).or(next),
            }
        }
        Self::Other
    }
}

/// The socket of a data folder.
pub fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join("kubebyon.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(target: &Target) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::new(target).unwrap()
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_at_is_a_daemon_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = socket_path(dir.path());
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let client = client(&Target { server: None, token: None, ca_file: None, socket: socket.clone(), local: true });
        let said = format!("{:#}", client.get::<serde_json::Value>("/api/v1/projects", &[]).await.unwrap_err());
        assert!(said.starts_with(&format!("no daemon answers at {}", socket.display())), "{said}");
        assert!(said.contains("systemctl start") && !said.contains("--ca-file"), "{said}");
    }

    #[tokio::test]
    async fn a_port_that_nobody_listens_at_is_no_matter_of_certificates() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Some(format!("https://127.0.0.1:{port}"));
        let client = client(&Target { server, token: None, ca_file: None, socket: PathBuf::new(), local: false });
        let said = format!("{:#}", client.get::<serde_json::Value>("/api/v1/projects", &[]).await.unwrap_err());
        assert!(said.contains("nothing listens there") && !said.contains("--ca-file"), "{said}");
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_other_failures() {
        let certificate = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        assert_eq!(Failure::of(&std::io::Error::other(certificate)), Failure::Certificate);
        assert_eq!(Failure::of(&std::io::Error::other("else")), Failure::Other);
    }
}
