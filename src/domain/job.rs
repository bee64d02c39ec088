//! Jobs: work that the outbox promised, done under a lease, run again until it ends well or is given up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ambient, ClusterId, JobId, ProjectId, Timestamp};

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for a worker, or for its time to come.
    Pending,
    /// A worker holds its lease.
    Running,
    /// Ended well.
    Succeeded,
    /// Given up after its last attempt; `kubebyon job retry` begins anew.
    Dead,
}

impl JobState {
    /// The word for it, as in JSON and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
        }
    }
}

impl std::str::FromStr for JobState {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Dead].into_iter().find(|s| s.as_str() == text).ok_or(())
    }
}

/// A job as it is listed. Payload and result stay inside: they may hold what is not for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Job {
    /// Its permanent identifier.
    pub id: JobId,
    /// What kind of work: `reconcile-cluster`, `sign`, ….
    pub kind: String,
    /// The project it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The cluster it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<ClusterId>,
    /// The one host that may do it; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Where it is.
    pub state: JobState,
    /// How often it was begun.
    pub attempts: i64,
    /// After so many attempts it is dead.
    pub max_attempts: i64,
    /// Not before this time.
    #[schema(value_type = String, format = DateTime)]
    pub run_after: Timestamp,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was promised.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

/// How long to wait after attempt `attempts` (1 is the first) failed: doubled each time from 1 s to 5 min, less up to half at random,
/// so that what failed together does not come back together.
pub fn backoff(ambient: &Ambient, attempts: i64) -> Duration {
    let exponent = u32::try_from(attempts.clamp(1, 10) - 1).unwrap_or(0);
    let full = Duration::from_secs(1).saturating_mul(1 << exponent).min(Duration::from_secs(300));
    full.saturating_sub(Duration::from_millis(ambient.below(u64::try_from(full.as_millis()).unwrap_or(0) / 2 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_and_stays_within_its_bounds() {
        let ambient = Ambient::system();
        for attempts in 1..20 {
            let full = Duration::from_secs((1u64 << (attempts.min(10) - 1)).min(300));
            let waited = backoff(&ambient, attempts);
            assert!(waited <= full && waited >= full / 2, "{attempts}: {waited:?}");
        }
    }
}
