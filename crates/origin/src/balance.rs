//! Chooses among endpoints: of two at random the one where less is to be waited for.
//!
//! What is to be waited for is the endpoint's average time to first byte, to the power of
//! [`TIME_POWER`], × (requests in flight + 1), divided by its share while it starts slowly. Two
//! random choices are nearly as good as looking at all, and many gateways that decide by the same
//! numbers do not all run to one endpoint (Mitzenmacher, "The Power of Two Choices in Randomized
//! Load Balancing", 2001).
//!
//! The average rises with each slow sample and falls with time, so that trouble shows at once and a
//! recovery within a second or two; one outlier counts as [`OUTLIER`] times the average at most. An
//! endpoint that loses every comparison would never be measured again: one that is idle and was not
//! measured for [`MEASURED_FOR`] is chosen for one request, though for one in
//! [`TRIES_SHARE`] choices at most.
//!
//! Pure: load, time and random numbers are arguments. Called by [`crate::set`] for each attempt.

use std::time::Duration;

/// How much one sample raises the average, of the way to it.
const RISE: f64 = 0.1;
/// A sample counts as this many times the average at most: one stalled answer is no slow endpoint.
const OUTLIER: f64 = 8.0;
/// How much one sample lowers the average, of the way to it, besides what time does.
const FALL: f64 = 0.01;
/// Time in which the average falls by all but 1/e of its way to lower samples.
const FALL_TIME: Duration = Duration::from_millis(500);
/// Differences below are of no interest: they are the noise of one machine.
const FIRST_BYTE_MIN: Duration = Duration::from_micros(50);
/// An idle endpoint is measured this often: what recovers has its share back within 5 s.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// One in so many choices may go to an endpoint for no other reason than to measure it.
const TRIES_SHARE: usize = 20;
/// Time counts for more than length of queue: in proportion, one endpoint ten times slower of three
/// would keep 1 in 21 clients, which costs that much throughput (`simulation`).
const TIME_POWER: f64 = 1.5;
/// Share of an endpoint that has just come.
const SHARE_MIN: f64 = 0.1;
/// Longest average: a sample beyond says no more.
const AVERAGE_MAX: Duration = Duration::from_mins(1);

/// What is known of an endpoint at the moment of a choice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Average time to first byte; `None` before the first sample.
    pub first_byte: Option<Duration>,
    pub in_flight: usize,
    /// Since the last sample.
    pub unmeasured: Duration,
    /// Part of a full share that it takes, above 0 up to 1.
    pub share: f64,
}

/// The average after a sample, `since_last` after the one before.
pub(crate) fn averaged(
    before: Option<Duration>,
    sample: Duration,
    since_last: Duration,
) -> Duration {
    let sample = sample.min(AVERAGE_MAX);
    let Some(before) = before.map(|before| before.max(FIRST_BYTE_MIN).as_secs_f64()) else {
        return sample;
    };
    let sample = sample.as_secs_f64();
    let after = if sample > before {
        before + (sample.min(before * OUTLIER) - before) * RISE
    } else {
        let kept = (-since_last.as_secs_f64() / FALL_TIME.as_secs_f64()).exp() * (1.0 - FALL);
        sample + (before - sample) * kept
    };
    Duration::from_secs_f64(after)
}

/// What an endpoint's average becomes when it asks for less: as if it had been very slow.
pub(crate) fn penalised(before: Option<Duration>) -> Duration {
    let before = before.unwrap_or_default().max(FIRST_BYTE_MIN);
    averaged(Some(before), AVERAGE_MAX, Duration::ZERO)
}

/// The part of a full share that an endpoint takes this long after it came.
pub(crate) fn share(since: Duration, slow_start: Duration) -> f64 {
    if since >= slow_start {
        return 1.0;
    }
    (since.as_secs_f64() / slow_start.as_secs_f64()).max(SHARE_MIN)
}

/// Chooses one of `count` endpoints, of those for which `load` gives anything; `random(n)` gives a
/// number below `n`.
pub(crate) fn choose(
    count: usize,
    load: impl Fn(usize) -> Option<Load>,
    mut random: impl FnMut(usize) -> usize,
) -> Option<usize> {
    if count == 0 {
        return None;
    }
    let find = |from: usize, not: Option<usize>| {
        (from..from + count)
            .map(|index| index % count)
            .filter(|index| Some(*index) != not)
            .find_map(|index| Some((index, load(index)?)))
    };
    let (first, first_load) = find(random(count), None)?;
    let Some((second, second_load)) = find(random(count), Some(first)) else {
        return Some(first);
    };
    let may_try = random(TRIES_SHARE) == 0;
    let chosen = if is_to_be_tried(&first_load, may_try) {
        first
    } else if is_to_be_tried(&second_load, may_try) || is_better(&second_load, &first_load) {
        second
    } else {
        first
    };
    Some(chosen)
}

