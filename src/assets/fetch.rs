//! Fetching published files over HTTP: resumed where it was cut, bounded in size and time, checked before it is used.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_RANGE, RANGE};
use reqwest::{Response, StatusCode};
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt;

use super::progress::{Meter, ProgressSink};
use super::{AssetError, disk};

/// Timeouts and bounds of fetching.
#[derive(Debug, Clone)]
pub struct Pace {
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long an answer may stand still, headers or content.
    pub stall: Duration,
    /// How often in a row a file may fail without any byte gained.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub backoff: Duration,
    /// No program or archive is larger.
    pub max_bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            attempts: 3,
            backoff: Duration::from_secs(1),
            max_bytes: 1 << 30,
        }
    }
}

/// No list of checksums is larger.
const MAX_CHECKSUMS: usize = 256 * 1024;
/// However much is gained each time, a file is asked for so often at most.
const MAX_REQUESTS: u32 = 100;

/// Fetches files. Follows `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    pace: Pace,
}

/// How one request failed.
enum Cut {
    /// May go well when asked again.
    Again(String),
    /// Will not.
    Never(AssetError),
}

impl Fetcher {
    /// A client with the given timeouts.
    pub(super) fn new(pace: Pace) -> Result<Self, AssetError> {
        // The first to install a provider wins; all of this program use the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let redirects = reqwest::redirect::Policy::custom(|hop| {
            let downgrade = hop.previous().last().is_some_and(|from| from.scheme() == "https") && hop.url().scheme() != "https";
            if downgrade {
                hop.error("a redirect from https to http is not followed")
            } else if hop.previous().len() > 10 {
                hop.error("more than 10 redirects")
            } else {
                hop.follow()
            }
        });
        let client = reqwest::Client::builder()
            .user_agent(concat!("kubebyon/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(pace.connect)
            .redirect(redirects)
            .build()
            .map_err(|e| AssetError::Build(format!("no HTTPS client can be made: {}", causes(&e))))?;
        Ok(Self { client, pace })
    }

    /// A short text, such as a list of checksums.
    pub(super) async fn text(&self, url: &str) -> Result<String, AssetError> {
        let mut failures = 0;
        loop {
            match self.text_once(url).await {
                Ok(text) => return Ok(text),
                Err(Cut::Never(error)) => return Err(error),
                Err(Cut::Again(reason)) => self.pause(url, &mut failures, reason).await?,
            }
        }
    }

    async fn text_once(&self, url: &str) -> Result<String, Cut> {
        let mut response = self.ask(url, 0).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(&mut response).await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_CHECKSUMS {
                return Err(malformed(url, format!("it is larger than {MAX_CHECKSUMS} bytes, too large for a list of checksums")));
            }
        }
        String::from_utf8(bytes).map_err(|_| malformed(url, "it is no text".to_owned()))
    }

    /// Fetches `url` into `partial`, going on where that ends, until it is whole and has the SHA-256 `expected`.
    ///
    /// # Errors
    /// With a wrong checksum `partial` is removed; where the content had been cut before, it is fetched once more from its start first.
    pub(super) async fn file(&self, url: &str, partial: &Path, expected: &str, sink: &dyn ProgressSink) -> Result<(), AssetError> {
        let label = url.rsplit('/').next().unwrap_or(url);
        let mut resumed = disk_len(partial).await? > 0;
        loop {
            self.grow(url, partial, label, sink).await?;
            let path = partial.to_owned();
            let hashed = tokio::task::spawn_blocking(move || disk::hash_file(&path)).await.expect("hashing does not panic");
            let (found, _) = hashed.map_err(|e| AssetError::io(partial, e))?;
            if found == expected {
                return Ok(());
            }
            tokio::fs::remove_file(partial).await.map_err(|e| AssetError::io(partial, e))?;
            if !resumed {
                return Err(AssetError::Checksum { url: url.to_owned(), expected: expected.to_owned(), found });
            }
            sink.step(&format!("{label}: the part that was there did not fit; fetching it whole"));
            resumed = false;
        }
    }

    /// Appends to `partial` until the server says that this is all.
    async fn grow(&self, url: &str, partial: &Path, label: &str, sink: &dyn ProgressSink) -> Result<(), AssetError> {
        let mut failures = 0;
        for _ in 0..MAX_REQUESTS {
            let before = disk_len(partial).await?;
            let reason = match self.grow_once(url, partial, before, label, sink).await {
                Ok(()) => return Ok(()),
                Err(Cut::Never(error)) => {
                    if matches!(error, AssetError::DiskFull { .. }) {
                        // What cannot be finished must not keep the disk full.
                        let _ = tokio::fs::remove_file(partial).await;
                    }
                    return Err(error);
                }
                Err(Cut::Again(reason)) => reason,
            };
            if disk_len(partial).await? > before {
                failures = 0;
            }
            self.pause(url, &mut failures, reason).await?;
        }
        Err(AssetError::Unreachable { url: url.to_owned(), reason: format!("it broke off {MAX_REQUESTS} times; what came is kept") })
    }

    async fn grow_once(&self, url: &str, partial: &Path, have: u64, label: &str, sink: &dyn ProgressSink) -> Result<(), Cut> {
        let mut response = self.ask(url, have).await?;
        let start = match response.status() {
            // The server has no more than is here; whether it is right is for the checksum to say.
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(()),
            StatusCode::PARTIAL_CONTENT if starts_at(&response, have) => have,
            StatusCode::PARTIAL_CONTENT => return Err(Cut::Again("it answered with another part than was asked for".to_owned())),
            _ => 0,
        };
        let total = response.content_length().map(|rest| start + rest);
        if total.is_some_and(|t| t > self.pace.max_bytes) {
            return Err(too_large(url, self.pace.max_bytes));
        }
        let meter = sink.meter(label, total);
        self.write(url, &mut response, partial, start, &*meter).await?;
        match total {
            Some(total) if disk_len(partial).await.map_err(Cut::Never)? < total => Err(Cut::Again("it ended early".to_owned())),
            _ => Ok(()),
        }
    }

    async fn write(&self, url: &str, response: &mut Response, partial: &Path, start: u64, meter: &dyn Meter) -> Result<(), Cut> {
        let fail = |e| Cut::Never(AssetError::io(partial, e));
        let mut file = OpenOptions::new().create(true).append(true).open(partial).await.map_err(fail)?;
        file.set_len(start).await.map_err(fail)?;
        let mut done = start;
        let outcome = loop {
            match self.chunk(response).await {
                Ok(Some(chunk)) => {
                    done += chunk.len() as u64;
                    if done > self.pace.max_bytes {
                        return Err(too_large(url, self.pace.max_bytes));
                    }
                    file.write_all(&chunk).await.map_err(fail)?;
                    meter.at(done);
                }
                Ok(None) => break Ok(()),
                Err(cut) => break Err(cut),
            }
        };
        // tokio's file writes behind: only a flush tells whether the last bytes found room.
        file.flush().await.map_err(fail)?;
        file.sync_all().await.map_err(fail)?;
        outcome
    }

    /// Asks for `url` from byte `from` on; gives an answer that has content.
    async fn ask(&self, url: &str, from: u64) -> Result<Response, Cut> {
        let mut request = self.client.get(url);
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let sent = tokio::time::timeout(self.pace.stall + self.pace.connect, request.send()).await;
        let response = sent.map_err(|_| Cut::Again(self.silence()))?.map_err(|e| Cut::Again(causes(&e)))?;
        let status = response.status();
        match status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => Ok(response),
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                Err(Cut::Never(AssetError::NotFound { url: url.to_owned(), reason: status.to_string() }))
            }
            s if s.is_server_error() || matches!(s, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => {
                Err(Cut::Again(format!("it answered {s}")))
            }
            s => Err(Cut::Never(AssetError::Unreachable { url: url.to_owned(), reason: format!("it answered {s}") })),
        }
    }

    async fn chunk(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, Cut> {
        let next = tokio::time::timeout(self.pace.stall, response.chunk()).await;
        next.map_err(|_| Cut::Again(self.silence()))?.map_err(|e| Cut::Again(causes(&e)))
    }

    fn silence(&self) -> String {
        format!("nothing came for {:?}", self.pace.stall)
    }

    /// Waits before the next try, or gives up.
    async fn pause(&self, url: &str, failures: &mut u32, reason: String) -> Result<(), AssetError> {
        *failures += 1;
        if *failures >= self.pace.attempts {
            return Err(AssetError::Unreachable { url: url.to_owned(), reason });
        }
        tracing::debug!(url, reason, "asking again");
        tokio::time::sleep(self.pace.backoff * 2u32.saturating_pow(*failures - 1)).await;
        Ok(())
    }
}

