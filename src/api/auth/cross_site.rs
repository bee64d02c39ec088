//! Requests that another site makes a browser send, refused: `Sec-Fetch-Site` first (Fetch Metadata), else `Origin`
//! against `Host`. Beside it stand `SameSite=Strict` and JSON bodies, which need a preflight that is never granted.

use axum::http::{HeaderMap, header};

use crate::api::problem::{Kind, Problem};

/// Refuses what another site sent. `strict`: also what says nothing of where it came from, since every browser that keeps
/// `SameSite` cookies says so.
pub fn refuse_cross_site(headers: &HeaderMap, strict: bool) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let own = match (text("sec-fetch-site"), text(header::ORIGIN.as_str())) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => same_host(origin, text(header::HOST.as_str())),
        (None, None) => !strict,
    };
    if own {
        return Ok(());
    }
    Err(Problem::new(
        Kind::CrossSite,
        "a change with the session cookie must come from the platform's own pages (Sec-Fetch-Site or Origin); programs use a bearer token",
    ))
}

fn same_host(origin: &str, host: Option<&str>) -> bool {
    let authority = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    matches!((authority, host), (Some(authority), Some(host)) if authority.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_the_own_origin_passes() {
        for (pairs, passes) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://k.example"), ("host", "k.example")], false),
            (&[("origin", "https://k.example"), ("host", "k.example")], true),
            (&[("origin", "https://evil.example"), ("host", "k.example")], false),
            (&[("origin", "null"), ("host", "k.example")], false),
            (&[("origin", "https://k.example")], false),
            (&[], false),
        ] {
            assert_eq!(refuse_cross_site(&headers(pairs), true).is_ok(), passes, "{pairs:?}");
        }
        assert!(refuse_cross_site(&headers(&[]), false).is_ok());
    }
}
