//! Bounds hedges to a share of reads, whatever the estimator thinks.
//!
//! Every read earns its share of a hedge and every hedge costs one; so over any time there are at
//! most as many hedges as the share of reads in it, and [`BURST`] more that an earlier time left.
//! It begins empty: no hedge is sent before reads have earned it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Hedges that a quiet time leaves to be sent at once. 20: what a second of a thousand reads earns.
pub(crate) const BURST: u32 = 20;
/// One hedge.
const HEDGE_PARTS: u64 = 1_000_000;
const PARTS_MAX: u64 = BURST as u64 * HEDGE_PARTS;

/// What may still be spent on hedges.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In millionths of a hedge.
    parts: AtomicU64,
    parts_per_read: u64,
}

impl Budget {
    /// A budget that earns `share` of a hedge with each read.
    pub(crate) fn new(share: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share is between 0 and 1, and a fraction of a part is of no account"
        )]
        let parts_per_read = (share.clamp(0.0, 1.0) * HEDGE_PARTS as f64) as u64;
        Self {
            parts: AtomicU64::new(0),
            parts_per_read,
        }
    }

    /// Earns the share of a read.
    pub(crate) fn earn(&self) {
        // Reads first: a full budget costs no write to a shared cache line.
        if self.parts.load(Ordering::Relaxed) < PARTS_MAX {
            self.parts.fetch_add(self.parts_per_read, Ordering::Relaxed);
        }
    }

    /// Pays for a hedge, if there is enough.
    pub(crate) fn pay(&self) -> Payment {
        let paid = self
            .parts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |parts| {
                parts.checked_sub(HEDGE_PARTS)
            });
        match paid {
            Ok(_) => Payment::Made,
            Err(_) => Payment::Refused,
        }
    }

    /// Gives back what a hedge cost that was not sent after all.
    pub(crate) fn refund(&self) {
        self.parts.fetch_add(HEDGE_PARTS, Ordering::Relaxed);
    }

    /// Hedges that may be sent at once.
    #[expect(clippy::cast_precision_loss, reason = "at most some millions")]
    pub(crate) fn left(&self) -> f64 {
        self.parts.load(Ordering::Relaxed) as f64 / HEDGE_PARTS as f64
    }
}

/// Whether a hedge was paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payment {
    Made,
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(budget: &Budget, tries: u32) -> u32 {
        (0..tries)
            .map(|_| u32::from(budget.pay() == Payment::Made))
            .sum()
    }

    #[test]
    fn hedges_are_a_share_of_reads_and_none_comes_before_them() {
        let budget = Budget::new(0.02);
        assert_eq!(budget.pay(), Payment::Refused);
        let hedges: u32 = (0..10_000)
            .map(|_| {
                budget.earn();
                paid(&budget, 1)
            })
            .sum();
        assert_eq!(hedges, 200);
    }

    #[test]
    fn a_quiet_time_leaves_a_small_burst() {
        let budget = Budget::new(0.5);
        (0..1_000_000).for_each(|_| budget.earn());
        assert!((budget.left() - f64::from(BURST)).abs() < 1.0);
        assert_eq!(paid(&budget, 1000), BURST);
        budget.refund();
        assert_eq!(paid(&budget, 1000), 1);
    }
}
