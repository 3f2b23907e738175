//! What is asked of an endpoint: which operation next, on which object.
//!
//! A [`Plan`] is one case of a run: an [`Action`] on [`Objects`] by a [`Choice`]. The load engine
//! asks it for one [`Step`] after another, from many threads at once; the only state they share is
//! a counter or two. What a worker must remember is in its [`Memory`].
//!
//! Not here: how a step is put on the wire ([`crate::load`]), how objects come to be there
//! ([`crate::prepare`]).

pub(crate) mod choice;
pub(crate) mod objects;
pub(crate) mod shares;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

pub(crate) use choice::Choice;
pub(crate) use objects::{Layout, Object, Objects};
pub use shares::Shares;

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Head,
    Put,
    Delete,
    List,
    /// An upload from its creation to its completion.
    Multipart,
    /// One part of an upload.
    Part,
}

impl Operation {
    pub(crate) const COUNT: usize = 7;
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::Get,
        Self::Head,
        Self::Put,
        Self::Delete,
        Self::List,
        Self::Multipart,
        Self::Part,
    ];

    /// As results name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Multipart => "multipart",
            Self::Part => "part",
        }
    }

    /// Whether it is no piece of another operation.
    pub(crate) fn is_whole(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Put | Self::Delete | Self::List | Self::Multipart => {
                true
            }
            Self::Part => false,
        }
    }
}

/// What to do with the object that is chosen.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Get,
    /// Reads an aligned block; blocks are chosen, over all objects of one size.
    GetBlock {
        block_bytes: u64,
    },
    Head,
    Put,
    Delete,
    /// Lists the folder that it is in.
    List,
    /// One of several, by chance; writes go to objects that are the worker's own.
    Mixed(Shares),
    Multipart {
        part_bytes: u64,
        at_once: u32,
    },
}

/// One request, or one upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    /// Number of the object in [`Plan::objects`].
    pub(crate) object: usize,
    /// First and last byte, if not all.
    pub(crate) range: Option<(u64, u64)>,
}

/// What each worker remembers between its steps.
#[derive(Debug)]
pub(crate) struct Memory {
    rng: fastrand::Rng,
    worker: u32,
    /// Which of its own objects exist, as bits.
    written: u32,
}

/// Objects that each worker of a mixed load writes and deletes; no other touches them, so that a
/// read never meets an object that was just deleted.
pub(crate) const OWN_OBJECTS: u32 = 16;

/// One case of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) action: Action,
    pub(crate) objects: Arc<Objects>,
    pub(crate) choice: Choice,
    /// Steps that may still be begun, where a number of them was asked for.
    left: Option<AtomicU64>,
    seed: u64,
}

impl Plan {
    pub(crate) fn new(
        action: Action,
        objects: &Arc<Objects>,
        choice: Choice,
        (requests, seed): (Option<u64>, u64),
    ) -> Self {
        Self {
            action,
            objects: Arc::clone(objects),
            choice,
            left: requests.map(AtomicU64::new),
            seed,
        }
    }

    /// What a worker begins with: the same in each run of the same seed.
    pub(crate) fn memory(&self, worker: u32) -> Memory {
        let seed = self
            .seed
            .wrapping_add(u64::from(worker).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Memory {
            rng: fastrand::Rng::with_seed(seed),
            worker,
            written: 0,
        }
    }

    /// Connections that a worker needs at once.
    pub(crate) fn connections_per_client(&self) -> u32 {
        match self.action {
            Action::Multipart { at_once, .. } => at_once.max(1),
            _ => 1,
        }
    }

    /// Takes one of the steps that may be begun.
    pub(crate) fn take(&self) -> bool {
        let Some(left) = &self.left else { return true };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        })
        .is_ok()
    }

    /// The next step of a worker; `None` when all objects have had theirs.
    pub(crate) fn next(&self, memory: &mut Memory) -> Option<Step> {
        if let Action::Mixed(shares) = &self.action {
            let operation = shares.pick(&mut memory.rng);
            return self.mixed(operation, memory);
        }
        if let Action::GetBlock { block_bytes } = self.action {
            return self.block(block_bytes, memory);
        }
        let object = self
            .choice
            .next(&mut memory.rng, self.objects.shared_count())?;
        let (operation, range) = match self.action {
            Action::Get => (Operation::Get, None),
            Action::Head => (Operation::Head, None),
            Action::Put => (Operation::Put, None),
            Action::Delete => (Operation::Delete, None),
            Action::List => (Operation::List, None),
            Action::Multipart { .. } => (Operation::Multipart, None),
            Action::GetBlock { .. } | Action::Mixed(_) => unreachable!("handled above"),
        };
        Some(Step {
            operation,
            object,
            range,
        })
    }

    fn block(&self, block_bytes: u64, memory: &mut Memory) -> Option<Step> {
        let size_bytes = self.objects.shared().first()?.size_bytes;
        let per_object = size_bytes.map_or(1, |size| size / block_bytes).max(1);
        let per_object = usize::try_from(per_object).ok()?;
        let count = self.objects.shared_count() * per_object;
        let chosen = self.choice.next(&mut memory.rng, count)?;
        let place = match self.choice {
            Choice::Zipf(_) => scattered(chosen, count),
            _ => chosen,
        };
        let first = (place % per_object) as u64 * block_bytes;
        Some(Step {
            operation: Operation::Get,
            object: place / per_object,
            range: Some((first, first + block_bytes - 1)),
        })
    }

    fn mixed(&self, operation: Operation, memory: &mut Memory) -> Option<Step> {
        let step = |operation, object| {
            Some(Step {
                operation,
                object,
                range: None,
            })
        };
        match operation {
            Operation::Put | Operation::Delete => {
                let place = memory.rng.u32(..OWN_OBJECTS);
                let may_delete = operation == Operation::Delete && memory.written != 0;
                if may_delete {
                    let place = nth_bit(memory.written, place % memory.written.count_ones());
                    memory.written &= !(1 << place);
                    return step(Operation::Delete, self.objects.own(memory.worker, place));
                }
                // With nothing there to delete, it is written first.
                memory.written |= 1 << place;
                step(Operation::Put, self.objects.own(memory.worker, place))
            }
            other => {
                let count = self.objects.shared_count();
                step(other, self.choice.next(&mut memory.rng, count)?)
            }
        }
    }
}

