//! `kubebyon leave`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;

use super::join::Terminal;
use super::output::{self, Format, parse_duration};
use crate::node::layout::Layout;
use crate::node::leave::{self, Options};

/// Take this machine out of its cluster, and undo what join did; as root.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The platform drains the node and takes it out first; where the platform is gone, the machine is cleaned all the same.\n\
    Kept: what pods wrote into hostPath folders and local volumes, files in /etc/kubebyon/containerd.d, packages of the distribution.\n\
    It may be run again."
)]
pub struct LeaveArgs {
    /// Empty the local volumes that pods had mounted here, too; hostPath folders are never touched
    #[arg(long)]
    delete_data: bool,
    /// For how long pods may be evicted before they are ended
    #[arg(long, value_name = "T", default_value = "60s", value_parser = parse_duration)]
    drain: Duration,
    /// Do not ask the platform; its owner removes the node with `kubebyon node remove`
    #[arg(long)]
    force: bool,
}

/// Leaves.
pub async fn run(args: LeaveArgs, format: Format) -> anyhow::Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("leaving needs root: run the same command as root, with `sudo` before it");
    }
    let options = Options { delete_data: args.delete_data, drain: args.drain, force: args.force };
    let left = leave::run(&options, &Layout::default(), &Terminal::new()).await?;
    if matches!(format, Format::Json | Format::Yaml) {
        let failures: Vec<String> = left.failures.iter().map(|failure| format!("{failure:#}")).collect();
        output::value(format, &serde_json::json!({ "name": left.name, "told": left.told, "failures": failures }))?;
    } else {
        for failure in &left.failures {
            output::note(&format!("left behind: {failure:#}"));
        }
        match &left.name {
            None if left.nothing => output::line("this machine is no node: there is nothing left of one"),
            None => output::line("what a join had made is undone"),
            Some(name) if left.told => output::line(&format!("{name} left its cluster")),
            Some(name) => output::line(&format!(
                "{name} is no node any more; the platform was not told: its owner removes it with `kubebyon node remove CLUSTER {name}`"
            )),
        }
    }
    Ok(if left.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
