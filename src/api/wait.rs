//! Waiting, within a request, for the job that it enqueued.

use serde::de::DeserializeOwned;

use super::problem::{Kind, Problem};
use super::state::ApiState;
use crate::domain::JobId;
use crate::domain::work::Answer;
use crate::queue::{self, Outcome};

/// Waits until a job has ended, at most as long as the options say and until the process drains.
pub async fn for_job(state: &ApiState, id: JobId) -> Result<Outcome, Problem> {
    tokio::select! {
        outcome = queue::wait(&state.store, id, state.options.job_wait) => Ok(outcome?),
        () = state.draining.cancelled() => Ok(Outcome::TimedOut),
    }
}

/// The same for a job whose result is needed: what was refused, ended badly or not in time is a problem.
pub async fn for_result<T: DeserializeOwned>(state: &ApiState, id: JobId) -> Result<T, Problem> {
    match for_job(state, id).await? {
        Outcome::Succeeded(value) => match serde_json::from_value(value) {
            Ok(Answer::Done(result)) => Ok(result),
            Ok(Answer::Refused { refused, kind: Some(kind) }) => Err(Problem::refused(kind, refused)),
            Ok(Answer::Refused { refused, kind: None }) => Err(Problem::new(Kind::Conflict, refused)),
            Err(cause) => Err(Problem::internal("reading a job's result", &cause.into())),
        },
        Outcome::Dead(reason) => Err(Problem::new(Kind::JobFailed, reason)),
        Outcome::TimedOut => Err(Problem::new(
            Kind::Timeout,
            format!("job {id} has not ended; kubebyon job get {id} shows how it stands, and whether a worker runs at all"),
        )
        .retry_after(10)),
    }
}
