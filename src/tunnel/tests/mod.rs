//! Both sides of the tunnel together: real sockets, real TLS, a cluster's own authorities.

mod admission;
mod conversation;
mod faults;
mod harness;
mod streams;
mod ways;
