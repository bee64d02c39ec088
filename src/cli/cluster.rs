//! `kubebyon cluster`.

use std::time::Duration;

use clap::Subcommand;
use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::called;
use super::follow::{self, Goal};
use super::output::{self, Columns, Format};
use super::session::{Session, cluster_path};
use crate::api::v1::clusters::DeletionPlan;
use crate::domain::cluster::{Addon, Cluster, EngineKind, Phase, PublicAccessMode};
use crate::domain::event::Event;
use crate::domain::network::{DEFAULT_API_LOCAL_ADDRESS, DEFAULT_POD_CIDR, DEFAULT_SERVICE_CIDR};
use crate::domain::{Ambient, KubernetesVersion};

/// Clusters: what tenants are handed.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a cluster
    #[command(
        after_help = "Examples:\n  kubebyon cluster create demo --wait\n  kubebyon cluster create shop --kubernetes-version 1.34.4 -l team=web\n  kubebyon kubeconfig demo --merge"
    )]
    Create(Box<CreateArgs>),
    /// List clusters
    #[command(visible_alias = "ls")]
    List {
        /// Only those whose labels match, such as team=web,tier!=old
        #[arg(short = 'l', long, value_name = "SELECTOR")]
        selector: Option<String>,
        /// Of every project that you may see
        #[arg(short = 'A', long)]
        all_projects: bool,
    },
    /// Show a cluster: what was asked for, what is, and what is down and why
    Get {
        /// NAME, PROJECT/NAME or id
        cluster: String,
    },
    /// Delete a cluster and everything in it
    #[command(visible_alias = "rm", after_help = "Example: kubebyon cluster delete demo --dry-run")]
    Delete {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// Return when it is gone, showing the steps
        #[arg(long)]
        wait: bool,
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
        /// How long --wait waits
        #[arg(long, value_parser = output::parse_duration, default_value = "10m", value_name = "D")]
        timeout: Duration,
    },
    /// Bring a cluster to a newer Kubernetes version, one minor at a time
    Upgrade {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// The version; default: the newest that is one step away
        #[arg(long, value_name = "V")]
        kubernetes_version: Option<KubernetesVersion>,
        /// Return when it runs, showing the steps
        #[arg(long)]
        wait: bool,
        /// How long --wait waits
        #[arg(long, value_parser = output::parse_duration, default_value = "10m", value_name = "D")]
        timeout: Duration,
    },
    /// Set or remove labels: KEY=VALUE sets, KEY- removes
    Label {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// KEY=VALUE or KEY-
        #[arg(required = true, value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// Show what happened to a cluster, oldest first
    Events {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// Go on as more happens
        #[arg(short, long)]
        follow: bool,
    },
    /// Show the log of a part of the control plane
    Logs {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// Which part
        #[arg(default_value = "kube-apiserver", value_parser = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "audit"])]
        component: String,
        /// Go on as lines come
        #[arg(short, long)]
        follow: bool,
        /// Only so many of the last lines
        #[arg(long, value_name = "N")]
        tail: Option<u32>,
    },
    /// List the Kubernetes versions that can be had
    Versions,
}

/// What can be said when a cluster is created.
#[derive(Debug, clap::Args)]
pub struct CreateArgs {
    /// Its name, unique in the project: a DNS label (RFC 1123)
    name: String,
    /// The Kubernetes version; see `kubebyon cluster versions`
    #[arg(long, value_name = "V")]
    kubernetes_version: Option<KubernetesVersion>,
    /// What runs its control plane; this release runs `local`
    #[arg(long, value_name = "E")]
    engine: Option<EngineKind>,
    /// How it is reached from outside
    #[arg(long, value_name = "MODE")]
    public_access_mode: Option<PublicAccessMode>,
    /// The host that its kubeconfigs name
    #[arg(long, value_name = "H")]
    control_plane_host: Option<String>,
    #[arg(long, value_name = "C", help = format!("The pods' addresses; default: {DEFAULT_POD_CIDR}"))]
    pod_cidr: Option<String>,
    #[arg(long, value_name = "C", help = format!("The Services' addresses; default: {DEFAULT_SERVICE_CIDR}"))]
    service_cidr: Option<String>,
    /// The pod network: ours, or none for those who bring their own
    #[arg(long, value_name = "CNI")]
    cni: Option<Addon>,
    /// kube-proxy: ours, or none for those who replace it
    #[arg(long, value_name = "P")]
    kube_proxy: Option<Addon>,
    #[arg(long, value_name = "A", help = format!("The address on every node that leads to the API server; default: {DEFAULT_API_LOCAL_ADDRESS}"))]
    api_local_address: Option<std::net::IpAddr>,
    /// A label, KEY=VALUE; may be given more than once
    #[arg(short = 'l', long = "label", value_name = "K=V", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Return when it is ready, showing the steps
    #[arg(long)]
    wait: bool,
    /// Check everything, and create nothing
    #[arg(long)]
    dry_run: bool,
    /// How long --wait waits
    #[arg(long, value_parser = output::parse_duration, default_value = "10m", value_name = "D")]
    timeout: Duration,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    text.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).ok_or_else(|| format!("{text:?} is no label; it looks like team=web"))
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Create(args) => create(*args, session).await,
        Command::List { selector, all_projects } => list(selector, all_projects, session).await,
        Command::Get { cluster } => get(&cluster, session).await,
        Command::Delete { cluster, wait, dry_run, timeout } => delete(&cluster, wait, dry_run, timeout, session).await,
        Command::Upgrade { cluster, kubernetes_version, wait, timeout } => {
            upgrade(&cluster, kubernetes_version, wait, timeout, session).await
        }
        Command::Label { cluster, labels } => label(&cluster, &labels, session).await,
        Command::Events { cluster, follow } => events(&cluster, follow, session).await,
        Command::Logs { cluster, component, follow, tail } => logs(&cluster, &component, follow, tail, session).await,
        Command::Versions => versions(session).await,
    }
}

