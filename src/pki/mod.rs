//! Certificates: authorities by purpose, leaves that are renewed, kubeconfigs, and the sealing of what is secret.
//!
//! Pure but for [`sealing::SealingKey::load_or_create`]: bytes in, bytes out; storing is the caller's.
//! May import: `domain`.

pub mod authority;
pub mod cluster;
pub mod csr;
pub mod kubeconfig;
pub mod leaves;
pub mod sealing;
mod yaml;

pub use authority::{Authority, CertificateAuthority, Issued, LeafProfile, renewal_due, shown_issuer, validity};
pub use cluster::{ClusterPki, files};
pub use csr::key_and_csr;
pub use leaves::{Leaf, LeafOptions, control_plane_leaves, platform_client};
