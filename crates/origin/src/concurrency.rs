//! How many requests an endpoint is asked to carry at once, by what it says to them.
//!
//! Additive increase, multiplicative decrease, as TCP does: a `503 SlowDown` halves the number,
//! once for all that were in flight together; each answer while the number is in use raises it by
//! its own part, so by one for a round of requests, and by more the longer the last 503 is past.
//! Never below one, never above the limit of the settings.
//!
//! Pure: time is an argument. Called by [`crate::endpoint`].

use std::time::Duration;

use tokio::time::Instant;

/// What one 503 leaves.
const CUT: f64 = 0.5;
/// Time in which further 503s tell nothing new, at least: they were caused before the cut.
const ROUND_MIN: Duration = Duration::from_millis(10);

/// The number, and what moves it.
#[derive(Debug, Clone)]
pub(crate) struct Concurrency {
    limit: f64,
    limit_max: f64,
    cut: Option<Instant>,
}

impl Concurrency {
    /// Begins at the most.
    pub(crate) fn new(requests_max: usize) -> Self {
        let limit_max = f64::from(u32::try_from(requests_max).unwrap_or(u32::MAX));
        Self {
            limit: limit_max,
            limit_max,
            cut: None,
        }
    }

    /// Requests that may be in flight, `1..=requests_max`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and a u32"
    )]
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// A 503 came, with this many in flight; `round` is the usual time of an answer.
    pub(crate) fn slow_down(&mut self, in_flight: usize, round: Duration, now: Instant) {
        let is_told = |cut: Instant| now.saturating_duration_since(cut) < round.max(ROUND_MIN);
        if self.cut.is_some_and(is_told) {
            return;
        }
        let in_use = f64::from(u32::try_from(in_flight).unwrap_or(u32::MAX));
        self.limit = (self.limit.min(in_use) * CUT).max(1.0);
        self.cut = Some(now);
    }

    /// An answer came that was no 503, with this many in flight.
    pub(crate) fn succeed(&mut self, in_flight: usize, now: Instant) {
        if self.limit >= self.limit_max || in_flight * 2 < self.limit() {
            return;
        }
        let calm = self
            .cut
            .map_or(0.0, |cut| now.saturating_duration_since(cut).as_secs_f64());
        self.limit = (self.limit + (1.0 + calm) / self.limit).min(self.limit_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(20);

    #[test]
    fn a_round_of_refusals_halves_the_number_once() {
        let now = Instant::now();
        let mut concurrency = Concurrency::new(1024);
        for _ in 0..64 {
            concurrency.slow_down(64, ROUND, now);
        }
        assert_eq!(concurrency.limit(), 32);
        concurrency.slow_down(32, ROUND, now + ROUND / 2);
        assert_eq!(concurrency.limit(), 32);
        concurrency.slow_down(32, ROUND, now + ROUND);
        assert_eq!(concurrency.limit(), 16);
    }

    #[test]
    fn a_round_of_answers_raises_it_by_one_and_only_while_it_is_in_use() {
        let now = Instant::now();
        let mut concurrency = Concurrency::new(1024);
        concurrency.slow_down(20, ROUND, now);
        (0..10).for_each(|_| concurrency.succeed(2, now));
        assert_eq!(concurrency.limit(), 10);
        (0..11).for_each(|_| concurrency.succeed(10, now));
        assert_eq!(concurrency.limit(), 11);
    }

    #[test]
    fn it_stays_between_one_and_the_setting() {
        let mut now = Instant::now();
        let mut concurrency = Concurrency::new(4);
        for _ in 0..10 {
            concurrency.slow_down(4, ROUND, now);
            now += ROUND;
        }
        assert_eq!(concurrency.limit(), 1);
        for _ in 0..1000 {
            concurrency.succeed(4, now);
        }
        assert_eq!(concurrency.limit(), 4);
    }

    /// Goal: an endpoint that carries 40 at once, and refuses what is beyond, is kept busy.
    /// Method: rounds in which as many requests are sent as may be.
    #[test]
    fn it_settles_about_what_the_endpoint_carries() {
        let mut now = Instant::now();
        let mut concurrency = Concurrency::new(1024);
        let (mut sent_count, mut refused_count) = (0, 0);
        for _ in 0..1000 {
            let sent = concurrency.limit();
            for number in 0..sent {
                if number < 40 {
                    concurrency.succeed(sent, now);
                } else {
                    concurrency.slow_down(sent, ROUND, now);
                    refused_count += 1;
                }
            }
            sent_count += sent.min(40);
            now += ROUND;
        }
        assert!(sent_count > 40 * 1000 * 65 / 100, "{sent_count}");
        assert!(
            refused_count * 10 < sent_count,
            "{refused_count} of {sent_count}"
        );
    }
}