fn is_to_be_tried(load: &Load, may_try: bool) -> bool {
    let is_idle = load.in_flight == 0;
    is_idle && (load.first_byte.is_none() || may_try && load.unmeasured >= MEASURED_FOR)
}

fn is_better(one: &Load, other: &Load) -> bool {
    // Of one that is not known yet nothing but its load can be compared.
    let (one_time, other_time) = match (one.first_byte, other.first_byte) {
        (Some(one), Some(other)) => (seconds(one), seconds(other)),
        (None, _) | (_, None) => (1.0, 1.0),
    };
    cost(one_time, one) < cost(other_time, other)
}

fn seconds(first_byte: Duration) -> f64 {
    first_byte.max(FIRST_BYTE_MIN).as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "requests in flight are far below 2^52"
)]
fn cost(first_byte: f64, load: &Load) -> f64 {
    first_byte.powf(TIME_POWER) * (load.in_flight + 1) as f64 / load.share
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn load(first_byte: Option<Duration>, in_flight: usize) -> Load {
        Load {
            first_byte,
            in_flight,
            unmeasured: Duration::ZERO,
            share: 1.0,
        }
    }

    /// The choice of two, looked at in both orders.
    fn chosen(loads: [Load; 2]) -> [usize; 2] {
        [0, 1].map(|start| {
            let mut numbers = [start, start, 1].into_iter();
            choose(2, |index| Some(loads[index]), |_| numbers.next().unwrap()).unwrap()
        })
    }

    #[test]
    fn of_two_the_one_where_less_is_to_be_waited_for_is_chosen() {
        let half_share = Load {
            share: 0.5,
            ..load(Some(MS), 1)
        };
        let rows = [
            (load(Some(MS), 3), load(Some(MS), 2), 1),
            (load(Some(MS), 30), load(Some(10 * MS), 0), 0),
            (load(Some(MS), 31), load(Some(10 * MS), 0), 1),
            (half_share, load(Some(MS), 2), 1),
            // Unknown and idle: it gets tried. Unknown and busy: no sooner than another.
            (load(Some(MS), 0), load(None, 0), 1),
            (load(Some(MS), 1), load(None, 2), 0),
        ];
        for (one, other, expected) in rows {
            assert_eq!(chosen([one, other]), [expected; 2], "{one:?} {other:?}");
        }
    }

    #[test]
    fn an_idle_endpoint_is_measured_once_a_second_by_one_choice_in_twenty() {
        let slow = Load {
            unmeasured: MEASURED_FOR,
            ..load(Some(100 * MS), 0)
        };
        let loads = [load(Some(MS), 1), slow];
        let with = |number: usize| {
            let mut numbers = [0, 1, number].into_iter();
            choose(2, |index| Some(loads[index]), |_| numbers.next().unwrap()).unwrap()
        };
        assert_eq!((with(0), with(1), with(19)), (1, 0, 0));
    }

    #[test]
    fn only_those_that_may_be_chosen_are() {
        let only = |index: usize| (index == 2).then(|| load(None, 5));
        for start in 0..4 {
            assert_eq!(choose(4, only, |_| start), Some(2));
        }
        assert_eq!(choose(4, |_| None, |_| 0), None);
        assert_eq!(choose(0, only, |_| 0), None);
    }

    #[test]
    fn the_average_rises_with_each_sample_and_falls_with_time() {
        let one_stall = averaged(Some(MS), Duration::from_secs(1), MS);
        assert!(one_stall < 2 * MS, "{one_stall:?}");
        let slowed = (0..20).fold(MS, |average, _| averaged(Some(average), 10 * MS, MS));
        assert!(slowed > 8 * MS, "{slowed:?}");
        let a_second_later = averaged(Some(10 * MS), MS, Duration::from_secs(1));
        assert!(a_second_later < 3 * MS, "{a_second_later:?}");
        let at_once = averaged(Some(10 * MS), MS, Duration::ZERO);
        assert!(at_once > 9 * MS, "{at_once:?}");
        assert_eq!(averaged(None, MS, MS), MS);
    }

    #[test]
    fn a_newcomer_takes_a_growing_share() {
        let slow_start = Duration::from_secs(2);
        let shares = [0, 500, 1000, 2000, 9000]
            .map(|millis| share(Duration::from_millis(millis), slow_start));
        assert!(
            shares
                .iter()
                .zip([0.1, 0.25, 0.5, 1.0, 1.0])
                .all(|(got, expected)| (got - expected).abs() < 1e-9),
            "{shares:?}"
        );
        assert!((share(Duration::ZERO, Duration::ZERO) - 1.0).abs() < 1e-9);
    }
}
