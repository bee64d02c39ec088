//! `kubebyon kubeconfig`.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::called;
use super::output::{self, Columns, Format};
use super::session::{Session, cluster_path};
use crate::domain::kubeconfig::{ClusterRole, Kubeconfig};
use crate::domain::{Ambient, KubeconfigId};

/// Hand out, list and revoke kubeconfigs.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  kubebyon kubeconfig demo > demo.kubeconfig\n  kubebyon kubeconfig demo --merge\n  \
    kubebyon kubeconfig demo --role view --ttl 1h --file view.kubeconfig\n  \
    kubebyon kubeconfig demo --service-account default/deployer --role edit --ttl 30d --file ci.kubeconfig")]
pub struct KubeconfigArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    issue: IssueArgs,
}

/// What can be done with kubeconfigs that were handed out.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the kubeconfigs of a cluster that were handed out
    #[command(visible_alias = "ls")]
    List {
        /// NAME, PROJECT/NAME or id
        cluster: String,
    },
    /// Revoke a kubeconfig: its cluster refuses it from then on
    Revoke {
        /// NAME, PROJECT/NAME or id
        cluster: String,
        /// The id that `kubeconfig list` shows
        id: String,
    },
}

#[derive(Debug, Args)]
struct IssueArgs {
    /// NAME, PROJECT/NAME or id
    cluster: Option<String>,
    /// How long it is good for
    #[arg(long, value_parser = output::parse_duration, default_value = "8h", value_name = "D")]
    ttl: Duration,
    /// What it may do; default: the most that you may
    #[arg(long)]
    role: Option<ClusterRole>,
    /// The one namespace it is good for
    #[arg(long, value_name = "NS")]
    namespace: Option<String>,
    /// Hold the token of this ServiceAccount (NAMESPACE/NAME; made where it is absent), for CI and Argo CD
    #[arg(long, value_name = "NAME", requires = "role")]
    service_account: Option<String>,
    /// Write it to this file (0600) instead of standard output
    #[arg(long, value_name = "F", conflicts_with = "merge")]
    file: Option<PathBuf>,
    /// Put it into ~/.kube/config (or the file of KUBECONFIG) and make it the current context
    #[arg(long)]
    merge: bool,
}

/// A kubeconfig as the API hands it out.
#[derive(Serialize, Deserialize)]
struct Issued {
    kubeconfig: String,
    record: Kubeconfig,
}

/// Runs it.
pub async fn run(args: KubeconfigArgs, session: &Session) -> anyhow::Result<()> {
    match args.command {
        Some(Command::List { cluster }) => {
            let cluster = session.cluster(&cluster).await?;
            let records: Vec<Kubeconfig> = session.client.list(&cluster_path(&cluster, "/kubeconfigs"), &[]).await?;
            output::list(
                session.format,
                &records,
                &format!("none was handed out; make one with `{}`", called::command("kubeconfig CLUSTER")),
            )
        }
        Some(Command::Revoke { cluster, id }) => {
            let cluster = session.cluster(&cluster).await?;
            let Ok(id) = id.parse::<KubeconfigId>() else {
                let list = called::command(&format!("kubeconfig list {}", session.reference(&cluster)));
                bail!("{id:?} is no id of a kubeconfig; see `{list}`");
            };
            session.client.delete::<Value>(&cluster_path(&cluster, &format!("/kubeconfigs/{id}")), &[]).await?;
            match session.format {
                Format::Json | Format::Yaml => output::value(session.format, &json!({ "id": id, "revoked": true })),
                Format::Name => {
                    output::line(&id.to_string());
                    Ok(())
                }
                _ => {
                    output::line(&format!("kubeconfig {id} is refused by cluster {} from now on", cluster.name));
                    Ok(())
                }
            }
        }
        None => issue(args.issue, session).await,
    }
}

