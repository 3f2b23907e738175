//! Which order statistics enclose a median, and how surely. Exact, for the few rounds of a run.

/// An interval between the order statistics `from_end` and its mirror, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    /// Values left out at each end.
    pub(super) from_end: usize,
    /// Probability that the interval holds the true median, 0–1.
    pub(super) confidence: f64,
}

/// Beyond these many the whole range is used: the exact sums below grow with their product.
const VALUES_MAX: usize = 60;

/// The interval for the median of `count` independent values.
///
/// The true median lies below the (k+1)-th least value only if at most k of `count` fair coins show
/// heads, so leaving out k at each end costs twice that probability.
pub(super) fn sign_test(count: usize, wanted: f64) -> Place {
    let mut coins = vec![1.0_f64];
    for _ in 0..count.min(VALUES_MAX) {
        let mut next = vec![0.0; coins.len() + 1];
        for (heads, probability) in coins.iter().enumerate() {
            next[heads] += probability / 2.0;
            next[heads + 1] += probability / 2.0;
        }
        coins = next;
    }
    narrowest(&coins, count, wanted)
}

/// The interval for the shift between `a` and `b` values, among their `a * b` differences.
///
/// The distribution of the Mann–Whitney statistic by its recurrence: the greatest of all values is
/// of the first kind with probability a / (a + b) and then exceeds all b of the other.
pub(super) fn rank_sum(a: usize, b: usize, wanted: f64) -> Place {
    if a.max(b) > VALUES_MAX / 2 {
        return narrowest(&[0.0], a * b, wanted);
    }
    let mut rows = vec![vec![1.0_f64]; b + 1];
    for i in 1..=a {
        let mut next = vec![vec![1.0_f64]];
        for j in 1..=b {
            let mut row = vec![0.0; i * j + 1];
            let (i_share, j_share) = (share(i, i + j), share(j, i + j));
            for (wins, probability) in rows[j].iter().enumerate() {
                row[wins + j] += probability * i_share;
            }
            for (wins, probability) in next[j - 1].iter().enumerate() {
                row[wins] += probability * j_share;
            }
            next.push(row);
        }
        rows = next;
    }
    narrowest(&rows[b], a * b, wanted)
}

fn share(part: usize, whole: usize) -> f64 {
    crate::results::exact(part as u64) / crate::results::exact(whole as u64)
}

/// Leaves out as many at each end as `wanted` allows, none if even that is too many.
fn narrowest(distribution: &[f64], count: usize, wanted: f64) -> Place {
    let mut place = Place {
        from_end: 0,
        confidence: 1.0 - 2.0 * distribution[0],
    };
    let mut tail = distribution[0];
    for (index, probability) in distribution.iter().enumerate().skip(1) {
        tail += probability;
        let confidence = 1.0 - 2.0 * tail;
        if confidence < wanted || 2 * index >= count {
            break;
        }
        place = Place {
            from_end: index,
            confidence,
        };
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the tables of A. M. Mood and of H. B. Mann and D. R. Whitney (1947), as in any
    /// textbook.
    #[test]
    fn intervals_are_those_of_the_textbook() {
        for (count, from_end, confidence) in [
            (1, 0, 0.0),
            (3, 0, 0.75),
            (5, 0, 0.9375),
            (6, 0, 0.968_75),
            (8, 0, 0.992_187_5),
            (9, 1, 0.960_937_5),
            (15, 3, 0.964_843_75),
        ] {
            let place = sign_test(count, 0.95);
            assert_eq!(place.from_end, from_end, "{count}");
            assert!(
                (place.confidence - confidence).abs() < 1e-9,
                "{count}: {place:?}"
            );
        }
        for (a, b, from_end, confidence) in [
            (1, 1, 0, 0.0),
            (3, 3, 0, 0.9),
            (4, 4, 0, 1.0 - 2.0 / 70.0),
            (5, 5, 2, 1.0 - 2.0 * 4.0 / 252.0),
            (3, 5, 0, 1.0 - 2.0 / 56.0),
        ] {
            let place = rank_sum(a, b, 0.95);
            assert_eq!(place.from_end, from_end, "{a} {b}: {place:?}");
            assert!(
                (place.confidence - confidence).abs() < 1e-9,
                "{a} {b}: {place:?}"
            );
        }
    }
}
