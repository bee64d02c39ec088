//! Listening sockets: binding with errors that help, options set once for all that is accepted, and an accept loop that
//! survives running out of descriptors.
//!
//! Guarantees that a taken port is told before anything else starts, that `[::]` takes IPv4 too, and that no error of
//! accept(2) ends the loop or spins it. May import: nothing of ours.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Connections that may wait for accept(2); the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// How long clients are turned away before each pause.
const SHED: Duration = Duration::from_millis(10);

/// How a dead peer is found. Linux lets `user_timeout` take the place of the count of probes.
#[derive(Debug, Clone, Copy)]
pub struct Liveness {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer before the peer is dead.
    pub probes: u32,
    /// How long sent bytes or probes may stay unanswered (`TCP_USER_TIMEOUT`, RFC 5482). Linux also ends a connection whose
    /// reader keeps its window shut for this long, so it must exceed the pauses of a human reader.
    pub user_timeout: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { idle: Duration::from_secs(30), interval: Duration::from_secs(10), probes: 3, user_timeout: Duration::from_secs(300) }
    }
}

impl Liveness {
    /// Sets the options, with `TCP_NODELAY`, on a socket; Linux hands those of a listener on to what it accepts.
    pub(super) fn apply(&self, socket: &SockRef<'_>) -> io::Result<()> {
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(self.idle).with_interval(self.interval).with_retries(self.probes);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(self.user_timeout))
    }
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket has the port.
    #[error(
        "port {port} of {address} is taken by another program; `ss -ltnp 'sport = :{port}'` (as root) shows which. Stop it, or listen elsewhere"
    )]
    Taken {
        /// The address that was asked for.
        address: IpAddr,
        /// The port that was asked for.
        port: u16,
    },
    /// The port needs a privilege.
    #[error(
        "port {0} may not be opened by this user; run as root, give the program CAP_NET_BIND_SERVICE, or listen on a port from 1024 up"
    )]
    Forbidden(u16),
    /// The address is not of this machine.
    #[error("{0} is no address of this machine; `ip address` lists them, and [::] means all")]
    NotOurs(IpAddr),
    /// Anything else that the system says.
    #[error("listening on {0} failed: {1}; see `dmesg` and the limits of the service")]
    Other(SocketAddr, #[source] io::Error),
}

impl BindError {
    fn new(listen: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::Taken { address: listen.ip(), port: listen.port() },
            io::ErrorKind::PermissionDenied => Self::Forbidden(listen.port()),
            io::ErrorKind::AddrNotAvailable => Self::NotOurs(listen.ip()),
            _ => Self::Other(listen, error),
        }
    }
}

/// A port that is open, whose connections wait until it is served. Needs no runtime.
#[derive(Debug)]
pub struct BoundListener {
    socket: std::net::TcpListener,
    address: SocketAddr,
}

impl BoundListener {
    /// Where it listens, with the port that the system chose for port 0.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands the socket to the runtime that this is called in.
    pub(super) fn into_tokio(self, liveness: &Liveness) -> io::Result<TcpListener> {
        liveness.apply(&SockRef::from(&self.socket))?;
        TcpListener::from_std(self.socket)
    }
}

/// Opens `listen`. `[::]` takes IPv4 as well, and falls back to `0.0.0.0` on a machine without IPv6.
pub fn bind(listen: SocketAddr) -> Result<BoundListener, BindError> {
    let everywhere = listen.is_ipv6() && listen.ip().is_unspecified();
    match open(listen) {
        Err(error) if everywhere && lacks_ipv6(&error) => {
            let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, listen.port()));
            open(listen).map_err(|error| BindError::new(listen, error))
        }
        result => result.map_err(|error| BindError::new(listen, error)),
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT)
}

fn open(listen: SocketAddr) -> io::Result<BoundListener> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM.cloexec().nonblocking(), None)?;
    if listen.is_ipv6() {
        socket.set_only_v6(!listen.ip().is_unspecified())?;
    }
    // Lets a restart bind while old connections are in TIME_WAIT; a second listener is still refused.
    socket.set_reuse_address(true)?;
    socket.bind(&listen.into())?;
    socket.listen(BACKLOG)?;
    let socket = std::net::TcpListener::from(socket);
    let address = socket.local_addr()?;
    Ok(BoundListener { socket, address })
}

/// Accepts until `stop`, giving each connection to `serve`, which must not block; `turned_away` is called for each that
/// was closed at once, since there are no descriptors or buffers for more. The socket is closed when this returns.
pub(super) async fn accept(
    listener: TcpListener,
    stop: &CancellationToken,
    mut serve: impl FnMut(TcpStream, SocketAddr),
    mut turned_away: impl FnMut(),
) {
    let mut reserve = Reserve::hold();
    let mut pause = PAUSE_FIRST;
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let error = match accepted {
            Ok((stream, peer)) => {
                pause = PAUSE_FIRST;
                serve(stream, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                continue;
            }
            Err(error) => error,
        };
        if !is_exhaustion(&error) {
            // The connection that was to be accepted failed (ECONNABORTED and the like, see accept(2)); the next may not.
            tracing::debug!(%error, "a connection ended before it was accepted");
            tokio::task::yield_now().await;
            continue;
        }
        tracing::warn!(%error, "no more connections can be accepted; raise LimitNOFILE of the service or the host's fs.file-max");
        reserve.turn_away(&listener, &mut turned_away).await;
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

/// Whether `error` lasts until something is closed, so that trying again at once would spin.
fn is_exhaustion(error: &io::Error) -> bool {
    use nix::libc::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS | ENOMEM))
}

/// A descriptor kept back, so that a client can be turned away rather than left hanging when there is none.
struct Reserve(Option<File>);

impl Reserve {
    fn hold() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Accepts and closes what waits, for a moment, and calls `each` for every one.
    async fn turn_away(&mut self, listener: &TcpListener, mut each: impl FnMut()) {
        drop(self.0.take());
        let shed = async {
            while let Ok(accepted) = listener.accept().await {
                drop(accepted);
                each();
            }
        };
        // It ends with the time, when nobody waits any more, or with the next error.
        drop(tokio::time::timeout(SHED, shed).await);
        *self = Self::hold();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_named_with_the_way_to_find_its_holder() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = bind(first.address()).unwrap_err();
        assert!(matches!(error, BindError::Taken { port, .. } if port == first.address().port()), "{error:?}");
        assert!(error.to_string().contains(&format!("ss -ltnp 'sport = :{}'", first.address().port())), "{error}");
    }

    #[test]
    fn an_address_of_another_machine_is_refused() {
        let error = bind("192.0.2.7:0".parse().unwrap()).unwrap_err();
        assert!(matches!(error, BindError::NotOurs(_)), "{error:?}");
    }

    #[tokio::test]
    async fn the_unspecified_address_takes_both_families_and_hands_options_on() {
        let bound = bind("[::]:0".parse().unwrap()).unwrap();
        let port = bound.address().port();
        let dual = bound.address().is_ipv6();
        let liveness = Liveness { user_timeout: Duration::from_secs(77), ..Liveness::default() };
        let listener = bound.into_tokio(&liveness).unwrap();
        let _client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let accepted = SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap() && accepted.tcp_nodelay().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
        assert_eq!(accepted.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
        assert_eq!(accepted.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_secs(77)));
        if dual {
            let _client = TcpStream::connect(("::1", port)).await.unwrap();
        }
    }
}
