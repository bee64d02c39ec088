//! How a join and a leave tell a person what they do.

use crate::node::preflight::Finding;

/// Where it goes.
pub trait Show: Send + Sync {
    /// A step has begun or ended: one CamelCase word, and a sentence.
    fn step(&self, step: &str, message: &str);
    /// A word in between, such as that something is tried again.
    fn note(&self, message: &str);
    /// Something that preflight found.
    fn finding(&self, finding: &Finding);
    /// So many bytes of `total` are here.
    fn transfer(&self, label: &str, done: u64, total: u64);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Show for Silent {
    fn step(&self, _step: &str, _message: &str) {}
    fn note(&self, _message: &str) {}
    fn finding(&self, _finding: &Finding) {}
    fn transfer(&self, _label: &str, _done: u64, _total: u64) {}
}
