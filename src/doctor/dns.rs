//! Whether names can be resolved; only ever a warning, since clusters work without.

use super::{Context, Finding, PATIENCE};

const CHECK: &str = "dns";
const FILE: &str = "/etc/resolv.conf";

pub(super) async fn check(context: &Context) -> Finding {
    let configured = judge_file(std::fs::read_to_string(FILE).ok().as_deref());
    match (&configured, &context.resolve) {
        (Ok(_), Some(host)) => {
            let answer = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((host.as_str(), 443))).await;
            judge_answer(host, answer.ok().map(|answer| answer.map(Iterator::count).map_err(|error| error.to_string())))
        }
        _ => configured.unwrap_or_else(|finding| finding),
    }
}

/// Judges the text of `/etc/resolv.conf`: an ok finding, or a warning as the error.
fn judge_file(text: Option<&str>) -> Result<Finding, Finding> {
    let remedy = "Name a resolver: `echo nameserver 192.0.2.53 >> /etc/resolv.conf` with yours, or `resolvectl dns`.";
    let Some(text) = text else {
        return Err(Finding::warning(CHECK, format!("{FILE} cannot be read, so no name can be resolved."), remedy));
    };
    let servers: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver")).map(str::trim).collect();
    if servers.is_empty() {
        return Err(Finding::warning(CHECK, format!("{FILE} names no resolver."), remedy));
    }
    Ok(Finding::ok(CHECK, format!("Names are resolved by {}.", servers.join(", "))))
}

/// Judges a look-up of `host`; `None` is one without an answer in time.
fn judge_answer(host: &str, answer: Option<Result<usize, String>>) -> Finding {
    let why = match answer {
        Some(Ok(count)) if count > 0 => return Finding::ok(CHECK, format!("{host} is resolved.")),
        Some(Ok(_)) => "it has no address".to_owned(),
        Some(Err(error)) => error,
        None => format!("there was no answer within {} seconds", PATIENCE.as_secs()),
    };
    Finding::warning(
        CHECK,
        format!("{host} cannot be resolved: {why}. Programs cannot be fetched from there."),
        format!("Try `getent hosts {host}`; without a network, give the programs as a folder by `assets.dir`."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_file_without_a_resolver_is_warned_of() {
        assert_eq!(
            judge_file(Some("search x\n nameserver 192.0.2.1\nnameserver ::1\n")).unwrap().message,
            "Names are resolved by 192.0.2.1, ::1."
        );
        for text in [None, Some(""), Some("# nameserver 192.0.2.1\n")] {
            assert_eq!(judge_file(text).unwrap_err().status, Status::Warning, "{text:?}");
        }
    }

    #[test]
    fn only_an_address_is_an_answer() {
        assert_eq!(judge_answer("x", Some(Ok(1))).status, Status::Ok);
        for answer in [None, Some(Ok(0)), Some(Err("refused".into()))] {
            assert_eq!(judge_answer("x", answer).status, Status::Warning);
        }
    }
}
