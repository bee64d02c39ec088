//! Certificates: authorities by purpose, leaves that are renewed, kubeconfigs, and the sealing of what is secret.
//!
//! Pure but for [`sealing::SealingKey::load_or_create`]: bytes in, bytes out; storing is the caller's.
//! May import: `domain`.

pub mod authority;
pub mod cluster;
pub mod kubeconfig;
pub mod sealing;

pub use authority::{Authority, CertificateAuthority, Issued, LeafProfile};
