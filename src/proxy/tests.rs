//! The front door on loopback: real sockets, real TLS on both ends.

mod exhaustion;
mod flows;
mod harness;
mod node_ports;
mod refusals;
mod routing;
mod scale;
