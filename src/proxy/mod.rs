//! The front door: who is asked for decides where a connection goes, and nothing of a control plane's TLS is ended here.
//!
//! A connection's ClientHello is read ([`client_hello`]), its name is looked up ([`host_map`]), and then either the bytes
//! pass to a cluster untouched ([`forwarding`], [`relay`]) or the platform takes the stream with what was read put back
//! ([`PrefixedStream`]). [`node_ports`] forwards whole ports by the same code, whatever the name.
//!
//! Guarantees:
//! - a back end receives exactly the client's bytes, each once, and so does the client;
//! - every wait before routing has a deadline, every buffer a bound; after routing a silent stream lives as long as both ends;
//! - names match exactly, there is no wildcard, and an unknown name gets one answer whatever exists;
//! - a back end that leaves a table loses its flows at once, so that a reused address never crosses tenants.
//!
//! May import: [`crate::domain`].

pub mod client_hello;
pub mod forwarding;
pub mod front_door;
pub mod host_map;
pub mod host_name;
pub mod limits;
pub mod listener;
pub mod node_ports;
pub mod prefixed;
pub mod refusal;
pub mod relay;
pub mod stats;
pub mod tls;
pub mod upstream;

#[cfg(test)]
mod tests;

pub use forwarding::ForwardingOptions;
pub use front_door::{FrontDoor, FrontDoorOptions, PlatformHandler};
pub use host_map::{HostMap, Route};
pub use host_name::HostName;
pub use limits::SourceLimit;
pub use listener::{BindError, BoundListener, bind};
pub use node_ports::{NodePorts, PortError};
pub use prefixed::PrefixedStream;
pub use stats::{Refusal, Stats};
pub use tls::PlatformTls;
pub use upstream::{Backend, Drained};
