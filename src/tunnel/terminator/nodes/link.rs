//! The nodes that are connected, and streams to them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::domain::{NodeId, Timestamp};
use crate::tunnel::frame::{self, FrameError, MAX_OPENING};
use crate::tunnel::protocol::{Opened, Opening};
use crate::tunnel::rate::Bucket;
use crate::tunnel::session::{Session, TunnelStream};
use crate::tunnel::terminator::targets::Refusal;

/// The most streams of the API server that one node carries at a time.
pub const MAX_DIALS: usize = 128;
/// The most streams to the API server that one node has open at a time.
pub const MAX_API_STREAMS: usize = 192;
/// The most streams that wait for a node's answer. While a line stalls, at most five times as many are given up and still counted by yamux.
const MAX_WAITING: usize = 32;
/// Streams of the API server to one node: so many a second, and so many at once.
const DIAL_RATE: (u32, u32) = (50, 200);
/// Streams of one node to the API server, likewise.
const API_RATE: (u32, u32) = (50, 200);
/// The most pods of unknown place whose node is remembered.
const REMEMBERED: usize = 4096;

/// A node that is connected.
pub(super) struct Link {
    pub(super) id: NodeId,
    pub(super) name: String,
    session: Session,
    /// Whether it says that what Services need is well there.
    pub(super) healthy: AtomicBool,
    /// Cancelled when another connection of the node took the place of this one.
    pub(super) replaced: CancellationToken,
    /// Room for streams of the node.
    pub(super) api_room: Arc<Semaphore>,
    pub(super) api_rate: Bucket,
    dial_room: Arc<Semaphore>,
    dial_rate: Bucket,
    waiting: Arc<Semaphore>,
}

impl Link {
    pub(super) fn new(id: NodeId, name: &str, session: Session) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: name.to_owned(),
            session,
            healthy: AtomicBool::new(true),
            replaced: CancellationToken::new(),
            api_room: Arc::new(Semaphore::new(MAX_API_STREAMS)),
            api_rate: Bucket::new(API_RATE.0, API_RATE.1),
            dial_room: Arc::new(Semaphore::new(MAX_DIALS)),
            dial_rate: Bucket::new(DIAL_RATE.0, DIAL_RATE.1),
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
        })
    }

    /// How many streams of the API server it carries.
    fn load(&self) -> usize {
        MAX_DIALS - self.dial_room.available_permits()
    }

    /// Has the node dial, and gives the stream that leads there. Answers by `deadline`.
    pub(super) async fn dial(&self, opening: Opening, deadline: Instant) -> Result<TunnelStream, Refusal> {
        let name = &self.name;
        if !self.dial_rate.take() {
            return Err(Refusal::new(503, format!("node {name} is asked for more than {} streams a second", DIAL_RATE.0)));
        }
        let room = Arc::clone(&self.dial_room).try_acquire_owned();
        let room = room.map_err(|_| Refusal::new(503, format!("node {name} carries {MAX_DIALS} streams of the API server already")))?;
        let late = || Refusal::new(502, format!("node {name} did not answer in time"));
        let waiting = tokio::time::timeout_at(deadline, Arc::clone(&self.waiting).acquire_owned()).await;
        let waiting = waiting.map_err(|_| late())?.map_err(|_| late())?;
        let session = self.session.clone();
        // It goes on when the caller leaves, so that what waits is counted.
        let asked = tokio::spawn(async move {
            let _waiting = waiting;
            tokio::time::timeout_at(deadline, ask(&session, &opening)).await
        });
        match asked.await {
            Ok(Ok(Ok((Opened::Ok, stream)))) => Ok(stream.holding(room)),
            Ok(Ok(Ok((Opened::Refused { status, reason }, _)))) => Err(Refusal::new(status, format!("node {name}: {reason}"))),
            Ok(Ok(Err(error))) => Err(Refusal::new(502, format!("the tunnel of node {name} was cut: {error}"))),
            Ok(Err(_)) | Err(_) => Err(late()),
        }
    }
}

async fn ask(session: &Session, opening: &Opening) -> Result<(Opened, TunnelStream), FrameError> {
    let mut stream = session.open().await?;
    frame::write(&mut stream, opening, MAX_OPENING).await?;
    Ok((frame::read(&mut stream, MAX_OPENING).await?, stream))
}

/// The nodes of one cluster that are connected.
#[derive(Default)]
pub(super) struct Links(Mutex<Known>);

#[derive(Default)]
struct Known {
    up: BTreeMap<NodeId, Arc<Link>>,
    down: BTreeMap<NodeId, Timestamp>,
    /// Which node answered last for a pod's address.
    answered: HashMap<IpAddr, NodeId>,
}

impl Links {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection up, in the place of an earlier one of the same node, which is told to end.
    pub(super) fn insert(&self, link: &Arc<Link>) {
        let mut known = self.known();
        known.down.remove(&link.id);
        if let Some(earlier) = known.up.insert(link.id, Arc::clone(link)) {
            earlier.replaced.cancel();
        }
    }

    /// Takes a connection out, unless another has its place.
    pub(super) fn remove(&self, link: &Arc<Link>, now: Timestamp) {
        let mut known = self.known();
        if known.up.get(&link.id).is_some_and(|there| Arc::ptr_eq(there, link)) {
            known.up.remove(&link.id);
            known.down.insert(link.id, now);
            known.answered.retain(|_, node| *node != link.id);
        }
    }

    /// Forgets when nodes went down that are no members any more.
    pub(super) fn retain(&self, member: impl Fn(NodeId) -> bool) {
        self.known().down.retain(|node, _| member(*node));
    }

    /// A node that is connected.
    pub(super) fn get(&self, node: NodeId) -> Option<Arc<Link>> {
        self.known().up.get(&node).cloned()
    }

    /// Since when a node is not connected; `None`: it never was.
    pub(super) fn down_since(&self, node: NodeId) -> Option<Timestamp> {
        self.known().down.get(&node).copied()
    }

    /// All that are connected: those that are well first, among them those that carry least.
    pub(super) fn all(&self) -> Vec<Arc<Link>> {
        let mut links: Vec<_> = self.known().up.values().cloned().collect();
        links.sort_by_key(|link| (!link.healthy.load(Ordering::Relaxed), link.load()));
        links
    }

    /// All that are connected, the one first that answered last for a pod's address.
    pub(super) fn for_pod(&self, pod: IpAddr) -> Vec<Arc<Link>> {
        let mut links = self.all();
        if let Some(node) = self.known().answered.get(&pod) {
            links.sort_by_key(|link| link.id != *node);
        }
        links
    }

    /// Remembers which node answered for a pod's address.
    pub(super) fn answered(&self, pod: IpAddr, node: NodeId) {
        let mut known = self.known();
        if known.answered.len() >= REMEMBERED {
            known.answered.clear();
        }
        known.answered.insert(pod, node);
    }

    /// How many are connected.
    pub(super) fn count(&self) -> usize {
        self.known().up.len()
    }
}

/// How long one of several nodes is waited for before the next is asked.
pub(super) const EACH: Duration = Duration::from_millis(2500);
