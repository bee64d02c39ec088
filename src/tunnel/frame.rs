//! Frames: a length (`u32`, big-endian) and that many bytes of JSON.
//!
//! Guarantees: a frame longer than its place allows is refused by its length alone, before a byte of it is kept; [`Frames::next`] loses nothing
//! when it is dropped half-way. May import: nothing of ours.

use std::io;

use bytes::{Buf as _, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest frame that opens a stream or answers that, in bytes of JSON.
pub const MAX_OPENING: usize = 4 * 1024;
/// The longest frame of a node's control stream.
pub const MAX_FROM_NODE: usize = 64 * 1024;
/// The longest frame to a node's control stream: it holds the node's peers.
pub const MAX_FROM_PLATFORM: usize = 4 * 1024 * 1024;

/// The bytes of a frame's length.
const LENGTH: usize = 4;

/// Why bytes are no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Its length is zero or beyond what is taken there.
    #[error("a frame of {length} bytes came where at most {limit} are taken")]
    Length {
        /// What it says.
        length: usize,
        /// What is taken.
        limit: usize,
    },
    /// It is not what is expected there.
    #[error("a frame is not understood: {0}")]
    Content(#[from] serde_json::Error),
    /// The stream ended within it.
    #[error("the stream ended within a frame")]
    Cut,
    /// The stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The first frame of `received` and its whole length; `None` while more is needed.
///
/// # Errors
/// What came can be no frame.
pub fn decode<T: DeserializeOwned>(received: &[u8], limit: usize) -> Result<Option<(T, usize)>, FrameError> {
    let Some((length, rest)) = received.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let length = check(*length, limit)?;
    let Some(content) = rest.get(..length) else { return Ok(None) };
    Ok(Some((serde_json::from_slice(content)?, LENGTH + length)))
}

fn check(length: [u8; LENGTH], limit: usize) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(length) as usize;
    if length == 0 || length > limit { Err(FrameError::Length { length, limit }) } else { Ok(length) }
}

/// A value as a frame.
///
/// # Errors
/// It is longer than `limit`.
pub fn encode<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; LENGTH];
    serde_json::to_writer(&mut bytes, value)?;
    let length = bytes.len() - LENGTH;
    if length > limit {
        return Err(FrameError::Length { length, limit });
    }
    bytes[..LENGTH].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    Ok(bytes)
}

/// Writes a value as one frame.
///
/// # Errors
/// It is longer than `limit`, or the stream failed.
pub async fn write<T: Serialize>(stream: &mut (impl AsyncWrite + Unpin), value: &T, limit: usize) -> Result<(), FrameError> {
    stream.write_all(&encode(value, limit)?).await?;
    Ok(stream.flush().await?)
}

/// Reads one frame and no byte behind it.
///
/// # Errors
/// The stream ended or failed, or it is no such frame.
pub async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin), limit: usize) -> Result<T, FrameError> {
    let mut length = [0; LENGTH];
    let cut = |error: io::Error| if error.kind() == io::ErrorKind::UnexpectedEof { FrameError::Cut } else { error.into() };
    stream.read_exact(&mut length).await.map_err(cut)?;
    let mut content = vec![0; check(length, limit)?];
    stream.read_exact(&mut content).await.map_err(cut)?;
    Ok(serde_json::from_slice(&content)?)
}

/// The frames of a stream that holds nothing else.
pub struct Frames<R> {
    stream: R,
    received: BytesMut,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads frames of at most `limit` bytes.
    pub fn new(stream: R, limit: usize) -> Self {
        Self { stream, received: BytesMut::new(), limit }
    }

    /// The next frame; `None` when the stream ended behind a whole one. May be dropped and called again.
    ///
    /// # Errors
    /// The stream failed or ended within a frame, or what came is no such frame.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        loop {
            if let Some((value, length)) = decode(&self.received, self.limit)? {
                self.received.advance(length);
                if self.received.is_empty() {
                    // Between frames, which are rare, no memory is held.
                    self.received = BytesMut::new();
                }
                return Ok(Some(value));
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return if self.received.is_empty() { Ok(None) } else { Err(FrameError::Cut) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::tunnel::protocol::{FromNode, FromPlatform, Opened, Opening};

    fn dial() -> Opening {
        Opening::Dial { host: "10.0.0.7".into(), port: 10250, public: false }
    }

    #[tokio::test]
    async fn frames_come_whole_however_they_are_split() {
        let bytes = [encode(&dial(), MAX_OPENING).unwrap(), encode(&Opening::Api, MAX_OPENING).unwrap()].concat();
        for at in 0..=bytes.len() {
            let (first, second) = bytes.split_at(at);
            let mut frames = Frames::new(AsyncReadExt::chain(first, second), MAX_OPENING);
            assert_eq!(frames.next::<Opening>().await.unwrap(), Some(dial()), "split at {at}");
            assert_eq!(frames.next::<Opening>().await.unwrap(), Some(Opening::Api), "split at {at}");
            assert_eq!(frames.next::<Opening>().await.unwrap(), None, "split at {at}");
        }
    }

    #[tokio::test]
    async fn what_is_cut_is_known_as_such() {
        let bytes = encode(&dial(), MAX_OPENING).unwrap();
        for end in 1..bytes.len() {
            assert!(matches!(Frames::new(&bytes[..end], MAX_OPENING).next::<Opening>().await, Err(FrameError::Cut)), "cut at {end}");
            assert!(matches!(read::<Opening>(&mut &bytes[..end], MAX_OPENING).await, Err(FrameError::Cut)), "cut at {end}");
            assert!(decode::<Opening>(&bytes[..end], MAX_OPENING).unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn reading_one_frame_leaves_what_follows() {
        let bytes = [encode(&Opening::Api, MAX_OPENING).unwrap(), b"\x16\x03".to_vec()].concat();
        let mut rest = bytes.as_slice();
        assert_eq!(read::<Opening>(&mut rest, MAX_OPENING).await.unwrap(), Opening::Api);
        assert_eq!(rest, b"\x16\x03");
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_its_content_came() {
        assert!(matches!(decode::<Opening>(&[0, 0, 16, 1], MAX_OPENING), Err(FrameError::Length { length: 4097, limit: 4096 })));
        assert!(matches!(decode::<Opening>(&[255; 4], MAX_OPENING), Err(FrameError::Length { .. })));
        assert!(matches!(decode::<Opening>(&[0; 4], MAX_OPENING), Err(FrameError::Length { length: 0, .. })));
        assert!(encode(&Opened::Refused { status: 502, reason: "x".repeat(5000) }, MAX_OPENING).is_err());
    }

    #[test]
    fn fields_of_a_later_version_are_ignored() {
        let text = br#"{"kind":"dial","host":"a","port":1,"colour":"red"}"#;
        let bytes = [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat();
        let (opening, length) = decode::<Opening>(&bytes, MAX_OPENING).unwrap().unwrap();
        assert_eq!((opening, length), (Opening::Dial { host: "a".into(), port: 1, public: false }, bytes.len()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..300), small in any::<bool>()) {
            let framed = if small { [&[0, 0, 0, bytes.len() as u8][..], &bytes].concat() } else { bytes };
            for length in [
                decode::<FromNode>(&framed, MAX_FROM_NODE).ok().flatten().map(|found| found.1),
                decode::<FromPlatform>(&framed, MAX_FROM_PLATFORM).ok().flatten().map(|found| found.1),
                decode::<Opened>(&framed, MAX_OPENING).ok().flatten().map(|found| found.1),
            ].into_iter().flatten() {
                prop_assert!(length <= framed.len());
            }
        }
    }
}
