//! Copies bytes both ways between a socket here and a stream of a tunnel until both directions have ended or one side is lost.
//!
//! Guarantees: bytes arrive in order, each once; the end of one direction is passed on after its last byte and leaves the other running; what was
//! cut on one side is reset on the other, after what came before; an idle pair holds no buffer. May import: nothing of ours.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use super::session::TunnelStream;

/// The size of a copy's buffer in bytes.
const BUFFER: usize = 64 * 1024;
/// Buffers that are kept for the next copy; more are freed.
const KEPT: usize = 16;
/// How long a side whose other side was lost may take to get what was said before.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the copies of one process share.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Box<[u8]>>>);

impl Buffers {
    fn take(&self) -> Box<[u8]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| vec![0; BUFFER].into())
    }

    fn give(&self, buffer: Box<[u8]>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(buffer);
        }
    }
}

/// Sets what each TCP connection of a tunnel has: no delay, and the death of its peer is found within 45 seconds of something to send and within
/// a minute without.
pub fn enliven(socket: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10)).with_retries(3),
    )?;
    socket.set_tcp_user_timeout(Some(Duration::from_secs(45)))
}

/// One direction of a pair.
#[derive(Default)]
struct Half {
    buffer: Option<Box<[u8]>>,
    from: usize,
    to: usize,
    /// The source has ended.
    ended: bool,
    /// So has the destination.
    done: bool,
}

impl Half {
    fn rest(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.from..self.to])
    }

    fn took(&mut self, count: usize, buffers: &Buffers) {
        self.from += count;
        if self.from == self.to
            && let Some(buffer) = self.buffer.take()
        {
            buffers.give(buffer);
        }
    }

    fn hold(&mut self, buffer: Box<[u8]>, count: usize) {
        (self.from, self.to, self.buffer) = (0, count, Some(buffer));
    }
}

/// Copies until both directions have ended.
///
/// # Errors
/// One side was lost; the other was reset.
pub async fn relay(socket: TcpStream, mut stream: TunnelStream, buffers: &Buffers) -> io::Result<()> {
    let (mut up, mut down) = (Half::default(), Half::default());
    let mut results: [Option<io::Result<()>>; 2] = [None, None];
    let mut turn = |cx: &mut Context<'_>, results: &mut [Option<io::Result<()>>; 2]| {
        if results[0].is_none()
            && let Poll::Ready(result) = poll_up(&socket, &mut stream, &mut up, buffers, cx)
        {
            results[0] = Some(result);
        }
        if results[1].is_none()
            && let Poll::Ready(result) = poll_down(&socket, &mut stream, &mut down, buffers, cx)
        {
            results[1] = Some(result);
        }
        results.iter().all(Option::is_some)
    };
    let failed = |results: &[Option<io::Result<()>>; 2]| results.iter().flatten().any(Result::is_err);
    let over = poll_fn(|cx| match turn(cx, &mut results) {
        over if over || failed(&results) => Poll::Ready(over),
        _ => Poll::Pending,
    })
    .await;
    if !over {
        // One direction is lost; what the other still has is passed on.
        let rest = poll_fn(|cx| if turn(cx, &mut results) { Poll::Ready(()) } else { Poll::Pending });
        drop(tokio::time::timeout(LAST_WORDS, rest).await);
    }
    let ended = results.into_iter().flatten().find(Result::is_err).unwrap_or(Ok(()));
    if ended.is_err() {
        drop(stream);
        drop(tokio::time::timeout(LAST_WORDS, acknowledged(&socket)).await);
        // It fails only on a socket that has no peer any more.
        drop(socket.set_zero_linger());
    }
    ended
}

/// From the socket into the stream.
fn poll_up(
    socket: &TcpStream,
    stream: &mut TunnelStream,
    half: &mut Half,
    buffers: &Buffers,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !half.done {
        let stream = Pin::new(&mut *stream);
        if !half.rest().is_empty() {
            let count = std::task::ready!(stream.poll_write(cx, half.rest()))?;
            half.took(count, buffers);
        } else if half.ended {
            std::task::ready!(stream.poll_shutdown(cx))?;
            half.done = true;
        } else {
            // Nothing is kept back while the source is silent.
            std::task::ready!(stream.poll_flush(cx))?;
            std::task::ready!(socket.poll_read_ready(cx))?;
            let mut buffer = buffers.take();
            match socket.try_read(&mut buffer) {
                Ok(0) => half.ended = true,
                Ok(count) => {
                    half.hold(buffer, count);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            buffers.give(buffer);
        }
    }
    Poll::Ready(Ok(()))
}

/// From the stream into the socket.
fn poll_down(
    socket: &TcpStream,
    stream: &mut TunnelStream,
    half: &mut Half,
    buffers: &Buffers,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    while !half.done {
        if !half.rest().is_empty() {
            match socket.try_write(half.rest()) {
                Ok(count) => half.took(count, buffers),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::task::ready!(socket.poll_write_ready(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        } else if half.ended {
            match SockRef::from(socket).shutdown(Shutdown::Write) {
                // It is gone already, which its own direction reports.
                Err(error) if error.kind() != io::ErrorKind::NotConnected => return Poll::Ready(Err(error)),
                _ => half.done = true,
            }
        } else if std::task::ready!(stream.poll_readable(cx))? {
            // A pair that is always ready must let others run.
            let budget = std::task::ready!(tokio::task::coop::poll_proceed(cx));
            let mut buffer = buffers.take();
            let mut into = ReadBuf::new(&mut buffer);
            let polled = Pin::new(&mut *stream).poll_read(cx, &mut into);
            let count = into.filled().len();
            if count == 0 {
                buffers.give(buffer);
                std::task::ready!(polled)?;
                continue;
            }
            budget.made_progress();
            half.hold(buffer, count);
        } else {
            half.ended = true;
        }
    }
    Poll::Ready(Ok(()))
}

/// Waits until the peer of `socket` has what is on its way to it, which a reset would throw away.
async fn acknowledged(socket: &TcpStream) {
    let mut pause = Duration::from_millis(1);
    while SockRef::from(socket).take_error().is_ok_and(|error| error.is_none()) && unacknowledged(socket) > 0 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Bytes that were written and that the peer has not acknowledged.
fn unacknowledged(socket: &TcpStream) -> usize {
    let mut count: nix::libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `socket` lives, and the call writes one c_int (tcp(7), SIOCOUTQ).
    let result = unsafe { nix::libc::ioctl(socket.as_raw_fd(), nix::libc::TIOCOUTQ, &raw mut count) };
    if result == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}
