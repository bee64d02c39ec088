//! A mirror: a web server on loopback in the mirror's layout, with faults to order.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

use super::super::catalogue::{Payload, Want};
use super::Mirror;

/// What goes wrong with the next answers for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The connection is cut after so many bytes.
    Cut(usize),
    /// Nothing more comes after so many bytes.
    Stall(usize),
    /// This status instead of the file.
    Status(u16),
    /// Ranges are passed over: the whole file comes.
    NoRange,
}

#[derive(Debug, Default)]
struct Shelf {
    files: BTreeMap<String, Bytes>,
    faults: BTreeMap<String, Vec<Fault>>,
    /// Path and `Range` of each request.
    asked: Vec<(String, Option<String>)>,
}

/// The server; it ends with the test.
#[derive(Debug, Clone)]
pub(super) struct Server {
    shelf: Arc<Mutex<Shelf>>,
    base: String,
}

impl Server {
    /// A server that has these items.
    pub(super) async fn start(wants: &[Want]) -> Self {
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let app = axum::Router::new().fallback(answer).with_state(Arc::clone(&shelf));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/mirror", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        let server = Self { shelf, base };
        for (path, content) in wants.iter().flat_map(published) {
            server.put(&path, content);
        }
        server
    }

    pub(super) fn mirror(&self) -> Mirror {
        Mirror::Url(self.base.clone())
    }

    pub(super) fn put(&self, path: &str, content: Vec<u8>) {
        self.shelf.lock().unwrap().files.insert(path.to_owned(), content.into());
    }

    /// Orders faults, one for each of the next answers for `path`.
    pub(super) fn fail(&self, path: &str, faults: &[Fault]) {
        self.shelf.lock().unwrap().faults.insert(path.to_owned(), faults.iter().rev().copied().collect());
    }

    /// The ranges that were asked of `path`, in order.
    pub(super) fn ranges(&self, path: &str) -> Vec<Option<String>> {
        self.shelf.lock().unwrap().asked.iter().filter(|(p, _)| p == path).map(|(_, range)| range.clone()).collect()
    }
}

async fn answer(State(shelf): State<Arc<Mutex<Shelf>>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches("/mirror/").to_owned();
    let range = range(request.headers());
    let (content, fault) = {
        let mut shelf = shelf.lock().unwrap();
        shelf.asked.push((path.clone(), range.map(|from| format!("{from}-"))));
        (shelf.files.get(&path).cloned(), shelf.faults.get_mut(&path).and_then(Vec::pop))
    };
    if let Some(Fault::Status(status)) = fault {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    let Some(content) = content else { return StatusCode::NOT_FOUND.into_response() };
    let from = range.filter(|_| fault != Some(Fault::NoRange)).unwrap_or(0);
    if range.is_some() && from >= content.len() {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let part = content.slice(from..);
    let mut response = Response::builder().header(header::CONTENT_LENGTH, part.len());
    if from > 0 {
        let of = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
        response = response.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, of);
    }
    response.body(faulty(part, fault)).unwrap()
}

fn faulty(part: Bytes, fault: Option<Fault>) -> Body {
    let ok = |bytes| futures_util::stream::iter([Ok::<_, std::io::Error>(bytes)]);
    match fault {
        // hyper sends what came before an error only once it is asked for more.
        Some(Fault::Cut(at)) => {
            let cut = async {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                Err(std::io::Error::other("cut"))
            };
            Body::from_stream(ok(part.slice(..at)).chain(futures_util::stream::once(cut)))
        }
        Some(Fault::Stall(at)) => Body::from_stream(ok(part.slice(..at)).chain(futures_util::stream::pending())),
        _ => Body::from(part),
    }
}

fn range(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// The content of a program in these tests: large enough to come in several parts.
pub(super) fn program(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(300_000).collect()
}

/// The files that a publisher of `want` has, by path.
pub(super) fn published(want: &Want) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for download in want.downloads() {
        let content = match &download.payload {
            Payload::Program(name) => program(name),
            Payload::Archive(members) => archive(members.iter().map(|(path, name)| (path.as_str(), program(name)))),
        };
        let mut sums = String::new();
        let digest = hex::encode(Sha256::digest(&content));
        if download.checksums.starts_with("dl.k8s.io/") {
            sums.push_str(&digest);
        } else {
            writeln!(sums, "{}  something-else.tar.gz\n{digest}  {}", "0".repeat(64), download.file_name()).unwrap();
        }
        files.push((download.checksums.clone(), sums.into_bytes()));
        files.push((download.path.clone(), content));
    }
    files
}

/// A gzipped tar archive. Its content does not compress, so that it comes in several parts.
pub(super) fn archive<'a>(members: impl Iterator<Item = (&'a str, Vec<u8>)>) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none()));
    for (path, content) in [("README.md", b"not a program".to_vec())].into_iter().chain(members) {
        let mut head = tar::Header::new_gnu();
        head.set_size(content.len() as u64);
        head.set_mode(0o644);
        tar.append_data(&mut head, path, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}
