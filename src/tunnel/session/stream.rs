//! A stream of a connection: yamux's, with an end that can be told from a cut.
//!
//! yamux tells a reader of a reset, of a lost connection and of an end in the same way, and cannot reset a stream whose own direction ended. So its
//! half-closes are not used: bytes travel in blocks of a length (`u16`, big-endian) and that many bytes, and the length 0 ends a direction.
//! Dropping a stream resets it; where both directions have ended nobody notices.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt as _};

use super::FRAME_BODY;

/// The bytes of a block's length.
const LENGTH: usize = 2;
/// The most bytes of a block: with its length it fills one frame.
const BLOCK: usize = FRAME_BODY - LENGTH;

/// One stream. Half-closes pass through; what was cut reads as an error.
pub struct TunnelStream {
    inner: Compat<yamux::Stream>,
    length: [u8; LENGTH],
    /// How many bytes of `length` are there.
    known: usize,
    /// What is still to come of the present block.
    left: usize,
    end_came: bool,
    /// What of a block yamux has not taken yet.
    unsent: BytesMut,
    end_sent: bool,
    /// Lives as long as the stream.
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelStream").field("end_came", &self.end_came).field("end_sent", &self.end_sent).finish_non_exhaustive()
    }
}

impl TunnelStream {
    pub(super) fn new(stream: yamux::Stream) -> Self {
        Self {
            inner: stream.compat(),
            length: [0; LENGTH],
            known: 0,
            left: 0,
            end_came: false,
            unsent: BytesMut::new(),
            end_sent: false,
            held: None,
        }
    }

    /// Keeps `held` until the stream is dropped.
    #[must_use]
    pub fn holding(mut self, held: impl Any + Send + Sync) -> Self {
        self.held = Some(match self.held.take() {
            Some(more) => Box::new((more, held)),
            None => Box::new(held),
        });
        self
    }

    /// Ready when bytes came (`true`) or the end did (`false`); needs no buffer.
    ///
    /// # Errors
    /// The stream was cut.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.left == 0 && !self.end_came {
            let mut rest = ReadBuf::new(&mut self.length[self.known..]);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut rest))?;
            let count = rest.filled().len();
            if count == 0 {
                return Poll::Ready(Err(cut()));
            }
            self.known += count;
            if self.known == LENGTH {
                self.known = 0;
                self.left = u16::from_be_bytes(self.length).into();
                self.end_came = self.left == 0;
            }
        }
        Poll::Ready(Ok(!self.end_came))
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let count = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.unsent))?;
            self.unsent.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the stream was cut")
}

impl AsyncRead for TunnelStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        while buf.remaining() > 0 {
            match this.poll_readable(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => break,
                // What came goes first; the next call meets the same.
                Poll::Ready(Err(_)) | Poll::Pending if buf.filled().len() > before => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(buf.remaining().min(this.left)));
            let polled = Pin::new(&mut this.inner).poll_read(cx, &mut part);
            let count = part.filled().len();
            buf.advance(count);
            this.left -= count;
            if count == 0 {
                let came = buf.filled().len() > before;
                match polled {
                    _ if came => break,
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(result) => return Poll::Ready(Err(result.err().unwrap_or_else(cut))),
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        if this.end_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = buf.len().min(BLOCK);
        if count == 0 {
            return Poll::Ready(Ok(0));
        }
        this.unsent.reserve(LENGTH + count);
        this.unsent.put_u16(u16::try_from(count).unwrap_or(u16::MAX));
        this.unsent.put_slice(&buf[..count]);
        match Pin::new(&mut this.inner).poll_write(cx, &this.unsent) {
            Poll::Ready(Ok(taken)) => {
                this.unsent.advance(taken);
                if this.unsent.is_empty() {
                    this.unsent.clear();
                }
                Poll::Ready(Ok(count))
            }
            // Nothing of it was taken, so the caller may come back with other bytes.
            other => {
                this.unsent.clear();
                other
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        // Between writes an idle stream holds no buffer.
        this.unsent = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.end_sent {
            this.end_sent = true;
            this.unsent.put_u16(0);
        }
        this.poll_unsent(cx)
    }
}
