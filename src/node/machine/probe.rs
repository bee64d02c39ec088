//! What is asked of the kernel and of programs rather than read from files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use super::Probed;
use crate::node::layout::Layout;

/// The longest that a program may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks. `server` is an address of the platform's, where one is known: it decides the address on a machine without a default route.
pub async fn probe(layout: &Layout, server: Option<IpAddr>) -> Probed {
    let addresses = addresses();
    let chosen = towards(Ipv4Addr::new(192, 0, 2, 1).into()).or_else(|| server.and_then(towards));
    let first = || addresses.iter().map(|(_, address)| *address).find(|address| address.is_ipv4() && !address.is_loopback());
    Probed {
        architecture: architecture(),
        address: chosen.or_else(first),
        addresses,
        disk_free: disk_free(layout),
        forward_drop: forward_drop().await,
        root: nix::unistd::geteuid().is_root(),
    }
}

fn architecture() -> String {
    match std::env::consts::ARCH {
        "x86_64" => "amd64".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    }
}

fn addresses() -> Vec<(String, IpAddr)> {
    let Ok(listed) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    listed
        .filter_map(|held| {
            let address = held.address?;
            let ip = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            Some((held.interface_name, ip.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?))
        })
        .collect()
}

/// The address that packets to `target` would bear. Nothing is sent.
fn towards(target: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SocketAddr::new(target, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified() && !address.is_loopback())
}

/// Bytes free where containers are kept: of the folder that is there already.
fn disk_free(layout: &Layout) -> Option<u64> {
    let state = layout.state_dir();
    let there = state.ancestors().find(|folder| folder.exists())?;
    let stat = nix::sys::statvfs::statvfs(there).ok()?;
    Some(stat.blocks_available() * stat.fragment_size())
}

async fn forward_drop() -> Option<bool> {
    if let Some(rules) = output("iptables", &["-w", "2", "-S", "FORWARD"]).await {
        return Some(rules.lines().any(|line| line.trim() == "-P FORWARD DROP"));
    }
    output("nft", &["list", "ruleset"]).await.map(|ruleset| drops_forwarded(&ruleset))
}

/// Whether a chain at the hook `forward` of a ruleset drops by its policy.
pub(super) fn drops_forwarded(ruleset: &str) -> bool {
    ruleset.lines().any(|line| line.contains("hook forward ") && line.contains("policy drop"))
}

async fn output(program: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let run = tokio::process::Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, run).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