async fn create(args: CreateArgs, session: &Session) -> anyhow::Result<()> {
    let mut body = Map::new();
    body.insert("project".into(), json!(session.project));
    body.insert("name".into(), json!(args.name));
    body.insert("labels".into(), json!(args.labels.into_iter().collect::<std::collections::BTreeMap<_, _>>()));
    let optional: [(&str, Option<Value>); 9] = [
        ("kubernetes_version", args.kubernetes_version.map(|v| json!(v))),
        ("engine", args.engine.map(|v| json!(v))),
        ("public_access_mode", args.public_access_mode.map(|v| json!(v))),
        ("control_plane_host", args.control_plane_host.map(|v| json!(v))),
        ("pod_cidr", args.pod_cidr.map(|v| json!(v))),
        ("service_cidr", args.service_cidr.map(|v| json!(v))),
        ("cni", args.cni.map(|v| json!(v))),
        ("kube_proxy", args.kube_proxy.map(|v| json!(v))),
        ("api_local_address", args.api_local_address.map(|v| json!(v))),
    ];
    body.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    if args.dry_run {
        body.insert("dry_run".into(), json!(true));
    }
    let cluster: Cluster = session.client.call(Method::POST, "/api/v1/clusters", &Value::Object(body)).await?;
    if args.dry_run {
        output::note("dry run: everything was checked, nothing was created");
        return output::one(session.format, &cluster);
    }
    if args.wait {
        follow::wait(session, &cluster, 0, Goal::Ready(cluster.generation), args.timeout).await?;
        let cluster: Cluster = session.client.get(&cluster_path(&cluster, ""), &[]).await?;
        output::one(session.format, &cluster)?;
        let merge = called::command(&format!("kubeconfig {} --merge", session.reference(&cluster)));
        output::note(&format!("next: {merge} && kubectl get namespaces"));
        return Ok(());
    }
    output::one(session.format, &cluster)?;
    let events = called::command(&format!("cluster events {} --follow", session.reference(&cluster)));
    output::note(&format!("it is being made; see `{events}`"));
    Ok(())
}

async fn list(selector: Option<String>, all_projects: bool, session: &Session) -> anyhow::Result<()> {
    let mut query = Vec::new();
    if !all_projects {
        query.push(("project", session.project.clone()));
    }
    query.extend(selector.map(|selector| ("label_selector", selector)));
    let clusters: Vec<Cluster> = session.client.list("/api/v1/clusters", &query).await?;
    output::list(
        session.format,
        &clusters,
        &format!("no clusters here; create one with `{}`", called::command("cluster create NAME --wait")),
    )
}

async fn get(cluster: &str, session: &Session) -> anyhow::Result<()> {
    let cluster = session.cluster(cluster).await?;
    if session.format == Format::Wide || session.format == Format::Table {
        output::fields(&description(&cluster));
        for component in &cluster.status.components {
            let state = if component.healthy { "healthy" } else { "down" };
            let pid = component.pid.map(|pid| format!(" pid {pid}")).unwrap_or_default();
            output::line(
                format!("  {:<24} {state}{pid}, {} restarts {}", component.name, component.restarts, component.message).trim_end(),
            );
        }
        for condition in cluster.status.conditions.iter().filter(|c| !c.status) {
            output::line(&format!("  {}=False ({}): {}", condition.kind, condition.reason, condition.message));
        }
        return Ok(());
    }
    output::one(session.format, &cluster)
}

