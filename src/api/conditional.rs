//! Optimistic concurrency: `ETag` and `If-Match` (RFC 9110), made of `resource_version`.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};

use super::problem::Problem;

/// The `resource_version` that `If-Match` names; `None` when the header is absent or `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IfMatch(pub Option<i64>);

impl<S: Send + Sync> FromRequestParts<S> for IfMatch {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(header::IF_MATCH) else { return Ok(Self(None)) };
        let refuse = || Problem::bad_parameter("If-Match", "give the ETag of the version that was read, such as \"7\"");
        let text = value.to_str().map_err(|_| refuse())?;
        if text == "*" {
            return Ok(Self(None));
        }
        let digits = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).ok_or_else(refuse)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        digits.parse().map(|version| Self(Some(version))).map_err(|_| refuse())
    }
}

/// The `ETag` of a `resource_version`.
pub fn etag(resource_version: i64) -> [(HeaderName, HeaderValue); 1] {
    let value = HeaderValue::from_str(&format!("\"{resource_version}\"")).expect("digits in quotes are a header value");
    [(header::ETAG, value)]
}
