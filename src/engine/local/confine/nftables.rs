//! nftables: a cluster's uid reaches its own endpoints and nothing else, DNS included.
//!
//! One table for each cluster, applied whole in one transaction; stateless, so that nothing of the data path is tracked.
//! May import: `domain`.

use std::net::Ipv4Addr;
use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;

use crate::domain::ClusterId;
use crate::engine::plan::ports;

/// The name of a cluster's table, in family `inet`.
pub fn table(cluster: ClusterId) -> String {
    format!("kubebyon_{}", cluster.uuid().simple())
}

/// The transaction that puts a cluster's rules in the place of what stands.
///
/// The uid may send to its own address, but for the daemon's terminator there, and may answer from the ports that its programs listen on (an answer is TCP and no bare SYN: no
/// connection can be opened with it). Its etcd takes connections of its own uid, root and the daemon alone. Packets without a
/// socket (resets that the kernel sends) match no `skuid` and pass.
pub fn ruleset(cluster: ClusterId, uid: u32, address: Ipv4Addr, daemon_uid: u32) -> String {
    let table = table(cluster);
    let listening = [ports::ETCD_CLIENT, ports::ETCD_PEER, ports::API_SERVER, ports::CONTROLLER_MANAGER, ports::SCHEDULER]
        .map(|p| p.to_string())
        .join(", ");
    let (client, peer, terminator) = (ports::ETCD_CLIENT, ports::ETCD_PEER, ports::TERMINATOR);
    let callers = if daemon_uid == 0 { format!("0, {uid}") } else { format!("0, {daemon_uid}, {uid}") };
    format!(
        "\
table inet {table}
delete table inet {table}
table inet {table} {{
	chain output {{
		type filter hook output priority filter; policy accept;
		meta skuid {uid} goto own
		ip daddr {address} tcp dport {{ {client}, {peer} }} meta skuid != {{ {callers} }} reject with tcp reset
	}}
	chain own {{
		ip daddr {address} tcp dport {terminator} reject with tcp reset
		ip daddr {address} accept
		ip saddr {address} tcp sport {{ {listening} }} tcp flags & (syn | ack) != syn accept
		meta l4proto tcp reject with tcp reset
		reject with icmpx type admin-prohibited
	}}
}}
"
    )
}

/// Applies a transaction.
pub async fn apply(rules: &str) -> anyhow::Result<()> {
    let mut child = nft(&["-f", "-"])?;
    let mut input = child.stdin.take().context("nft has no standard input")?;
    input.write_all(rules.as_bytes()).await.context("cannot hand the rules to nft")?;
    drop(input);
    finish(child).await.context("nft refuses the rules that confine a cluster; is the kernel's nf_tables there (modprobe nf_tables)?")?;
    Ok(())
}

/// Removes a cluster's table; one that is not there is well.
pub async fn remove(cluster: ClusterId) -> anyhow::Result<()> {
    let name = table(cluster);
    // Declared first, so that deleting it cannot fail for its absence; both in one transaction.
    apply(&format!("table inet {name}\ndelete table inet {name}\n"))
        .await
        .with_context(|| format!("cannot remove the nft table inet {name}"))
}

/// Whether a cluster's table stands.
pub async fn present(cluster: ClusterId) -> anyhow::Result<bool> {
    let listing = finish(nft(&["list", "tables", "inet"])?).await?;
    let wanted = format!("table inet {}", table(cluster));
    Ok(listing.lines().any(|line| line == wanted))
}

fn nft(args: &[&str]) -> anyhow::Result<tokio::process::Child> {
    let spawned = tokio::process::Command::new("nft")
        .args(args)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    match spawned {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("the program nft is missing, and without it no cluster can be confined: install the package nftables")
        }
        other => other.context("cannot run nft"),
    }
}

async fn finish(child: tokio::process::Child) -> anyhow::Result<String> {
    let output = tokio::time::timeout(std::time::Duration::from_secs(30), child.wait_with_output())
        .await
        .context("nft does not answer within 30 s")?
        .context("cannot wait for nft")?;
    if !output.status.success() {
        bail!("nft ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::domain::Ambient;

    #[test]
    fn the_rules_of_a_cluster() {
        let cluster = ClusterId::from(uuid::Uuid::from_u128(7));
        insta::assert_snapshot!(ruleset(cluster, 900_007, Ipv4Addr::new(127, 64, 0, 7), 998));
    }

    /// What happens to a connection that a uid opens: `Ok` with what it read, else the error's kind. Runs in a shell of its own uid.
    fn dial_as(uid: u32, to: SocketAddr) -> String {
        let script = format!("exec 3<>/dev/tcp/{}/{} && head -c 2 <&3 && echo done >&3", to.ip(), to.port());
        let mut command = std::process::Command::new("timeout");
        command.args(["5", "bash", "-c", &script]);
        std::os::unix::process::CommandExt::uid(&mut command, uid);
        let output = command.output().unwrap();
        if output.status.success() { String::from_utf8_lossy(&output.stdout).into_owned() } else { "refused".into() }
    }

    fn serve(at: SocketAddr) {
        let listener = TcpListener::bind(at).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.write_all(b"hi").unwrap();
                let _ = stream.read(&mut [0; 8]);
            }
        });
    }

    /// Needs root and nft. The server of the confined address runs as root here: what is tested is who may dial what.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_uid_reaches_its_own_address_alone() {
        let cluster = ClusterId::generate(&Ambient::system());
        let (uid, other, own) = (965_011, 965_012, Ipv4Addr::new(127, 127, 250, 11));
        let etcd = SocketAddr::from((own, ports::ETCD_CLIENT));
        let api = SocketAddr::from((own, ports::API_SERVER));
        let tunnel = SocketAddr::from((own, ports::TERMINATOR));
        let foreign = SocketAddr::from((Ipv4Addr::new(127, 127, 250, 12), ports::API_SERVER));
        for at in [etcd, api, tunnel, foreign] {
            serve(at);
        }
        apply(&ruleset(cluster, uid, own, 0)).await.unwrap();
        apply(&ruleset(cluster, uid, own, 0)).await.unwrap();
        assert!(present(cluster).await.unwrap());
        let seen = tokio::task::spawn_blocking(move || {
            [(uid, api), (uid, etcd), (uid, tunnel), (uid, foreign), (0, etcd), (0, tunnel), (other, etcd), (other, api), (other, foreign)]
                .map(|(u, a)| dial_as(u, a))
        })
        .await
        .unwrap();
        remove(cluster).await.unwrap();
        remove(cluster).await.unwrap();
        assert!(!present(cluster).await.unwrap());
        assert_eq!(seen, ["hi", "hi", "refused", "refused", "hi", "hi", "refused", "hi", "hi"]);
    }
}
