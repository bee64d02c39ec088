//! A platform for joins: it speaks TLS with an authority of its own, signs any key, serves files, and can be told to fail.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use sha2::{Digest as _, Sha256};

use crate::domain::join::{JoinRequest, Joined, ProgramFile, StepReport, TokenContent, Trust};
use crate::domain::{Ambient, JoinTokenId, ManualClock};

/// What all programs of Kubernetes are.
pub const KUBERNETES: &[u8] = &[b'k'; 300_000];
/// What the plugin is.
pub const BRIDGE: &[u8] = b"bridge";
const KUBEBYON: &[u8] = b"#!kubebyon";
const PAUSE: &[u8] = b"an archive";

/// The platform.
pub struct Platform {
    address: SocketAddr,
    authority: Vec<u8>,
    state: Arc<Mutex<Told>>,
    clock: Arc<ManualClock>,
}

struct Told {
    answer: Joined,
    keys: BTreeSet<Vec<u8>>,
    reports: Vec<StepReport>,
    fetched: usize,
    ranges: usize,
    refusal: Option<(String, String)>,
    /// How many bytes come before the connection breaks off, and how often that is so.
    breaks: (usize, usize),
    tampered: bool,
}

type Shared = Arc<Mutex<Told>>;

impl Platform {
    /// Starts one on a port of loopback; it ends with the test's runtime.
    pub async fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubebyon test authority");
        let authority = params.self_signed(&key).unwrap().der().clone();
        let issuer = Issuer::new(params, key);
        let leaf_key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&leaf_key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone(), authority.clone()], PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap())
            .unwrap();
        let state = Arc::new(Mutex::new(told()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router(state.clone());
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    let Ok(tls) = acceptor.accept(tcp).await else { return };
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(tls), TowerToHyperService::new(router)).await;
                });
            }
        });
        Self { address, authority: authority.to_vec(), state, clock: Arc::new(ManualClock::new(Ambient::system().now())) }
    }

    /// The same platform, for another machine: what was told before is forgotten.
    pub fn again(&self) -> Self {
        let mut state = self.state.lock().unwrap();
        let answer = state.answer.clone();
        *state = Told { answer, ..told() };
        Self { address: self.address, authority: self.authority.clone(), state: self.state.clone(), clock: self.clock.clone() }
    }

    /// A clock that stands still at the platform's start.
    pub fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    /// A token of its.
    pub fn token(&self) -> TokenContent {
        TokenContent {
            server: format!("https://{}", self.address),
            cluster: "demo-abc234".into(),
            id: JoinTokenId::generate(&Ambient::system()),
            secret: "s".repeat(43),
            trust: Trust::Authority(hex::encode(Sha256::digest(&self.authority))),
        }
    }

    /// How many machines became nodes.
    pub fn keys(&self) -> usize {
        self.state.lock().unwrap().keys.len()
    }

    /// What was told of joins.
    pub fn reports(&self) -> Vec<StepReport> {
        self.state.lock().unwrap().reports.clone()
    }

    /// How many files were asked for.
    pub fn fetched(&self) -> usize {
        self.state.lock().unwrap().fetched
    }

    /// How many of these asked for a part.
    pub fn ranges(&self) -> usize {
        self.state.lock().unwrap().ranges
    }

    /// Breaks connections off after so many bytes, so many times.
    pub fn break_off(&self, after: usize, times: usize) {
        self.state.lock().unwrap().breaks = (after, times);
    }

    /// Serves another content than it promises.
    pub fn tamper(&self) {
        self.state.lock().unwrap().tampered = true;
    }

    /// Refuses whoever asks for membership.
    pub fn refuse(&self, kind: &str, detail: &str) {
        self.state.lock().unwrap().refusal = Some((kind.to_owned(), detail.to_owned()));
    }

    /// A bundle of what it serves.
    pub fn bundle(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let state = self.state.lock().unwrap();
        for file in state.answer.programs.iter().chain(&state.answer.images) {
            let content = content(&file.path).unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            builder.append_data(&mut header, file.path.trim_start_matches('/'), content).unwrap();
        }
        builder.into_inner().unwrap()
    }
}

