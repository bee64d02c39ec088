//! Keeps the tunnel up: connects, waits for what makes another connection necessary, and connects again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::connect::{Connector, Established, Failure, Stamp};
use super::live::Live;
use super::talk::{End, talk};
use super::{Shared, Status};
use crate::domain::join::TunnelEndpoint;
use crate::domain::node::Fate;
use crate::tunnel::protocol::FromPlatform;

/// The bound of the first pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The bound of the longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that stood so long was well: the next pause is the first again.
const WELL_AFTER: Duration = Duration::from_secs(30);
/// How often it is looked whether the kubelet has renewed its certificate.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The connection that serves.
struct Current {
    live: Arc<Live>,
    talking: AbortOnDropHandle<End>,
    since: Instant,
    stamp: Stamp,
}

/// How the attempts go.
#[derive(Default)]
struct Attempts {
    failed: u32,
    refused: u32,
}

/// Runs until the membership has ended.
pub(super) async fn run(shared: Arc<Shared>, connector: Connector) {
    let mut attempts = Attempts::default();
    let mut current: Option<Current> = None;
    loop {
        let stamp = connector.stamp();
        let hello = (shared.options.hello)();
        match connector.connect(&endpoints(&shared), &hello).await {
            Ok(Established { first: FromPlatform::Ended { fate, message }, session, .. }) => {
                session.close();
                if over(&shared, fate, &message) {
                    return;
                }
                failed(&shared, &mut attempts, current.is_some(), Failure { error: message, refused: true });
            }
            Ok(established) => {
                let next = take_up(&shared, established, stamp);
                attempts.refused = 0;
                // The platform ends the earlier one by itself; here its streams end with it.
                if let Some(earlier) = current.replace(next) {
                    earlier.live.session.close();
                }
            }
            Err(failure) => failed(&shared, &mut attempts, current.is_some(), failure),
        }
        let Some(serving) = &mut current else {
            pause(&shared, &mut attempts).await;
            continue;
        };
        match until_needed(&shared, &connector, serving).await {
            // The one that serves goes on while another is tried.
            Needed::Renewal => {}
            Needed::Revival => {
                down(&shared, &mut current, "the platform did not answer on it".to_owned(), attempts.refused);
                attempts.failed = 0;
            }
            Needed::Lost(end) => {
                if serving.since.elapsed() >= WELL_AFTER {
                    attempts.failed = 0;
                }
                let error = match end {
                    End::Ended(fate, message) if over(&shared, fate, &message) => return,
                    End::Ended(_, message) => {
                        attempts.refused += 1;
                        message
                    }
                    End::Lost(error) => error,
                };
                down(&shared, &mut current, error, attempts.refused);
                pause(&shared, &mut attempts).await;
            }
        }
    }
}

/// Where the tunnel leads: as the platform said last, then as it was known at the start.
fn endpoints(shared: &Shared) -> Vec<TunnelEndpoint> {
    let mut endpoints = shared.state.borrow().as_ref().map(|state| state.tunnel_endpoints.clone()).unwrap_or_default();
    for given in &shared.options.endpoints {
        if !endpoints.contains(given) {
            endpoints.push(given.clone());
        }
    }
    endpoints
}

fn take_up(shared: &Arc<Shared>, established: Established, stamp: Stamp) -> Current {
    let (live, questions) = Live::new(established.session.clone());
    if let FromPlatform::State(state) = &established.first {
        shared.state.send_replace(Some(Arc::new(state.clone())));
    }
    tracing::info!(endpoint = established.endpoint, "the tunnel to the platform is up");
    shared.status.send_replace(Status::Connected { endpoint: established.endpoint.clone() });
    shared.live.send_replace(Some(Arc::clone(&live)));
    let talking = tokio::spawn(talk(Arc::clone(shared), established, Arc::clone(&live), questions));
    Current { live, talking: AbortOnDropHandle::new(talking), since: Instant::now(), stamp }
}

/// Lets go of the connection that served.
fn down(shared: &Shared, current: &mut Option<Current>, error: String, refused: u32) {
    tracing::warn!(error, "the tunnel to the platform is down");
    shared.live.send_replace(None);
    if let Some(earlier) = current.take() {
        earlier.live.session.close();
    }
    shared.status.send_replace(Status::Disconnected { error, refused });
}

/// Whether the platform's word is the end; then it is said.
fn over(shared: &Shared, fate: Fate, message: &str) -> bool {
    if matches!(fate, Fate::Unknown | Fate::Member) {
        return false;
    }
    tracing::warn!(fate = fate.as_str(), message, "the membership of this node has ended");
    shared.live.send_replace(None);
    shared.status.send_replace(Status::Ended { fate, message: message.to_owned() });
    true
}

fn failed(shared: &Shared, attempts: &mut Attempts, another_serves: bool, failure: Failure) {
    let Failure { error, refused } = failure;
    attempts.refused = if refused { attempts.refused + 1 } else { 0 };
    if another_serves {
        tracing::warn!(error, "another connection to the platform cannot be made; the present one serves on");
        return;
    }
    tracing::warn!(error, "the platform is not reached");
    shared.status.send_replace(Status::Disconnected { error, refused: attempts.refused });
}

/// Waits before the next attempt: a random time below a bound that doubles; not at all once woken.
async fn pause(shared: &Shared, attempts: &mut Attempts) {
    let bound = FIRST_PAUSE.saturating_mul(1 << attempts.failed.min(5)).min(LONGEST_PAUSE);
    let wait = Duration::from_millis(50 + shared.options.ambient.below(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX)));
    tokio::select! {
        () = sleep(wait) => attempts.failed = attempts.failed.saturating_add(1),
        () = shared.wake.notified() => attempts.failed = 0,
    }
}

/// Why another connection is needed.
enum Needed {
    /// The present one serves, but the certificate was renewed.
    Renewal,
    /// The platform does not answer on the present one.
    Revival,
    /// The present one has ended.
    Lost(End),
}

async fn until_needed(shared: &Shared, connector: &Connector, serving: &mut Current) -> Needed {
    loop {
        tokio::select! {
            end = &mut serving.talking => return Needed::Lost(end.unwrap_or_else(|_| End::Lost("the tunnel's task failed".to_owned()))),
            () = shared.wake.notified() => if !serving.live.answers().await { return Needed::Revival },
            () = sleep(LOOK_EVERY) => if connector.stamp() != serving.stamp { return Needed::Renewal },
        }
    }
}
