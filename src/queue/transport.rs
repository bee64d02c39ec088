//! What wakes workers.
use async_trait::async_trait;

/// Tells workers that jobs wait.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Tells of waiting jobs; called after the commit, and may be lost or doubled.
    async fn wake(&self) -> anyhow::Result<()>;
    /// Returns when jobs may wait.
    async fn woken(&self) -> anyhow::Result<()>;
}

/// Wakes workers in this process, from the store's changes.
pub struct Embedded {
    _private: (),
}
