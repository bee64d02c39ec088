//! A Unix socket that serves CONNECT: bound with its final permissions, every request answered or closed within the deadline.
use std::io::{self, Cursor};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::targets::{Refusal, Stream};
use crate::tunnel::connect::{MAX_HEAD_BYTES, Parsed, Target, parse};

/// Kubernetes reads a CONNECT's answer without a deadline of its own.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// The most connections of one socket at a time; more are answered 503 at once.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// What a stream holds for each of its directions, in bytes.
const COPY_BUFFER: usize = 32 * 1024;
/// `sun_path` has 108 bytes; some stay free for the name that a socket is bound under at first.
const MAX_PATH_BYTES: usize = 99;

/// A socket in the file system; dropping it removes the file, unless another has taken its place.
pub(super) struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Socket {
    /// Binds `path` with mode 0660 and the group `gid`, in the place of a socket that a killed daemon left. Under its final name
    /// the socket never has other permissions.
    pub(super) fn bind(path: &Path, gid: Option<u32>) -> anyhow::Result<Self> {
        let shown = path.display();
        ensure!(
            path.as_os_str().len() <= MAX_PATH_BYTES,
            "the socket path {shown} is longer than {MAX_PATH_BYTES} bytes: choose a shorter run directory"
        );
        match std::fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => bail!("{shown} is in the way: it is not a socket"),
            _ => {}
        }
        let fresh = path.with_extension("new");
        let listener = (|| -> io::Result<UnixListener> {
            match std::fs::remove_file(&fresh) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = UnixListener::bind(&fresh)?;
            std::os::unix::fs::chown(&fresh, None, gid)?;
            std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o660))?;
            std::fs::rename(&fresh, path)?;
            Ok(listener)
        })()
        .with_context(|| format!("the socket {shown} cannot be bound"))?;
        let bound = std::fs::symlink_metadata(path).with_context(|| format!("the socket {shown} vanished"))?;
        Ok(Self { listener, file: SocketFile { path: path.to_owned(), inode: (bound.dev(), bound.ino()) } })
    }

    /// Accepts until `stopped`; each connection's target goes to `route`.
    pub(super) async fn serve(self, route: Arc<dyn Route>, stopped: CancellationToken, tasks: TaskTracker) {
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let Self { listener, file: _file } = self;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors or memory: others free theirs meanwhile.
                    tracing::warn!(%error, "a connection of an egress socket could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
                let answer = refusal_head(&Refusal::new(503, "too many streams of this cluster are open"));
                let _ = stream.try_write(&answer);
                continue;
            };
            let (route, stopped) = (Arc::clone(&route), stopped.clone());
            tasks.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = converse(stream, &*route, stopped.clone()) => {}
                    () = stopped.cancelled() => {}
                }
            });
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "a socket could not be removed");
        }
    }
}

/// What a socket does with the targets that it is asked for.
#[async_trait::async_trait]
pub(super) trait Route: Send + Sync {
    /// Decides on a target. Dropped when it takes longer than [`ANSWER_DEADLINE`].
    async fn open(&self, target: &Target) -> Result<Opened, Refusal>;
    /// Told of each refusal (malformed requests have no target).
    fn refused(&self, target: Option<&Target>, refusal: &Refusal);
}

/// What serves a stream that was granted.
pub(super) enum Opened {
    /// Bytes go to and fro.
    Forward(Box<dyn Stream>),
    /// Somebody here speaks with the client.
    Serve(Box<dyn Serve>),
}

/// One who speaks with the client of a granted stream.
#[async_trait::async_trait]
pub(super) trait Serve: Send {
    /// Speaks until either side has had enough, or `stopped`.
    async fn serve(self: Box<Self>, stream: Box<dyn Stream>, stopped: CancellationToken);
}

async fn converse(mut stream: UnixStream, route: &dyn Route, stopped: CancellationToken) {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let mut target = None;
    let answered = tokio::time::timeout_at(deadline, async {
        let (wanted, rest) = match read_head(&mut stream).await {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        let opened = route.open(target.insert(wanted)).await?;
        Ok(stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok().then_some((opened, rest)))
    })
    .await
    .unwrap_or_else(|_| Err(Refusal::new(504, "no answer was to be had in time")));

    match answered {
        Ok(Some((opened, rest))) => {
            let (reader, writer) = stream.into_split();
            let mut client = tokio::io::join(Cursor::new(rest).chain(reader), writer);
            match opened {
                Opened::Serve(server) => server.serve(Box::new(client), stopped).await,
                Opened::Forward(mut far) => {
                    let _ = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut far, COPY_BUFFER, COPY_BUFFER).await;
                }
            }
        }
        Ok(None) => {}
        Err(refusal) => {
            route.refused(target.as_ref(), &refusal);
            let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(&refusal_head(&refusal))).await;
        }
    }
}

/// Reads one request head; gives its target and what came after it, or `None` when the client left.
async fn read_head(stream: &mut UnixStream) -> Result<Option<(Target, Vec<u8>)>, Refusal> {
    let mut received = Vec::with_capacity(512);
    loop {
        match parse(&received) {
            Parsed::Request { target, length } => return Ok(Some((target, received.split_off(length)))),
            Parsed::Refused(reason) => return Err(Refusal::new(400, reason)),
            Parsed::Incomplete => {}
        }
        let room = (MAX_HEAD_BYTES - received.len()) as u64;
        match (&mut *stream).take(room).read_buf(&mut received).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// The whole answer to a request that is refused. Kubernetes logs the status line, so the reason stands there as well.
fn refusal_head(refusal: &Refusal) -> Vec<u8> {
    let reason: String = refusal.reason.chars().filter(|character| (' '..='~').contains(character)).take(200).collect();
    format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{reason}\n",
        refusal.status,
        reason.len() + 1
    )
    .into_bytes()
}
