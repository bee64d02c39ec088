//! `kubebyon doctor`.

use std::process::ExitCode;

use super::called;
use super::output::{self, Format};
use crate::assets::{Arch, Assets, State};
use crate::config::{Loaded, Role};
use crate::doctor::{self, AssetsReport, Context, Finding, Status};
use crate::domain::cluster::PublicAccessMode;
use crate::domain::{Ambient, Timestamp};
use crate::node::join;
use crate::node::layout::Layout;

/// Check this machine, and say what to mend.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 when a check failed; a warning is none.")]
pub struct DoctorArgs {
    /// Hash every program instead of comparing sizes and times
    #[arg(long)]
    deep: bool,
}

/// No clock may be before this: the day on which this release was begun.
const BUILT_AT: Timestamp = Timestamp::from_micros(1_764_460_800_000_000);

/// Runs every check and prints what it found.
pub async fn run(args: DoctorArgs, loaded: &Loaded, format: Format) -> anyhow::Result<ExitCode> {
    let layout = Layout::default();
    let mut findings = Vec::new();
    if let Some(membership) = join::present(&layout)? {
        findings = super::doctor_node::run(&layout, &membership, &Ambient::system()).await;
    }
    // A machine may be both; one that is a node alone is not judged as a platform.
    if findings.is_empty() || is_platform(loaded) {
        findings.extend(platform(&args, loaded).await);
    }
    print(format, &findings)?;
    Ok(if doctor::worst(&findings) == Status::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether a daemon is configured here or has run.
fn is_platform(loaded: &Loaded) -> bool {
    std::path::Path::new(crate::config::DEFAULT_FILE).exists() || super::client::socket_path(&loaded.config.data_dir).exists()
}

/// The checks of a platform.
async fn platform(args: &DoctorArgs, loaded: &Loaded) -> Vec<Finding> {
    let config = &loaded.config;
    let context = Context {
        data_dir: config.data_dir.clone(),
        listen: config.listen.0,
        advertise_host: config.advertise_address.as_ref().map(|address| address.host.clone()),
        control_plane_host: config.control_plane_host.clone(),
        node_ports: (config.has_role(Role::Api) && config.public_access_mode == PublicAccessMode::Nodeport)
            .then_some(config.nodeport_range.first..=config.nodeport_range.last),
        cluster_memory: config.limits.cluster_memory_estimate_bytes.bytes(),
        assets: Some(assets_report(loaded, args.deep)),
        resolve: None,
        built_at: BUILT_AT,
        ambient: Ambient::system(),
    };
    doctor::run(&context).await
}

/// Damaged programs are problems, and so is having none of any version; versions that nobody fetched are not.
fn assets_report(loaded: &Loaded, deep: bool) -> AssetsReport {
    let settings = super::assets_settings(&loaded.config);
    let assets = Assets::open(settings.dir, Arch::host(), settings.mirror);
    let complete = crate::assets::catalogue::RELEASES.iter().filter(|release| assets.programs(release.kubernetes).is_ok());
    let versions = complete.map(|release| release.kubernetes.to_string()).collect();
    let damaged = assets.verify_all(deep).into_iter().filter(|status| matches!(status.state, State::Damaged(_)));
    AssetsReport {
        versions,
        problems: damaged
            .map(|status| format!("{} is {}: run `{}`", status.want, status.state, super::assets::remedy(&status.want)))
            .collect(),
    }
}

fn print(format: Format, findings: &[Finding]) -> anyhow::Result<()> {
    if matches!(format, Format::Json | Format::Yaml) {
        return output::value(format, &serde_json::json!({ "items": findings }));
    }
    if format == Format::Name {
        for finding in findings {
            output::line(finding.check);
        }
        return Ok(());
    }
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => "ok  ",
            Status::Warning => "warn",
            Status::Failed => "FAIL",
        };
        output::line(&format!("{mark}  {:<12} {}", finding.check, finding.message));
        if let Some(remedy) = &finding.remedy {
            let remedy = remedy.replace("`kubebyon ", &format!("`{}", called::command("")));
            output::line(&format!("      {:<12} → {remedy}", ""));
        }
    }
    Ok(())
}
