//! A stream whose first bytes were read already and are given again.
//!
//! Guarantees that a reader sees every byte of the client exactly once. May import: nothing of ours.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A client's connection with the bytes that were read to route it put back in front.
pub struct PrefixedStream {
    prefix: Bytes,
    stream: TcpStream,
    /// Counts the connection until the stream is dropped.
    _counted: Box<dyn Any + Send + Sync>,
}

impl PrefixedStream {
    pub(super) fn new(prefix: Bytes, stream: TcpStream, counted: impl Any + Send + Sync) -> Self {
        Self { prefix, stream, _counted: Box::new(counted) }
    }

    /// The connection itself, for its addresses and options.
    pub const fn socket(&self) -> &TcpStream {
        &self.stream
    }
}

impl std::fmt::Debug for PrefixedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixedStream").field("prefix", &self.prefix.len()).field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl AsyncRead for PrefixedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.prefix.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = this.prefix.len().min(buffer.remaining());
        buffer.put_slice(&this.prefix[..count]);
        this.prefix.advance(count);
        if this.prefix.is_empty() {
            this.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PrefixedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
