//! Jobs: promised in the transaction of what they follow from, done under a lease.
//!
//! A transport only wakes workers; the lease in the store decides. Losing or doubling a wake-up does no harm.
//!
//! Guarantees: a job that was committed is done, or ends as dead with its last error; a worker that lost its lease
//! settles nothing; of one cluster's jobs of one kind one runs at a time; two workers of one process never run the same
//! job at once, however the clock jumps.
//! May import: `domain`, `store`.

mod held;
mod lease;
mod running;
mod transport;
mod wait;
mod worker;

pub use lease::reclaim;
pub use transport::{Embedded, Transport};
pub use wait::{Outcome, wait};
pub use worker::{Context, Handler, JobError, Worker, WorkerOptions};

/// How long a lease holds before another worker may take the job; the worker renews it at a third of that.
pub const LEASE: std::time::Duration = std::time::Duration::from_secs(30);
/// How often waiting jobs are looked for though nobody woke us.
pub const SAFETY_NET: std::time::Duration = std::time::Duration::from_secs(30);
/// How long a worker that is asked to stop lets its jobs come to a safe point.
pub const DRAIN: std::time::Duration = std::time::Duration::from_secs(20);
