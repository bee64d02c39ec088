//! `kubebyon assets`: bringing programs, and seeing which are there.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use super::called;
use super::output::Format;
use crate::assets::{Arch, AssetStatus, Assets, BuildMode, Mirror, Mode, Outcome, Settings, State, Want, catalogue, progress};
use crate::domain::KubernetesVersion;

/// Programs by version and architecture: Kubernetes, etcd, helm, and what nodes run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Fetch programs from the mirror with their published checksums, else build them from their Go modules.
    Fetch(Fetch),
    #[command(visible_alias = "ls")]
    /// List the programs of this build's catalogue and how they stand.
    List(List),
}

/// Without any of --helm, --nodes and --all: what a control plane needs.
#[derive(Debug, Args)]
pub struct Fetch {
    /// A Kubernetes version, with its etcd; may be repeated. The configuration's `kubernetes_version`, else the newest, when none is given.
    #[arg(long = "kubernetes", value_name = "VERSION")]
    kubernetes: Vec<KubernetesVersion>,
    /// helm too; alone when no Kubernetes version is named.
    #[arg(long)]
    helm: bool,
    /// containerd, runc and the CNI plugins too; alone when no Kubernetes version is named.
    #[arg(long)]
    nodes: bool,
    /// The images that every node needs (pause, CoreDNS) as archives, built: for nodes that reach no registry. Comes with `--nodes --build`.
    #[arg(long)]
    images: bool,
    /// Everything in the catalogue.
    #[arg(long, conflicts_with_all = ["kubernetes", "helm", "nodes", "images"])]
    all: bool,
    /// The architecture; this machine's when not given.
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Take them from a folder, laid out like an assets folder or like a mirror.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["mirror", "build"])]
    from: Option<PathBuf>,
    /// The mirror to fetch from, instead of the configuration's `assets.mirror`.
    #[arg(long, value_name = "URL", value_parser = |text: &str| text.parse::<Mirror>())]
    mirror: Option<Mirror>,
    /// Build from Go modules: `auto` when the mirror is out of reach, `always` (also --build alone), or `never`.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_value = "auto", default_missing_value = "always")]
    build: BuildMode,
}

/// How far the list looks.
#[derive(Debug, Args)]
pub struct List {
    /// Hash every file instead of comparing sizes and times.
    #[arg(long)]
    deep: bool,
}

/// Runs `kubebyon assets …`.
///
/// # Errors
/// What could not be had, with the remedy; for `list`, when something is damaged (after the list is printed).
pub async fn run(command: Command, settings: &Settings, format: Format) -> anyhow::Result<()> {
    match command {
        Command::Fetch(fetch) => run_fetch(fetch, settings, format).await,
        Command::List(list) => run_list(&list, settings, format),
    }
}

async fn run_fetch(fetch: Fetch, settings: &Settings, format: Format) -> anyhow::Result<()> {
    if let Some(folder) = fetch.from.as_ref().filter(|folder| !folder.is_dir()) {
        anyhow::bail!("there is no folder {}; --from takes one that is laid out like an assets folder or like a mirror", folder.display());
    }
    let arch = fetch.arch.unwrap_or_else(Arch::host);
    let wants = wants(&fetch, arch, settings.kubernetes_version)?;
    let store = Assets::open(&settings.dir, arch, fetch.mirror.unwrap_or_else(|| settings.mirror.clone()));
    let mode = Mode { seed: fetch.from, build: fetch.build };
    let sink = progress::for_stderr();
    let work = store.ensure(&wants, &mode, &*sink);
    let outcomes = tokio::select! {
        outcomes = work => outcomes?,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; nothing half-made was put in place, and the next run goes on from here"),
    };
    let statuses = store.list();
    let rows: Vec<Value> = wants
        .iter()
        .zip(&outcomes)
        .filter_map(|(want, outcome)| {
            let mut row = row(&store, statuses.iter().find(|s| s.want == *want)?);
            row["outcome"] = Value::from(match outcome {
                Outcome::Present => "present",
                Outcome::Installed(source) => source.name(),
            });
            Some(row)
        })
        .collect();
    print(&rows, format, &["kind", "version", "arch", "outcome", "size"], &["path"])
}

/// What `fetch` is to bring.
fn wants(fetch: &Fetch, arch: Arch, configured: Option<KubernetesVersion>) -> anyhow::Result<Vec<Want>> {
    if fetch.all {
        return Ok(Want::all(arch));
    }
    let mut versions = fetch.kubernetes.clone();
    if versions.is_empty() && !fetch.helm && !fetch.nodes && !fetch.images {
        versions.push(configured.unwrap_or(catalogue::default_version()));
    }
    let mut wants = Vec::new();
    for version in versions {
        wants.extend(Want::control_plane(version, arch)?);
    }
    if fetch.helm {
        wants.push(Want::helm(arch));
    }
    if fetch.nodes {
        wants.extend(Want::node_set(arch));
    }
    if fetch.images || (fetch.nodes && fetch.build == BuildMode::Always) {
        wants.push(Want::images(arch));
    }
    let mut seen = std::collections::BTreeSet::new();
    wants.retain(|want| seen.insert(want.clone()));
    Ok(wants)
}

