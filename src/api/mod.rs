//! HTTP: the router, sign-in, problems, and the resources below `/api/v1`.
//!
//! Guarantees: every answer that is no success is a problem (RFC 9457) with a stable `type`; what a caller may not see
//! answers exactly as what is not there; a row, its event and its job commit together; the OpenAPI document is made from
//! the same declarations as the routes. What the API needs of other parts of the program comes in through the traits of
//! [`state`]; `cli` wires them.
//! May import: `domain`, `store`, `queue`.

pub mod assets;
pub mod auth;
pub mod conditional;
pub mod events;
pub mod extract;
pub mod health;
pub mod idempotency;
pub mod join;
pub mod middleware;
pub mod openapi;
pub mod problem;
pub mod router;
pub mod state;
#[cfg(test)]
mod tests;
pub mod v1;
pub mod wait;

pub use auth::Peer;
pub use problem::Problem;
pub use router::router;
pub use state::ApiState;
