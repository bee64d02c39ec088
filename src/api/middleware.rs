//! What every request goes through: an id, a span without secrets, a time limit, security headers, and panics as problems.

use std::any::Any;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;

use super::auth::Peer;
use super::problem::{Kind, Problem};
use super::state::ApiState;

/// The header that carries a request's id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Gives the request an id, a span and the headers that browsers are to heed. The span has the route, never the path or
/// the query: those may hold what is not for logs.
pub async fn observe(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let id = hex::encode(state.ambient.random::<8>());
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let peer = request.extensions().get::<Peer>().copied();
    let is_api = request.uri().path().starts_with("/api/");
    let span = tracing::info_span!("request", %id, method = %request.method(), route);
    let begun = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    span.in_scope(|| match (response.status().is_server_error(), peer.map(Peer::source)) {
        (true, source) => tracing::warn!(status, ?took, source, "answered"),
        (false, source) => tracing::debug!(status, ?took, source, "answered"),
    });
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    }
    if matches!(peer, Some(Peer::Remote { tls: true, .. })) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
    response
}

/// Ends a request that takes too long. A stream has begun by its first byte, and has no limit from there on.
pub async fn limit_time(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let limit = state.options.request_timeout;
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::new(Kind::Timeout, format!("the request was not done within {} seconds", limit.as_secs()))
            .retry_after(5)
            .into_response(),
    }
}

/// A panic as a problem; what it said is logged.
#[allow(clippy::needless_pass_by_value, reason = "the layer gives it away")]
pub fn panicked(cause: Box<dyn Any + Send + 'static>) -> Response {
    let words = cause
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| cause.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
        .to_owned();
    Problem::internal("a handler (it panicked)", &anyhow::anyhow!(words)).into_response()
}
