//! Following events as they happen: server-sent events (the HTML standard's `text/event-stream`), and the live steps of `--wait`.

use std::time::Duration;

use anyhow::bail;
use futures_util::StreamExt as _;

use super::session::{Session, cluster_path};
use super::{called, output};
use crate::domain::cluster::Phase;
use crate::domain::event::{Event, Severity};
use crate::domain::job::{Job, JobState};
use crate::domain::{Cluster, ClusterId};

/// Reads the events of a `text/event-stream` body that arrives in pieces.
#[derive(Debug, Default)]
pub struct EventReader {
    buffer: Vec<u8>,
}

impl EventReader {
    /// The longest event that is taken; more is a broken server.
    const MAX: usize = 1 << 20;

    /// Takes a piece and gives the data of every event that it completes.
    pub fn push(&mut self, piece: &[u8]) -> anyhow::Result<Vec<String>> {
        self.buffer.extend_from_slice(piece);
        if self.buffer.len() > Self::MAX {
            bail!("the server sent an event of over {} bytes", Self::MAX);
        }
        let mut events = Vec::new();
        while let Some(end) = self.buffer.windows(2).position(|w| w == b"\n\n") {
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block);
            let data: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("data:")).map(|d| d.strip_prefix(' ').unwrap_or(d)).collect();
            if !data.is_empty() {
                events.push(data.join("\n"));
            }
        }
        Ok(events)
    }
}

/// Calls `each` for the events of a cluster from `after` on, until it gives `false`. Takes the stream up again when it breaks.
pub async fn events(session: &Session, cluster: ClusterId, mut after: i64, mut each: impl FnMut(&Event) -> bool) -> anyhow::Result<()> {
    let path = format!("/api/v1/clusters/{cluster}/events");
    let mut failures = 0;
    loop {
        let headers = [("Accept", "text/event-stream".to_owned()), ("Last-Event-ID", after.to_string())];
        match session.client.stream(&path, &[], &headers).await {
            Ok(response) => {
                failures = 0;
                let mut reader = EventReader::default();
                let mut body = response.bytes_stream();
                while let Some(Ok(piece)) = body.next().await {
                    for data in reader.push(&piece)? {
                        let Ok(event) = serde_json::from_str::<Event>(&data) else { continue };
                        after = event.id;
                        if !each(&event) {
                            return Ok(());
                        }
                    }
                }
            }
            Err(error) if error.is::<super::client::Refused>() => return Err(error),
            Err(error) if failures >= 10 => return Err(error),
            Err(_) => failures += 1,
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// What `--wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The cluster is ready at this generation or a later one.
    Ready(i64),
    /// The cluster is gone.
    Gone,
}

/// Shows the steps of a cluster as they happen and returns when the goal is reached, or tells why it cannot be.
pub async fn wait(session: &Session, cluster: &Cluster, after: i64, goal: Goal, timeout: Duration) -> anyhow::Result<()> {
    let started = tokio::time::Instant::now();
    let steps = events(session, cluster.id, after, |event| {
        let mark = if event.severity == Severity::Warning { "!" } else { "·" };
        output::note(&format!("{:>6.1}s {mark} {}: {}", started.elapsed().as_secs_f64(), event.reason, event.message));
        true
    });
    let arrival = async {
        loop {
            if reached(session, cluster, goal).await? {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::select! {
        biased;
        done = arrival => done,
        Err(error) = steps => if reached(session, cluster, goal).await.unwrap_or(false) { Ok(()) } else { Err(error) },
        () = tokio::time::sleep(timeout) => bail!(
            "cluster {} is not there after {}; it goes on in the background: see `{}` and `{}`",
            cluster.name,
            output::span(timeout),
            called::command(&format!("cluster events {}", session.reference(cluster))),
            called::command("job list")
        ),
    }
}

async fn reached(session: &Session, cluster: &Cluster, goal: Goal) -> anyhow::Result<bool> {
    let current = session.client.get::<Cluster>(&cluster_path(cluster, ""), &[]).await;
    match (current, goal) {
        (Err(error), Goal::Gone) if status_of(&error) == Some(404) => Ok(true),
        (Err(error), _) if status_of(&error).is_some_and(|status| status < 500) => Err(error),
        (Ok(current), Goal::Ready(generation))
            if current.status.observed_generation >= generation && current.status.phase == Phase::Ready =>
        {
            Ok(true)
        }
        (Ok(current), Goal::Ready(_)) if current.status.phase == Phase::Failed => bail!("{}", failure(session, &current).await),
        _ => Ok(false),
    }
}

fn status_of(error: &anyhow::Error) -> Option<u16> {
    error.downcast_ref::<super::client::Refused>().map(|refused| refused.status.as_u16())
}

async fn failure(session: &Session, cluster: &Cluster) -> String {
    let why = cluster.status.condition("Ready").map(|c| c.message.clone()).unwrap_or_default();
    let query = [("cluster", cluster.id.to_string()), ("state", JobState::Dead.as_str().to_owned())];
    let dead: Vec<Job> = session.client.list("/api/v1/jobs", &query).await.unwrap_or_default();
    let retry =
        dead.first().map(|job| format!("; once that is mended: {}", called::command(&format!("job retry {}", job.id)))).unwrap_or_default();
    format!("cluster {} failed: {why}{retry}", cluster.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whatever_the_pieces() {
        let stream = b": hello\n\nid: 1\ndata: {\"a\":\ndata: 1}\n\ndata:x\n\ndata: unfinished";
        for size in 1..stream.len() {
            let mut reader = EventReader::default();
            let read: Vec<String> = stream.chunks(size).flat_map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(read, ["{\"a\":\n1}", "x"], "in pieces of {size}");
        }
    }
}
