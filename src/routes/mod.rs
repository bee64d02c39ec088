//! Routes of a machine: what is wanted, what is there, and the difference (pure); and the netlink that brings one to the other.
//!
//! What is ours is one table's routes of one protocol ([`Ownership`]): each of them that nobody wants goes, and no other route is ever
//! changed. Where a prefix is held by a route that is not ours, nothing is added and the conflict is reported. What is new is added before
//! what is old is deleted, and nothing is deleted on the word of a listing that was torn. May import: `domain`.

pub mod diff;
#[cfg(test)]
pub(crate) mod namespace;
pub mod netlink;
pub mod reconcile;
mod route;

pub use diff::{Conflict, Diff, diff};
pub use netlink::{Address, Link, Netlink, NetlinkError, Vxlan, Watch};
pub use reconcile::{Failure, Pass, reconcile};
pub use route::{Ownership, PROTOCOL, Route, Scope, TABLE_LOCAL, TABLE_MAIN, Wanted};

#[cfg(test)]
mod tests;