/// A cluster for people, a field a line.
fn description(cluster: &Cluster) -> Vec<(&'static str, String)> {
    let spec = &cluster.spec;
    let endpoint = cluster.status.endpoint.as_ref();
    let own = |addon: Addon| if addon == Addon::None { "the owner's" } else { "" }.to_owned();
    vec![
        ("NAME", cluster.name()),
        ("STATUS", state(cluster)),
        ("VERSION", version(cluster)),
        ("SERVER", endpoint.map(|e| e.server.clone()).unwrap_or_default()),
        ("ACCESS MODE", spec.public_access_mode.as_str().to_owned()),
        ("TLS SERVER NAME", endpoint.and_then(|e| e.tls_server_name.clone()).unwrap_or_default()),
        ("CONTROL PLANE HOST", spec.control_plane_host.clone().unwrap_or_default()),
        ("POD CIDR", spec.pod_cidr.to_string()),
        ("SERVICE CIDR", spec.service_cidr.to_string()),
        ("API LOCAL ADDRESS", spec.api_local_address.to_string()),
        ("CNI", own(spec.cni)),
        ("KUBE-PROXY", own(spec.kube_proxy)),
        ("ENGINE", spec.engine.as_str().to_owned()),
        ("HOST", cluster.host.clone().unwrap_or_default()),
        ("CREATED", output::moment(cluster.created_at)),
        ("DELETION ASKED FOR", cluster.deleted_at.map(output::moment).unwrap_or_default()),
        ("LABEL", cluster.label.clone()),
        ("LABELS", labels(cluster)),
        ("ID", cluster.id.to_string()),
    ]
}

/// Its labels as a selector has them.
fn labels(cluster: &Cluster) -> String {
    cluster.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
}

/// The version that runs, and the one that was asked for where it is another.
fn version(cluster: &Cluster) -> String {
    let asked = cluster.spec.kubernetes_version;
    match cluster.status.kubernetes_version {
        Some(running) if running != asked => format!("{running} → {asked}"),
        _ => asked.to_string(),
    }
}

async fn delete(cluster: &str, wait: bool, dry_run: bool, timeout: Duration, session: &Session) -> anyhow::Result<()> {
    let cluster = session.cluster(cluster).await?;
    if dry_run {
        let plan: Value = session.client.delete(&cluster_path(&cluster, ""), &[("dry_run", "true".to_owned())]).await?;
        output::note("dry run: nothing was deleted; this would go:");
        match session.format {
            Format::Json | Format::Yaml => return output::value(session.format, &plan),
            Format::Name => output::line(&cluster.name()),
            Format::Table | Format::Wide => {
                let plan: DeletionPlan = serde_json::from_value(plan)?;
                let removes: Vec<_> = plan.removes.iter().map(|r| (r.kind.as_str(), r.description.clone())).collect();
                output::fields(&removes);
            }
        }
        return Ok(());
    }
    let newest = newest_event(session, &cluster).await?;
    session.client.delete::<Value>(&cluster_path(&cluster, ""), &[]).await?;
    if wait {
        follow::wait(session, &cluster, newest, Goal::Gone, timeout).await?;
    }
    match session.format {
        Format::Json | Format::Yaml => output::value(session.format, &json!({ "id": cluster.id, "name": cluster.name, "deleted": wait }))?,
        Format::Name => output::line(&cluster.name),
        _ => output::line(&format!("cluster {} {}", cluster.name, if wait { "deleted" } else { "is being deleted" })),
    }
    Ok(())
}

async fn newest_event(session: &Session, cluster: &Cluster) -> anyhow::Result<i64> {
    let page: crate::domain::page::Page<Event> =
        session.client.get(&cluster_path(cluster, "/events"), &[("limit", "1".to_owned())]).await?;
    Ok(page.items.first().map_or(0, |event| event.id))
}

async fn upgrade(
    cluster: &str,
    version: Option<KubernetesVersion>,
    wait: bool,
    timeout: Duration,
    session: &Session,
) -> anyhow::Result<()> {
    let cluster = session.cluster(cluster).await?;
    let current = cluster.spec.kubernetes_version;
    let version = if let Some(version) = version {
        version
    } else {
        let known: Vec<KubernetesVersion> = super::versions::available(session).await?.into_iter().map(|v| v.version).collect();
        let next = known.into_iter().filter(|v| *v > current && current.check_upgrade(*v).is_ok()).max();
        let list = called::command("cluster versions");
        next.ok_or_else(|| anyhow::anyhow!("{} runs {current}, and no version one step newer is known here; see `{list}`", cluster.name))?
    };
    let newest = newest_event(session, &cluster).await?;
    let body = json!({ "kubernetes_version": version });
    let changed: Cluster = session.client.call(Method::PATCH, &cluster_path(&cluster, ""), &body).await?;
    if wait {
        follow::wait(session, &changed, newest, Goal::Ready(changed.generation), timeout).await?;
    }
    let cluster: Cluster = session.client.get(&cluster_path(&cluster, ""), &[]).await?;
    output::one(session.format, &cluster)
}

