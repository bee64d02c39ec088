//! A tenant's machine as a node: what it knows ([`membership`]), where things stand ([`layout`]), joining, the node role, its network, leaving.
//!
//! May import: `domain`, `pki`, `process`, `runtime`, `tunnel`, `routes`.

pub mod layout;
pub mod membership;
pub mod network;
