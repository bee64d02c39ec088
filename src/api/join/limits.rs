//! How often, and how many at once: in memory and bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api::auth::Throttle;
use crate::api::problem::{Kind, Problem};
use crate::domain::{JoinTokenId, Timestamp};

/// So many steps are taken by one token in each [`WINDOW`]: enough for a few dozen machines that join at once.
const STEPS: u32 = 600;
/// See [`STEPS`].
const WINDOW: Duration = Duration::from_secs(60);
/// So many machines may ask by one token at once; the others wait their turn.
const AT_ONCE: u32 = 32;
/// No more tokens than this are remembered; tokens are known before they are counted, so this bounds a platform and no stranger.
const CAPACITY: usize = 10_000;

/// What is remembered of those who join.
#[derive(Debug, Default)]
pub struct Limits {
    throttle: Throttle,
    steps: Mutex<HashMap<JoinTokenId, (Timestamp, u32)>>,
    asking: Mutex<HashMap<JoinTokenId, u32>>,
}

/// The place of one who asks; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    limits: Arc<Limits>,
    token: JoinTokenId,
}

impl Limits {
    /// Refuses what a source tried too often of late: `what` is a token or a node.
    pub(super) fn not_too_often(&self, what: &str, source: &str, now: Timestamp) -> Result<(), Problem> {
        let Some(wait) = self.throttle.wait(what, source, now) else { return Ok(()) };
        let seconds = wait.as_secs() + 1;
        Err(Problem::new(Kind::Throttled, format!("too many failed attempts; try again in {seconds} s")).retry_after(seconds))
    }

    /// Notes that a source showed what is wrong.
    pub(super) fn failed(&self, what: &str, source: &str, now: Timestamp) {
        self.throttle.failed(what, source, now);
    }

    /// Forgets the failures of a source that showed what is right.
    pub(super) fn succeeded(&self, what: &str, source: &str) {
        self.throttle.succeeded(what, source);
    }

    /// A place for one more machine that asks by a token.
    pub(super) fn ask(self: &Arc<Self>, token: JoinTokenId) -> Result<Place, Problem> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asking.entry(token).or_default();
        if *count >= AT_ONCE {
            let detail = format!("{AT_ONCE} machines join by this token at this moment; try again in a moment");
            return Err(Problem::new(Kind::Throttled, detail).retry_after(3));
        }
        *count += 1;
        Ok(Place { limits: Arc::clone(self), token })
    }

    /// Counts a step that is told by a token.
    pub(super) fn step(&self, token: JoinTokenId, now: Timestamp) -> Result<(), Problem> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if steps.len() >= CAPACITY && !steps.contains_key(&token) {
            steps.retain(|_, (begun, _)| now.since(*begun) < WINDOW);
        }
        let full = steps.len() >= CAPACITY && !steps.contains_key(&token);
        let (begun, count) = steps.entry(token).or_insert((now, 0));
        if now.since(*begun) >= WINDOW {
            (*begun, *count) = (now, 0);
        }
        *count += 1;
        if full || *count > STEPS {
            let detail = format!("over {STEPS} steps were told by this token within a minute; the join itself goes on");
            return Err(Problem::new(Kind::Throttled, detail).retry_after(WINDOW.as_secs()));
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut asking = self.limits.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = asking.get_mut(&self.token) {
            *count -= 1;
            if *count == 0 {
                asking.remove(&self.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Ambient;

    #[test]
    fn steps_are_counted_by_the_minute() {
        let (limits, start) = (Limits::default(), Timestamp::from_micros(0));
        let (token, other) = (JoinTokenId::generate(&Ambient::system()), JoinTokenId::generate(&Ambient::system()));
        for _ in 0..STEPS {
            limits.step(token, start).unwrap();
        }
        assert!(limits.step(token, start).unwrap_err().is(Kind::Throttled));
        limits.step(other, start).unwrap();
        limits.step(token, start.plus(WINDOW)).unwrap();
    }

    #[test]
    fn so_many_ask_at_once_and_give_their_place_back() {
        let limits = Arc::new(Limits::default());
        let token = JoinTokenId::generate(&Ambient::system());
        let places: Vec<Place> = (0..AT_ONCE).map(|_| limits.ask(token).unwrap()).collect();
        assert!(limits.ask(token).unwrap_err().is(Kind::Throttled));
        drop(places);
        drop(limits.ask(token).unwrap());
        assert!(limits.asking.lock().unwrap().is_empty());
    }
}
