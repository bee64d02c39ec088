//! What every client command shares: the client, the project, the form of the output, and how a name is looked up.

use anyhow::bail;

use super::called;
use super::client::{Client, Target};
use super::output::Format;
use crate::domain::page::Page;
use crate::domain::project::DEFAULT_PROJECT;
use crate::domain::{Cluster, ClusterId};

/// The options of commands that talk to a platform.
#[derive(Debug, Clone, clap::Args)]
pub struct ClientArgs {
    /// The platform's URL; default: the socket of the data folder, else the login that was kept
    #[arg(long, env = "KUBEBYON_SERVER", global = true, value_name = "URL", help_heading = "Platform", hide_short_help = true)]
    pub server: Option<String>,
    /// An API token
    #[arg(
        long,
        env = "KUBEBYON_TOKEN",
        global = true,
        value_name = "TOKEN",
        hide_env_values = true,
        help_heading = "Platform",
        hide_short_help = true
    )]
    pub token: Option<String>,
    /// The authority to trust, where the platform's certificate is its own authority's
    #[arg(long, global = true, value_name = "FILE", help_heading = "Platform", hide_short_help = true)]
    pub ca_file: Option<std::path::PathBuf>,
    /// The project of names given without one
    #[arg(long, global = true, value_name = "P", default_value = DEFAULT_PROJECT, help_heading = "Platform")]
    pub project: String,
    /// The form of the output
    #[arg(short, long, global = true, value_name = "FORM", default_value = "table", help_heading = "Platform")]
    pub output: Format,
}

/// A command's view of a platform.
pub struct Session {
    /// Talks to it.
    pub client: Client,
    /// The project of names given without one.
    pub project: String,
    /// The form of the output.
    pub format: Format,
}

impl Session {
    /// A session for these options; `local`: the data folder was named, so that its daemon is meant and none elsewhere.
    pub fn new(args: &ClientArgs, data_dir: &std::path::Path, local: bool) -> anyhow::Result<Self> {
        let target = Target {
            server: args.server.clone(),
            token: args.token.clone(),
            ca_file: args.ca_file.clone(),
            socket: super::client::socket_path(data_dir),
            local,
        };
        Ok(Self { client: Client::new(&target)?, project: args.project.clone(), format: args.output })
    }

    /// The cluster that NAME, PROJECT/NAME or an id stands for.
    pub async fn cluster(&self, reference: &str) -> anyhow::Result<Cluster> {
        if let Ok(id) = reference.parse::<ClusterId>() {
            return self.client.get(&format!("/api/v1/clusters/{id}"), &[]).await;
        }
        let (project, name) = reference.split_once('/').unwrap_or((&self.project, reference));
        let query = [("project", project.to_owned()), ("name", name.to_owned())];
        let page: Page<Cluster> = self.client.get("/api/v1/clusters", &query).await?;
        if let Some(cluster) = page.items.into_iter().next() {
            return Ok(cluster);
        }
        let list = called::command("cluster list -A");
        bail!("there is no cluster {name:?} in project {project:?}; see `{list}`, and name another project's as PROJECT/NAME")
    }
}

impl Session {
    /// What the person would type for the cluster.
    pub fn reference(&self, cluster: &Cluster) -> String {
        if cluster.project == self.project { cluster.name.clone() } else { format!("{}/{}", cluster.project, cluster.name) }
    }
}

/// What completes a path of the API for a cluster.
pub fn cluster_path(cluster: &Cluster, rest: &str) -> String {
    format!("/api/v1/clusters/{}{rest}", cluster.id)
}
