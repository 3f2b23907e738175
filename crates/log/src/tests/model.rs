//! Goal: the log is a map, whatever is asked of it, across restarts and crashes.
//! Method: random operations on the log and on a `BTreeMap`; after each the two show the same.

use std::sync::Arc;

use forebay_disk::sim::{Fate, Sim};
use forebay_native::index::{Batch, Change, Expect, Index as _, Payload};
use proptest::{collection::vec, prelude::*};

use super::{COUNTER, Shown, delete, name, open, put, route, shown};

#[derive(Debug, Clone)]
enum Op {
    Put(u64, usize),
    PutIfAbsent(u64, usize),
    Retag(u64),
    Delete(u64),
    Pair(u64, u64),
    Count(i64),
    Compact,
    Restart,
    Crash(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    let index = || 0..8_u64;
    prop_oneof![
        6 => (index(), 0..900_usize).prop_map(|(index, length)| Op::Put(index, length)),
        2 => (index(), 0..90_usize).prop_map(|(index, length)| Op::PutIfAbsent(index, length)),
        2 => index().prop_map(Op::Retag),
        3 => index().prop_map(Op::Delete),
        2 => (index(), index()).prop_map(|(a, b)| Op::Pair(a, b)),
        1 => (-5..5_i64).prop_map(Op::Count),
        1 => Just(Op::Compact),
        1 => Just(Op::Restart),
        2 => any::<u64>().prop_map(Op::Crash),
    ]
}

/// The batch that an operation is, and whether it is expected to happen.
fn batch_of(op: &Op, seed: u64, model: &Shown) -> Option<(Batch, bool)> {
    let mut batch = Batch::default();
    let mut happens = true;
    match *op {
        Op::Put(index, length) => batch.changes.push(put(index, seed, Some(length))),
        Op::PutIfAbsent(index, length) => {
            batch.expects.push((name(index), Expect::Absent));
            batch.changes.push(put(index, seed, Some(length)));
            happens = !model.entries.contains_key(&name(index));
        }
        Op::Retag(index) => batch.changes.push(Change::Put {
            name: name(index),
            value: format!("tag {seed}").into(),
            payload: Payload::Keep,
        }),
        Op::Delete(index) => batch.changes.push(delete(index)),
        Op::Pair(a, b) if a == b => batch.changes.push(put(a, seed, None)),
        Op::Pair(a, b) => {
            batch.changes.push(put(a, seed, Some(50)));
            batch.changes.push(delete(b));
        }
        Op::Count(by) => batch.changes.push(Change::Count {
            counter: COUNTER.into(),
            by,
        }),
        Op::Compact | Op::Restart | Op::Crash(_) => return None,
    }
    Some((batch, happens))
}

/// What becomes of changes that were not synced: something else for each seed.
fn fate(seed: u64, at: usize) -> Fate {
    let mixed = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match mixed >> 62 {
        0 => Fate::Kept,
        1 => Fate::Lost,
        2 => Fate::Torn,
        _ => Fate::Holed,
    }
}

async fn check(ops: Vec<Op>) {
    let (mut sim, mut model) = (Arc::new(Sim::new()), Shown::default());
    let mut parts = open(&sim);
    for (seed, op) in (1..).zip(ops) {
        if let Some((batch, happens)) = batch_of(&op, seed, &model) {
            let applied = parts.index.apply(&route(), batch.clone()).await.unwrap();
            let is_done = matches!(applied, forebay_native::index::Applied::Done(_));
            assert_eq!(is_done, happens, "{op:?}");
            if happens {
                for change in &batch.changes {
                    model.change(change);
                }
            }
        } else {
            match op {
                Op::Compact => drop(parts.compact().await.unwrap()),
                Op::Crash(seed) => {
                    let image = sim.crashed(sim.count(), |at| fate(seed, at));
                    sim = Arc::new(Sim::of(image));
                    drop(parts);
                    parts = open(&sim);
                }
                _ => {
                    parts.close().await;
                    drop(parts);
                    parts = open(&sim);
                }
            }
        }
        assert_eq!(shown(&parts).await, model, "after {op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_log_is_a_map_across_restarts_and_crashes(ops in vec(any_op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(ops));
    }
}
