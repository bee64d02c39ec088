//! Running the programs `nft` and `iptables`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt as _;

/// Where they are looked for, after the caller's own `PATH`.
const USUAL: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin";
/// The longest that one may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a program to its end and gives what it printed; `None` when there is no such program.
///
/// # Errors
/// It ended with an error, whose words are given; it takes longer than 30 s.
pub(super) async fn run(program: &str, args: &[&str], input: &str) -> anyhow::Result<Option<String>> {
    let path = std::env::var("PATH").map_or_else(|_| USUAL.to_owned(), |own| format!("{own}:{USUAL}"));
    let spawned = tokio::process::Command::new(program)
        .args(args)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("cannot run {program}"))?,
    };
    let mut stdin = child.stdin.take().with_context(|| format!("{program} has no standard input"))?;
    let talk = async {
        // One that ends without reading is judged by how it ended.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(DEADLINE, talk)
        .await
        .with_context(|| format!("{program} does not answer within 30 s"))?
        .with_context(|| format!("cannot wait for {program}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} ended with {}: {}", args.join(" "), output.status, words.trim());
    }
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}
