//! Permanent identifiers: UUIDs of version 7 (RFC 9562), so that they sort by age.

use serde::{Deserialize, Serialize};

use super::Ambient;

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// A new one, from the given clock and random source.
            pub fn generate(ambient: &Ambient) -> Self {
                let now = ambient.now();
                let seconds = u64::try_from(now.as_secs()).unwrap_or(0);
                let nanos = u32::try_from(now.as_micros().rem_euclid(1_000_000) * 1_000).unwrap_or(0);
                let random: [u8; 10] = ambient.random();
                let millis = seconds * 1_000 + u64::from(nanos / 1_000_000);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// The identifier as a UUID.
            pub const fn uuid(self) -> uuid::Uuid {
                self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                uuid::Uuid::try_parse(text).map(Self)
            }
        }

        impl From<uuid::Uuid> for $name {
            fn from(id: uuid::Uuid) -> Self {
                Self(id)
            }
        }
    )+};
}

identifiers! {
    /// A project's identifier.
    ProjectId;
    /// A cluster's identifier; it outlives every rename and is never used again.
    ClusterId;
    /// A job's identifier.
    JobId;
    /// A user's identifier.
    UserId;
    /// A browser session's identifier (the cookie holds a secret, not this).
    SessionId;
    /// An API token's identifier.
    ApiTokenId;
    /// The identifier of a kubeconfig that was handed out.
    KubeconfigId;
    /// A join token's identifier; not secret.
    JoinTokenId;
    /// A node's identifier: one machine's membership in one cluster, from its join to its removal.
    NodeId;
}
