//! `limits.*` and `retention.*`: how much one tenant, and all of them, may take. Imports `config::value`.

use crate::config::section::section;
use crate::config::value::{Size, Span};
use crate::domain::Invalid;

section! {
    /// How much one tenant, and all of them, may take.
    pub struct Limits {
        /// What one cluster's etcd may hold.
        etcd_quota_bytes: Size = Size::mebibytes(2048),
        /// The memory that one cluster's processes may use together.
        cluster_memory_bytes: Size = Size::mebibytes(1024),
        /// The memory that a new cluster is expected to use; a create is refused where less is free.
        cluster_memory_estimate_bytes: Size = Size::mebibytes(320),
        /// What one file of a cluster's audit log may hold before the next is begun.
        audit_log_file_bytes: Size = Size::mebibytes(20),
        /// How many files of a cluster's audit log are kept, the one that is written included.
        audit_log_files: u8 = 3,
        /// Requests that one API server serves at once.
        max_requests_inflight: u32 = 200,
        /// Requests that change something which one API server serves at once.
        max_mutating_requests_inflight: u32 = 100,
        /// How many jobs a worker does at once.
        jobs_at_once: u16 = 4,
        /// Connections that the front door holds at once.
        max_connections: u32 = 20_000,
        /// Connections from one address that the front door holds at once before they named a cluster.
        max_connections_per_source: u32 = 256,
        /// How long a client may take for its ClientHello.
        client_hello_timeout: Span = Span::seconds(10),
        /// How long open requests and connections may go on once the daemon was told to stop; the unit's `TimeoutStopSec` must be longer.
        drain_timeout: Span = Span::seconds(10),
    }
}

impl Limits {
    /// Each is neither nothing nor absurd.
    pub fn validate(&self, problems: &mut Vec<Invalid>) {
        let mut size = |key: &str, value: Size, least: Size, most: Size| {
            if value < least || value > most {
                problems
                    .push(Invalid::new(format!("limits.{key}"), format!("{value} is out of bounds; from {least} to {most} is allowed")));
            }
        };
        // etcd's own advice for a quota ends at 8 GiB (<https://etcd.io/docs/v3.6/dev-guide/limit/>).
        size("etcd_quota_bytes", self.etcd_quota_bytes, Size::mebibytes(16), Size::mebibytes(8 << 10));
        size("cluster_memory_bytes", self.cluster_memory_bytes, Size::mebibytes(512), Size::mebibytes(1 << 20));
        size("cluster_memory_estimate_bytes", self.cluster_memory_estimate_bytes, Size::mebibytes(64), self.cluster_memory_bytes);
        size("audit_log_file_bytes", self.audit_log_file_bytes, Size::mebibytes(1), Size::mebibytes(4 << 10));

        let mut number = |key: &str, value: u32, least: u32, most: u32| {
            if value < least || value > most {
                problems
                    .push(Invalid::new(format!("limits.{key}"), format!("{value} is out of bounds; from {least} to {most} is allowed")));
            }
        };
        number("audit_log_files", self.audit_log_files.into(), 2, 100);
        number("max_requests_inflight", self.max_requests_inflight, 20, 10_000);
        number("max_mutating_requests_inflight", self.max_mutating_requests_inflight, 10, 10_000);
        number("jobs_at_once", self.jobs_at_once.into(), 1, 256);
        number("max_connections", self.max_connections, 16, 1_000_000);
        number("max_connections_per_source", self.max_connections_per_source, 1, 1_000_000);

        for (key, value, most) in [("client_hello_timeout", self.client_hello_timeout, 120), ("drain_timeout", self.drain_timeout, 3_600)] {
            if value.0.as_secs() > most {
                problems.push(Invalid::new(
                    format!("limits.{key}"),
                    format!("{value} is too long; at most {} is allowed", Span::seconds(most)),
                ));
            }
        }
    }
}

section! {
    /// How long rows are kept that nothing needs any more.
    pub struct Retention {
        /// Events of clusters.
        events: Span = Span::days(30),
        /// Jobs that ended well; dead ones stay until they are retried or their cluster is gone.
        jobs: Span = Span::days(7),
    }
}
