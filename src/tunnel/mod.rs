//! The terminator that stands beside each API server: its egress sockets and the revocation webhook.
//!
//! May import: `domain`, `store`, `queue`, `pki`.
