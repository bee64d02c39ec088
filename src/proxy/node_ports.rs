//! Ports of their own for clusters: whatever arrives is forwarded, whatever the name.
//!
//! Guarantees: [`NodePorts::set`] opens and closes exactly the difference, a port that cannot be opened is an error of that port
//! alone and is tried again by the next `set`; a port that is closed or led elsewhere loses its flows before `set` returns.
//! May import: [`crate::domain`].

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::forwarding::{Forwarder, ForwardingOptions};
use super::listener::{BindError, accept, bind};
use super::stats::{Refusal, Stats};
use super::upstream::{Backend, Drained, Upstream};
use crate::domain::ClusterId;

/// A port that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cluster {cluster} has no node port: {error}")]
pub struct PortError {
    /// The port that was wanted.
    pub port: u16,
    /// Whose it would be.
    pub cluster: ClusterId,
    /// Why not.
    #[source]
    pub error: BindError,
}

/// The node ports of this front door.
pub struct NodePorts {
    address: IpAddr,
    ports: Mutex<BTreeMap<u16, OpenPort>>,
    shared: Arc<Shared>,
}

/// A port that is listened on.
struct OpenPort {
    upstream: Arc<ArcSwap<Upstream>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What the connections of all ports share.
struct Shared {
    forwarder: Forwarder,
    stats: Arc<Stats>,
    connections: Arc<Semaphore>,
    tasks: TaskTracker,
    hard_stop: CancellationToken,
    cut: AtomicUsize,
}

impl NodePorts {
    /// No port yet; those to come listen on `address` and carry at most `max_connections` in all, counted in `stats`.
    pub fn new(address: IpAddr, max_connections: usize, options: ForwardingOptions, stats: Arc<Stats>) -> Self {
        let shared = Shared {
            forwarder: Forwarder::new(options),
            stats,
            connections: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            tasks: TaskTracker::new(),
            hard_stop: CancellationToken::new(),
            cut: AtomicUsize::new(0),
        };
        Self { address, ports: Mutex::default(), shared: Arc::new(shared) }
    }

    /// Makes the open ports equal to `desired`, and returns those that could not be opened. Needs a tokio runtime.
    pub async fn set(&self, desired: &BTreeMap<u16, Backend>) -> Vec<PortError> {
        let mut ports = self.ports.lock().await;
        let (stay, leave) = std::mem::take(&mut *ports).into_iter().partition(|(port, _)| desired.contains_key(port));
        *ports = stay;
        for port in BTreeMap::into_values(leave) {
            port.close().await;
        }
        let mut errors = Vec::new();
        for (&port, &backend) in desired {
            if let Some(open) = ports.get(&port) {
                open.lead_to(backend);
                continue;
            }
            match self.open(port, backend) {
                Ok(open) => drop(ports.insert(port, open)),
                Err(error) => errors.push(PortError { port, cluster: backend.cluster, error }),
            }
        }
        errors
    }

    /// Ends the present flows to `cluster`; new ones are welcome. Returns how many were told to end.
    pub async fn cut(&self, cluster: ClusterId) -> usize {
        let ports = self.ports.lock().await;
        ports.values().map(|port| port.upstream.load()).filter(|upstream| upstream.backend().cluster == cluster).map(|it| it.cut()).sum()
    }

    /// The flows that are open, by cluster; clusters without one are left out.
    pub async fn active(&self) -> BTreeMap<ClusterId, usize> {
        let mut active = BTreeMap::new();
        for upstream in self.ports.lock().await.values().map(|port| port.upstream.load()).filter(|upstream| upstream.active() > 0) {
            *active.entry(upstream.backend().cluster).or_default() += upstream.active();
        }
        active
    }

    /// Stops accepting and lets the flows go on for at most `timeout`.
    pub async fn drain(&self, timeout: Duration) -> Drained {
        for (_, port) in std::mem::take(&mut *self.ports.lock().await) {
            port.stop_accepting().await;
        }
        self.shared.tasks.close();
        if tokio::time::timeout(timeout, self.shared.tasks.wait()).await.is_err() {
            self.shared.hard_stop.cancel();
            self.shared.tasks.wait().await;
        }
        Drained { cut: self.shared.cut.load(Ordering::Relaxed) }
    }

    fn open(&self, port: u16, backend: Backend) -> Result<OpenPort, BindError> {
        let address = SocketAddr::new(self.address, port);
        let listener = bind(address)?;
        let listener = listener.into_tokio(self.shared.forwarder.liveness()).map_err(|error| BindError::Other(address, error))?;
        let upstream = Arc::new(ArcSwap::from_pointee(Upstream::new(backend)));
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, Arc::clone(&upstream), stop.clone(), Arc::clone(&self.shared)));
        Ok(OpenPort { upstream, stop, task })
    }
}

impl OpenPort {
    /// Leads new connections to `backend`, and ends the others if they went elsewhere.
    fn lead_to(&self, backend: Backend) {
        if self.upstream.load().backend() != backend {
            self.upstream.swap(Arc::new(Upstream::new(backend))).retire();
        }
    }

    async fn stop_accepting(self) -> Arc<Upstream> {
        self.stop.cancel();
        // The task ends in its own way; only a panic there would be an error, and the port is closed then, too.
        drop(self.task.await);
        self.upstream.load_full()
    }

    async fn close(self) {
        self.stop_accepting().await.retire();
    }
}

async fn serve(listener: TcpListener, upstream: Arc<ArcSwap<Upstream>>, stop: CancellationToken, shared: Arc<Shared>) {
    let admit = |stream, peer| {
        shared.stats.count_accepted();
        let Ok(permit) = Arc::clone(&shared.connections).try_acquire_owned() else {
            return shared.stats.count_refused(Refusal::ConnectionLimit);
        };
        let flow = upstream.load().open();
        let connection = Arc::clone(&shared);
        shared.tasks.spawn(async move {
            let _permit = permit;
            let Shared { forwarder, stats, hard_stop, cut, .. } = connection.as_ref();
            if forwarder.run(flow, stream, peer, Bytes::new(), stats, hard_stop).await {
                cut.fetch_add(1, Ordering::Relaxed);
            }
        });
    };
    accept(listener, &stop, admit, || shared.stats.count_refused(Refusal::OutOfDescriptors)).await;
}
