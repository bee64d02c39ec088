//! HTTP over what the front door hands on, over the Unix socket, and the redirect of plain HTTP.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Peer;
use crate::proxy::{PlatformHandler, PlatformTls, PrefixedStream, SourceLimit};

/// Connections to the platform itself that one source (an IPv4 address, an IPv6 /64) may have: people behind one address share them, and a
/// stranger's unfinished requests stay within some megabytes.
const PER_SOURCE: usize = 256;
/// How large a request's head may be.
const HEAD_BYTES: usize = 16 * 1024;
/// How long a TLS handshake, or a request's head, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the API to whoever it is given; cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    router: Router,
    tls: Arc<PlatformTls>,
    draining: CancellationToken,
    tasks: TaskTracker,
    sources: Arc<SourceLimit>,
}

impl ApiServer {
    /// A server of this router, that ends TLS with `tls`, until `draining`.
    pub fn new(router: Router, tls: Arc<PlatformTls>, draining: CancellationToken) -> Self {
        Self { router, tls, draining, tasks: TaskTracker::new(), sources: SourceLimit::new(PER_SOURCE) }
    }

    /// Waits for the requests that run, at most so long.
    pub async fn drained(&self, timeout: Duration) {
        self.tasks.close();
        if tokio::time::timeout(timeout, self.tasks.wait()).await.is_err() {
            tracing::warn!(open = self.tasks.len(), "requests were cut at the end of the drain");
        }
    }

    async fn connection(self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: Peer) {
        let router = self.router.layer(axum::Extension(peer));
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD_BYTES);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(128).keep_alive_interval(Some(Duration::from_secs(30)));
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), TowerToHyperService::new(router));
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.draining.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(?peer, %error, "a connection to the API broke");
        }
    }

    /// Serves on the Unix socket until the drain, and removes its file.
    pub async fn serve_socket(self, listener: UnixListener) {
        let path = listener.local_addr().ok().and_then(|address| address.as_pathname().map(Path::to_owned));
        self.accept_local(listener).await;
        if let Some(path) = path
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::debug!(path = %path.display(), %error, "the Unix socket could not be removed");
        }
    }

    async fn accept_local(&self, listener: UnixListener) {
        loop {
            let accepted = tokio::select! {
                () = self.draining.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted.and_then(|(stream, _)| Ok((peer_of(&stream)?, stream))) {
                Ok((peer, stream)) => {
                    self.tasks.spawn(self.clone().connection(stream, peer));
                }
                Err(error) => {
                    // Out of descriptors: the next attempt would fail as this one did.
                    tracing::warn!(%error, "a connection to the Unix socket could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

fn peer_of(stream: &UnixStream) -> std::io::Result<Peer> {
    Ok(Peer::Local { uid: stream.peer_cred()?.uid() })
}

impl PlatformHandler for ApiServer {
    fn accept(&self, stream: PrefixedStream, peer: SocketAddr) {
        let Some(counted) = self.sources.admit(peer.ip()) else {
            return tracing::debug!(%peer, "refused: too many connections of one source to the platform");
        };
        let server = self.clone();
        self.tasks.spawn(async move {
            let _counted = counted;
            match tokio::time::timeout(PATIENCE, server.tls.accept(stream)).await {
                Ok(Ok(tls)) => server.connection(tls, Peer::Remote { address: peer, tls: true }).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake with the platform failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake with the platform took too long"),
            }
        });
    }
}

/// Binds the Unix socket in the place of a former process's.
pub fn bind_socket(path: &Path) -> anyhow::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove the old {}", path.display()));
        }
        _ => {}
    }
    let listener = UnixListener::bind(path).with_context(|| {
        format!("cannot listen on {} (a socket's path has at most 107 bytes; choose a shorter --data-dir)", path.display())
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Gives the URL that a host's plain HTTP is redirected to; `None` for a host that is not the platform's.
pub type RedirectTarget = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Answers plain HTTP with a redirect to the platform, and with nothing of any other host.
pub async fn serve_redirect(listener: tokio::net::TcpListener, target: Arc<RedirectTarget>, draining: CancellationToken) {
    let router = Router::new().fallback(move |request: axum::extract::Request| {
        let target = Arc::clone(&target);
        async move { redirect(&request, &*target) }
    });
    let ended = axum::serve(listener, router).with_graceful_shutdown(draining.cancelled_owned()).await;
    if let Err(error) = ended {
        tracing::error!(%error, "the redirect of plain HTTP ended");
    }
}

fn redirect(request: &axum::extract::Request, target: &RedirectTarget) -> axum::response::Response {
    use axum::http::{StatusCode, header};
    use axum::response::IntoResponse as _;
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(name, _)| name);
    match target(name) {
        Some(base) => {
            let path = request.uri().path_and_query().map_or("/", |p| p.as_str());
            (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, format!("{base}{path}"))]).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
