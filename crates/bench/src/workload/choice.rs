//! Which object comes next.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How objects are chosen.
#[derive(Debug, Clone)]
pub(crate) enum Choice {
    /// Always the first.
    First,
    /// Each as likely as any other.
    Uniform,
    /// Few often, most seldom.
    Zipf(Arc<Zipf>),
    /// One after another, and from the start again; numbers of objects in a given order.
    Trace(Arc<[u32]>, Arc<AtomicUsize>),
    /// One after another, and from the start again.
    Round(Arc<AtomicUsize>),
    /// One after another, then no more.
    Each(Arc<AtomicUsize>),
}

impl Choice {
    /// One after another, and from the start again.
    pub(crate) fn round() -> Self {
        Self::Round(Arc::default())
    }

    /// One after another, then no more.
    pub(crate) fn each() -> Self {
        Self::Each(Arc::default())
    }

    /// In the order of a trace, and from its start again.
    pub(crate) fn trace(order: Vec<u32>) -> Self {
        Self::Trace(order.into(), Arc::default())
    }

    /// The number of an object of `count`.
    pub(crate) fn next(&self, rng: &mut fastrand::Rng, count: usize) -> Option<usize> {
        if count == 0 {
            return None;
        }
        Some(match self {
            Self::First => 0,
            Self::Uniform => rng.usize(..count),
            Self::Zipf(zipf) => zipf.pick(rng.f64()).min(count - 1),
            Self::Trace(order, at) => {
                let at = at.fetch_add(1, Ordering::Relaxed);
                order[at % order.len()] as usize
            }
            Self::Round(at) => at.fetch_add(1, Ordering::Relaxed) % count,
            Self::Each(at) => {
                let at = at.fetch_add(1, Ordering::Relaxed);
                return (at < count).then_some(at);
            }
        })
    }
}

/// The `k`th of `n` objects is chosen in proportion to `1 / k^exponent`.
#[derive(Debug)]
pub(crate) struct Zipf {
    /// The chance that one of the first `k + 1` is chosen.
    cumulative: Box<[f64]>,
}

impl Zipf {
    /// Of `count` objects, at least 1.
    pub(crate) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=count).map(|rank| {
            sum += crate::results::exact(rank as u64).powf(-exponent);
            sum
        });
        let mut cumulative: Box<[f64]> = weights.collect();
        for chance in &mut cumulative {
            *chance /= sum;
        }
        Self { cumulative }
    }

    /// The object at a point in `0..1`.
    fn pick(&self, point: f64) -> usize {
        self.cumulative.partition_point(|chance| *chance <= point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_prefers_the_first_as_its_exponent_says() {
        let zipf = Zipf::new(1000, 1.0);
        let harmonic: f64 = (1..=1000).map(|k| 1.0 / f64::from(k)).sum();
        let (mut rng, seed) = (fastrand::Rng::with_seed(5), 5);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..200_000 {
            counts[zipf.pick(rng.f64())] += 1;
        }
        for rank in [1_u32, 2, 10] {
            let expected = 200_000.0 / (f64::from(rank) * harmonic);
            let found = f64::from(counts[rank as usize - 1]);
            let ratio = found / expected;
            assert!(
                (0.9..1.1).contains(&ratio),
                "rank {rank}: {ratio}, seed {seed}"
            );
        }
        assert_eq!(zipf.pick(0.999_999_999_999), 999);
    }

    #[test]
    fn a_trace_is_followed_in_order_and_again() {
        let choice = Choice::trace(vec![2, 0, 2]);
        let mut rng = fastrand::Rng::with_seed(1);
        let picked: Vec<_> = (0..5).filter_map(|_| choice.next(&mut rng, 3)).collect();
        assert_eq!(picked, [2, 0, 2, 2, 0]);
        assert_eq!(choice.next(&mut rng, 0), None);
    }
}
