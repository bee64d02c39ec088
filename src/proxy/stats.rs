//! What the front door counts: plain atomics, read by whoever exposes them.
//!
//! May import: nothing of ours but [`super::client_hello`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::client_hello::Reason;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Why a connection was not served.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Refusal {
            $($(#[$doc])* $name,)+
        }

        impl Refusal {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The reason as the value of a label.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

refusals! {
    /// An HTTP request in the clear, answered with 400.
    PlainHttp = "plain_http",
    /// An SSL 2.0 hello.
    SslV2 = "ssl_v2",
    /// Neither TLS nor HTTP.
    NotTls = "not_tls",
    /// A hello beyond the limits.
    TooLarge = "hello_too_large",
    /// A hello that breaks its own lengths.
    Malformed = "hello_malformed",
    /// A server name that cannot be one.
    InvalidName = "invalid_name",
    /// A name that leads nowhere.
    UnknownName = "unknown_name",
    /// No whole hello before the deadline.
    HelloTimeout = "hello_timeout",
    /// Closed by the client before its hello was whole.
    ClosedEarly = "closed_early",
    /// One source had too many connections that were not routed yet.
    SourceLimit = "source_limit",
    /// All connections that are allowed are in use.
    ConnectionLimit = "connection_limit",
    /// The back end could not be reached.
    BackendUnreachable = "backend_unreachable",
    /// The back end did not answer in time.
    BackendTimeout = "backend_timeout",
    /// The process or the host ran out of descriptors or buffers.
    OutOfDescriptors = "out_of_descriptors",
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::PlainHttp => Self::PlainHttp,
            Reason::SslV2 => Self::SslV2,
            Reason::NotTls => Self::NotTls,
            Reason::TooLarge => Self::TooLarge,
            Reason::Malformed => Self::Malformed,
            Reason::InvalidName => Self::InvalidName,
        }
    }
}

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Stats {
    accepted: AtomicU64,
    platform: AtomicU64,
    forwarded: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Stats {
    /// Connections that were accepted, whatever became of them.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that were given to the platform.
    pub fn platform(&self) -> u64 {
        self.platform.load(Ordering::Relaxed)
    }

    /// Connections that reached a back end.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// Connections that were not served for `reason`.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    /// All refusals that occurred, by their label.
    pub fn refusals(&self) -> BTreeMap<&'static str, u64> {
        Refusal::ALL.iter().map(|reason| (reason.as_str(), self.refused(*reason))).filter(|(_, count)| *count > 0).collect()
    }

    pub(super) fn count_accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_platform(&self) {
        self.platform.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_forwarded(&self) {
        self.forwarded.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused(&self, reason: Refusal) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_reason() {
        let stats = Stats::default();
        stats.count_refused(Refusal::OutOfDescriptors);
        stats.count_refused(Refusal::UnknownName);
        stats.count_refused(Refusal::UnknownName);
        assert_eq!(stats.refusals(), BTreeMap::from([("out_of_descriptors", 1), ("unknown_name", 2)]));
    }
}
