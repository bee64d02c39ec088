//! The `continue` tokens of lists: the key of a page's last row, with the list's own mark so that no list takes
//! another's token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Error, Result};
use crate::domain::page::{MAX_LIMIT, PageRequest};

/// The token after the row with that key in the list so named.
pub(super) fn encode(list: &str, key: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}/{key}"))
}

/// The key of a request's token; `None` when it asks for the first page.
pub(super) fn decode(list: &str, page: &PageRequest) -> Result<Option<String>> {
    let Some(token) = &page.after else { return Ok(None) };
    let text = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.and_then(|t| t.strip_prefix(list)?.strip_prefix('/').map(str::to_owned)).map(Some).ok_or(Error::BadContinue)
}

/// The same, of a list whose keys have a form.
pub(super) fn decode_as<T: std::str::FromStr>(list: &str, page: &PageRequest) -> Result<Option<T>> {
    decode(list, page)?.map(|key| key.parse().map_err(|_| Error::BadContinue)).transpose()
}

/// How many rows to read for a page: one more than it may have.
pub(super) fn surplus(page: &PageRequest) -> u32 {
    limit(page) + 1
}

/// How many rows a page may have.
pub(super) fn limit(page: &PageRequest) -> u32 {
    page.limit.clamp(1, MAX_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(token: &str) -> PageRequest {
        PageRequest { limit: 1, after: Some(token.to_owned()) }
    }

    #[test]
    fn a_token_is_good_for_its_own_list_alone() {
        let token = encode("projects", "a/ü");
        assert_eq!(decode("projects", &request(&token)).unwrap().as_deref(), Some("a/ü"));
        assert!(matches!(decode("users", &request(&token)), Err(Error::BadContinue)));
        assert!(matches!(decode_as::<i64>("projects", &request(&token)), Err(Error::BadContinue)));
        assert!(matches!(decode("projects", &request("%%")), Err(Error::BadContinue)));
    }
}