async fn label(cluster: &str, changes: &[String], session: &Session) -> anyhow::Result<()> {
    let cluster = session.cluster(cluster).await?;
    let mut change = std::collections::BTreeMap::new();
    for text in changes {
        if let Some(key) = text.strip_suffix('-').filter(|key| !key.contains('=')) {
            change.insert(key.to_owned(), None);
        } else {
            let (key, value) = parse_label(text).map_err(anyhow::Error::msg)?;
            change.insert(key, Some(value));
        }
    }
    let changed: Cluster = session.client.call(Method::PATCH, &cluster_path(&cluster, ""), &json!({ "labels": change })).await?;
    if !matches!(session.format, Format::Table | Format::Wide) {
        return output::one(session.format, &changed);
    }
    let shown = if changed.labels.is_empty() { "none".to_owned() } else { labels(&changed) };
    output::fields(&[("CLUSTER", changed.name()), ("LABELS", shown)]);
    Ok(())
}

async fn events(cluster: &str, follow: bool, session: &Session) -> anyhow::Result<()> {
    let cluster = session.cluster(cluster).await?;
    let mut known: Vec<Event> = session.client.list(&cluster_path(&cluster, "/events"), &[]).await?;
    known.reverse();
    output::list(session.format, &known, "nothing happened yet")?;
    if !follow {
        return Ok(());
    }
    let after = known.last().map_or(0, |event| event.id);
    follow::events(session, cluster.id, after, |event| {
        match session.format {
            Format::Json => output::line(&serde_json::to_string(event).unwrap_or_default()),
            _ => output::line(event.cells(false).join("   ").as_str()),
        }
        true
    })
    .await
}

async fn logs(cluster: &str, component: &str, follow: bool, tail: Option<u32>, session: &Session) -> anyhow::Result<()> {
    use std::io::Write as _;
    let cluster = session.cluster(cluster).await?;
    let mut query = vec![("component", component.to_owned()), ("follow", follow.to_string())];
    query.extend(tail.map(|n| ("tail", n.to_string())));
    let mut body = session.client.stream(&cluster_path(&cluster, "/logs"), &query, &[]).await?.bytes_stream();
    let mut out = std::io::stdout().lock();
    while let Some(piece) = body.next().await {
        if out.write_all(&piece?).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn versions(session: &Session) -> anyhow::Result<()> {
    let versions = super::versions::available(session).await?;
    output::list(session.format, &versions, "no version is known")
}

impl Columns for Cluster {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["PROJECT", "NAME", "STATUS", "VERSION", "SERVER", "AGE"];
        if wide {
            titles.extend(["ENGINE", "LABEL", "ID", "LABELS"]);
        }
        titles
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![
            self.project.clone(),
            self.name.clone(),
            state(self),
            version(self),
            self.status.endpoint.as_ref().map_or_else(|| "-".to_owned(), |endpoint| endpoint.server.clone()),
            output::age(Ambient::system().now(), self.created_at),
        ];
        if wide {
            cells.extend([self.spec.engine.as_str().to_owned(), self.label.clone(), self.id.to_string(), labels(self)]);
        }
        cells
    }

    fn name(&self) -> String {
        format!("{}/{}", self.project, self.name)
    }
}

/// The phase, with what is down.
fn state(cluster: &Cluster) -> String {
    let down: Vec<&str> = cluster.status.components.iter().filter(|c| !c.healthy).map(|c| c.name.as_str()).collect();
    match cluster.status.phase {
        Phase::Degraded if !down.is_empty() => format!("degraded ({})", down.join(", ")),
        phase => phase.as_str().to_owned(),
    }
}

impl Columns for Event {
    fn titles(_wide: bool) -> Vec<&'static str> {
        vec!["TIME", "SEVERITY", "REASON", "BY", "MESSAGE"]
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        vec![
            output::moment(self.at),
            self.severity.as_str().to_owned(),
            self.reason.clone(),
            self.actor.clone().unwrap_or_else(|| "-".to_owned()),
            self.message.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
