//! From which size and age a hot object costs more than it saves.
//!
//! A tier saves requests to S3: the reads of young objects, the writes of those that never get old.
//! That does not depend on their size. It costs what the hot store takes beyond what S3 would for
//! the same bytes and time, which grows with both. So there is a size and an age where the two are
//! equal. Nodes count by the byte here, as if they were full; statements count them whole.
//!
//! By money alone. A hot object is also faster, and what that is worth is not told here.

use std::time::Duration;

use super::{Hot, Money, Prices, TooMuch, Workload, hot_storage};

/// What to set for one hot store, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The hot store.
    pub hot: Hot,
    /// The age that was judged: of those given, the one that saves most (or loses least).
    pub judged_age: Duration,
    /// What the tier saves with objects of the workload's size, in a period; negative: it costs.
    pub saved: Money,
    /// Up to this size a hot object saves more than it costs.
    pub break_even_size: BreakEven<u64>,
    /// Up to this age, for objects of the workload's size.
    pub break_even_age: BreakEven<Duration>,
    /// The break-even size, rounded down to a power of two; 0 when nothing pays.
    pub max_object_size: u64,
    /// The judged age, or nothing when nothing pays.
    pub demote_after: Duration,
}

/// Where saving and cost are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakEven<T> {
    /// It never pays.
    Never,
    /// It pays up to here.
    UpTo(T),
    /// It always pays.
    Always,
}

/// What one age saves and costs, in a period.
struct Balance {
    /// Requests: independent of the size.
    requests: Money,
    /// Bytes written and read in the hot store: they cost once.
    bytes_once: Money,
    /// Bytes kept, beyond what S3 takes: they cost by the second.
    bytes_kept: Money,
}

impl Balance {
    fn saved(&self) -> Money {
        self.requests - self.bytes_once - self.bytes_kept
    }
}

impl Advice {
    /// What to set for this hot store: the ages of `reads_by_age` compete.
    pub fn find(workload: &Workload, hot: Hot, prices: &Prices) -> Result<Self, TooMuch> {
        let mut best: Option<(Duration, Balance)> = None;
        for &(age, _) in &workload.reads_by_age {
            let age = age.min(workload.kept);
            let balance = balance(workload, hot, age, prices)?;
            let is_better = best
                .as_ref()
                .is_none_or(|(_, b)| balance.saved() > b.saved());
            if is_better {
                best = Some((age, balance));
            }
        }
        let (judged_age, balance) = if let Some(best) = best {
            best
        } else {
            (
                workload.kept,
                balance(workload, hot, workload.kept, prices)?,
            )
        };
        let saved = balance.saved();
        let size = workload.size_bytes.into();
        let costs = balance.bytes_once + balance.bytes_kept;
        let break_even_size = proportion(size, balance.requests, costs);
        let rest = balance.requests - balance.bytes_once;
        let seconds = judged_age.as_secs().into();
        let max_object_size = match break_even_size {
            BreakEven::Never | BreakEven::UpTo(0) => 0,
            BreakEven::UpTo(bytes) => 1 << bytes.ilog2(),
            // The largest object that S3 takes in one request.
            BreakEven::Always => 5 << 30,
        };
        Ok(Self {
            hot,
            judged_age,
            saved,
            break_even_size,
            break_even_age: match proportion(seconds, rest, balance.bytes_kept) {
                BreakEven::Never => BreakEven::Never,
                BreakEven::UpTo(seconds) => BreakEven::UpTo(Duration::from_secs(seconds)),
                BreakEven::Always => BreakEven::Always,
            },
            max_object_size,
            demote_after: match max_object_size {
                0 => Duration::ZERO,
                _ => judged_age,
            },
        })
    }
}

fn balance(
    workload: &Workload,
    hot: Hot,
    age: Duration,
    prices: &Prices,
) -> Result<Balance, TooMuch> {
    let use_ = workload.tier_use(age)?;
    let s3 = &prices.s3;
    let puts = s3.put.of(workload.puts.into())? - s3.put.of(use_.cold_puts.into())?;
    let gets = s3.get.of(use_.hot_gets.into())?;
    let (mut requests, mut bytes_once) = (puts + gets, Money::ZERO);
    if hot == Hot::Express {
        let express = &prices.express;
        let reads = u128::from(use_.hot_gets) + u128::from(use_.demoted);
        let size = u128::from(workload.size_bytes);
        requests = requests - express.put.of(use_.hot_puts.into())? - express.get.of(reads)?;
        let uploaded = express.upload.of(size * u128::from(use_.hot_puts))?;
        bytes_once = uploaded + express.retrieval.of(size * reads)?;
    }
    let in_hot = hot_storage(hot, prices)?.of(use_.hot_byte_seconds)?;
    let in_s3 = s3.storage.of(use_.hot_byte_seconds)?;
    Ok(Balance {
        requests,
        bytes_once,
        bytes_kept: in_hot - in_s3,
    })
}

/// What `measure` may grow to until `cost`, which grows with it, has eaten up `saving`; rounded
/// down.
fn proportion(measure: u128, saving: Money, cost: Money) -> BreakEven<u64> {
    if saving <= Money::ZERO {
        return BreakEven::Never;
    }
    if cost <= Money::ZERO {
        return BreakEven::Always;
    }
    let product = saving.pico().unsigned_abs().checked_mul(measure);
    match product.map(|product| product / cost.pico().unsigned_abs()) {
        Some(limit) => u64::try_from(limit).map_or(BreakEven::Always, BreakEven::UpTo),
        None => BreakEven::Always,
    }
}
