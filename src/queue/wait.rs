//! Waiting for a job to end.

use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;

use super::SAFETY_NET;
use crate::domain::JobId;
use crate::domain::job::JobState;
use crate::store::{Change, Error, Result, Store, jobs};

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Well, with this result.
    Succeeded(serde_json::Value),
    /// Badly, for good, with this error; or it was removed with its cluster.
    Dead(String),
    /// Not yet; it goes on.
    TimedOut,
}

/// Waits until a job has ended, at most for `deadline`.
pub async fn wait(store: &Store, id: JobId, deadline: Duration) -> Result<Outcome> {
    // Listening comes before looking, so that no end falls between the two.
    let mut changes = store.changes();
    let watch = async {
        loop {
            if let Some(outcome) = look(store, id).await? {
                return Ok(outcome);
            }
            let told = async {
                loop {
                    match changes.recv().await {
                        Ok(Change::JobFinished(ended)) if ended != id => {}
                        Ok(Change::JobFinished(_)) | Err(RecvError::Lagged(_)) => return Ok(()),
                        Ok(_) => {}
                        Err(RecvError::Closed) => return Err(Error::Database(anyhow::anyhow!("the store is closed"))),
                    }
                }
            };
            // What another process commits may be told late or never.
            if let Ok(told) = tokio::time::timeout(SAFETY_NET / 10, told).await {
                told?;
            }
        }
    };
    tokio::time::timeout(deadline, watch).await.unwrap_or(Ok(Outcome::TimedOut))
}

async fn look(store: &Store, id: JobId) -> Result<Option<Outcome>> {
    let mut sql = store.read().await?;
    let Some(job) = jobs::find(&mut *sql, id).await? else {
        return Ok(Some(Outcome::Dead("the job was removed, together with what it was about".to_owned())));
    };
    Ok(match job.state {
        JobState::Succeeded => Some(Outcome::Succeeded(jobs::result(&mut *sql, id).await?.unwrap_or_default())),
        JobState::Dead => Some(Outcome::Dead(job.last_error.unwrap_or_default())),
        JobState::Pending | JobState::Running => None,
    })
}
