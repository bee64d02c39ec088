//! End-to-end tests: the shipped binary, real Kubernetes programs, real kubectl.
//!
//! They need root, the programs of `make assets`, and `nft`; what is missing fails them. Each test has a platform of its own
//! (data folder, ports), so that they run in any order and beside each other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::pedantic, clippy::print_stderr, missing_docs)]

mod harness;

mod access;
mod bad_input;
mod confinement;
mod development;
mod faults;
mod lifecycle;
mod machine_output;
mod nodes;
mod openapi;
