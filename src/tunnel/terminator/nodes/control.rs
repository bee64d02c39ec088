//! The conversation with a node on its control stream, from its first words to the end of its connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWrite;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::admission::{Proven, admit};
use super::link::Link;
use super::listener::{ControlStream, Shared};
use super::{NodeDesk, Steps, state};
use crate::domain::NodeId;
use crate::domain::node::Fate;
use crate::tunnel::frame::{self, MAX_FROM_PLATFORM};
use crate::tunnel::protocol::{Answer, Ask, FromNode, FromPlatform, Hello, NodeState, Report};
use crate::tunnel::rate::Bucket;

/// After so long a silence a node is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(25);
/// How long it may take to answer that.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a node may take to take a frame.
const WRITE_DEADLINE: Duration = Duration::from_secs(20);
/// Changes that follow each other so closely make one state.
const TOGETHER: Duration = Duration::from_millis(250);
/// Frames of a node: so many a second, and so many at once.
const FRAME_RATE: (u32, u32) = (20, 200);
/// The most questions of a node that are being answered.
const MAX_ASKS: usize = 8;
/// The most frames that wait to be sent.
const MAX_WAITING: usize = 64;
/// The least time between two reports that are passed on; the latest of those between is.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answers of a node that is no member any more may take: it may have asked to leave.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the desk may take for what a node said last.
const DESK_DEADLINE: Duration = Duration::from_secs(10);

/// Aspects without which Services do not work on a node.
const FOR_SERVICES: [&str; 2] = ["KubeProxyHealthy", "PodNetwork"];

/// One conversation.
pub(super) struct Control<'a> {
    pub(super) shared: &'a Shared,
    pub(super) link: &'a Arc<Link>,
    pub(super) proven: Proven,
    /// Cuts the node's streams to the API server.
    pub(super) cut: CancellationToken,
}

/// Says that a membership has ended.
pub(super) async fn tell_end(writer: &mut (impl AsyncWrite + Unpin), fate: Fate, message: String) {
    // Who does not take it asks `/join/v1/fate`.
    drop(timeout(WRITE_DEADLINE, frame::write(writer, &FromPlatform::Ended { fate, message }, MAX_FROM_PLATFORM)).await);
}

