//! `kubebyon job`.

use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::output::{self, Columns};
use super::session::Session;
use crate::domain::job::{Job, JobState};
use crate::domain::{Ambient, JobId};

/// Jobs: the work behind clusters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List jobs, newest first
    List {
        /// Only those in this state
        #[arg(long, value_parser = ["pending", "running", "succeeded", "dead"])]
        state: Option<String>,
        /// Only those of this cluster
        #[arg(long)]
        cluster: Option<String>,
    },
    /// Show a job with its last error
    Get {
        /// Its id
        id: JobId,
    },
    /// Begin a dead job anew
    Retry {
        /// Its id
        id: JobId,
    },
}

/// Runs it.
pub async fn run(command: Command, session: &Session) -> anyhow::Result<()> {
    match command {
        Command::List { state, cluster } => {
            let mut query: Vec<(&str, String)> = state.map(|state| ("state", state)).into_iter().collect();
            if let Some(cluster) = cluster {
                query.push(("cluster", session.cluster(&cluster).await?.id.to_string()));
            }
            let jobs: Vec<Job> = session.client.list("/api/v1/jobs", &query).await?;
            output::list(session.format, &jobs, "no jobs")
        }
        Command::Get { id } => {
            let job: Job = session.client.get(&format!("/api/v1/jobs/{id}"), &[]).await?;
            output::one(session.format, &job)
        }
        Command::Retry { id } => {
            let job: Job = session.client.call(Method::POST, &format!("/api/v1/jobs/{id}/retry"), &json!({})).await?;
            output::one(session.format, &job)
        }
    }
}

impl Columns for Job {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["ID", "KIND", "STATE", "ATTEMPTS", "AGE", "LAST ERROR"];
        if wide {
            titles.extend(["CLUSTER", "HOST"]);
        }
        titles
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let waits = self.state == JobState::Pending && self.attempts > 0;
        let mut cells = vec![
            self.id.to_string(),
            self.kind.clone(),
            if waits { "retrying".to_owned() } else { self.state.as_str().to_owned() },
            format!("{}/{}", self.attempts, self.max_attempts),
            output::age(Ambient::system().now(), self.created_at),
            self.last_error.clone().unwrap_or_default().replace('\n', "; "),
        ];
        if wide {
            cells.push(self.cluster_id.map(|id| id.to_string()).unwrap_or_default());
            cells.push(self.host.clone().unwrap_or_default());
        }
        cells
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
