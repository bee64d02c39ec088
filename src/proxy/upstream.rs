//! What the flows to one back end share: the address, the token that cuts them, and the counts.
//!
//! Guarantees that a flow opened on a retired upstream ends at once, and that [`Flow`] counts down however it ends.
//! May import: [`crate::domain`].

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::domain::ClusterId;

/// A cluster's address that connections pass through to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Backend {
    /// Whose address it is; flows are cut and counted by it.
    pub cluster: ClusterId,
    /// Where it listens.
    pub address: SocketAddr,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Flows that were still open at the deadline and were cut.
    pub cut: usize,
}

/// A back end in use.
#[derive(Debug)]
pub(super) struct Upstream {
    backend: Backend,
    cut: ArcSwap<CancellationToken>,
    active: AtomicUsize,
    sent: AtomicU64,
    received: AtomicU64,
}

impl Upstream {
    pub(super) fn new(backend: Backend) -> Self {
        Self {
            backend,
            cut: ArcSwap::from_pointee(CancellationToken::new()),
            active: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    pub(super) fn backend(&self) -> Backend {
        self.backend
    }

    /// Begins a flow.
    pub(super) fn open(self: &Arc<Self>) -> Flow {
        self.active.fetch_add(1, Ordering::Relaxed);
        Flow { cut: self.cut.load().as_ref().clone(), upstream: Arc::clone(self) }
    }

    /// Ends the flows, those to come too.
    pub(super) fn retire(&self) {
        self.cut.load().cancel();
    }

    /// Ends the present flows and returns how many there were.
    pub(super) fn cut(&self) -> usize {
        self.cut.swap(Arc::new(CancellationToken::new())).cancel();
        self.active()
    }

    /// How many flows are open.
    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }
}

/// One open flow to an upstream; counted until dropped.
#[derive(Debug)]
pub(super) struct Flow {
    upstream: Arc<Upstream>,
    cut: CancellationToken,
}

impl Flow {
    pub(super) fn backend(&self) -> Backend {
        self.upstream.backend
    }

    /// Cancelled when this flow must end.
    pub(super) fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Bytes that went from clients to the back end, over all its flows.
    pub(super) fn sent(&self) -> &AtomicU64 {
        &self.upstream.sent
    }

    /// Bytes that came back from it, over all its flows.
    pub(super) fn received(&self) -> &AtomicU64 {
        &self.upstream.received
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.upstream.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The upstreams of one table.
#[derive(Debug, Default)]
pub(super) struct Upstreams(HashMap<Backend, Arc<Upstream>>);

impl Upstreams {
    /// Makes the set equal to `wanted`: keeps what stays, adds what is new, returns what left, not yet retired.
    pub(super) fn reconcile(&mut self, wanted: impl Iterator<Item = Backend>) -> Vec<Arc<Upstream>> {
        let mut previous = std::mem::take(&mut self.0);
        for backend in wanted {
            self.0.entry(backend).or_insert_with(|| previous.remove(&backend).unwrap_or_else(|| Arc::new(Upstream::new(backend))));
        }
        previous.into_values().collect()
    }

    /// The upstream of `backend`, added when it is new.
    pub(super) fn get(&mut self, backend: &Backend) -> Arc<Upstream> {
        Arc::clone(self.0.entry(*backend).or_insert_with(|| Arc::new(Upstream::new(*backend))))
    }

    pub(super) fn cut(&self, cluster: ClusterId) -> usize {
        self.0.values().filter(|upstream| upstream.backend.cluster == cluster).map(|upstream| upstream.cut()).sum()
    }

    pub(super) fn active(&self) -> BTreeMap<ClusterId, usize> {
        let mut active = BTreeMap::new();
        for upstream in self.0.values().filter(|upstream| upstream.active() > 0) {
            *active.entry(upstream.backend.cluster).or_default() += upstream.active();
        }
        active
    }
}
