//! A containerd of the owner's own: whether it answers as a container runtime of Kubernetes (CRI v1), and which version it is.
//!
//! One call of gRPC, `runtime.v1.RuntimeService/Version`, whose messages are few enough to be read by hand.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::node::show::Show;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The oldest containerd that speaks CRI v1 as kubelets want it.
const OLDEST: (u64, u64) = (1, 7);

/// Checks it.
///
/// # Errors
/// It does not answer, does not speak CRI, or is too old; the sentence says what to do.
pub async fn check(socket: &Path, show: &dyn Show) -> anyhow::Result<()> {
    ensure!(socket.is_absolute(), "--containerd-socket takes an absolute path, such as /run/containerd/containerd.sock");
    let shown = socket.display();
    let (name, version) = ask(socket).await.with_context(|| format!("the containerd at {shown} cannot be used"))?;
    ensure!(name == "containerd", "what answers at {shown} is {name} {version}; only containerd can be used with --containerd-socket");
    match numbers(&version) {
        Some(found) if found < OLDEST => {
            bail!(
                "the containerd at {shown} is {version}; 1.7 is the least, and 2 is better: upgrade it, or leave --containerd-socket away"
            )
        }
        Some((0 | 1, _)) => show.note(&format!("the containerd at {shown} is {version}: Kubernetes 1.35 is the last for containerd 1.x")),
        _ => {}
    }
    Ok(())
}

async fn ask(socket: &Path) -> anyhow::Result<(String, String)> {
    // The first to install a provider wins; all of this program use the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().unix_socket(socket).http2_prior_knowledge().no_proxy().timeout(PATIENCE).build()?;
    let response = client
        .post("http://localhost/runtime.v1.RuntimeService/Version")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        // A message of no bytes, not compressed.
        .body(vec![0; 5])
        .send()
        .await
        .map_err(|_| anyhow::anyhow!("nothing answers there: is it running (`systemctl status containerd`)?"))?;
    let status = response.headers().get("grpc-status").and_then(|value| value.to_str().ok()).map(str::to_owned);
    ensure!(
        status.as_deref() != Some("12"),
        "its CRI plugin is switched off: take \"cri\" out of `disabled_plugins` in /etc/containerd/config.toml, and restart it"
    );
    let body = response.bytes().await.context("its answer broke off")?;
    let message = body.get(5..).filter(|message| !message.is_empty()).context("its answer is none of CRI's")?;
    let field = |wanted| text(message, wanted).unwrap_or_default();
    Ok((field(2), field(3)))
}

/// The text of one field of a message whose fields are all texts (Protocol Buffers' wire format).
fn text(mut message: &[u8], wanted: u64) -> Option<String> {
    const DELIMITED: u64 = 2;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        if tag & 7 != DELIMITED {
            return None;
        }
        let length = usize::try_from(varint(&mut message)?).ok()?;
        let (value, rest) = message.split_at_checked(length)?;
        if tag >> 3 == wanted {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
        message = rest;
    }
    None
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The first two numbers of a version such as `v2.2.9`.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::show::Silent;

    #[test]
    fn answers_are_read_and_garbage_is_none() {
        let message = b"\x0a\x050.1.0\x12\x0acontainerd\x1a\x06v2.2.9\x22\x02v1";
        assert_eq!((text(message, 2).as_deref(), text(message, 3).as_deref()), (Some("containerd"), Some("v2.2.9")));
        for end in 0..message.len() {
            let _ = text(&message[..end], 4);
        }
        assert_eq!(text(&[0xff; 40], 2), None);
        assert_eq!(text(b"\x12\xff\x01abc", 2), None);
        assert_eq!((numbers("v2.2.9"), numbers("1.6.20~ds1"), numbers("x")), (Some((2, 2)), Some((1, 6)), None));
    }

    #[tokio::test]
    async fn one_that_is_not_there_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let said = format!("{:#}", check(&dir.path().join("none.sock"), &Silent).await.unwrap_err());
        assert!(said.contains("nothing answers there"), "{said}");
        assert!(check(Path::new("relative.sock"), &Silent).await.is_err());
    }
}
