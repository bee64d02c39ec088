//! What stands between yamux and the socket: it gathers frames, so that those of one turn leave with one write.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// From so many gathered bytes on they are written before more are taken.
const HIGH: usize = 64 * 1024;
/// A buffer that is no larger is kept while there is nothing to write.
const KEPT: usize = 1024;

/// The socket of a connection with what is to be written to it.
pub(super) struct Wire<S>(Mutex<Inner<S>>);

struct Inner<S> {
    socket: S,
    gathered: BytesMut,
    /// Whether more would have been gathered if there had been room.
    refused: bool,
    /// Whether the socket holds bytes that are to be flushed.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(socket: S) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner { socket, gathered: BytesMut::new(), refused: false, unflushed: false })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and flushes what was gathered. Ready with whether somebody found no room meanwhile, and should try again.
    pub(super) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut inner = self.inner();
        ready!(inner.poll_write_out(cx))?;
        if inner.unflushed {
            ready!(Pin::new(&mut inner.socket).poll_flush(cx))?;
            inner.unflushed = false;
        }
        if inner.gathered.capacity() > KEPT {
            inner.gathered = BytesMut::new();
        }
        Poll::Ready(Ok(std::mem::take(&mut inner.refused)))
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.gathered.is_empty() {
            self.unflushed = true;
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.gathered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.gathered.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

/// A [`Wire`] as yamux sees it: a flush does nothing, since the driver flushes once a turn.
pub(super) struct Port<S>(Arc<Wire<S>>);

impl<S> Port<S> {
    pub(super) fn new(wire: &Arc<Wire<S>>) -> Self {
        Self(Arc::clone(wire))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Port<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.inner().socket).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Port<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.inner();
        if inner.gathered.len() >= HIGH {
            match inner.poll_write_out(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending if inner.gathered.len() >= HIGH => {
                    inner.refused = true;
                    return Poll::Pending;
                }
                Poll::Pending => {}
            }
        }
        inner.gathered.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.inner();
        ready!(inner.poll_write_out(cx))?;
        Pin::new(&mut inner.socket).poll_shutdown(cx)
    }
}
