//! `/join.sh`, and the line that runs it: what there is before a machine has a kubebyon.
//!
//! The script names the platform by the configured URL and never by what the client sent; where the platform's certificate is not one that
//! every machine trusts, the script and the line pin its key.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};

use crate::api::problem::{Kind, Problem};
use crate::api::state::{ApiState, JoinTrust};
use crate::api::v1::settings::Effective;
use crate::domain::access;
use crate::domain::join::ARCHITECTURES;

const SCRIPT: &str = include_str!("join.sh");

/// Where machines join, and how they know the platform there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    /// The platform's URL, without a slash at its end.
    pub server: String,
    /// How it is known.
    pub trust: JoinTrust,
}

impl Way {
    /// As it is at present.
    pub async fn current(state: &ApiState) -> Result<Self, Problem> {
        let server = Effective::read(state, &mut *state.store.read().await?).await?.join_base_url();
        let host = access::host_of(&server).unwrap_or_default();
        let trust = state.ports.identity.trust(host).map_err(|why| Problem::new(Kind::Conflict, why))?;
        Ok(Self { server, trust })
    }

    /// The line that makes a machine a node: one command, to be pasted. `sudo`: by somebody who may not be root. `arguments` are for
    /// `kubebyon join`, and are words that a shell takes as they are.
    pub fn line(&self, sudo: bool, arguments: &str) -> String {
        let curl = match &self.trust.pin {
            Some(pin) => format!("curl -fsSLk --pinnedpubkey {}", quoted(&format!("sha256//{pin}"))),
            None => "curl -fsSL".to_owned(),
        };
        let url = format!("{}/join.sh", self.server);
        let url = if url.bytes().all(|b| b.is_ascii_alphanumeric() || b":/.-_".contains(&b)) { url } else { quoted(&url) };
        let sudo = if sudo { "sudo " } else { "" };
        format!("{curl} {url} | {sudo}sh -s -- {arguments}")
    }
}

/// A word as a POSIX shell takes it, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Get the join script
///
/// For `sh -s -- TOKEN` on the machine that is to become a node. Served under the platform's own names alone.
#[utoipa::path(get, path = "/join.sh", tag = "join", operation_id = "get_join_script", security(()),
    responses((status = 200, description = "The script, for POSIX shells", body = String, content_type = "text/x-shellscript")),
    extensions(("x-problems" = json!([404, 409]))))]
pub async fn script(State(state): State<ApiState>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let asked = uri.host().map(str::to_owned).or_else(|| host_header(&headers));
    let names = state.ports.addresses.current().platform_names;
    let own = |host: &String| names.iter().any(|name| name.eq_ignore_ascii_case(host.trim_end_matches('.')));
    if !asked.as_ref().map(|host| host.trim_matches(['[', ']']).to_owned()).as_ref().is_some_and(own) {
        let detail = "the platform is not known by the name in this URL: use the line that `kubebyon join-token create` prints, or have the \
                      operator set advertise_address or join_base_url";
        return Err(Problem::new(Kind::NotFound, detail));
    }
    let way = Way::current(&state).await?;
    let mut sums = Vec::new();
    for architecture in ARCHITECTURES {
        let program = state.ports.node_files.kubebyon(architecture).await;
        let program = program.map_err(|cause| Problem::internal("looking for kubebyon's own program", &cause))?;
        sums.push(program.map_or_else(|_| String::new(), |program| program.sha256));
    }
    let pin = way.trust.pin.as_ref().map_or_else(String::new, |pin| format!("sha256//{pin}"));
    let mut text = SCRIPT.to_owned();
    for (place, value) in [
        ("@SERVER@", way.server.as_str()),
        ("@PIN@", &pin),
        ("@VERSION@", env!("CARGO_PKG_VERSION")),
        ("@AMD64@", &sums[0]),
        ("@ARM64@", &sums[1]),
    ] {
        text = text.replacen(place, &quoted(value), 1);
    }
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/x-shellscript; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    Ok((headers, text).into_response())
}

/// The host of the `Host` header, without its port.
fn host_header(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::HOST)?.to_str().ok()?;
    let host = match value.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None => value.split_once(':').map_or(value, |(host, _)| host),
    };
    Some(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::join::Trust;

    fn way(server: &str, pin: Option<&str>) -> Way {
        Way { server: server.into(), trust: JoinTrust { trust: Trust::System, pin: pin.map(str::to_owned) } }
    }

    #[test]
    fn the_line_pins_the_key_where_not_every_machine_trusts_the_certificate() {
        assert_eq!(
            way("https://203.0.113.7:8443", Some("a+b/c=")).line(true, "kbj1_x"),
            "curl -fsSLk --pinnedpubkey 'sha256//a+b/c=' https://203.0.113.7:8443/join.sh | sudo sh -s -- kbj1_x"
        );
        assert_eq!(way("https://k.example", None).line(false, "kbj1_x"), "curl -fsSL https://k.example/join.sh | sh -s -- kbj1_x");
        assert_eq!(way("https://[fd00::1]", None).line(false, "t"), "curl -fsSL 'https://[fd00::1]/join.sh' | sh -s -- t");
    }

    #[test]
    fn what_is_quoted_stays_one_word() {
        assert_eq!(quoted("a'; rm -rf /; '"), r"'a'\''; rm -rf /; '\'''");
    }

    #[test]
    fn the_script_runs_by_its_last_line_alone() {
        let mut depth = 0_i32;
        let lines: Vec<&str> = SCRIPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
        let (last, rest) = lines.split_last().unwrap();
        assert_eq!(*last, r#"{ main "$@"; }"#);
        for line in rest {
            assert!(depth > 0 || line.ends_with("() {"), "{line}");
            depth += i32::from(line.ends_with("() {")) - i32::from(*line == "}");
        }
        assert_eq!(depth, 0);
        for place in ["@SERVER@", "@PIN@", "@VERSION@", "@AMD64@", "@ARM64@"] {
            assert_eq!(SCRIPT.matches(place).count(), 1, "{place}");
        }
    }

    #[test]
    fn hosts_are_taken_out_of_the_header() {
        for (value, host) in [("k.example:8443", "k.example"), ("k.example", "k.example"), ("[fd00::1]:443", "fd00::1")] {
            let headers = HeaderMap::from_iter([(header::HOST, value.parse().unwrap())]);
            assert_eq!(host_header(&headers).as_deref(), Some(host));
        }
        assert_eq!(host_header(&HeaderMap::new()), None);
    }
}
