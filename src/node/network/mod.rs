//! A node's network: the interface of the API address, pods' bridge and rules, and the way to other nodes' pods.

pub mod interface;

pub use interface::{API_INTERFACE, InterfaceError, ensure_api_interface, remove_api_interface};