impl Control<'_> {
    /// Speaks until either side has had enough; tells the desk of the beginning and of the end.
    pub(super) async fn run(&self, control: ControlStream, hello: Hello) {
        let (reports, reported) = watch::channel(None);
        let over = CancellationToken::new();
        let telling = tokio::spawn(tell_desk(Arc::clone(&self.shared.desk), self.link.id, hello, reported, over.clone()));
        let why = self.speak(control, reports).await;
        self.shared.links.remove(self.link, self.shared.ambient.now());
        over.cancel();
        // What it said last is told before that it is gone.
        drop(timeout(DESK_DEADLINE, telling).await);
        tracing::info!(cluster = %self.shared.cluster, node = self.link.name, why, "a node is not connected any more");
        if !self.link.replaced.is_cancelled() && !self.shared.stopped.is_cancelled() {
            self.shared.desk.disconnected(self.link.id).await;
        }
    }

    /// Gives why the conversation ended.
    async fn speak(&self, control: ControlStream, reports: watch::Sender<Option<Report>>) -> &'static str {
        let (mut frames, mut writer) = control;
        let (outbox, mut outgoing) = mpsc::channel(MAX_WAITING);
        let mut asks = JoinSet::new();
        let mut table = self.shared.table.clone();
        table.mark_changed();
        let rate = Bucket::new(FRAME_RATE.0, FRAME_RATE.1);
        let mut known = None;
        let mut tell_at: Option<Instant> = Some(Instant::now());
        let (mut heard, mut pinged) = (Instant::now(), None);
        loop {
            let silent_until = pinged.map_or(heard + SILENCE, |at| at + ANSWER);
            tokio::select! {
                frame = frames.next::<FromNode>() => match frame {
                    Ok(Some(frame)) => {
                        if !rate.take() {
                            return "it says too much at once";
                        }
                        (heard, pinged) = (Instant::now(), None);
                        self.hear(frame, &reports, &outbox, &mut asks);
                    }
                    Ok(None) => return "it closed the connection",
                    Err(error) => {
                        tracing::debug!(node = self.link.name, %error, "a control stream ended");
                        return "its connection was lost";
                    }
                },
                Some(frame) = outgoing.recv() => if !say(&mut writer, &frame).await { return "it takes nothing" },
                changed = table.changed() => {
                    if changed.is_err() {
                        return "the platform ends";
                    }
                    if let Err((fate, message)) = self.still_member() {
                        self.part(&mut writer, &mut outgoing, &mut asks, fate, message).await;
                        return "it is no member any more";
                    }
                    tell_at.get_or_insert_with(|| Instant::now() + TOGETHER);
                }
                () = sleep_until(tell_at.unwrap_or(heard)), if tell_at.is_some() => {
                    tell_at = None;
                    let state = state::of(&self.shared.table.borrow(), self.link.id);
                    if let Some(state) = state
                        && let digest = Some(digest(&state))
                        && known != digest
                    {
                        if !say(&mut writer, &FromPlatform::State(state)).await {
                            return "it takes nothing";
                        }
                        known = digest;
                    }
                }
                () = sleep_until(silent_until) => {
                    if pinged.is_some() {
                        return "it does not answer";
                    }
                    pinged = Some(Instant::now());
                    if !say(&mut writer, &FromPlatform::Ping).await {
                        return "it takes nothing";
                    }
                }
                Some(_) = asks.join_next() => {}
                () = self.link.replaced.cancelled() => return "another connection of the node took its place",
                () = self.shared.stopped.cancelled() => {
                    if let Err((fate, message)) = self.still_member() {
                        tell_end(&mut writer, fate, message).await;
                    }
                    return "the terminator stops";
                }
            }
        }
    }

    fn still_member(&self) -> Result<(), (Fate, String)> {
        let table = self.shared.table.borrow();
        self.shared.links.retain(|node| table.nodes.iter().any(|entry| entry.id == node));
        admit(&table, &self.proven, self.link.id).map(|_| ())
    }

    fn hear(&self, frame: FromNode, reports: &watch::Sender<Option<Report>>, outbox: &mpsc::Sender<FromPlatform>, asks: &mut JoinSet<()>) {
        match frame {
            FromNode::Report(report) => {
                let well = |kind: &str| report.aspects.iter().all(|aspect| aspect.kind != kind || aspect.status);
                self.link.healthy.store(FOR_SERVICES.into_iter().all(well), Ordering::Relaxed);
                reports.send_replace(Some(report));
            }
            FromNode::Ask { number, ask } if asks.len() < MAX_ASKS => {
                asks.spawn(answer(Arc::clone(&self.shared.desk), self.link.id, number, ask, outbox.clone()));
            }
            FromNode::Ask { number, .. } => {
                let answer = Err("this node asks too much at once; ask again".to_owned());
                // Where so much waits already, it asks again after its own deadline.
                drop(outbox.try_send(FromPlatform::Reply { number, answer }));
            }
            FromNode::Hello(_) | FromNode::Pong => {}
        }
    }

    /// Ends the connection of a node that is no member any more: its streams at once, then, with what it asked for answered, itself.
    async fn part(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        outgoing: &mut mpsc::Receiver<FromPlatform>,
        asks: &mut JoinSet<()>,
        fate: Fate,
        message: String,
    ) {
        self.cut.cancel();
        self.shared.links.remove(self.link, self.shared.ambient.now());
        let answers = async {
            while !asks.is_empty() {
                tokio::select! {
                    _ = asks.join_next() => {}
                    Some(frame) = outgoing.recv() => if !say(writer, &frame).await { return },
                }
            }
            while let Ok(frame) = outgoing.try_recv() {
                if !say(writer, &frame).await {
                    return;
                }
            }
        };
        drop(timeout(LAST_ANSWERS, answers).await);
        tell_end(writer, fate, message).await;
    }
}

/// What tells one state from another: of a large cluster a state is large, and there is one for each node.
fn digest(state: &NodeState) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(state).unwrap_or_default()).into()
}

/// Writes a frame; `false`: it was not taken in time.
async fn say(writer: &mut (impl AsyncWrite + Unpin), frame: &FromPlatform) -> bool {
    match timeout(WRITE_DEADLINE, frame::write(writer, frame, MAX_FROM_PLATFORM)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a frame for a node could not be sent");
            false
        }
        Err(_) => false,
    }
}

async fn answer(desk: Arc<dyn NodeDesk>, node: NodeId, number: u64, ask: Ask, outbox: mpsc::Sender<FromPlatform>) {
    let steps: Steps = {
        let outbox = outbox.clone();
        Arc::new(move |step, message| {
            // Steps are shown where there is room for them.
            drop(outbox.try_send(FromPlatform::Step { number, step: step.to_owned(), message: message.to_owned() }));
        })
    };
    let answer: Result<Answer, String> = desk.ask(node, ask, steps).await;
    drop(outbox.send(FromPlatform::Reply { number, answer }).await);
}

/// Tells the desk of a node's beginning and of its reports, one after the other; when it is `over`, of the latest without delay.
async fn tell_desk(
    desk: Arc<dyn NodeDesk>,
    node: NodeId,
    hello: Hello,
    mut reports: watch::Receiver<Option<Report>>,
    over: CancellationToken,
) {
    desk.connected(node, hello).await;
    while reports.changed().await.is_ok() {
        let report = reports.borrow_and_update().clone();
        if let Some(report) = report {
            desk.reported(node, report).await;
        }
        drop(timeout(REPORT_INTERVAL, over.cancelled()).await);
    }
}
