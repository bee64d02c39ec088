//! Where the streams of the egress selection `cluster` lead.
//!
//! May import: nothing of ours but the tunnel's.
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::tunnel::connect::Target;

/// A stream of bytes in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Why a target is not reached: an HTTP status and one line for whoever reads the API server's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status: 403 for what may not be reached, 502 for what cannot be reached, 503 where there is too much of it.
    pub status: u16,
    /// Why, in one line.
    pub reason: String,
}

impl Refusal {
    /// Refuses with `status` because of `reason`.
    pub fn new(status: u16, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// Opens streams to what is in a cluster's network. It never dials from the platform's own host.
#[async_trait]
pub trait Targets: Send + Sync + 'static {
    /// A stream to `target`. It is dropped without an answer when it takes longer than the terminator's deadline.
    async fn open(&self, target: &Target) -> Result<Box<dyn Stream>, Refusal>;
}

/// The targets of a cluster that no node is connected to: there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNodes;

#[async_trait]
impl Targets for NoNodes {
    async fn open(&self, _target: &Target) -> Result<Box<dyn Stream>, Refusal> {
        Err(Refusal::new(502, "no node of this cluster is connected"))
    }
}
