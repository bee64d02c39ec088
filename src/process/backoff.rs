//! How long to wait before a program that ended is started again.

use std::time::Duration;

/// The first wait.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(60);
/// After running so long it counts as well, and the next wait is the first again.
pub const WELL_AFTER: Duration = Duration::from_secs(300);

/// Doubling waits from [`FIRST`] to [`LONGEST`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The wait after a program that ran for `ran` ended.
    pub fn next(&mut self, ran: Duration) -> Duration {
        let wait = match self.last {
            Some(last) if ran < WELL_AFTER => (last * 2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_minute_and_starts_over_when_it_was_well() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(Duration::from_secs(2)).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.next(WELL_AFTER), FIRST);
        assert_eq!(backoff.next(Duration::ZERO), FIRST * 2);
    }
}
