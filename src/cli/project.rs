//! `kubebyon project`.

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::output::{self, Columns};
use super::session::Session;
use crate::domain::Ambient;
use crate::domain::project::Project;

/// Projects hold clusters, and people have roles in them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a project
    #[command(after_help = "Example: kubebyon project create web-team")]
    Create {
        /// Its name: a DNS label (RFC 1123)
        name: String,
    },
    #[command(visible_alias = "ls")]
    /// List the projects that you may see
    List,
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::Create { name } => {
            let project: Project = session.client.call(Method::POST, "/api/v1/projects", &json!({ "name": name })).await?;
            output::one(session.format, &project)
        }
        Command::List => {
            let projects: Vec<Project> = session.client.list("/api/v1/projects", &[]).await?;
            output::list(session.format, &projects, "no project is yours to see; ask an administrator for a role in one")
        }
    }
}

impl Columns for Project {
    fn titles(wide: bool) -> Vec<&'static str> {
        if wide { vec!["NAME", "AGE", "ID"] } else { vec!["NAME", "AGE"] }
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![self.name.clone(), output::age(Ambient::system().now(), self.created_at)];
        cells.extend(wide.then(|| self.id.to_string()));
        cells
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
