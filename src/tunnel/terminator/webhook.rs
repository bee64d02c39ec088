//! The revocation webhook: `SubjectAccessReview` in, a denial or no opinion out.
//!
//! It is asked only about credentials that the API server's match conditions name, and decides exactly. It never allows.
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::Revocations;
use super::targets::Stream;
use crate::tunnel::CREDENTIAL_ID;

/// The largest review that is read, in bytes.
pub(super) const MAX_REVIEW_BYTES: usize = 256 * 1024;
/// How long a request's body may take to come.
const BODY_DEADLINE: Duration = Duration::from_secs(5);
/// How long a connection may be silent. Go's client closes idle ones after 90 s; were this shorter, it would now and then lose a race and a request with it.
const IDLE_DEADLINE: Duration = Duration::from_secs(120);

/// Serves HTTP/1.1 on a connection whose TLS is done, until its client or `stopped` ends it.
pub(super) async fn serve(stream: impl Stream + 'static, revocations: Revocations, stopped: CancellationToken) {
    let service = service_fn(move |request| {
        let revocations = revocations.clone();
        async move { Ok::<_, Infallible>(respond(request, &revocations).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_DEADLINE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        result = connection => if let Err(error) = result {
            tracing::debug!(%error, "a connection of the revocation webhook ended early");
        },
        () = stopped.cancelled() => {}
    }
}

async fn respond(request: Request<Incoming>, revocations: &Revocations) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only POST is served here\n");
    }
    let body = tokio::time::timeout(BODY_DEADLINE, Limited::new(request.into_body(), MAX_REVIEW_BYTES).collect()).await;
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return answer(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "the review is too large\n");
        }
        Ok(Err(_)) => return answer(StatusCode::BAD_REQUEST, "text/plain", "the review was cut\n"),
        Err(_) => return answer(StatusCode::REQUEST_TIMEOUT, "text/plain", "the review came too slowly\n"),
    };
    let revoked = revocations.borrow().clone();
    match review(&body, &revoked) {
        Ok(status) => answer(StatusCode::OK, "application/json", status),
        Err(reason) => answer(StatusCode::BAD_REQUEST, "text/plain", reason),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubjectAccessReview {
    api_version: String,
    kind: String,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// The JSON that answers a review, or why it is none.
pub(super) fn review(body: &[u8], revoked: &BTreeSet<String>) -> Result<String, String> {
    let review: SubjectAccessReview = serde_json::from_slice(body).map_err(|error| format!("this is no SubjectAccessReview: {error}\n"))?;
    if review.api_version != "authorization.k8s.io/v1" || review.kind != "SubjectAccessReview" {
        return Err("this is no authorization.k8s.io/v1 SubjectAccessReview\n".to_owned());
    }
    let extra = review.spec.extra.unwrap_or_default();
    let denied = extra.get(CREDENTIAL_ID).is_some_and(|ids| ids.iter().any(|id| revoked.contains(id)));
    let status = if denied {
        serde_json::json!({"allowed": false, "denied": true, "reason": "this credential was revoked"})
    } else {
        serde_json::json!({"allowed": false, "denied": false})
    };
    Ok(serde_json::json!({"apiVersion": review.api_version, "kind": review.kind, "spec": {}, "status": status}).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(spec: &Value) -> Value {
        let body =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}).to_string();
        let revoked = BTreeSet::from(["X509SHA256=ff".to_owned()]);
        serde_json::from_str::<Value>(&review(body.as_bytes(), &revoked).unwrap()).unwrap()["status"].clone()
    }

    #[test]
    fn denies_what_is_revoked_and_has_no_opinion_on_the_rest() {
        let denied = json!({"allowed": false, "denied": true, "reason": "this credential was revoked"});
        let no_opinion = json!({"allowed": false, "denied": false});
        assert_eq!(status(&json!({"user": "jane", "extra": {CREDENTIAL_ID: ["X509SHA256=ff"]}})), denied);
        assert_eq!(status(&json!({"user": "jane", "extra": {CREDENTIAL_ID: ["JTI=1", "X509SHA256=ff"]}})), denied);
        assert_eq!(status(&json!({"user": "jane", "extra": {CREDENTIAL_ID: ["X509SHA256=fe"]}})), no_opinion);
        assert_eq!(status(&json!({"user": "jane", "extra": {"other": ["X509SHA256=ff"]}})), no_opinion);
        assert_eq!(status(&json!({"user": "jane", "extra": null})), no_opinion);
        assert_eq!(status(&json!({"user": "X509SHA256=ff"})), no_opinion);
    }

    #[test]
    fn refuses_what_is_no_review() {
        for body in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{}}"#,
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"Pod","spec":{}}"#,
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"extra":{"a":1}}}"#,
        ] {
            assert!(review(body.as_bytes(), &BTreeSet::new()).is_err(), "{body}");
        }
    }
}
