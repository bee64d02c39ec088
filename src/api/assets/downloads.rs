//! How many files are sent at once: all together, and to one source. Whoever stops taking loses the place.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;

use crate::api::problem::{Kind, Problem};
use crate::api::state::NodeFile;

/// So many downloads at once.
const AT_ONCE: usize = 128;
/// So many of them to one source: machines behind one address share them.
const EACH: usize = 32;
/// What is read at a time, in bytes.
const PIECE: usize = 64 * 1024;
/// Whoever takes nothing for so long has no place any more.
const STALL: Duration = Duration::from_secs(60);

/// The downloads that go on.
#[derive(Debug, Default)]
pub struct Downloads(Mutex<HashMap<String, usize>>);

/// One download's place; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    downloads: Arc<Downloads>,
    source: String,
}

impl Downloads {
    /// A place for one more download to that source.
    pub(super) fn take(self: &Arc<Self>, source: &str) -> Result<Place, Problem> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let here = taken.get(source).copied().unwrap_or_default();
        if here >= EACH || taken.values().sum::<usize>() >= AT_ONCE {
            let detail = "as many downloads go on as the platform serves at once; try again in a moment";
            return Err(Problem::new(Kind::Unavailable, detail).retry_after(5));
        }
        *taken.entry(source.to_owned()).or_default() += 1;
        Ok(Place { downloads: Arc::clone(self), source: source.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.downloads.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.source);
            }
        }
    }
}

/// What is known of a download while it goes on.
struct Going {
    /// Taken away from a download that stands still.
    place: Mutex<Option<Place>>,
    /// Grows with each piece that is taken.
    pieces: AtomicU64,
}

/// Bytes of a file, as they are taken.
pub(super) struct Download {
    bytes: ReaderStream<tokio::io::Take<tokio::fs::File>>,
    going: Arc<Going>,
}

impl Download {
    /// So many bytes of a file from where it stands.
    pub(super) fn new(file: NodeFile, length: u64, place: Place) -> Self {
        let mut file = tokio::fs::File::from_std(file.file);
        file.set_max_buf_size(PIECE);
        let going = Arc::new(Going { place: Mutex::new(Some(place)), pieces: AtomicU64::new(0) });
        tokio::spawn(watch(Arc::downgrade(&going)));
        Self { bytes: ReaderStream::with_capacity(file.take(length), PIECE), going }
    }
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.going.pieces.fetch_add(1, Ordering::Relaxed);
        if self.going.place.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, "the download stood still for too long"))));
        }
        Pin::new(&mut self.bytes).poll_next(context)
    }
}

/// Takes the place of a download that stands still.
async fn watch(going: Weak<Going>) {
    let mut seen = None;
    while let Some(going) = going.upgrade() {
        let pieces = going.pieces.load(Ordering::Relaxed);
        if seen == Some(pieces) {
            going.place.lock().unwrap_or_else(PoisonError::into_inner).take();
            return;
        }
        seen = Some(pieces);
        drop(going);
        tokio::time::sleep(STALL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures_util::StreamExt as _;

    use super::*;

    fn file(bytes: usize) -> NodeFile {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        NodeFile { file, size: bytes as u64, sha256: String::new() }
    }

    #[tokio::test]
    async fn so_many_go_on_at_once_and_all_give_their_place_back() {
        let downloads = Arc::new(Downloads::default());
        let of = |source: &str, count: usize| (0..count).map(|_| downloads.take(source)).collect::<Result<Vec<_>, _>>();
        let first = of("a", EACH).unwrap();
        assert!(downloads.take("a").unwrap_err().is(Kind::Unavailable));
        let others: Vec<_> = ["b", "c", "d"].map(|source| of(source, EACH).unwrap()).into();
        assert!(downloads.take("e").unwrap_err().is(Kind::Unavailable));
        drop((first, others));
        assert!(downloads.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_download_is_as_long_as_it_is_to_be() {
        let downloads = Arc::new(Downloads::default());
        let download = Download::new(file(300_000), 250_000, downloads.take("a").unwrap());
        let pieces: Vec<Bytes> = download.map(Result::unwrap).collect().await;
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), 250_000);
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert!(downloads.0.lock().unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_taking_loses_the_place() {
        let downloads = Arc::new(Downloads::default());
        let mut download = Download::new(file(1_000_000), 1_000_000, downloads.take("a").unwrap());
        download.next().await.unwrap().unwrap();
        for _ in 0..3 {
            tokio::time::sleep(STALL).await;
        }
        assert!(downloads.0.lock().unwrap().is_empty());
        assert!(download.next().await.unwrap().is_err());
    }
}