/// Another place for each of `count`: what is chosen often shall not lie side by side, where one
/// page would hold it all.
fn scattered(number: usize, count: usize) -> usize {
    /// A prime, about 2^32 over the golden ratio; only its multiples as counts have it in common.
    const STEP: u128 = 2_654_435_761;
    let place = number as u128 * STEP % count as u128;
    usize::try_from(place).expect("less than a count that is one")
}

/// The place of the `number`th bit that is set.
fn nth_bit(bits: u32, number: u32) -> u32 {
    let mut rest = bits;
    for _ in 0..number {
        rest &= rest - 1;
    }
    rest.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(count: usize, size_bytes: u64) -> Arc<Objects> {
        let layout = Layout {
            bucket: "b",
            folder: "f",
            own_objects_of: 2,
        };
        Arc::new(Objects::numbered(&layout, size_bytes, count))
    }

    #[test]
    fn blocks_are_aligned_and_within_the_object() {
        let action = Action::GetBlock { block_bytes: 4096 };
        let plan = Plan::new(action, &objects(3, 10_000), Choice::Uniform, (None, 1));
        let mut memory = plan.memory(0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let step = plan.next(&mut memory).unwrap();
            let (first, last) = step.range.unwrap();
            assert_eq!((first % 4096, last - first), (0, 4095));
            assert!(last < 10_000);
            seen.insert((step.object, first));
        }
        assert_eq!(seen.len(), 6, "each whole block of each object");
    }

    /// Goal: with Zipf the first block is asked for as often as its exponent says, among the
    /// blocks of all objects, and the next ones are not its neighbours.
    #[test]
    fn blocks_that_are_asked_for_often_lie_apart() {
        let action = Action::GetBlock { block_bytes: 100 };
        let zipf = Choice::Zipf(Arc::new(choice::Zipf::new(64, 1.0)));
        let (seed, draws) = (3, 20_000_u32);
        let plan = Plan::new(action, &objects(4, 1600), zipf, (None, seed));
        let mut memory = plan.memory(0);
        let mut counts = std::collections::BTreeMap::<_, u32>::new();
        for _ in 0..draws {
            let step = plan.next(&mut memory).unwrap();
            let place = step.object as u64 * 16 + step.range.unwrap().0 / 100;
            *counts.entry(place).or_default() += 1;
        }
        assert_eq!(counts.len(), 64, "each block of each object, seed {seed}");
        let harmonic: f64 = (1..=64).map(|k| 1.0 / f64::from(k)).sum();
        let mut often: Vec<_> = counts.into_iter().collect();
        often.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = f64::from(often[0].1) / f64::from(draws) * harmonic;
        assert!((0.9..1.1).contains(&share), "{share}, seed {seed}");
        assert!(often[0].0.abs_diff(often[1].0) > 1, "{often:?}");
    }

    #[test]
    fn scattering_keeps_each_place_once() {
        for count in [1, 2, 63, 64, 1000] {
            let mut places: Vec<_> = (0..count).map(|n| scattered(n, count)).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_mixed_load_deletes_only_what_its_worker_wrote() {
        let shares = Shares::parse("get=1,put=1,delete=3").unwrap();
        let plan = Plan::new(
            Action::Mixed(shares),
            &objects(5, 10),
            Choice::Uniform,
            (None, 7),
        );
        let mut memories = [plan.memory(0), plan.memory(1)];
        let mut there = std::collections::BTreeSet::new();
        for turn in 0..4_000 {
            let worker = turn % 2;
            let step = plan.next(&mut memories[worker]).unwrap();
            match step.operation {
                Operation::Put => {
                    there.insert((worker, step.object));
                    assert!(step.object >= 5);
                }
                Operation::Delete => assert!(there.remove(&(worker, step.object))),
                _ => assert!(step.object < 5),
            }
        }
    }

    #[test]
    fn a_limited_plan_ends() {
        let plan = Plan::new(Action::Get, &objects(5, 10), Choice::Uniform, (Some(3), 1));
        let taken = (0..10).filter(|_| plan.take()).count();
        assert_eq!(taken, 3);
        let each = Plan::new(Action::Get, &objects(5, 10), Choice::each(), (None, 1));
        let mut memory = each.memory(0);
        let steps = std::iter::from_fn(|| each.next(&mut memory)).map(|step| step.object);
        assert_eq!(steps.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }
}