/// The SHA-256 of `file_name` in what publishers write: a bare digest, or lines `<digest>  <name>` (among others, such as a signature's).
pub(super) fn published(list: &str, file_name: &str) -> Option<String> {
    let is_digest = |word: &str| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let mut words = list.split_whitespace();
    if let (Some(only), None) = (words.next(), words.next()) {
        return is_digest(only).then(|| only.to_ascii_lowercase());
    }
    list.lines().find_map(|line| {
        let (digest, name) = line.trim().split_once(char::is_whitespace)?;
        let name = name.trim_start().trim_start_matches('*');
        let matches = is_digest(digest) && name.rsplit('/').next() == Some(file_name);
        matches.then(|| digest.to_ascii_lowercase())
    })
}

fn starts_at(response: &Response, from: u64) -> bool {
    let range = response.headers().get(CONTENT_RANGE).and_then(|v| v.to_str().ok());
    range.and_then(|r| r.strip_prefix("bytes ")?.split_once('-')).is_some_and(|(start, _)| start.parse() == Ok(from))
}

fn malformed(url: &str, reason: String) -> Cut {
    Cut::Never(AssetError::Malformed { file: url.to_owned(), reason })
}

fn too_large(url: &str, max: u64) -> Cut {
    malformed(url, format!("it is larger than {max} bytes, too large for a program"))
}

async fn disk_len(path: &Path) -> Result<u64, AssetError> {
    match tokio::fs::metadata(path).await {
        Ok(meta) => Ok(meta.len()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(AssetError::io(path, e)),
    }
}

/// An error with its causes, in one line, without the address that the caller names.
fn causes(error: &reqwest::Error) -> String {
    if error.is_dns() {
        return "its name cannot be resolved".to_owned();
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::published;

    #[test]
    fn checksums_as_publishers_write_them() {
        let (a, b) = ("a".repeat(64), "B".repeat(64));
        assert_eq!(published(&a, "kubectl"), Some(a.clone()));
        assert_eq!(published(&format!("{b}\n"), "kubectl"), Some(b.to_lowercase()));
        let list = format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{a} *runc.amd64\n{b}  ./runc.arm64\n");
        assert_eq!(published(&list, "runc.amd64"), Some(a.clone()));
        assert_eq!(published(&list, "runc.arm64"), Some(b.to_lowercase()));
        assert_eq!(published(&list, "runc"), None);
        assert_eq!(published("<html> 404", "kubectl"), None);
        assert_eq!(published("abc", "kubectl"), None);
        assert_eq!(published("", "kubectl"), None);
    }
}