async fn issue(args: IssueArgs, session: &Session) -> anyhow::Result<()> {
    let Some(reference) = &args.cluster else {
        bail!("name a cluster: {}; `{}` shows them", called::command("kubeconfig CLUSTER"), called::command("cluster list"));
    };
    let cluster = session.cluster(reference).await?;
    let mut body = json!({ "ttl_seconds": args.ttl.as_secs(), "namespace": args.namespace, "service_account": args.service_account });
    if let Some(role) = args.role {
        body["role"] = json!(role);
    }
    // Before a credential exists: a target that cannot take it would leave one that nobody has.
    let target = if args.merge { Some(MergeTarget::read()?) } else { None };
    let issued: Issued = session.client.call(Method::POST, &cluster_path(&cluster, "/kubeconfigs"), &body).await?;
    let record = &issued.record;
    let look = look(record);
    if let Some(MergeTarget { path, existing }) = target {
        write_private(&path, &crate::pki::kubeconfig::merge(&existing, &issued.kubeconfig)?)?;
        output::note(&format!("{} has it as its current context: try `kubectl {look}`", path.display()));
    } else if let Some(path) = &args.file {
        write_private(path, &issued.kubeconfig)?;
        output::note(&format!("written to {}: try `kubectl --kubeconfig {} {look}`", path.display(), path.display()));
    } else if matches!(session.format, Format::Json) {
        output::value(session.format, &issued)?;
    } else {
        output::line(issued.kubeconfig.trim_end());
    }
    let lasts = output::span(record.expires_at.since(Ambient::system().now()));
    output::note(&format!(
        "role {}, good for {lasts} (until {}); make another then, or revoke it with `{}`",
        record.role.as_str(),
        output::moment(record.expires_at),
        called::command(&format!("kubeconfig revoke {reference} {}", record.id))
    ));
    Ok(())
}

/// What kubectl may be asked with it at once: namespaces are seen by those alone who may see all of them.
fn look(record: &Kubeconfig) -> &'static str {
    if record.namespace.is_some() { "get pods" } else { "get namespaces" }
}

/// The kubeconfig that another is merged into.
struct MergeTarget {
    path: PathBuf,
    existing: String,
}

impl MergeTarget {
    /// Reads it, and makes its folder where there is none. Refuses what is no kubeconfig.
    fn read() -> anyhow::Result<Self> {
        let path = kubeconfig_path()?;
        let existing = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        crate::pki::kubeconfig::merge(&existing, "apiVersion: v1\nkind: Config\n").with_context(|| path.display().to_string())?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(Self { path, existing })
    }
}

/// The file that kubectl would write to: the first of KUBECONFIG, else ~/.kube/config.
fn kubeconfig_path() -> anyhow::Result<PathBuf> {
    if let Some(list) = std::env::var_os("KUBECONFIG").filter(|v| !v.is_empty())
        && let Some(first) = std::env::split_paths(&list).find(|p| !p.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = std::env::var_os("HOME").context("HOME is not set, so there is no ~/.kube/config; use --file")?;
    Ok(PathBuf::from(home).join(".kube").join("config"))
}

/// Writes a file that its owner alone may read; whole or not at all. A symbolic link's target is written, as kubectl does.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // A device or a pipe is written to; putting a file in its place would take it away from everybody.
    if std::fs::metadata(&path).is_ok_and(|there| !there.is_file()) {
        return std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()));
    }
    let mut draft = path.clone().into_os_string();
    draft.push(format!(".{}", hex::encode(Ambient::system().random::<4>())));
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    })();
    written.inspect_err(|_| drop(std::fs::remove_file(&draft))).with_context(|| format!("cannot write {}", path.display()))
}

impl Columns for Kubeconfig {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["ID", "OWNER", "ROLE", "NAMESPACE", "SERVICE ACCOUNT", "STATE", "AGE"];
        if wide {
            titles.push("CREDENTIAL");
        }
        titles
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let now = Ambient::system().now();
        let state = if self.revoked_at.is_some() {
            "revoked".to_owned()
        } else if self.expires_at <= now {
            "expired".to_owned()
        } else {
            format!("{} left", output::span(self.expires_at.since(now)))
        };
        let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![
            self.id.to_string(),
            self.owner.clone(),
            self.role.as_str().to_owned(),
            dash(&self.namespace),
            dash(&self.service_account),
            state,
            output::age(now, self.created_at),
        ];
        cells.extend(wide.then(|| self.credential_id.clone()));
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn a_service_account_needs_a_role_and_a_person_does_not() {
        assert!(Cli::try_parse_from(["kubebyon", "kubeconfig", "demo"]).is_ok());
        let error = Cli::try_parse_from(["kubebyon", "kubeconfig", "demo", "--service-account", "default/ci"]).unwrap_err();
        assert!(error.to_string().contains("--role"), "{error}");
        assert!(Cli::try_parse_from(["kubebyon", "kubeconfig", "demo", "--service-account", "ci", "--role", "edit"]).is_ok());
    }
}
