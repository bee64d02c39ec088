//! Confinement: what keeps a cluster's processes to their own address, files and share of the host.
//!
//! Each part is idempotent and reversible, and each says what it could not do.
//! May import: `domain`, and the ports of the common plan.

pub mod cgroup;
pub mod claims;
pub mod mounts;
pub mod nftables;
