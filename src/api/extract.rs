//! What handlers read from a request, each with its rejections as problems: JSON bodies, queries, path parameters.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;

use super::problem::{FieldError, Kind, Problem};
use crate::domain::page::{DEFAULT_LIMIT, MAX_LIMIT, PageRequest};

/// The most that a body may have, in bytes.
pub const BODY_LIMIT: usize = 1024 * 1024;
/// The most characters that a `continue` may have.
pub const MAX_CONTINUE: usize = 256;

/// A JSON body, with the bytes that it was read from.
#[derive(Debug, Clone)]
pub struct JsonBody<T> {
    /// What it says.
    pub value: T,
    /// Its bytes, for idempotency.
    pub bytes: Bytes,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(Kind::UnsupportedMediaType, "send the body as JSON, with Content-Type: application/json"));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|rejection| body_problem(&rejection))?;
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Problem::new(Kind::Invalid, "the body must be a JSON object"));
        }
        Ok(Self { value: parse(&bytes)?, bytes })
    }
}

fn body_problem(rejection: &BytesRejection) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        Problem::new(Kind::TooLarge, "the body is larger than what is taken here")
    } else {
        Problem::new(Kind::BadRequest, "the body ended before it was whole; send it again")
    }
}

/// Reads JSON: what is no JSON is a bad request, what has the wrong fields or types is invalid.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        if inner.is_data() {
            let field = match unknown_field(&inner) {
                Some(name) if path == "." => name,
                Some(name) => format!("{path}.{name}").replace(&format!("{name}.{name}"), &name),
                None => path,
            };
            let message = without_position(&inner);
            let mut problem = Problem::new(Kind::Invalid, format!("{field}: {message}"));
            problem.errors.push(FieldError { field, message });
            problem
        } else {
            Problem::new(Kind::BadRequest, format!("the body is no JSON: {inner}"))
        }
    })?;
    deserializer.end().map_err(|error| Problem::new(Kind::BadRequest, format!("the body goes on after its JSON: {error}")))?;
    Ok(value)
}

fn unknown_field(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')).map(|(name, _)| name.to_owned())
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ").map_or(text.clone(), |at| text[..at].to_owned())
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The query, read whole: unknown and doubled parameters are refused.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            Problem::new(Kind::BadRequest, format!("the query cannot be read: {text}"))
        })
    }
}

/// The parameters of the path.
#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        axum::extract::Path::<T>::from_request_parts(parts, state)
            .await
            .map(|path| Self(path.0))
            .map_err(|rejection| Problem::new(Kind::BadRequest, format!("the path cannot be read: {}", rejection.body_text())))
    }
}

/// The page that a list asks for.
pub fn page(limit: Option<u32>, after: Option<String>) -> Result<PageRequest, Problem> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::bad_parameter("limit", format!("{limit} is out of range; give 1 to {MAX_LIMIT}")));
    }
    if after.as_ref().is_some_and(|after| after.len() > MAX_CONTINUE) {
        return Err(Problem::bad_parameter("continue", format!("it is too long; no list gives more than {MAX_CONTINUE} characters")));
    }
    Ok(PageRequest { limit, after })
}

/// Checks the length of a name that a query asks for.
pub fn name_parameter(name: Option<&str>) -> Result<(), Problem> {
    match name {
        Some(name) if !(1..=64).contains(&name.chars().count()) => Err(Problem::bad_parameter("name", "a name has 1 to 64 characters")),
        _ => Ok(()),
    }
}

/// A whole number as JSON Schema has it: `600.0` is one too.
pub fn whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    use serde::de::Error as _;
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let whole = |float: f64| (float.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&float)).then_some(float as u64);
    let value = number.as_u64().or_else(|| number.as_f64().and_then(whole));
    value.map(Some).ok_or_else(|| D::Error::custom(format!("{number} is no whole number from 0 on")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only how it is read matters")]
    struct Thing {
        name: String,
        size: Option<u8>,
    }

    fn refused(text: &str) -> Problem {
        parse::<Thing>(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn says_which_field_is_wrong() {
        assert_eq!(refused(r#"{"name":"a","size":"big"}"#).errors[0].field, "size");
        assert_eq!(refused(r#"{"name":"a","colour":1}"#).errors[0].field, "colour");
        assert!(refused("{}").errors[0].message.contains("`name`"));
    }

    #[test]
    fn tells_what_is_no_json_from_what_is_not_valid() {
        assert!(refused("{").is(Kind::BadRequest));
        assert!(refused(r#"{"name":"a"} x"#).is(Kind::BadRequest));
        assert!(refused("[]").is(Kind::Invalid));
    }

    #[test]
    fn a_limit_stays_within_its_range() {
        assert_eq!(page(None, None).unwrap().limit, DEFAULT_LIMIT);
        assert!(page(Some(0), None).is_err());
        assert!(page(Some(1001), None).is_err());
    }
}
