//! What `status`, `join`, `leave` and `doctor` say to the node role on this machine, and what it answers: the control socket.
//!
//! A Unix socket of root's alone ([`Layout::control_socket`](super::layout::Layout::control_socket), 0600). One connection carries one
//! [`Request`], one line of JSON; then come [`Reply`]s, one a line, of which all but the last are [`Reply::Step`]. Lines are bounded, and
//! unknown fields are ignored, so that neighbouring versions understand each other. May import: `domain`, `tunnel`.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::domain::{ClusterId, NodeId, Timestamp};
use crate::tunnel::protocol::Aspect;

/// The longest line, in bytes.
pub const MAX_LINE: u64 = 256 * 1024;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// How is the node? Answered by [`Reply::Status`], at once.
    Status,
    /// Have the platform check that pods work here. Answered by [`Reply::Verified`], which may take minutes.
    Verify,
    /// Have the platform drain this node and take it out. Answered by [`Reply::Done`].
    Leave {
        /// Evict pods first, for at most so many seconds.
        drain_seconds: u64,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Something that goes on, to be shown; more follows.
    Step {
        /// One CamelCase word.
        step: String,
        /// A sentence.
        message: String,
    },
    /// How the node is.
    Status(Box<Status>),
    /// What the verification found, in the order of its steps; the first that failed is the last.
    Verified {
        /// The steps.
        steps: Vec<Aspect>,
    },
    /// It is done.
    Done,
    /// It cannot be: a sentence with what to do.
    Failed {
        /// The sentence.
        message: String,
    },
}

/// How a node is, as its own role knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Which node this is.
    pub node_id: NodeId,
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster_id: ClusterId,
    /// Its cluster's name.
    pub cluster: String,
    /// The platform's URL.
    pub server: String,
    /// Its `InternalIP`.
    pub address: IpAddr,
    /// Its range of pod addresses, once it has one.
    #[serde(default)]
    pub pod_cidr: Option<IpNet>,
    /// Whether its tunnel is up.
    pub connected: bool,
    /// When that last changed.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Where the tunnel leads.
    #[serde(default)]
    pub endpoint: Option<TunnelEndpoint>,
    /// Why the tunnel is not up: a sentence.
    #[serde(default)]
    pub trouble: Option<String>,
    /// That the membership has ended, and what to do.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// The version of its kubebyon.
    pub version: String,
    /// Its programs.
    #[serde(default)]
    pub programs: Vec<ProgramStatus>,
    /// Aspects of its state: `KubeletHealthy`, `ContainerRuntimeHealthy`, `KubeProxyHealthy`, `PodNetwork`.
    #[serde(default)]
    pub aspects: Vec<Aspect>,
}

/// How a membership ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub fate: Fate,
    /// A sentence with what to do.
    pub message: String,
}

/// A program that the node role keeps running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// Which, such as `kubelet`.
    pub name: String,
    /// Its process, where it runs.
    pub pid: Option<i32>,
    /// How often it was started again since the node role runs.
    pub restarts: u32,
    /// What is wrong with it.
    #[serde(default)]
    pub trouble: Option<String>,
}

/// Nobody answers at the socket: the node role does not run, or is about to.
#[derive(Debug, thiserror::Error)]
#[error(
    "the node role does not answer at {socket}: see `systemctl status kubebyon-node`, or have your supervisor run `kubebyon --role=node`"
)]
pub struct NotRunning {
    socket: String,
}

/// Asks the node role, and gives its last reply. `steps` is told of what goes on meanwhile.
///
/// # Errors
/// [`NotRunning`]; the reply takes longer than `patience`, or is none; [`Reply::Failed`] as its sentence.
pub async fn ask(socket: &Path, request: &Request, patience: Duration, mut steps: impl AsyncFnMut(&str, &str)) -> anyhow::Result<Reply> {
    let Ok(stream) = UnixStream::connect(socket).await else { return Err(NotRunning { socket: socket.display().to_string() }.into()) };
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let talk = async {
        send(&mut writer, request).await.context("the node role hung up")?;
        loop {
            match receive::<Reply>(&mut reader).await? {
                Some(Reply::Step { step, message }) => steps(&step, &message).await,
                Some(Reply::Failed { message }) => bail!("{message}"),
                Some(last) => return Ok(last),
                None => bail!("the node role ended before it answered: see `journalctl -u kubebyon-node -e`"),
            }
        }
    };
    let waited = || format!("the node role did not answer within {} s", patience.as_secs());
    tokio::time::timeout(patience, talk).await.with_context(waited)?
}

/// Writes one value as a line.
///
/// # Errors
/// The other side is gone.
pub async fn send(writer: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Reads one line; `None` where the other side has ended.
///
/// # Errors
/// The line is longer than [`MAX_LINE`], or is no such value.
pub async fn receive<T: DeserializeOwned>(reader: &mut (impl AsyncBufRead + Unpin)) -> anyhow::Result<Option<T>> {
    let mut line = Vec::new();
    let read = reader.take(MAX_LINE).read_until(b'\n', &mut line).await.context("the control socket broke off")?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        bail!("what comes over the control socket is no line of at most {MAX_LINE} bytes");
    }
    serde_json::from_slice(&line).map(Some).context("what comes over the control socket is of another version: restart kubebyon-node")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    async fn answering(replies: Vec<Vec<u8>>, request: Request) -> (anyhow::Result<Reply>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let expected = request.clone();
        let role = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (reader, mut writer) = stream.into_split();
            assert_eq!(receive::<Request>(&mut BufReader::new(reader)).await.unwrap(), Some(expected));
            for reply in replies {
                let _ = writer.write_all(&reply).await;
            }
        });
        let mut seen = Vec::new();
        let reply =
            ask(&socket, &request, Duration::from_secs(5), async |step: &str, message: &str| seen.push(format!("{step} {message}"))).await;
        role.await.unwrap();
        (reply, seen)
    }

    fn line(reply: &Reply) -> Vec<u8> {
        [serde_json::to_vec(reply).unwrap(), b"\n".to_vec()].concat()
    }

    #[tokio::test]
    async fn steps_are_told_and_the_last_reply_is_given() {
        let step = Reply::Step { step: "Draining".into(), message: "two pods left".into() };
        let (reply, seen) = answering(vec![line(&step), line(&Reply::Done)], Request::Leave { drain_seconds: 60 }).await;
        assert_eq!((reply.unwrap(), seen), (Reply::Done, vec!["Draining two pods left".to_owned()]));
        let (reply, _) = answering(vec![line(&Reply::Failed { message: "no tunnel".into() })], Request::Verify).await;
        assert_eq!(reply.unwrap_err().to_string(), "no tunnel");
    }

    #[tokio::test]
    async fn a_role_that_is_gone_or_talks_garbage_is_told() {
        let (reply, _) = answering(vec![], Request::Status).await;
        assert!(reply.unwrap_err().to_string().contains("ended before it answered"));
        for garbage in [b"{\"x\n".to_vec(), b"no end".to_vec(), vec![b'x'; usize::try_from(MAX_LINE).unwrap() + 1]] {
            assert!(answering(vec![garbage], Request::Status).await.0.is_err());
        }
        let gone = ask(Path::new("/nowhere/s"), &Request::Status, Duration::from_secs(1), async |_: &str, _: &str| {}).await;
        assert!(gone.unwrap_err().is::<NotRunning>());
    }
}
