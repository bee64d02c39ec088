//! cli

pub mod assets;
