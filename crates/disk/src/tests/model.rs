//! Goal: the disk store is a map that may forget but never lies, across restarts and crashes.
//! Method: the same random operations on a store and on a `BTreeMap`; all the store shows must be
//! in it. What a crash loses is decided by a random seed, which proptest prints.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};

use super::{Fixture, id, page, settings};
use crate::{
    PageStore as _, Put,
    sim::{Fate, Sim},
};

const IDS: u64 = 12;

#[derive(Debug, Clone, Copy)]
enum Op {
    Put(u64, usize),
    Remove(u64),
    Get(u64),
    Flush,
    Restart,
    Crash(u64),
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..IDS, prop_oneof![1..200_usize, 1000..4097_usize])
            .prop_map(|(index, length)| Op::Put(index, length)),
        3 => (0..IDS).prop_map(Op::Remove),
        6 => (0..IDS).prop_map(Op::Get),
        2 => Just(Op::Flush),
        1 => Just(Op::Restart),
        1 => any::<u64>().prop_map(Op::Crash),
    ]
}

#[derive(Debug, Default)]
struct Model {
    /// What this process has put or removed.
    last: BTreeMap<u64, Option<Bytes>>,
    /// What a crash may show, for ids that were ever touched.
    possible: BTreeMap<u64, BTreeSet<Option<Bytes>>>,
}

impl Model {
    fn set(&mut self, index: u64, value: Option<Bytes>) {
        self.possible
            .entry(index)
            .or_default()
            .insert(value.clone());
        self.last.insert(index, value);
    }

    fn flushed(&mut self) {
        for (index, value) in &self.last {
            self.possible.insert(*index, [value.clone()].into());
        }
    }

    fn allows(&self, index: u64, read: Option<&Bytes>) -> bool {
        let Some(read) = read else {
            return true;
        };
        if let Some(last) = self.last.get(&index) {
            return last.as_ref() == Some(read);
        }
        let possible = self.possible.get(&index);
        possible.is_some_and(|values| values.iter().flatten().any(|value| value == read))
    }
}

async fn run(ops: &[Op]) -> Result<(), TestCaseError> {
    let mut fixture = Fixture::open(Arc::new(Sim::new()), settings());
    let mut model = Model::default();
    for (seed, op) in (0..).zip(ops) {
        match *op {
            Op::Put(index, length) => {
                let taken = fixture.store.put(id(index), page(seed, length));
                prop_assert_eq!(taken, Put::Taken);
                model.set(index, Some(page(seed, length)));
            }
            Op::Remove(index) => {
                fixture.store.remove(id(index));
                model.set(index, None);
            }
            Op::Get(index) => {
                let read = fixture.store.get(id(index)).await;
                prop_assert!(
                    model.allows(index, read.as_ref()),
                    "id {index} shows {read:?}, not {:?} nor of {:?}",
                    model.last.get(&index),
                    model.possible.get(&index)
                );
            }
            Op::Flush => {
                fixture.store.flush().await.unwrap();
                model.flushed();
            }
            Op::Restart => {
                fixture.store.close().await.unwrap();
                model.flushed();
                fixture = Fixture::open(fixture.device, settings());
            }
            Op::Crash(seed) => {
                let count = fixture.device.count();
                let fates = [Fate::Kept, Fate::Lost, Fate::Torn];
                let fate = |at: usize| {
                    let mixed = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                    fates[usize::try_from(mixed % 3).unwrap()]
                };
                let image = fixture.device.crashed(count, fate);
                model.last.clear();
                fixture = Fixture::open(Arc::new(Sim::of(image)), settings());
            }
        }
        let bytes: usize = fixture.device.image().values().map(Vec::len).sum();
        prop_assert!(bytes as u64 <= super::CAPACITY);
    }
    // Negative space: nothing left over.
    for index in 0..IDS {
        let read = fixture.store.get(id(index)).await;
        prop_assert!(model.allows(index, read.as_ref()), "{index}");
    }
    Ok(())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(96)
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_store_forgets_but_never_lies(ops in vec(any_op(), 1..120)) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(run(&ops))?;
    }
}
