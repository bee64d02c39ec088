//! Copies bytes both ways between two sockets until both sides are done.
//!
//! Guarantees: bytes arrive in order, each once, and the end of one direction is passed on after its last byte; an end of one
//! direction leaves the other running, but a half-closed pair that moves nothing for the given time is ended; an idle pair
//! holds no buffer; what a side said before it was lost still reaches the other; a pair that is cut is reset on both sides, and
//! a reset is passed on, so that nobody takes a part for the whole.
//! May import: nothing of ours.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use socket2::SockRef;
use tokio::net::TcpStream;

/// The size of a copy's buffer in bytes.
const BUFFER: usize = 32 * 1024;
/// Buffers that are kept for the next copy; more are freed.
const KEPT: usize = 128;
/// The longest pause between two looks at what a peer has acknowledged.
const FLUSH_PAUSE: Duration = Duration::from_millis(100);

/// How a pair ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Both directions ended, after their last byte.
    Finished,
    /// A side was lost: it reset the connection, or answers no more.
    Reset,
    /// One direction ended and the other moved nothing for too long.
    HalfClosed,
    /// The flow was told to end.
    Cut,
}

/// Which side of a copy was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    /// The one that is read from; all that it said was passed on.
    Source,
    /// The one that is written to; it may have said more than was read of it yet.
    Destination,
}

/// What the copies of one process share.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Mutex<Vec<Box<[u8]>>>);

impl BufferPool {
    fn take(&self) -> Borrowed<'_> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Borrowed { pool: self, buffer: kept.unwrap_or_else(|| vec![0; BUFFER].into()) }
    }
}

struct Borrowed<'a> {
    pool: &'a BufferPool,
    buffer: Box<[u8]>,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut kept = self.pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT {
            kept.push(std::mem::take(&mut self.buffer));
        }
    }
}

/// Where the bytes of a pair are counted.
#[derive(Clone, Copy)]
pub(super) struct Counters<'a> {
    /// From the client to the back end.
    pub(super) sent: &'a AtomicU64,
    /// From the back end to the client.
    pub(super) received: &'a AtomicU64,
}

/// Copies between `client` and `backend`, beginning with `prefix`, which the client sent already, until both end or `cut` comes.
pub(super) async fn relay(
    client: TcpStream,
    backend: TcpStream,
    prefix: Bytes,
    half_close_timeout: Duration,
    cut: impl Future<Output = ()>,
    pool: &BufferPool,
    counters: Counters<'_>,
) -> End {
    tokio::pin!(cut);
    let end = both(&client, &backend, prefix, half_close_timeout, cut.as_mut(), pool, counters).await;
    if end == End::Reset {
        let flushed = async { tokio::join!(flush(&client, pool), flush(&backend, pool)) };
        // Whoever does not take the last bytes in this time loses them.
        drop(
            tokio::time::timeout(half_close_timeout, async {
                tokio::select! { _ = flushed => {}, () = cut => {} }
            })
            .await,
        );
    }
    if end != End::Finished {
        for side in [&client, &backend] {
            // It fails only on a socket that has no peer any more.
            drop(side.set_zero_linger());
        }
    }
    end
}

/// Waits until the peer of `side` has what is on its way to it, which a reset would throw away. What the peer still sends is
/// read and dropped: it may have to get rid of it first.
async fn flush(side: &TcpStream, pool: &BufferPool) {
    let mut pause = Duration::from_millis(1);
    while unacknowledged(side) > 0 {
        if end(side).is_err() {
            return;
        }
        let mut borrowed = pool.take();
        while matches!(side.try_read(&mut borrowed.buffer), Ok(1..)) {
            tokio::task::coop::consume_budget().await;
        }
        drop(borrowed);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(FLUSH_PAUSE);
    }
}

async fn both(
    client: &TcpStream,
    backend: &TcpStream,
    prefix: Bytes,
    half_close_timeout: Duration,
    mut cut: Pin<&mut impl Future<Output = ()>>,
    pool: &BufferPool,
    counters: Counters<'_>,
) -> End {
    let moved = AtomicU64::new(0);
    let up = copy(client, backend, prefix, pool, [counters.sent, &moved]);
    let down = copy(backend, client, Bytes::new(), pool, [counters.received, &moved]);
    tokio::pin!(up, down);
    let first = tokio::select! {
        () = &mut cut => return End::Cut,
        result = &mut up => result.map(|()| true).map_err(|lost| (true, lost)),
        result = &mut down => result.map(|()| false).map_err(|lost| (false, lost)),
    };
    let (up_ended, lost) = match first {
        Ok(up_ended) => (up_ended, false),
        Err((up_ended, Lost::Destination)) => (up_ended, true),
        Err((_, Lost::Source)) => return End::Reset,
    };
    let rest = async { if up_ended { down.await } else { up.await } };
    tokio::select! {
        () = &mut cut => End::Cut,
        result = rest => if result.is_ok() && !lost { End::Finished } else { End::Reset },
        () = stalled(&moved, half_close_timeout) => if lost { End::Reset } else { End::HalfClosed },
    }
}

/// Bytes that were written to `side` and that its peer has not acknowledged.
pub(super) fn unacknowledged(side: &TcpStream) -> usize {
    let mut count: nix::libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `side` lives, and the call writes one c_int (tcp(7), SIOCOUTQ).
    let result = unsafe { nix::libc::ioctl(side.as_raw_fd(), nix::libc::TIOCOUTQ, &raw mut count) };
    if result == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

/// Returns when `moved` stands still for `patience`, at the latest after twice that.
async fn stalled(moved: &AtomicU64, patience: Duration) {
    let mut before = moved.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(patience).await;
        let after = moved.load(Ordering::Relaxed);
        if after == before {
            return;
        }
        before = after;
    }
}

/// Copies one way until `from` ends, then ends `to`.
async fn copy(from: &TcpStream, to: &TcpStream, prefix: Bytes, pool: &BufferPool, counters: [&AtomicU64; 2]) -> Result<(), Lost> {
    write_all(to, &prefix, counters).await?;
    drop(prefix);
    loop {
        from.readable().await.map_err(|_| Lost::Source)?;
        let mut borrowed = pool.take();
        loop {
            match from.try_read(&mut borrowed.buffer) {
                Ok(0) => return end(to),
                Ok(count) => write_all(to, &borrowed.buffer[..count], counters).await?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Err(Lost::Source),
            }
            // A pair that is always ready must let others run.
            tokio::task::coop::consume_budget().await;
        }
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8], counters: [&AtomicU64; 2]) -> Result<(), Lost> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                for counter in counters {
                    counter.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await.map_err(|_| Lost::Destination)?,
            Err(_) => return Err(Lost::Destination),
        }
    }
    Ok(())
}

/// Passes on that no more bytes come.
fn end(to: &TcpStream) -> Result<(), Lost> {
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // It is gone already, which its own direction reports.
        Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(Lost::Destination),
        _ => Ok(()),
    }
}
