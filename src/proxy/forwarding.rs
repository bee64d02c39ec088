//! One flow to a back end: connect, then relay. The same for the front door and for node ports.
//!
//! Guarantees that connecting has a deadline, that a flow ends as soon as its upstream is cut, and that both legs find a dead
//! peer. May import: [`crate::domain`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use super::listener::Liveness;
use super::refusal::turn_away;
use super::relay::{BufferPool, Counters, End, relay};
use super::stats::{Refusal, Stats};
use super::upstream::Flow;

/// How connections to back ends are made and kept.
#[derive(Debug, Clone, Copy)]
pub struct ForwardingOptions {
    /// How long a back end may take to accept.
    pub connect_timeout: Duration,
    /// How long a connection of which one direction ended may move nothing before it is ended; up to twice that passes. A
    /// connection that is open in both directions may be silent for ever: `kubectl logs -f` and `watch` are.
    pub half_close_timeout: Duration,
    /// How a dead peer is found, on both legs.
    pub liveness: Liveness,
}

impl Default for ForwardingOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(5), half_close_timeout: Duration::from_secs(300), liveness: Liveness::default() }
    }
}

/// What makes flows, shared by all connections of a listener.
#[derive(Debug)]
pub(super) struct Forwarder {
    options: ForwardingOptions,
    pool: BufferPool,
}

impl Forwarder {
    pub(super) fn new(options: ForwardingOptions) -> Self {
        Self { options, pool: BufferPool::default() }
    }

    pub(super) const fn liveness(&self) -> &Liveness {
        &self.options.liveness
    }

    /// Carries `client` to the flow's back end, beginning with `prefix`, until it ends or `hard_stop` cuts it. Returns whether
    /// `hard_stop` did.
    pub(super) async fn run(
        &self,
        flow: Flow,
        client: TcpStream,
        peer: SocketAddr,
        prefix: Bytes,
        stats: &Stats,
        hard_stop: &CancellationToken,
    ) -> bool {
        let backend = flow.backend();
        let connected = tokio::select! {
            () = flow.cut().cancelled() => return false,
            () = hard_stop.cancelled() => return true,
            connected = self.connect(backend.address) => connected,
        };
        let server = match connected {
            Ok(server) => server,
            Err(error) => {
                let refusal = if error.kind() == io::ErrorKind::TimedOut { Refusal::BackendTimeout } else { Refusal::BackendUnreachable };
                stats.count_refused(refusal);
                tracing::debug!(cluster = %backend.cluster, address = %backend.address, %peer, %error, "a back end cannot be reached");
                turn_away(client, refusal).await;
                return false;
            }
        };
        stats.count_forwarded();
        let counters = Counters { sent: flow.sent(), received: flow.received() };
        let cut = async {
            tokio::select! {
                () = flow.cut().cancelled() => {}
                () = hard_stop.cancelled() => {}
            }
        };
        let end = relay(client, server, prefix, self.options.half_close_timeout, cut, &self.pool, counters).await;
        tracing::trace!(cluster = %backend.cluster, %peer, ?end, "a flow ended");
        end == End::Cut && hard_stop.is_cancelled()
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        self.options.liveness.apply(&SockRef::from(&socket))?;
        tokio::time::timeout(self.options.connect_timeout, socket.connect(address)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_leg_to_the_back_end_finds_a_dead_peer_too() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let liveness = Liveness { user_timeout: Duration::from_secs(77), ..Liveness::default() };
        let forwarder = Forwarder::new(ForwardingOptions { liveness, ..ForwardingOptions::default() });
        let stream = forwarder.connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), liveness.idle);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(liveness.user_timeout));
    }
}
