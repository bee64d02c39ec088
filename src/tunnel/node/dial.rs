//! Streams that the platform opens: to what [`policy`] lets through.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::policy::{self, Destination};
use super::{Reach, Shared};
use crate::tunnel::frame::{self, FrameError, MAX_OPENING};
use crate::tunnel::protocol::{Opened, Opening};
use crate::tunnel::rate::Bucket;
use crate::tunnel::relay::{enliven, relay};
use crate::tunnel::session::{Inbound, TunnelStream};

/// The most streams of the platform at a time; above what the terminator opens, whose count may lead.
const MAX_STREAMS: usize = 192;
/// The most dials that wait for an answer.
const MAX_DIALLING: usize = 64;
/// Dials: so many a second, and so many at once.
const RATE: (u32, u32) = (100, 300);
/// How long the platform may take to say what a stream is for.
const OPENING_DEADLINE: Duration = Duration::from_secs(10);
/// How long a dial may take, names and all; the API server is answered within 10 seconds.
const DIAL_DEADLINE: Duration = Duration::from_secs(8);
/// How many addresses of a public host are tried.
const MAX_ADDRESSES: usize = 4;

/// Serves the platform's streams until the connection ends.
pub(super) async fn serve(shared: Arc<Shared>, mut inbound: Inbound) {
    let (room, dialling) = (Arc::new(Semaphore::new(MAX_STREAMS)), Arc::new(Semaphore::new(MAX_DIALLING)));
    let rate = Arc::new(Bucket::new(RATE.0, RATE.1));
    let mut streams = JoinSet::new();
    while let Some(stream) = inbound.next().await {
        while streams.try_join_next().is_some() {}
        let Ok(room) = Arc::clone(&room).try_acquire_owned() else {
            tracing::debug!("the platform opens too many streams; one more is cut");
            continue;
        };
        let (shared, dialling, rate) = (Arc::clone(&shared), Arc::clone(&dialling), Arc::clone(&rate));
        streams.spawn(async move {
            let _room = room;
            if let Err(error) = serve_one(&shared, stream, &dialling, &rate).await {
                tracing::trace!(%error, "a stream of the platform ended early");
            }
        });
    }
}

async fn serve_one(shared: &Shared, mut stream: TunnelStream, dialling: &Semaphore, rate: &Bucket) -> Result<(), FrameError> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let opening: Opening = timeout(OPENING_DEADLINE, frame::read(&mut stream, MAX_OPENING)).await.map_err(late)??;
    let Opening::Dial { host, port, public } = opening else {
        return refuse(stream, 403, "a node is asked to dial, and for nothing else".to_owned()).await;
    };
    if !rate.take() {
        return refuse(stream, 503, format!("it is asked for more than {} streams a second", RATE.0)).await;
    }
    let deadline = Instant::now() + DIAL_DEADLINE;
    let dialled = async {
        let _dialling = dialling.acquire().await.map_err(|_| (503, "the node ends".to_owned()))?;
        let reach = reach(shared);
        let addresses = match policy::decide(&reach, &host, port, public).map_err(|why| (403, why))? {
            Destination::Address(address) => vec![address],
            Destination::Name(name) => resolve(&reach, &name, port).await?,
        };
        dial(&addresses).await.map_err(|error| (502, format!("{host} port {port}: {}", why(&error))))
    };
    let late = || (502, format!("{host} port {port}: no answer within {} seconds", DIAL_DEADLINE.as_secs()));
    match timeout_at(deadline, dialled).await.unwrap_or_else(|_| Err(late())) {
        Ok(socket) => {
            enliven(&socket)?;
            frame::write(&mut stream, &Opened::Ok, MAX_OPENING).await?;
            Ok(relay(socket, stream, &shared.buffers).await?)
        }
        Err((status, reason)) => refuse(stream, status, reason).await,
    }
}

/// What may be dialled at present: the platform's latest word on the node's address.
fn reach(shared: &Shared) -> Reach {
    let mut reach = shared.options.reach.clone();
    if let Some(state) = &*shared.state.borrow() {
        reach.address = state.address;
    }
    reach
}

async fn resolve(reach: &Reach, name: &str, port: u16) -> Result<Vec<SocketAddr>, (u16, String)> {
    let found = tokio::net::lookup_host((name, port)).await.map_err(|error| (502, format!("{name} is not resolved: {error}")))?;
    policy::resolved(reach, name, found).map_err(|why| (403, why))
}

async fn dial(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses.iter().take(MAX_ADDRESSES) {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no way to it from the node".to_owned(),
        _ => error.to_string(),
    }
}

async fn refuse(mut stream: TunnelStream, status: u16, reason: String) -> Result<(), FrameError> {
    let reason = reason.chars().take(500).collect();
    frame::write(&mut stream, &Opened::Refused { status, reason }, MAX_OPENING).await
}
