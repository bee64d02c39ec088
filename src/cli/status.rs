//! `kubebyon status`: how this machine's node is.

use std::process::ExitCode;

use anyhow::Context as _;

use super::output::{self, Format, fields, moment};
use crate::node::control::{self, NotRunning, Reply, Request, Status};
use crate::node::join;
use crate::node::layout::Layout;
use crate::node::membership::Membership;

/// Prints how the node is. Exit code 1 where it is not well.
pub async fn run(format: Format) -> anyhow::Result<ExitCode> {
    let layout = Layout::default();
    let Some(membership) = join::present(&layout)? else {
        output::note(
            "this machine is no node. To make it one, run the line that `kubebyon join-token create CLUSTER` prints; \
             `kubebyon join --dry-run` tells whether it is fit for it",
        );
        return Ok(ExitCode::FAILURE);
    };
    let answer = control::ask(&layout.control_socket(), &Request::Status, join::STATUS_WITHIN, async |_: &str, _: &str| {}).await;
    let status = match answer {
        Ok(Reply::Status(status)) => *status,
        Ok(other) => anyhow::bail!("the node role answered {other:?} when it was asked for its status"),
        Err(error) if error.is::<NotRunning>() => return stopped(format, &membership, &error),
        Err(error) => return Err(error).context("how the node is cannot be told"),
    };
    let well = status.connected && status.ended.is_none() && status.aspects.iter().all(|aspect| aspect.status);
    match format {
        Format::Json | Format::Yaml => output::value(format, &status)?,
        Format::Name => output::line(&status.name),
        Format::Table | Format::Wide => print(&status),
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The node role does not run: what the machine knows of itself all the same.
fn stopped(format: Format, membership: &Membership, error: &anyhow::Error) -> anyhow::Result<ExitCode> {
    match format {
        Format::Json | Format::Yaml => {
            let known = serde_json::json!({
                "node_id": membership.node_id, "name": membership.name, "cluster_id": membership.cluster.id,
                "cluster": membership.cluster.name, "server": membership.server, "address": membership.address,
                "connected": false, "trouble": error.to_string(),
            });
            output::value(format, &known)?;
        }
        Format::Name => output::line(&membership.name),
        Format::Table | Format::Wide => {
            fields(&[
                ("NODE", membership.name.clone()),
                ("CLUSTER", membership.cluster.name.clone()),
                ("PLATFORM", membership.server.clone()),
                ("TUNNEL", "down: the node role does not run".to_owned()),
            ]);
            output::note(&format!("error: {error}"));
        }
    }
    Ok(ExitCode::FAILURE)
}

fn print(status: &Status) {
    let since = status.since.map_or_else(String::new, |since| format!(" since {}", moment(since)));
    let tunnel = match (&status.ended, status.connected) {
        (Some(ended), _) => format!("ended: {}", ended.message),
        (None, true) => {
            let way = status.endpoint.as_ref().map_or_else(String::new, |endpoint| format!(" to {}:{}", endpoint.host, endpoint.port));
            format!("up{since}{way}")
        }
        (None, false) => format!("down{since}: {}", status.trouble.as_deref().unwrap_or("it is being made")),
    };
    let program = |program: &control::ProgramStatus| {
        let state = match (program.pid, &program.trouble) {
            (Some(pid), None) => format!("runs (pid {pid})"),
            (Some(pid), Some(trouble)) => format!("runs (pid {pid}): {trouble}"),
            (None, trouble) => format!("does not run: {}", trouble.as_deref().unwrap_or("it is being started")),
        };
        let again = if program.restarts == 0 { String::new() } else { format!(", started again {} times", program.restarts) };
        format!("{}: {state}{again}", program.name)
    };
    let aspects = status.aspects.iter().map(|aspect| {
        let mark = if aspect.status { "ok  " } else { "FAIL" };
        format!("{mark} {:<24} {}", aspect.kind, aspect.message)
    });
    fields(&[
        ("NODE", status.name.clone()),
        ("CLUSTER", status.cluster.clone()),
        ("PLATFORM", status.server.clone()),
        ("ADDRESS", status.address.to_string()),
        ("PODS", status.pod_cidr.map(|range| range.to_string()).unwrap_or_default()),
        ("TUNNEL", tunnel),
        ("VERSION", status.version.clone()),
        ("PROGRAMS", status.programs.iter().map(program).collect::<Vec<_>>().join("\n")),
        ("STATE", aspects.collect::<Vec<_>>().join("\n")),
    ]);
}
