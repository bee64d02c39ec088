//! `Idempotency-Key`: a create that is sent twice is done once, and answers the same.
//!
//! The answer is kept in the transaction of what it tells of. Answers that carry secrets are never kept: those creates take
//! no key.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::auth::Caller;
use super::problem::{Kind, Problem};
use super::state::ApiState;
use crate::store::idempotency::{self, Answer};
use crate::store::{self, Tx};

/// The name of the header, and the most characters that it may have.
pub const HEADER: &str = "idempotency-key";
const MAX_LENGTH: usize = 255;

/// A request's key, with what the request is.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    key: Option<String>,
    method_and_path: String,
}

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let key = match parts.headers.get(HEADER) {
            None => None,
            Some(value) => Some(
                value
                    .to_str()
                    .ok()
                    .filter(|key| (1..=MAX_LENGTH).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic()))
                    .map(str::to_owned)
                    .ok_or_else(|| {
                        Problem::bad_parameter(
                            "Idempotency-Key",
                            format!("give 1 to {MAX_LENGTH} visible ASCII characters, such as a UUID"),
                        )
                    })?,
            ),
        };
        Ok(Self { key, method_and_path: format!("{} {}", parts.method, parts.uri.path()) })
    }
}

impl IdempotencyKey {
    /// The answer that this request got before; read in the transaction that would do it, so that of two who race one waits
    /// for the other. The same key with another request is refused.
    pub async fn earlier(&self, tx: &mut Tx, caller: &Caller, body: &[u8]) -> Result<Option<Response>, Problem> {
        let Some(key) = &self.key else { return Ok(None) };
        let Some(answer) = idempotency::find(tx.sql(), &caller.key(), key).await? else { return Ok(None) };
        if answer.request_hash != self.request_hash(body) {
            return Err(Problem::new(
                Kind::IdempotencyKeyReused,
                "this Idempotency-Key was sent with another request within the last day; take a new one",
            ));
        }
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
            ("idempotency-replayed".parse().expect("a constant"), HeaderValue::from_static("true")),
        ];
        Ok(Some((status, headers, answer.body).into_response()))
    }

    /// Keeps the answer and gives it.
    pub async fn keep<T: Serialize + Sync>(
        &self,
        tx: &mut Tx,
        state: &ApiState,
        caller: &Caller,
        request: &[u8],
        (status, body): (StatusCode, &T),
    ) -> Result<Response, Problem> {
        if let Some(key) = &self.key {
            let body = serde_json::to_string(body).map_err(|cause| Problem::internal("writing an answer", &cause.into()))?;
            let answer = Answer { request_hash: self.request_hash(request), status: status.as_u16(), body };
            match idempotency::insert(tx, &caller.key(), key, &answer, state.ambient.now()).await {
                Err(store::Error::Exists(_)) => {
                    return Err(Problem::new(Kind::Conflict, "the same request is being done at this moment; send it again").retry_after(1));
                }
                other => other?,
            }
        }
        Ok((status, Json(body)).into_response())
    }

    fn request_hash(&self, body: &[u8]) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update(self.method_and_path.as_bytes());
        hash.update([0]);
        hash.update(body);
        hash.finalize().to_vec()
    }
}