fn told() -> Told {
    let file = |kind: &str, name: &str, content: &[u8]| ProgramFile {
        kind: kind.into(),
        version: "1.0.0".into(),
        name: name.into(),
        path: format!("/assets/{kind}/{name}"),
        size: content.len() as u64,
        sha256: hex::encode(Sha256::digest(content)),
    };
    let programs =
        vec![file("kubernetes", "kubernetes", KUBERNETES), file("cni-plugins", "bridge", BRIDGE), file("kubebyon", "kubebyon", KUBEBYON)];
    let answer = Joined { images: vec![file("images", "pause.tar", PAUSE)], ..super::joined(programs) };
    Told { answer, keys: BTreeSet::new(), reports: Vec::new(), fetched: 0, ranges: 0, refusal: None, breaks: (0, 0), tampered: false }
}

fn content(path: &str) -> Option<&'static [u8]> {
    match path.rsplit('/').next()? {
        "kubernetes" => Some(KUBERNETES),
        "bridge" => Some(BRIDGE),
        "kubebyon" => Some(KUBEBYON),
        "pause.tar" => Some(PAUSE),
        _ => None,
    }
}

fn router(state: Shared) -> Router {
    Router::new()
        .route("/healthz", get(|| async { ([(header::DATE, date())], "ok") }))
        .route("/join/v1/nodes", post(join))
        .route("/join/v1/steps", post(steps))
        .route("/assets/{*path}", get(asset))
        .with_state(state)
}

fn date() -> String {
    let now = Ambient::system().now();
    let at = jiff::Timestamp::from_microsecond(now.as_micros()).unwrap();
    jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&at).unwrap()
}

async fn join(State(state): State<Shared>, body: Bytes) -> Response {
    let request: JoinRequest = serde_json::from_slice(&body).unwrap();
    let mut state = state.lock().unwrap();
    if let Some((kind, detail)) = &state.refusal {
        let problem = serde_json::json!({"type": format!("/problems/{kind}"), "title": "no", "detail": detail});
        return (StatusCode::CONFLICT, axum::Json(problem)).into_response();
    }
    let key = crate::pki::csr::public_key_der(&request.csr_pem).unwrap();
    state.keys.insert(key);
    let csr = rcgen::CertificateSigningRequestParams::from_pem(&request.csr_pem).unwrap();
    let issuer = Issuer::new(CertificateParams::default(), KeyPair::generate().unwrap());
    let answer = Joined { certificate_pem: csr.signed_by(&issuer).unwrap().pem(), ..state.answer.clone() };
    axum::Json(answer).into_response()
}

async fn steps(State(state): State<Shared>, body: Bytes) -> StatusCode {
    state.lock().unwrap().reports.push(serde_json::from_slice(&body).unwrap());
    StatusCode::NO_CONTENT
}

async fn asset(State(state): State<Shared>, Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(content) = content(&path) else { return StatusCode::NOT_FOUND.into_response() };
    let mut state = state.lock().unwrap();
    state.fetched += 1;
    let range = headers.get(header::RANGE).and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let start: usize = range.unwrap_or(0);
    let mut rest = content[start..].to_vec();
    if state.tampered {
        rest.fill(b'!');
    }
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    state.ranges += usize::from(range.is_some());
    let length = rest.len();
    let body = if state.breaks.1 > 0 && length > state.breaks.0 {
        state.breaks.1 -= 1;
        let part = Bytes::copy_from_slice(&rest[..state.breaks.0]);
        // What is there is sent while the rest is waited for.
        let broken = async {
            tokio::task::yield_now().await;
            Err(std::io::Error::other("cut"))
        };
        Body::from_stream(futures_util::stream::iter([Ok(part)]).chain(futures_util::stream::once(broken)))
    } else {
        Body::from(rest)
    };
    let part = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
    (status, [(header::CONTENT_LENGTH, length.to_string()), (header::CONTENT_RANGE, part)], body).into_response()
}
