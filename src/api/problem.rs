//! Problems (RFC 9457): the one form of every answer that is no success.
//!
//! The `type` of each kind is stable, so that programs may act on it. Causes are logged once, here, and never sent.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use crate::domain::Invalid;
use crate::domain::work::Refusal;
use crate::store;

/// The media type of problems.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What is to be done about a full disk.
pub const DISK_FULL: &str =
    "no space is left on the disk of the platform's data folder; nothing was changed: free some space there, then try again";

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $uri:literal, $status:ident, $title:literal;)+) => {
        /// What can be wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $name,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The stable `type`, a reference relative to the platform's URL.
            pub const fn uri(self) -> &'static str {
                match self { $(Self::$name => concat!("/problems/", $uri),)+ }
            }

            /// The HTTP status.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// The same for every problem of this kind.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }
        }
    };
}

kinds! {
    /// The request cannot be read: JSON, query, path or header.
    BadRequest = "bad-request", BAD_REQUEST, "The request cannot be read";
    /// No credential, or one that is not (or no longer) good.
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "Sign in first";
    /// The name or password of a sign-in is wrong.
    BadCredentials = "bad-credentials", UNAUTHORIZED, "Name or password is wrong";
    /// The caller may see it, and may not do this.
    Forbidden = "forbidden", FORBIDDEN, "Not allowed";
    /// There is no such join token, or its secret is another.
    JoinTokenUnknown = "join-token-unknown", FORBIDDEN, "The join token is not known";
    /// The join token ended.
    JoinTokenExpired = "join-token-expired", FORBIDDEN, "The join token has ended";
    /// The join token has no use left.
    JoinTokenUsedUp = "join-token-used-up", FORBIDDEN, "The join token is used up";
    /// The join token was revoked.
    JoinTokenRevoked = "join-token-revoked", FORBIDDEN, "The join token was revoked";
    /// A request with a cookie came from another site.
    CrossSite = "cross-site", FORBIDDEN, "The request came from another site";
    /// Not there, or not to be seen.
    NotFound = "not-found", NOT_FOUND, "Not found";
    /// The path has no such method.
    MethodNotAllowed = "method-not-allowed", METHOD_NOT_ALLOWED, "No such method here";
    /// The name is taken.
    NameTaken = "name-taken", CONFLICT, "The name is taken";
    /// The thing is not in a state in which this can be done.
    Conflict = "conflict", CONFLICT, "Not in its present state";
    /// The cluster is not ready.
    NotReady = "not-ready", CONFLICT, "The cluster is not ready";
    /// The cluster's deletion was asked for.
    ClusterDeleting = "cluster-deleting", CONFLICT, "The cluster is being deleted";
    /// Machines cannot join a cluster of this engine.
    TakesNoNodes = "takes-no-nodes", CONFLICT, "Machines cannot join this cluster";
    /// The node's removal was asked for and has not come to its end.
    NodeLeaving = "node-leaving", CONFLICT, "The node is being removed";
    /// The machine is a node under another name.
    OtherName = "other-name", CONFLICT, "The machine is a node under another name";
    /// The platform lacks programs that the machine needs.
    ProgramsMissing = "programs-missing", CONFLICT, "The platform lacks programs for this machine";
    /// The platform has no room for more.
    NoCapacity = "no-capacity", CONFLICT, "No room for another cluster";
    /// The configuration fixes the setting.
    SettingFixed = "setting-fixed", CONFLICT, "The configuration fixes this setting";
    /// A worker tried and could not.
    JobFailed = "job-failed", CONFLICT, "The work could not be done";
    /// The thing changed since the version that `If-Match` names.
    Stale = "stale", PRECONDITION_FAILED, "Changed meanwhile";
    /// The body is too large.
    TooLarge = "too-large", PAYLOAD_TOO_LARGE, "The body is too large";
    /// The body is not JSON.
    UnsupportedMediaType = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The body must be JSON";
    /// The file ends before the part that was asked for begins.
    NoSuchRange = "no-such-range", RANGE_NOT_SATISFIABLE, "No such part of the file";
    /// A value is refused; `errors` says which and why.
    Invalid = "invalid", UNPROCESSABLE_ENTITY, "A value is not valid";
    /// The `Idempotency-Key` was used for another request.
    IdempotencyKeyReused = "idempotency-key-reused", UNPROCESSABLE_ENTITY, "The idempotency key was used for another request";
    /// Too many attempts, or too many at once.
    Throttled = "throttled", TOO_MANY_REQUESTS, "Too many requests";
    /// The platform failed.
    Internal = "internal", INTERNAL_SERVER_ERROR, "The platform failed";
    /// The disk of the data folder is full.
    DiskFull = "disk-full", INSUFFICIENT_STORAGE, "The platform's disk is full";
    /// The platform cannot answer at this time.
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Not available at this time";
    /// It took too long.
    Timeout = "timeout", SERVICE_UNAVAILABLE, "It took too long";
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// The field's path in the body, or the name of the parameter.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub message: String,
}

