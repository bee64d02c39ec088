//! The unit by which systemd keeps the node role.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::journal::{Journal, Made};
use crate::node::layout::Layout;

/// The unit's name.
pub const UNIT: &str = "kubebyon-node.service";
/// How long systemd may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The unit's text. A stop ends the node role alone: pods, and the programs that keep them, go on and are found again.
pub fn unit(layout: &Layout) -> String {
    let program = layout.bin_dir().join("kubebyon");
    format!(
        "\
# This machine as a node of a Kubernetes cluster. Written by `kubebyon join`, removed by `kubebyon leave`; change it with
# `systemctl edit {UNIT}`.

[Unit]
Description=KubeBYON node: kubelet, kube-proxy, containerd, and the tunnel to the cluster
Wants=network-online.target
After=network-online.target firewalld.service nftables.service time-sync.target
# Restarts go on for ever: a full disk or an absent network may pass.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={program} --role=node
Restart=always
RestartSec=2s
TimeoutStartSec=120s
TimeoutStopSec=30s
# Nothing here may give the service a mount namespace of its own: the kubelet's mounts have to be seen by the machine and by the next start.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=0
TasksMax=infinity
OOMScoreAdjust=-900
OOMPolicy=continue

[Install]
WantedBy=multi-user.target
",
        program = program.display()
    )
}

/// Writes the unit, has it started at boot, and starts it.
///
/// # Errors
/// systemd refuses, in its own words.
pub async fn install(layout: &Layout, journal: &mut Journal) -> anyhow::Result<()> {
    journal.note(Made::Unit(UNIT.to_owned()))?;
    journal.write(&layout.unit(), unit(layout).as_bytes(), 0o644)?;
    systemctl(&["daemon-reload"]).await?;
    systemctl(&["enable", UNIT]).await?;
    systemctl(&["restart", UNIT]).await.with_context(|| format!("the node does not start: see `journalctl -u {UNIT} -e`"))
}

/// Runs systemctl to its end.
///
/// # Errors
/// There is none, it fails, or it takes longer than two minutes.
pub async fn systemctl(args: &[&str]) -> anyhow::Result<()> {
    run(Path::new("systemctl"), args).await.map(drop)
}

/// Runs a program to its end and gives what it printed.
///
/// # Errors
/// There is none, it fails, or it takes longer than two minutes.
pub async fn run(program: &Path, args: &[&str]) -> anyhow::Result<String> {
    run_within(program, args, PATIENCE).await
}

/// Runs a program to its end, which has to come within `patience`, and gives what it printed.
///
/// # Errors
/// There is none, it fails, or it takes longer.
pub async fn run_within(program: &Path, args: &[&str], patience: Duration) -> anyhow::Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let running = tokio::process::Command::new(program)
        .args(args)
        .env("PATH", format!("{path}:/usr/sbin:/usr/bin:/sbin:/bin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let output = tokio::time::timeout(patience, running)
        .await
        .with_context(|| format!("{name} {} does not end within {} s", args.join(" "), patience.as_secs()))?
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = words.lines().rev().take(3).collect();
        let words = last.into_iter().rev().collect::<Vec<_>>().join("; ");
        bail!("{name} {} ended with {}: {words}", args.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit() {
        insta::assert_snapshot!(unit(&Layout::default()));
    }
}
