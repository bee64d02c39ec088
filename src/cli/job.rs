//! `kubebyon job`.

use std::collections::HashMap;

use clap::Subcommand;
use reqwest::Method;
use serde::Serialize;
use serde_json::json;

use super::output::{self, Columns, Format};
use super::session::Session;
use crate::domain::job::{Job, JobState};
use crate::domain::{Ambient, Cluster, ClusterId, JobId};

/// Jobs: the work behind clusters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List jobs, newest first
    #[command(visible_alias = "ls")]
    List {
        /// Only those in this state; one that waits for its next attempt is pending
        #[arg(long, value_parser = ["pending", "running", "succeeded", "dead"])]
        state: Option<String>,
        /// Only those of this cluster
        #[arg(long)]
        cluster: Option<String>,
    },
    /// Show a job: where it is, when it is tried again, and its whole last error
    Get {
        /// Its id
        id: JobId,
    },
    /// Begin a dead job anew, or hurry one that waits for its next attempt
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
            let names = if session.format == Format::Wide { cluster_names(session).await? } else { HashMap::new() };
            let rows: Vec<Row> = jobs.into_iter().map(|job| Row::new(job, &names)).collect();
            output::list(session.format, &rows, "no jobs")
        }
        Command::Get { id } => {
            let job: Job = session.client.get(&format!("/api/v1/jobs/{id}"), &[]).await?;
            let table = matches!(session.format, Format::Table | Format::Wide);
            let names = if table && job.cluster_id.is_some() { cluster_names(session).await? } else { HashMap::new() };
            let row = Row::new(job, &names);
            if table {
                output::fields(&description(&row));
                return Ok(());
            }
            output::one(session.format, &row)
        }
        Command::Retry { id } => {
            let job: Job = session.client.call(Method::POST, &format!("/api/v1/jobs/{id}/retry"), &json!({})).await?;
            output::one(session.format, &Row::new(job, &HashMap::new()))
        }
    }
}

/// A job, and what its cluster is called.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    job: Job,
    /// PROJECT/NAME; the id of a cluster that is gone.
    #[serde(skip)]
    cluster: String,
}

impl Row {
    fn new(job: Job, names: &HashMap<ClusterId, String>) -> Self {
        let cluster = job.cluster_id.map(|id| names.get(&id).cloned().unwrap_or_else(|| id.to_string())).unwrap_or_default();
        Self { job, cluster }
    }
}

/// What the clusters are called that one may see.
async fn cluster_names(session: &Session) -> anyhow::Result<HashMap<ClusterId, String>> {
    let clusters: Vec<Cluster> = session.client.list("/api/v1/clusters", &[]).await?;
    Ok(clusters.iter().map(|cluster| (cluster.id, cluster.name())).collect())
}

/// The state, and for one that failed before when it is tried again.
fn state(job: &Job) -> String {
    if job.state == JobState::Pending && job.attempts > 0 {
        return format!("pending (retry at {})", output::moment(job.run_after));
    }
    job.state.as_str().to_owned()
}

/// A job for people, a field a line.
fn description(row: &Row) -> Vec<(&'static str, String)> {
    let job = &row.job;
    vec![
        ("ID", job.id.to_string()),
        ("KIND", job.kind.clone()),
        ("STATE", job.state.as_str().to_owned()),
        ("ATTEMPTS", format!("{} of {}", job.attempts, job.max_attempts)),
        ("NEXT ATTEMPT", if job.state == JobState::Pending { output::moment(job.run_after) } else { String::new() }),
        ("CLUSTER", row.cluster.clone()),
        ("HOST", job.host.clone().unwrap_or_default()),
        ("CREATED", output::moment(job.created_at)),
        ("FINISHED", job.finished_at.map(output::moment).unwrap_or_default()),
        ("LAST ERROR", job.last_error.clone().unwrap_or_default()),
    ]
}

impl Columns for Row {
    fn titles(wide: bool) -> Vec<&'static str> {
        let mut titles = vec!["ID", "KIND", "STATE", "ATTEMPTS", "AGE"];
        if wide {
            titles.extend(["CLUSTER", "HOST"]);
        }
        titles.push("LAST ERROR");
        titles
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let job = &self.job;
        let mut cells = vec![
            job.id.to_string(),
            job.kind.clone(),
            state(job),
            format!("{}/{}", job.attempts, job.max_attempts),
            output::age(Ambient::system().now(), job.created_at),
        ];
        if wide {
            cells.extend([self.cluster.clone(), job.host.clone().unwrap_or_default()]);
        }
        cells.push(job.last_error.clone().unwrap_or_default().replace('\n', "; "));
        cells
    }

    fn name(&self) -> String {
        self.job.id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Timestamp;

    #[test]
    fn a_job_that_waits_for_its_next_attempt_says_when_and_tells_its_whole_error() {
        let ambient = Ambient::system();
        let at: Timestamp = "2026-11-30T23:53:57.5Z".parse().unwrap();
        let job = Job {
            id: JobId::generate(&ambient),
            kind: "reconcile-cluster".into(),
            project_id: None,
            cluster_id: None,
            host: None,
            state: JobState::Pending,
            attempts: 1,
            max_attempts: 10,
            run_after: at,
            last_error: Some("first\nsecond".into()),
            created_at: at,
            finished_at: None,
        };
        let row = Row::new(job, &HashMap::new());
        assert_eq!(row.cells(false)[2], "pending (retry at 2026-11-30T23:53:57Z)");
        assert_eq!(row.cells(true).len(), Row::titles(true).len());
        assert!(description(&row).contains(&("NEXT ATTEMPT", "2026-11-30T23:53:57Z".into())));
        assert!(description(&row).contains(&("LAST ERROR", "first\nsecond".into())));
    }
}