/// A problem (RFC 9457), as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// What kind of problem, stable: `/problems/name-taken`, ….
    #[serde(rename = "type")]
    #[schema(format = "uri-reference", example = "/problems/not-found")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong here, and what to do.
    pub detail: String,
    /// What is wrong with which field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// After so many seconds a new attempt makes sense; also the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem of a kind, with what is wrong here.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind: kind.uri().to_owned(),
            title: kind.title().to_owned(),
            status: kind.status().as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            retry_after: None,
        }
    }

    /// What is not there and what may not be seen: the same answer for both.
    pub fn not_found(what: &str) -> Self {
        Self::new(Kind::NotFound, format!("there is no such {what}, or you may not see it"))
    }

    /// The caller may see it, and may not do this.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    /// A refused value.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Invalid::new(field, message).into()
    }

    /// A parameter that cannot be read.
    pub fn bad_parameter(name: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let mut problem = Self::new(Kind::BadRequest, format!("{name}: {message}"));
        problem.errors.push(FieldError { field: name.to_owned(), message });
        problem
    }

    /// Why a machine does not become a node.
    pub fn refused(refusal: Refusal, why: impl Into<String>) -> Self {
        let kind = match refusal {
            Refusal::TokenUnknown => Kind::JoinTokenUnknown,
            Refusal::TokenExpired => Kind::JoinTokenExpired,
            Refusal::TokenUsedUp => Kind::JoinTokenUsedUp,
            Refusal::TokenRevoked => Kind::JoinTokenRevoked,
            Refusal::ClusterDeleting => Kind::ClusterDeleting,
            Refusal::TakesNoNodes => Kind::TakesNoNodes,
            Refusal::NameInvalid | Refusal::RequestInvalid => Kind::Invalid,
            Refusal::NameTaken => Kind::NameTaken,
            Refusal::NodeLeaving => Kind::NodeLeaving,
            Refusal::OtherName => Kind::OtherName,
        };
        Self::new(kind, why)
    }

    /// The platform failed; the cause is logged here and stays here.
    pub fn internal(doing: &str, cause: &anyhow::Error) -> Self {
        tracing::error!(error = format!("{cause:#}"), "{doing} failed");
        Self::new(Kind::Internal, "the platform failed to answer; its log says why, under this answer's x-request-id")
    }

    /// The same, to be tried again after so many seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Whether this is a problem of that kind.
    pub fn is(&self, kind: Kind) -> bool {
        self.kind == kind.uri()
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        // The rules speak of the spec; requests carry its fields at their top.
        let field = invalid.field.strip_prefix("spec.").unwrap_or(&invalid.field).to_owned();
        let mut problem = Self::new(Kind::Invalid, format!("{field}: {}", invalid.message));
        problem.errors.push(FieldError { field, message: invalid.message });
        problem
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Exists(what) => Self::new(Kind::NameTaken, format!("{what} exists already; choose another name")),
            error @ store::Error::Gone(_) => Self::new(Kind::NotFound, error.to_string()),
            store::Error::Stale { expected, found } => Self::new(
                Kind::Stale,
                format!("it changed since version {expected}: version {found} stands; read it again and repeat the change"),
            ),
            error @ store::Error::BadContinue => Self::bad_parameter("continue", error.to_string()),
            error @ store::Error::Busy { .. } => {
                tracing::warn!(%error, "the store is busy");
                Self::new(Kind::Unavailable, "the platform is busy; try again in a moment").retry_after(1)
            }
            error @ store::Error::DiskFull(_) => {
                tracing::error!(%error, "the store cannot write");
                Self::new(Kind::DiskFull, DISK_FULL)
            }
            error => Self::internal("the store", &anyhow::Error::new(error)),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).map_or(Cow::Borrowed(b"{}".as_slice()), Cow::Owned);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kubebyon\""));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_unique_and_statuses_are_errors() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in Kind::ALL {
            assert!(seen.insert(kind.uri()), "{}", kind.uri());
            assert!(kind.status().is_client_error() || kind.status().is_server_error());
        }
    }

    #[test]
    fn refusals_have_the_status_that_they_say() {
        for refusal in [
            Refusal::TokenUnknown,
            Refusal::TokenExpired,
            Refusal::TokenUsedUp,
            Refusal::TokenRevoked,
            Refusal::ClusterDeleting,
            Refusal::TakesNoNodes,
            Refusal::NameInvalid,
            Refusal::NameTaken,
            Refusal::NodeLeaving,
            Refusal::OtherName,
            Refusal::RequestInvalid,
        ] {
            assert_eq!(Problem::refused(refusal, "no").status, refusal.http_status(), "{refusal:?}");
        }
    }

    #[test]
    fn the_databases_own_words_stay_inside() {
        let problem = Problem::from(store::Error::Database(anyhow::anyhow!("disk I/O error at /var/lib/secret")));
        assert!(problem.is(Kind::Internal));
        assert!(!serde_json::to_string(&problem).unwrap().contains("secret"));
    }

    #[test]
    fn a_full_disk_is_told_with_its_remedy() {
        let problem = Problem::from(store::Error::DiskFull(anyhow::anyhow!("/var/lib/secret: database or disk is full")));
        assert!(problem.is(Kind::DiskFull) && problem.status == 507);
        assert!(problem.detail.contains("free some space") && !problem.detail.contains("secret"));
    }

    #[test]
    fn fields_are_named_as_the_request_names_them() {
        let problem = Problem::from(Invalid::new("spec.pod_cidr", "is wrong"));
        assert_eq!(problem.errors, [FieldError { field: "pod_cidr".into(), message: "is wrong".into() }]);
    }
}
