//! Jobs: promised in the transaction of what they follow from, done under a lease.
//!
//! A transport only wakes workers; the lease in the store decides. Losing or doubling a wake-up does no harm.
//! May import: `domain`, `store`.

mod transport;
mod worker;

pub use transport::{Embedded, Transport};
pub use worker::{Context, Handler, JobError, Worker};

/// How long a lease holds before another worker may take the job; the worker renews it at a third of that.
pub const LEASE: std::time::Duration = std::time::Duration::from_secs(30);
/// How often waiting jobs are looked for though nobody woke us.
pub const SAFETY_NET: std::time::Duration = std::time::Duration::from_secs(30);
