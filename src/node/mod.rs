//! A tenant's machine as a node: what it knows ([`membership`]), where things stand ([`layout`]), joining, the node role, its network, leaving.
//!
//! May import: `domain`, `pki`, `process`, `runtime`, `tunnel`, `routes`.

pub mod control;
pub mod join;
pub mod layout;
pub mod leave;
pub mod machine;
pub mod membership;
pub mod network;
pub mod preflight;
pub mod show;
