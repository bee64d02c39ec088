//! The local engine: real upstream programs as processes of this host.
//!
//! May import: `domain`, `store`, `pki`, `tunnel`, and the common plan.

pub mod adopt;
pub mod confine;
pub mod logs;
pub mod process;
pub mod supervise;
