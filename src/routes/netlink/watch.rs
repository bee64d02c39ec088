//! Events of links, addresses and routes, as hints to look again.
//!
//! The kernel removes IPv4 routes of a link that goes down without a word about them, so links are watched too. A socket that overran lost
//! events and one that failed is opened anew: both are hints like any other, since whoever is told looks at everything.

use std::time::Duration;

use futures_util::Stream;
use futures_util::StreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::sys::AsyncSocket as _;

use super::NetlinkError;

/// After an event, so long is waited for others to come with it.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Events that never stop are told of after so long.
const LONGEST: Duration = Duration::from_secs(2);
/// How long after a failure the socket is opened anew.
const REOPEN: Duration = Duration::from_secs(1);
/// The socket's receive buffer in bytes; root may go past the system's limit.
const BUFFER: usize = 4 << 20;

/// A watch on this thread's network namespace.
pub struct Watch {
    events: std::pin::Pin<Box<dyn Stream<Item = ()> + Send + Sync>>,
    _connection: tokio_util::task::AbortOnDropHandle<()>,
    broken: bool,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches, in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let groups = [
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv6Route,
        ];
        let (mut connection, _, events) = rtnetlink::new_multicast_connection(&groups).map_err(NetlinkError::Open)?;
        let socket = connection.socket_mut().socket_mut();
        let fd = std::os::fd::AsFd::as_fd(socket);
        if nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::RcvBufForce, &BUFFER).is_err() {
            // Without the privilege the system's limit stands; overruns are noticed all the same.
            let _ = nix::sys::socket::setsockopt(&fd, nix::sys::socket::sockopt::RcvBuf, &BUFFER);
        }
        let connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
        Ok(Self { events: Box::pin(events.map(|_| ())), _connection: connection, broken: false })
    }

    /// Returns when something may have changed, and no event came for 200 ms since, or for 2 s events did not stop. May be dropped
    /// and called again without losing anything.
    pub async fn changed(&mut self) {
        if self.broken {
            loop {
                tokio::time::sleep(REOPEN).await;
                match Self::open() {
                    Ok(opened) => {
                        *self = opened;
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "cannot watch the machine's routes; trying again"),
                }
            }
        }
        if self.events.next().await.is_none() {
            self.broken = true;
            return;
        }
        let settle = async {
            loop {
                match tokio::time::timeout(DEBOUNCE, self.events.next()).await {
                    Ok(Some(())) => {}
                    Ok(None) => {
                        self.broken = true;
                        return;
                    }
                    Err(_) => return,
                }
            }
        };
        let _ = tokio::time::timeout(LONGEST, settle).await;
    }
}
