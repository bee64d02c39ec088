//! A token bucket. May import: nothing of ours.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// Grants `rate` events a second on average, and `burst` of them at once.
#[derive(Debug)]
pub struct Bucket {
    rate: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    /// A full bucket.
    pub fn new(rate: u32, burst: u32) -> Self {
        Self { rate: rate.into(), burst: burst.into(), state: Mutex::new((burst.into(), Instant::now())) }
    }

    /// Takes one token, if there is one.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let there = (state.0 + now.duration_since(state.1).as_secs_f64() * self.rate).min(self.burst);
        let granted = there >= 1.0;
        *state = (if granted { there - 1.0 } else { there }, now);
        granted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn grants_a_burst_and_then_the_rate() {
        let bucket = Bucket::new(10, 5);
        assert_eq!((0..100).filter(|_| bucket.take()).count(), 5);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!((0..100).filter(|_| bucket.take()).count(), 2);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!((0..100).filter(|_| bucket.take()).count(), 5, "it holds no more than its burst");
    }
}
