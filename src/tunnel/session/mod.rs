//! One connection between a node and its terminator, shared by many streams (yamux).
//!
//! One task, the [`Driver`], moves everything; [`Session`] opens streams, [`Inbound`] gives those that the other side opened.
//! Guarantees:
//! - Streams are independent: each has a window of its own, so one that nobody reads holds up no other.
//! - Memory is bounded: a connection has at most [`MAX_STREAMS`] streams, a stream holds at most 256 KiB that came and was not read and 192 KiB
//!   that is to be sent, and all windows that grew beyond it (long, fast lines) share [`MAX_GROWTH`]. An idle stream holds no buffer.
//! - An end is an end: each direction closes by itself after its last byte, and a stream that was cut reads as an error, never as ended.
//! - What many streams send is written together: one flush for each turn of the driver, whatever number of frames it wrote.
//!
//! May import: nothing of ours.

mod stream;
mod wire;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt as _};
use tokio_util::sync::CancellationToken;

pub use self::stream::TunnelStream;
use self::wire::{Port, Wire};

/// The most streams of a connection, of both sides together; who opens more loses the connection. Each side bounds its own far below.
pub const MAX_STREAMS: usize = 512;
/// By how many bytes all windows of a connection together may grow beyond their first size.
pub const MAX_GROWTH: usize = 32 * 1024 * 1024;
/// The first window of each stream, which yamux gives.
const FIRST_WINDOW: usize = 256 * 1024;
/// A frame with its header fills one TLS record (RFC 8446, 5.1).
const FRAME_BODY: usize = 16 * 1024 - 12;
/// Streams that came and were not taken yet.
const INBOUND_QUEUE: usize = 64;
/// Streams that are asked for and not opened yet.
const OPEN_QUEUE: usize = 64;
/// How long the last words of a connection may take to be sent.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the other side may take to close after that. Closing with unread bytes sends RST, and it might never see the last words.
const LINGER: Duration = Duration::from_secs(1);

/// Which side of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The node, which connected.
    Node,
    /// The terminator, which accepted.
    Platform,
}

/// Opens streams on a connection, and ends it. Clones are of the same connection.
#[derive(Debug, Clone)]
pub struct Session {
    opens: mpsc::Sender<oneshot::Sender<yamux::Stream>>,
    closing: CancellationToken,
    closed: CancellationToken,
}

impl Session {
    /// A new stream. The other side learns of it with its first bytes.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn open(&self) -> io::Result<TunnelStream> {
        let closed = || io::Error::new(io::ErrorKind::NotConnected, "the tunnel is closed");
        let (reply, opened) = oneshot::channel();
        self.opens.send(reply).await.map_err(|_| closed())?;
        opened.await.map(TunnelStream::new).map_err(|_| closed())
    }

    /// Ends the connection after what was written so far.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Whether the connection is ending or has ended.
    pub fn is_closed(&self) -> bool {
        self.closing.is_cancelled() || self.closed.is_cancelled()
    }
}

/// Streams that the other side opens.
#[derive(Debug)]
pub struct Inbound(mpsc::Receiver<TunnelStream>);

impl Inbound {
    /// The next one; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<TunnelStream> {
        self.0.recv().await
    }
}

/// Moves a connection's bytes; to be spawned. It ends with the connection.
pub struct Driver<S> {
    connection: yamux::Connection<Compat<Port<S>>>,
    wire: Arc<Wire<S>>,
    opens: mpsc::Receiver<oneshot::Sender<yamux::Stream>>,
    inbound: mpsc::Sender<TunnelStream>,
    waiting: Option<oneshot::Sender<yamux::Stream>>,
    closing: CancellationToken,
    closed: CancellationToken,
}

/// Shares a connection among streams.
pub fn session<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(socket: S, side: Side) -> (Session, Inbound, Driver<S>) {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(MAX_STREAMS);
    config.set_max_connection_receive_window(Some(MAX_STREAMS * FIRST_WINDOW + MAX_GROWTH));
    config.set_split_send_size(FRAME_BODY);
    let mode = match side {
        Side::Node => yamux::Mode::Client,
        Side::Platform => yamux::Mode::Server,
    };
    let wire = Wire::new(socket);
    let connection = yamux::Connection::new(Port::new(&wire).compat(), config, mode);
    let (open, opens) = mpsc::channel(OPEN_QUEUE);
    let (came, inbound) = mpsc::channel(INBOUND_QUEUE);
    let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
    let session = Session { opens: open, closing: closing.clone(), closed: closed.clone() };
    (session, Inbound(inbound), Driver { connection, wire, opens, inbound: came, waiting: None, closing, closed })
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Driver<S> {
    /// Runs until the connection ends or is told to; gives why it ended when it was not told to.
    pub async fn run(mut self) -> io::Result<()> {
        let closing = self.closing.clone();
        let _closed = self.closed.clone().drop_guard();
        let ended = tokio::select! {
            biased;
            ended = poll_fn(|cx| self.turn(cx)) => ended,
            () = closing.cancelled() => {
                let last_words = poll_fn(|cx| match self.turn(cx) {
                    Poll::Ready(_) => Poll::Ready(()),
                    Poll::Pending => self.wire.poll_drained(cx).map(drop),
                });
                // Who does not take them in time does without.
                drop(tokio::time::timeout(LAST_WORDS, last_words).await);
                Ok(())
            }
        };
        self.closed.cancel();
        let Self { connection, wire, .. } = self;
        drop(connection);
        if ended.is_ok() {
            linger(&wire).await;
        }
        ended
    }

    /// Does all that can be done at once.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            loop {
                match self.connection.poll_next_inbound(cx) {
                    // Dropping a stream resets it.
                    Poll::Ready(Some(Ok(stream))) => drop(self.inbound.try_send(TunnelStream::new(stream))),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                    Poll::Ready(None) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                    Poll::Pending => break,
                }
            }
            if self.open(cx)? {
                continue;
            }
            match self.wire.poll_drained(cx) {
                // Frames that found no room have some.
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(false)) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Opens one stream, if one is asked for and can be.
    fn open(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.waiting.is_none() {
            self.waiting = match self.opens.poll_recv(cx) {
                Poll::Ready(Some(reply)) => Some(reply),
                Poll::Ready(None) | Poll::Pending => return Ok(false),
            };
        }
        match self.connection.poll_new_outbound(cx) {
            Poll::Ready(Ok(stream)) => {
                if let Some(reply) = self.waiting.take() {
                    drop(reply.send(stream));
                }
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(io::Error::other(error)),
            Poll::Pending => Ok(false),
        }
    }
}

/// Says that no more comes, and reads what is still on its way.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(wire: &Arc<Wire<S>>) {
    let mut port = Port::new(wire);
    let rest = async {
        port.shutdown().await?;
        let mut sink = [0; 4096];
        while port.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    drop(tokio::time::timeout(LINGER, rest).await);
}

#[cfg(test)]
mod tests;
