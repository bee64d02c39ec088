//! `/assets/…`: the programs and image archives that nodes fetch. Public, as what is in them is.
//!
//! Guarantees: nothing but what the port names can be reached; a download can go on where it was cut (`Range`, `If-Range` with the
//! SHA-256 as `ETag`); it is sent in small pieces, and so many at once at most. May import: `domain`.

mod downloads;
mod range;

use std::io::{Seek as _, SeekFrom};

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use downloads::Download;
pub use downloads::Downloads;
use range::{Part, part};

use super::auth::Peer;
use super::extract::Path;
use super::problem::{Kind, Problem};
use super::state::ApiState;
use super::v1::sessions::source;

/// The longest path below `/assets/`, in bytes.
const MAX_PATH: usize = 512;

/// Sends a file, or the part of it that is asked for.
pub async fn get(
    State(state): State<ApiState>,
    peer: Option<Extension<Peer>>,
    method: Method,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let absent = || Problem::new(Kind::NotFound, "there is no such file for nodes here");
    if path.len() > MAX_PATH {
        return Err(absent());
    }
    let file = state.ports.node_files.open(&path).await.map_err(|cause| Problem::internal("opening a file for nodes", &cause))?;
    let mut file = file.ok_or_else(absent)?;
    let etag = format!("\"{}\"", file.sha256);
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let common = [
        (header::ETAG, value(&etag)?),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if text(header::IF_NONE_MATCH).is_some_and(|tags| tags == "*" || tags.split(',').any(|tag| tag.trim() == etag)) {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    // A part of another content is of no use: then all of this one comes.
    let same = text(header::IF_RANGE).is_none_or(|tag| tag == etag);
    let wanted = if method == Method::GET && same { part(text(header::RANGE), file.size) } else { Part::Whole };
    let size = file.size;
    let (status, first, length) = match wanted {
        Part::Whole => (StatusCode::OK, 0, size),
        Part::Bytes(first, last) => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Part::Nowhere => {
            let mut response = Problem::new(Kind::NoSuchRange, format!("the file has {size} bytes")).into_response();
            response.headers_mut().insert(header::CONTENT_RANGE, value(&format!("bytes */{size}"))?);
            return Ok(response);
        }
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let place = state.downloads.take(&source(peer.as_deref()))?;
        file.file.seek(SeekFrom::Start(first)).map_err(|cause| Problem::internal("reading a file for nodes", &cause.into()))?;
        Body::from_stream(Download::new(file, length, place))
    };
    let mut response = (status, common, [(header::CONTENT_LENGTH, HeaderValue::from(length))], body).into_response();
    if status == StatusCode::PARTIAL_CONTENT {
        let range = value(&format!("bytes {first}-{}/{size}", first + length - 1))?;
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    Ok(response)
}

fn value(text: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(text).map_err(|cause| Problem::internal("writing a header", &cause.into()))
}
