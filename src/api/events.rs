//! The stream of events (server-sent events): resumes after `Last-Event-ID`, shows what its caller may see, and ends when
//! the caller's session or token does, or the process drains.
//!
//! It is pulled by its client: a slow one holds one batch and nothing more. How many streams a caller has at once is bounded.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::auth::{self, Caller};
use super::problem::{Kind, Problem};
use super::state::ApiState;
use crate::domain::event::Event;
use crate::domain::user::Role;
use crate::domain::{ClusterId, ProjectId};
use crate::store::{self, Change, Sql};

/// So many events are read at a time.
const BATCH: u32 = 100;
/// A comment is sent this often, and the caller's right is looked at again.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// So many streams (of events and logs) one caller may have at once.
const STREAMS_EACH: usize = 32;
/// A browser comes back after so long.
const RECONNECT: Duration = Duration::from_secs(2);

/// How many streams each caller has.
#[derive(Debug, Default)]
pub struct Slots(Mutex<HashMap<String, usize>>);

/// One stream's place; gives it back when dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    key: String,
}

impl Slots {
    /// A place for one more stream of that caller.
    pub fn take(self: &Arc<Self>, caller: &Caller) -> Result<Slot, Problem> {
        let key = caller.key();
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(key.clone()).or_default();
        if *count >= STREAMS_EACH {
            return Err(Problem::new(Kind::Throttled, format!("{STREAMS_EACH} streams are open; close one first")).retry_after(5));
        }
        *count += 1;
        Ok(Slot { slots: Arc::clone(self), key })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

/// Whether the client asks for a stream rather than a list.
pub fn wants_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(axum::http::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream")))
}

/// The id after which a stream begins; `None`: with what happens from now on.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    value
        .to_str()
        .ok()
        .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or_else(|| Problem::bad_parameter("Last-Event-ID", "give the id of the last event that was seen, a whole number"))
}

/// Which events a caller sees, narrowed to a cluster and to projects.
pub async fn filter(sql: &mut dyn Sql, caller: &Caller, cluster: Option<ClusterId>) -> store::Result<store::events::Filter> {
    Ok(store::events::Filter { projects: caller.sees_of_projects(sql).await?, cluster })
}

/// The stream of events that a caller may see.
pub async fn stream(
    state: &ApiState,
    caller: Caller,
    cluster: Option<(ClusterId, Option<ProjectId>)>,
    after: Option<i64>,
) -> Result<Response, Problem> {
    let slot = state.slots.take(&caller)?;
    let changes = state.store.changes();
    let newest = store::events::newest(&mut *state.store.read().await?).await?;
    let cursor = after.map_or(newest, |after| after.min(newest));
    let look_again = tokio::time::interval(KEEP_ALIVE);
    let feed = Feed { state: state.clone(), caller, cluster, cursor, changes, ready: VecDeque::new(), look_again, _slot: slot };
    // An event without data is not shown to the page, but from it on the browser knows where to resume.
    let opening = SseEvent::default().id(cursor.to_string()).retry(RECONNECT);
    let events = futures_util::stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        Some((to_sse(&event), feed))
    });
    let events = futures_util::stream::once(async move { opening }).chain(events).map(Ok::<_, Infallible>);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive")).into_response())
}

fn to_sse(event: &Event) -> SseEvent {
    let data = serde_json::to_string(event).unwrap_or_else(|_| "{}".into());
    SseEvent::default().id(event.id.to_string()).data(data)
}

struct Feed {
    state: ApiState,
    caller: Caller,
    cluster: Option<(ClusterId, Option<ProjectId>)>,
    cursor: i64,
    changes: Receiver<Change>,
    ready: VecDeque<Event>,
    /// Ticks at once too, for what changed before `changes` was listened to.
    look_again: tokio::time::Interval,
    _slot: Slot,
}

impl Feed {
    /// The next event; `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.cursor = event.id;
                return Some(event);
            }
            if self.state.draining.is_cancelled() || (self.access_changed() && !self.still_allowed().await) {
                return None;
            }
            match self.read().await {
                Ok(events) if events.is_empty() => self.news().await?,
                Ok(events) => self.ready = events.into(),
                Err(error) => {
                    // The client comes back and resumes where it was.
                    tracing::warn!(%error, "a stream of events ends: the store did not answer");
                    return None;
                }
            }
        }
    }

    async fn read(&self) -> store::Result<Vec<Event>> {
        let mut sql = self.state.store.read().await?;
        let filter = filter(&mut *sql, &self.caller, self.cluster.map(|(id, _)| id)).await?;
        store::events::after(&mut *sql, &filter, self.cursor, BATCH).await
    }

    /// Whether something about users, roles, sessions or tokens may have changed; forgets the other changes.
    fn access_changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.changes.try_recv() {
                Ok(Change::Access) | Err(TryRecvError::Lagged(_)) => changed = true,
                Ok(_) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return changed,
            }
        }
    }

    /// Returns when there may be events; `None` ends the stream.
    async fn news(&mut self) -> Option<()> {
        loop {
            tokio::select! {
                () = self.state.draining.cancelled() => return None,
                _ = self.look_again.tick() => return self.still_allowed().await.then_some(()),
                change = self.changes.recv() => match change {
                    Ok(Change::Event) => return Some(()),
                    Ok(Change::Access) | Err(RecvError::Lagged(_)) => return self.still_allowed().await.then_some(()),
                    Ok(_) => {}
                    Err(RecvError::Closed) => return None,
                },
            }
        }
    }

    /// Asks again who the caller is; roles that changed count from here on.
    async fn still_allowed(&mut self) -> bool {
        match auth::resolve(&self.state, &self.caller.proof).await {
            Ok(Some(caller)) => self.caller = caller,
            _ => return false,
        }
        let project = self.cluster.and_then(|(_, project)| project);
        project.is_none_or(|project| self.caller.role_in(project).is_some())
    }
}

/// Returns when the caller no longer has the role that a stream of something else needs in a project, or the process drains.
pub async fn until_refused(state: ApiState, caller: Caller, project: ProjectId, role: Role) {
    let mut changes = state.store.changes();
    let mut look_again = tokio::time::interval(KEEP_ALIVE);
    loop {
        tokio::select! {
            () = state.draining.cancelled() => return,
            _ = look_again.tick() => {}
            change = changes.recv() => match change {
                Ok(Change::Access) | Err(RecvError::Lagged(_)) => {}
                Ok(_) => continue,
                Err(RecvError::Closed) => return,
            },
        }
        match auth::resolve(&state, &caller.proof).await {
            Ok(Some(now)) if now.role_in(project).is_some_and(|has| has >= role) => {}
            _ => return,
        }
    }
}
