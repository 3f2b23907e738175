//! One request at a time for a key: whoever is about to change it in the cold store says so in its
//! record first, and what became of it after.
//!
//! While a claim stands, nobody else changes the key in the cold store. A gateway that dies with a
//! request under way leaves its claim, and so does one that gets no answer: it ends by time, when
//! the request can't arrive any more.

use forebay_native::hot::{Held, HotBytes, HotKey, Swapped, Want};
use forebay_store::Error;

use crate::{ledger, tier::Tier};

/// Tries to change a record that others change as well.
const ATTEMPTS_MAX: usize = 32;

/// A claim, see the module.
pub(super) struct Claim {
    /// The record, as it is with the claim in it.
    pub(super) held: Held,
    late_ms: i64,
    outcome: Outcome,
}

/// Whether all that was sent was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Known,
    Lost,
}

impl Claim {
    /// Claims a key; `None` when its record has changed.
    pub(super) async fn take(
        tier: &Tier,
        key: &HotKey,
        mut held: Held,
    ) -> Result<Option<Self>, Error> {
        let late_ms = tier.cold.now_ms() + tier.settle_ms();
        let mut next = held.record.clone();
        next.late_ms = late_ms;
        let to = Some((next.clone(), HotBytes::Kept));
        match tier.swap(key, Some(&held), to).await? {
            Swapped::Changed => Ok(None),
            Swapped::Done(sequence) => {
                (held.record, held.sequence, held.payload) = (next, sequence, None);
                Ok(Some(Self {
                    held,
                    late_ms,
                    outcome: Outcome::Known,
                }))
            }
        }
    }

    /// Whether a request that is sent now ends before the claim does.
    pub(super) fn may_send(&self, tier: &Tier) -> bool {
        let timeout_ms = i64::try_from(tier.settings.attempt_timeout.as_millis());
        let timeout_ms = timeout_ms.unwrap_or(i64::MAX).min(tier.settle_ms());
        tier.cold.now_ms().saturating_add(timeout_ms) <= self.late_ms
    }

    /// What stays of the claim once the key has been brought to rest.
    pub(super) fn late_ms(&self) -> i64 {
        match self.outcome {
            Outcome::Known => 0,
            Outcome::Lost => self.late_ms,
        }
    }

    /// Says in the record, or in the one that has taken its place, that a request was lost; whether
    /// the record is still this one.
    pub(super) async fn lost(&mut self, tier: &Tier, key: &HotKey) -> Result<bool, Error> {
        self.outcome = Outcome::Lost;
        self.late_ms = tier.cold.now_ms() + tier.settle_ms();
        for _ in 0..ATTEMPTS_MAX {
            let Some(now) = tier.hot.get(key, Want::Value).await? else {
                return Ok(false);
            };
            let next = ledger::with_late(&now.record, self.late_ms);
            let to = Some((next.clone(), HotBytes::Kept));
            if let Swapped::Done(sequence) = tier.swap(key, Some(&now), to).await? {
                if now.sequence != self.held.sequence {
                    return Ok(false);
                }
                (self.held.record, self.held.sequence) = (next, sequence);
                return Ok(true);
            }
        }
        Err(Error::SlowDown { retry_after: None })
    }

    /// Gives the key free, if all that was sent was answered.
    pub(super) async fn end(self, tier: &Tier, key: &HotKey) -> Result<(), Error> {
        for _ in 0..ATTEMPTS_MAX {
            let now = match self.outcome {
                Outcome::Known => tier.hot.get(key, Want::Value).await?,
                Outcome::Lost => None,
            };
            let Some(now) = now.filter(|now| now.record.late_ms == self.late_ms) else {
                return Ok(());
            };
            let mut next = now.record.clone();
            next.late_ms = 0;
            let to = Some((next, HotBytes::Kept));
            if let Swapped::Done(_) = tier.swap(key, Some(&now), to).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}
