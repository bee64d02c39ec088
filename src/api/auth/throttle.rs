//! Slows down who guesses passwords: after some failures, each further one doubles a wait. In memory and bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::Timestamp;

/// So many failures are free.
const FREE: u32 = 5;
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(15 * 60);
/// A failure is forgotten after so long without another.
const MEMORY: Duration = Duration::from_secs(3600);
/// No more pairs than this are remembered; the one whose last failure is oldest goes first.
const CAPACITY: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Timestamp,
    until: Timestamp,
}

/// Failures by name and source.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<(String, String), Failures>>);

impl Throttle {
    /// How long this name must wait at this source; `None`: not at all.
    pub fn wait(&self, name: &str, source: &str, now: Timestamp) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = known.get(&(name.to_owned(), source.to_owned()))?;
        (failures.until > now).then(|| failures.until.since(now))
    }

    /// Notes a failure.
    pub fn failed(&self, name: &str, source: &str, now: Timestamp) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), source.to_owned());
        if known.len() >= CAPACITY && !known.contains_key(&key) {
            known.retain(|_, failures| now.since(failures.last) < MEMORY);
            if known.len() >= CAPACITY
                && let Some(oldest) = known.iter().min_by_key(|(_, failures)| failures.last).map(|(key, _)| key.clone())
            {
                known.remove(&oldest);
            }
        }
        let failures = known.entry(key).or_insert(Failures { count: 0, last: now, until: now });
        if now.since(failures.last) >= MEMORY {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        failures.until = now.plus(pause(failures.count));
    }

    /// Forgets the failures of a name at a source that signed in.
    pub fn succeeded(&self, name: &str, source: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(name.to_owned(), source.to_owned()));
    }
}

fn pause(count: u32) -> Duration {
    match count.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(surplus) => Duration::from_secs(1).saturating_mul(1 << surplus.min(12)).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_and_ends() {
        let throttle = Throttle::default();
        let start = Timestamp::from_micros(0);
        for _ in 0..FREE - 1 {
            throttle.failed("ada", "203.0.113.7", start);
        }
        assert_eq!(throttle.wait("ada", "203.0.113.7", start), None);
        throttle.failed("ada", "203.0.113.7", start);
        assert_eq!(throttle.wait("ada", "203.0.113.7", start), Some(Duration::from_secs(1)));
        throttle.failed("ada", "203.0.113.7", start);
        assert_eq!(throttle.wait("ada", "203.0.113.7", start), Some(Duration::from_secs(2)));
        assert_eq!(throttle.wait("ada", "203.0.113.8", start), None);
        assert_eq!(throttle.wait("ada", "203.0.113.7", start.plus(Duration::from_secs(3))), None);
        throttle.succeeded("ada", "203.0.113.7");
        assert_eq!(throttle.wait("ada", "203.0.113.7", start), None);
    }

    #[test]
    fn waits_and_memory_are_bounded() {
        assert_eq!(pause(u32::MAX), LONGEST);
        let throttle = Throttle::default();
        for n in 0..CAPACITY + 10 {
            throttle.failed(&n.to_string(), "s", Timestamp::from_micros(i64::try_from(n).unwrap()));
        }
        assert_eq!(throttle.0.lock().unwrap().len(), CAPACITY);
    }
}
