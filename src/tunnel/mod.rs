//! Between an API server and its nodes: the terminator that stands beside it (egress sockets, revocation webhook, nodes' tunnels),
//! the node's side, and what they say to each other ([`protocol`]).
//!
//! kube-apiserver reaches nothing by itself: both of its egress selections, `cluster` and `controlplane` (KEP-1281), lead into
//! Unix sockets of the terminator, which dials nothing on the platform's host. May import: `domain`, `store`, `queue`, `pki`.

pub mod configuration;
pub mod connect;
pub mod frame;
pub mod node;
pub mod protocol;
mod rate;
mod relay;
mod session;
pub mod terminator;

pub use configuration::{authorization_config, authorization_config_hash, egress_selector_config, webhook_kubeconfig};
pub use terminator::nodes::{NodeOptions, TunnelTls};
pub use terminator::{Revocations, Terminator, TerminatorOptions, TerminatorTls};

/// The socket of the egress selection `cluster`, below the run directory.
pub const CLUSTER_SOCKET: &str = "cluster.sock";
/// The socket of the egress selection `controlplane`, below the run directory.
pub const CONTROL_PLANE_SOCKET: &str = "controlplane.sock";
/// The key of a user's `extra` that names the credential used (KEP-4193).
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

#[cfg(test)]
mod tests;