fn run_list(list: &List, settings: &Settings, format: Format) -> anyhow::Result<()> {
    let store = Assets::open(&settings.dir, Arch::host(), settings.mirror.clone());
    let statuses = store.verify_all(list.deep);
    let rows: Vec<Value> = statuses.iter().map(|status| row(&store, status)).collect();
    print(&rows, format, &["kind", "version", "arch", "state", "source", "size"], &["path", "detail"])?;
    let damaged: Vec<&AssetStatus> = statuses.iter().filter(|s| matches!(s.state, State::Damaged(_))).collect();
    match damaged.first() {
        Some(first) => anyhow::bail!("{} is {}: run `{}`", first.want, first.state, remedy(&first.want)),
        None => Ok(()),
    }
}

/// The command that brings it, as the person would type it.
pub fn remedy(want: &Want) -> String {
    let command = want.remedy();
    command.strip_prefix("kubebyon ").map_or_else(|| command.clone(), called::command)
}

/// One item as every output shows it.
fn row(store: &Assets, status: &AssetStatus) -> Value {
    let want = &status.want;
    let files = status.manifest.as_ref().map(|m| &m.files);
    let source = files.and_then(|f| f.values().next()).map(|f| f.source.name());
    let detail = match &status.state {
        State::Damaged(reason) => reason.clone(),
        State::Missing => remedy(want),
        State::Ready => String::new(),
    };
    json!({
        "name": format!("{}/{}/{}", want.kind.name(), want.version, want.arch.name()),
        "kind": want.kind.name(),
        "version": want.version,
        "arch": want.arch.name(),
        "state": status.state.name(),
        "source": source,
        "size": status.manifest.as_ref().map(crate::assets::Manifest::bytes),
        "path": want.dir(store.dir()),
        "detail": detail,
        "files": files,
    })
}

fn print(rows: &[Value], format: Format, columns: &[&str], wide: &[&str]) -> anyhow::Result<()> {
    let text = match format {
        Format::Json => serde_json::to_string_pretty(&json!({ "items": rows }))? + "\n",
        Format::Yaml => serde_saphyr::to_string(&json!({ "items": rows }))?,
        Format::Name => rows.iter().filter_map(|r| r["name"].as_str()).fold(String::new(), |all, name| all + name + "\n"),
        Format::Table => table(rows, columns),
        Format::Wide => table(rows, &[columns, wide].concat()),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("the list could not be written to standard output"),
        _ => Ok(()),
    }
}

fn table(rows: &[Value], columns: &[&str]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|c| c.to_uppercase()));
    for row in rows {
        table.add_row(columns.iter().map(|column| match &row[*column] {
            Value::Null => "-".to_owned(),
            Value::String(text) if text.is_empty() => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(size) => progress::human(size.as_u64().unwrap_or_default()),
            other => other.to_string(),
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn fetch(line: &[&str]) -> Fetch {
        let parsed = Line::try_parse_from([&["assets", "fetch"], line].concat()).unwrap();
        let Command::Fetch(fetch) = parsed.command else { panic!("fetch was given") };
        fetch
    }

    fn names(line: &[&str]) -> Vec<String> {
        wants(&fetch(line), Arch::Amd64, None).unwrap().iter().map(|w| format!("{}-{}", w.kind.name(), w.version)).collect()
    }

    #[test]
    fn what_is_fetched() {
        assert_eq!(names(&[]), ["kubernetes-1.36.3", "etcd-3.6.13"]);
        assert_eq!(names(&["--kubernetes=1.34.4", "--kubernetes", "v1.36.3"]), ["kubernetes-1.34.4", "etcd-3.6.13", "kubernetes-1.36.3"]);
        assert_eq!(names(&["--helm"]), ["helm-4.3.1"]);
        assert_eq!(names(&["--nodes"]).len(), 3);
        assert_eq!(names(&["--images"]), ["images-pause-3.10.1+coredns-1.13.1"]);
        assert_eq!(names(&["--nodes", "--build"]).len(), 4);
        assert!(wants(&fetch(&["--kubernetes", "1.33.1"]), Arch::Amd64, None).is_err());
        let configured = wants(&fetch(&[]), Arch::Amd64, Some(KubernetesVersion::new(1, 34, 4))).unwrap();
        assert_eq!(configured[0].version, "1.34.4");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        let settings = Settings { dir: dir.path().into(), mirror: Mirror::Upstream, kubernetes_version: None };
        let said = run_fetch(fetch(&["--helm", "--from", absent.to_str().unwrap()]), &settings, Format::Table).await.unwrap_err();
        assert!(said.to_string().starts_with(&format!("there is no folder {}", absent.display())), "{said}");
    }

    #[test]
    fn ways_of_building() {
        assert_eq!(fetch(&[]).build, BuildMode::Auto);
        assert_eq!(fetch(&["--build"]).build, BuildMode::Always);
        assert_eq!(fetch(&["--build=never", "--helm"]).build, BuildMode::Never);
    }

    #[test]
    fn every_item_has_a_row_in_each_format() {
        let dir = tempfile::tempdir().unwrap();
        let store = Assets::open(dir.path(), Arch::Amd64, Mirror::Upstream);
        let rows: Vec<Value> = store.list().iter().map(|s| row(&store, s)).collect();
        let text = table(&rows, &["kind", "version", "state", "detail"]);
        assert_eq!(text.lines().count(), 1 + rows.len());
        assert!(text.contains("missing  kubebyon assets fetch --kubernetes 1.34.4"), "{text}");
    }
}
