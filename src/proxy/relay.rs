//! Copies bytes both ways between two sockets until both sides are done.
//!
//! Guarantees: bytes arrive in order, each once, and the end of one direction is passed on after its last byte; an end of one
//! direction leaves the other running, but a half-closed pair that moves nothing for the given time is ended; an idle pair
//! holds no buffer; a pair that is cut or whose peer reset is reset on both sides, so that nobody takes a part for the whole.
//! May import: nothing of ours.

use std::io;
use std::net::Shutdown;
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

/// How a pair ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Both directions ended, after their last byte.
    Finished,
    /// A side was lost.
    Reset,
    /// One direction ended and the other moved nothing for too long.
    HalfClosed,
    /// The flow was told to end.
    Cut,
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
    let end = both(&client, &backend, prefix, half_close_timeout, cut, pool, counters).await;
    if end != End::Finished {
        // A reset, not an orderly end: what was sent is not all there is.
        drop(client.set_zero_linger());
        drop(backend.set_zero_linger());
    }
    end
}

async fn both(
    client: &TcpStream,
    backend: &TcpStream,
    prefix: Bytes,
    half_close_timeout: Duration,
    cut: impl Future<Output = ()>,
    pool: &BufferPool,
    counters: Counters<'_>,
) -> End {
    let moved = AtomicU64::new(0);
    let up = copy(client, backend, prefix, pool, [counters.sent, &moved]);
    let down = copy(backend, client, Bytes::new(), pool, [counters.received, &moved]);
    tokio::pin!(up, down, cut);
    let first = tokio::select! {
        () = &mut cut => return End::Cut,
        result = &mut up => result.map(|()| true),
        result = &mut down => result.map(|()| false),
    };
    let Ok(up_ended) = first else { return End::Reset };
    let rest = async { if up_ended { down.await } else { up.await } };
    tokio::select! {
        () = &mut cut => End::Cut,
        result = rest => if result.is_ok() { End::Finished } else { End::Reset },
        () = stalled(&moved, half_close_timeout) => End::HalfClosed,
    }
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
async fn copy(from: &TcpStream, to: &TcpStream, prefix: Bytes, pool: &BufferPool, counters: [&AtomicU64; 2]) -> io::Result<()> {
    write_all(to, &prefix, counters).await?;
    drop(prefix);
    loop {
        from.readable().await?;
        let mut borrowed = pool.take();
        loop {
            match from.try_read(&mut borrowed.buffer) {
                Ok(0) => return end(to),
                Ok(count) => write_all(to, &borrowed.buffer[..count], counters).await?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            // A pair that is always ready must let others run.
            tokio::task::coop::consume_budget().await;
        }
    }
}

async fn write_all(to: &TcpStream, mut bytes: &[u8], counters: [&AtomicU64; 2]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(count) => {
                bytes = &bytes[count..];
                for counter in counters {
                    counter.fetch_add(count as u64, Ordering::Relaxed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes on that no more bytes come.
fn end(to: &TcpStream) -> io::Result<()> {
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // It is gone already, which its own direction reports.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}
