//! Streams that a node opens: to its cluster's API server, and nowhere else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::Link;
use crate::tunnel::frame::{self, FrameError, MAX_OPENING};
use crate::tunnel::protocol::{Opened, Opening};
use crate::tunnel::relay::{Buffers, enliven, relay};
use crate::tunnel::session::{Inbound, TunnelStream};

/// How long a node may take to say what a stream is for.
const OPENING_DEADLINE: Duration = Duration::from_secs(10);
/// How long the API server may take to accept.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long a node may take to take a refusal.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(5);

/// Where streams of nodes lead.
#[derive(Clone)]
pub(super) struct ToApi {
    pub(super) api_server: SocketAddr,
    pub(super) buffers: Arc<Buffers>,
}

impl ToApi {
    /// Serves the streams of one node until its connection ends or `cut`.
    pub(super) async fn serve(self, mut inbound: Inbound, link: Arc<Link>, cut: CancellationToken) {
        let streams = TaskTracker::new();
        let all = async {
            while let Some(stream) = inbound.next().await {
                let Ok(room) = Arc::clone(&link.api_room).try_acquire_owned() else {
                    tracing::debug!(node = link.name, "a node has too many streams to the API server open; one more is cut");
                    continue;
                };
                let (this, link, cut) = (self.clone(), Arc::clone(&link), cut.clone());
                streams.spawn(async move {
                    tokio::select! {
                        served = this.stream(stream, &link) => if let Err(error) = served {
                            tracing::trace!(node = link.name, %error, "a stream of a node ended early");
                        },
                        () = cut.cancelled() => {}
                    }
                    drop(room);
                });
            }
        };
        tokio::select! {
            () = all => {}
            () = cut.cancelled() => {}
        }
        streams.close();
        streams.wait().await;
    }

    async fn stream(&self, mut stream: TunnelStream, link: &Link) -> Result<(), FrameError> {
        let late = |_| std::io::Error::from(std::io::ErrorKind::TimedOut);
        let opening: Opening = tokio::time::timeout(OPENING_DEADLINE, frame::read(&mut stream, MAX_OPENING)).await.map_err(late)??;
        if opening != Opening::Api {
            return refuse(stream, 403, "a node may open streams to its API server only").await;
        }
        if !link.api_rate.take() {
            return refuse(stream, 503, "this node opens too many streams to the API server a second").await;
        }
        let connected = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(self.api_server)).await.map_err(late);
        let socket = match connected.and_then(|connected| connected) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::debug!(node = link.name, %error, "the API server cannot be reached for a node");
                return refuse(stream, 502, "the API server of this cluster does not run now").await;
            }
        };
        enliven(&socket)?;
        frame::write(&mut stream, &Opened::Ok, MAX_OPENING).await?;
        Ok(relay(socket, stream, &self.buffers).await?)
    }
}

async fn refuse(mut stream: TunnelStream, status: u16, reason: &str) -> Result<(), FrameError> {
    let refused = Opened::Refused { status, reason: reason.to_owned() };
    drop(tokio::time::timeout(REFUSAL_DEADLINE, frame::write(&mut stream, &refused, MAX_OPENING)).await);
    Ok(())
}
