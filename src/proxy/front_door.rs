//! The front door itself: reads a hello, looks its name up, and routes.
//!
//! Guarantees: nobody waits past the hello's one deadline, in whatever portions it sends; a silent client holds no buffer;
//! the limits hold; on shutdown nothing more is accepted, flows drain to a deadline, and those that were cut are counted.
//! May import: [`crate::domain`].

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::client_hello::{self, MAX_INPUT, Parsed};
use super::forwarding::{Forwarder, ForwardingOptions};
use super::host_map::{HostMap, Target};
use super::limits::{SourceLimit, Waiting};
use super::listener::{BoundListener, accept};
use super::prefixed::PrefixedStream;
use super::refusal::turn_away;
use super::stats::{Refusal, Stats};
use super::upstream::Drained;
use crate::domain::ClusterId;

/// The first portion that is read of a hello; larger hellos grow the buffer.
const FIRST_READ: usize = 2048;

/// The limits of the front door.
#[derive(Debug, Clone, Copy)]
pub struct FrontDoorOptions {
    /// How long a whole hello may take from the moment of accept.
    pub hello_timeout: Duration,
    /// Connections in all, those of the platform included.
    pub max_connections: usize,
    /// Connections of one source (an IPv4 address, an IPv6 /64) that are not routed yet.
    pub max_per_source_before_routing: usize,
    /// How long flows may go on after shutdown began.
    pub drain_timeout: Duration,
    /// How connections to back ends are made and kept.
    pub forwarding: ForwardingOptions,
}

impl Default for FrontDoorOptions {
    fn default() -> Self {
        Self {
            hello_timeout: Duration::from_secs(10),
            max_connections: 20_000,
            max_per_source_before_routing: 256,
            drain_timeout: Duration::from_secs(10),
            forwarding: ForwardingOptions::default(),
        }
    }
}

/// Takes the connections that are for the platform itself.
pub trait PlatformHandler: Send + Sync + 'static {
    /// Takes over a connection that asked for a name of the platform, or for none. Must not block: it starts a task of its own
    /// and sets its own deadlines for the TLS handshake and after. Dropping the stream closes it.
    fn accept(&self, stream: PrefixedStream, peer: SocketAddr);
}

/// One listener for everything, by SNI.
pub struct FrontDoor {
    options: FrontDoorOptions,
    platform: Arc<dyn PlatformHandler>,
    hosts: HostMap,
    stats: Arc<Stats>,
    forwarder: Forwarder,
    connections: Arc<Semaphore>,
    sources: Arc<SourceLimit>,
    hard_stop: CancellationToken,
    cut: AtomicUsize,
}

impl FrontDoor {
    /// A front door that knows no name yet; connections without a name reach the platform.
    pub fn new(options: FrontDoorOptions, platform: Arc<dyn PlatformHandler>) -> Arc<Self> {
        Arc::new(Self {
            options,
            platform,
            hosts: HostMap::new(),
            stats: Arc::default(),
            forwarder: Forwarder::new(options.forwarding),
            connections: Arc::new(Semaphore::new(options.max_connections.min(Semaphore::MAX_PERMITS))),
            sources: SourceLimit::new(options.max_per_source_before_routing),
            hard_stop: CancellationToken::new(),
            cut: AtomicUsize::new(0),
        })
    }

    /// The routing table.
    pub const fn hosts(&self) -> &HostMap {
        &self.hosts
    }

    /// The counters.
    pub const fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The flows that are open, by cluster.
    pub fn active(&self) -> BTreeMap<ClusterId, usize> {
        self.hosts.active()
    }

    /// Serves what arrives on `listener` until `shutdown`, then drains. Connections of the platform are its own to drain.
    pub async fn serve(self: Arc<Self>, listener: BoundListener, shutdown: CancellationToken) -> io::Result<Drained> {
        let listener = listener.into_tokio(self.forwarder.liveness())?;
        let tasks = TaskTracker::new();
        accept(
            listener,
            &shutdown,
            |stream, peer| self.admit(stream, peer, &tasks),
            || self.stats.count_refused(Refusal::OutOfDescriptors),
        )
        .await;
        tasks.close();
        if tokio::time::timeout(self.options.drain_timeout, tasks.wait()).await.is_err() {
            self.hard_stop.cancel();
            tasks.wait().await;
        }
        Ok(Drained { cut: self.cut.load(Ordering::Relaxed) })
    }

    /// Applies the limits and starts the connection's task.
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, tasks: &TaskTracker) {
        self.stats.count_accepted();
        let Ok(permit) = Arc::clone(&self.connections).try_acquire_owned() else {
            return self.stats.count_refused(Refusal::ConnectionLimit);
        };
        let Some(waiting) = self.sources.admit(peer.ip()) else {
            return self.stats.count_refused(Refusal::SourceLimit);
        };
        tasks.spawn(Arc::clone(self).connection(stream, peer, permit, waiting));
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit, waiting: Waiting) {
        let read = tokio::select! {
            read = tokio::time::timeout(self.options.hello_timeout, read_hello(&stream)) => read.unwrap_or(Err(Refusal::HelloTimeout)),
            () = self.hard_stop.cancelled() => return,
        };
        let target = read.and_then(|(hello, bytes)| match hello.server_name {
            None => Ok((Target::Platform, bytes)),
            Some(name) => self.hosts.target(&name).map(|target| (target, bytes)).ok_or(Refusal::UnknownName),
        });
        match target {
            Err(refusal) => {
                self.stats.count_refused(refusal);
                tracing::debug!(%peer, reason = refusal.as_str(), "a connection is turned away");
                turn_away(stream, refusal).await;
            }
            Ok((Target::Platform, bytes)) => {
                self.stats.count_platform();
                self.platform.accept(PrefixedStream::new(bytes, stream, permit), peer);
            }
            Ok((Target::Upstream(upstream), bytes)) => {
                drop(waiting);
                if self.forwarder.run(upstream.open(), stream, peer, bytes, &self.stats, &self.hard_stop).await {
                    self.cut.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Reads until the hello is whole; gives it with every byte that was read.
async fn read_hello(stream: &TcpStream) -> Result<(client_hello::ClientHello, Bytes), Refusal> {
    let mut bytes = BytesMut::new();
    loop {
        // The buffer comes only when there is something to put into it.
        stream.readable().await.map_err(|_| Refusal::ClosedEarly)?;
        bytes.reserve(FIRST_READ);
        match stream.try_read_buf(&mut bytes) {
            Ok(0) => return Err(Refusal::ClosedEarly),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(Refusal::ClosedEarly),
        }
        match client_hello::parse(&bytes) {
            Parsed::Incomplete if bytes.len() >= MAX_INPUT => return Err(Refusal::TooLarge),
            Parsed::Incomplete => {}
            Parsed::Hello(hello) => return Ok((hello, bytes.freeze())),
            Parsed::Refused(reason) => return Err(reason.into()),
        }
    }
}
