//! Goal: a crash at every call to the disk, whatever it keeps, tears or loses of what was not
//! synced, leaves a store that forgets but never lies; and what was flushed it does not forget.
//! Method: a script runs on a simulated disk that writes every change down. For each prefix of
//! the changes, states that a crash may leave are opened, and every id is read.

use std::sync::Arc;

use bytes::Bytes;

use super::{Fixture, id, page, settings};
use crate::{
    PageId, PageStore as _,
    sim::{Fate, Image, Sim},
};

#[derive(Debug, Clone, Copy)]
enum Op {
    Put(u64, usize),
    Remove(u64),
    Flush,
    /// Closed and opened again.
    Restart,
}

/// An operation that was done, and the calls to the disk before and after it.
struct Step {
    op: Op,
    seed: u64,
    start: usize,
    end: usize,
}

const IDS: u64 = 6;

/// Runs a script; the disk afterwards, and when what was done.
async fn run(ops: &[Op]) -> (Arc<Sim>, Vec<Step>) {
    let mut fixture = Fixture::open(Arc::new(Sim::new()), settings());
    let mut steps = Vec::new();
    for (seed, op) in (0..).zip(ops) {
        let start = fixture.device.count();
        match *op {
            Op::Put(index, length) => drop(fixture.store.put(id(index), page(seed, length))),
            Op::Remove(index) => fixture.store.remove(id(index)),
            Op::Flush => fixture.store.flush().await.unwrap(),
            Op::Restart => {
                fixture.store.close().await.unwrap();
                fixture = Fixture::open(fixture.device, settings());
            }
        }
        let end = fixture.device.count();
        steps.push(Step {
            op: *op,
            seed,
            start,
            end,
        });
    }
    fixture.store.close().await.unwrap();
    (fixture.device, steps)
}

/// What an id may show after a crash at `count`: first what it was when last flushed, then what
/// it was put to since.
fn allowed(steps: &[Step], at: PageId, count: usize) -> Vec<Option<Bytes>> {
    let is_flushed = |step: &Step| matches!(step.op, Op::Flush | Op::Restart) && step.end <= count;
    let flushed = steps.iter().rposition(is_flushed).map_or(0, |at| at + 1);
    let mut allowed = vec![None];
    for (n, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.start <= count)
    {
        let value = match step.op {
            Op::Put(index, length) if id(index) == at => Some(page(step.seed, length)),
            Op::Remove(index) if id(index) == at => None,
            Op::Put(..) | Op::Remove(_) | Op::Flush | Op::Restart => continue,
        };
        if n < flushed {
            allowed = vec![value];
        } else {
            allowed.push(value);
        }
    }
    allowed
}

/// States that a crash at `count` may leave.
fn states(sim: &Sim, count: usize) -> Vec<(String, Image)> {
    let loose = sim.loose(count);
    let mut states = vec![
        ("all kept".to_owned(), sim.crashed(count, |_| Fate::Kept)),
        ("all lost".to_owned(), sim.crashed(count, |_| Fate::Lost)),
        ("all torn".to_owned(), sim.crashed(count, |_| Fate::Torn)),
    ];
    for one in loose.iter().copied() {
        for (word, this, others) in [
            ("only", Fate::Kept, Fate::Lost),
            ("all but", Fate::Lost, Fate::Kept),
            ("torn", Fate::Torn, Fate::Kept),
        ] {
            let image = sim.crashed(count, |at| if at == one { this } else { others });
            states.push((format!("{word} call {one}"), image));
        }
    }
    states
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forgetting {
    /// There is room for all.
    Wrong,
    /// Segments make room.
    Right,
}

async fn check(ops: &[Op], forgetting: Forgetting) {
    let (sim, steps) = run(ops).await;
    for count in 0..=sim.count() {
        for (what, image) in states(&sim, count) {
            let fixture = Fixture::open(Arc::new(Sim::of(image)), settings());
            for index in 0..IDS {
                let allowed = allowed(&steps, id(index), count);
                let read = fixture.store.get(id(index)).await;
                let context = format!("id {index}, crash at call {count}, {what}");
                match &read {
                    Some(_) => assert!(allowed.contains(&read), "{context}: a lie"),
                    // With nothing since the flush, there is one answer.
                    None if forgetting == Forgetting::Wrong && allowed.len() == 1 => {
                        assert_eq!(allowed[0], None, "{context}: forgotten");
                    }
                    None => {}
                }
            }
            // It goes on from there.
            fixture.store.put(id(99), page(99, 2000));
            fixture.store.remove(id(0));
            fixture.store.close().await.unwrap();
            let fixture = Fixture::open(fixture.device, settings());
            assert_eq!(
                fixture.store.get(id(99)).await,
                Some(page(99, 2000)),
                "{what}"
            );
            assert_eq!(fixture.store.get(id(0)).await, None, "{what}");
        }
    }
}

#[tokio::test]
async fn what_was_flushed_survives_a_crash_at_every_call() {
    use Op::{Flush, Put, Remove, Restart};
    let ops = [
        Put(0, 100),
        Put(1, 3000),
        Flush,
        Put(2, 4096),
        Put(0, 200),
        Flush,
        Remove(1),
        Flush,
        Put(3, 4000),
        Put(3, 4001),
        Remove(0),
        Put(4, 1),
        Flush,
        Restart,
        Put(1, 50),
        Remove(2),
        Flush,
        Put(5, 4096),
        Put(5, 10),
        Restart,
        Remove(5),
        Flush,
        Put(0, 7),
        Flush,
    ];
    check(&ops, Forgetting::Wrong).await;
}

#[tokio::test]
async fn a_store_that_makes_room_never_lies_after_a_crash_at_any_call() {
    use Op::{Flush, Put, Remove, Restart};
    let round = |n: u64| {
        let last = match n % 4 {
            1 => Restart,
            3 => Remove(1),
            _ => Flush,
        };
        let put = |index| Put(index % IDS, 4000);
        [
            put(n),
            Flush,
            put(n + 1),
            put(n + 2),
            Remove(n % IDS),
            Flush,
            put(n + 3),
            last,
        ]
    };
    let ops: Vec<Op> = (0..6).flat_map(round).collect();
    check(&ops, Forgetting::Right).await;
}

/// Goal: a segment that had made room and is brought back by a crash shows nothing that was removed
/// in a later one that had made room as well.
/// Method: the later one is taken away, whichever it is.
#[tokio::test]
async fn segments_that_a_crash_brings_back_are_not_believed() {
    use Op::{Flush, Put, Remove};
    let (first, second) = ([Put(0, 100), Flush], [Remove(0), Flush]);
    let fill = [1, 2, 3, 4].map(|index| Put(index, 4000));
    let ops: Vec<Op> = [&first[..], &fill, &second, &fill].concat();
    let (sim, _) = run(&ops).await;
    let image = sim.image();
    assert!(image.len() > 3, "{} segments", image.len());
    for gone in image.keys() {
        let mut image = image.clone();
        image.remove(gone);
        let fixture = Fixture::open(Arc::new(Sim::of(image)), settings());
        assert_eq!(fixture.store.get(id(0)).await, None, "without {gone}");
    }
}
