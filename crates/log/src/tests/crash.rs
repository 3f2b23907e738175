//! Goal: a crash at every call to the disk, whatever it keeps, tears or loses of what was not
//! synced, leaves a log that shows what was acknowledged, perhaps some of what was under way, each
//! batch whole, in the order of the log, and nothing else.
//! Method: a script runs on a simulated disk that writes every change down. For each prefix of the
//! changes, states that a crash may leave are opened, and all that the log shows is compared with
//! what it showed after each batch. Then it goes on from there.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use bytes::Bytes;
use forebay_disk::sim::{Fate, Image, Sim};
use forebay_native::{
    blobs::{BlobId, Blobs as _},
    index::{Change, Payload},
};
use futures_util::future::join_all;

use super::{COUNTER, Shown, delete, done, name_blob, open, open_image, put, route, sample, shown};
use crate::{LogParts, chunks::Blob};

enum Op {
    /// One batch.
    Batch(Vec<Change>),
    /// Batches that are asked for at once.
    Together(Vec<Vec<Change>>),
    /// A large payload of so many bytes, and the entry that names it.
    Blob(u64, usize),
    Compact,
    /// Closed and opened again.
    Restart,
}

/// What the log shows after a batch, and the calls to the disk when it was asked for and when it
/// was acknowledged.
struct Step {
    shown: Shown,
    start: usize,
    end: usize,
}

/// What happened, and on which disk.
struct Story {
    sim: Arc<Sim>,
    steps: Vec<Step>,
    /// Contents by id.
    blobs: BTreeMap<String, Bytes>,
}

fn retag(index: u64, seed: u64) -> Change {
    match put(index, seed, None) {
        Change::Put { name, value, .. } => Change::Put {
            name,
            value,
            payload: Payload::Keep,
        },
        other => other,
    }
}

fn add(by: i64) -> Change {
    Change::Count {
        counter: COUNTER.into(),
        by,
    }
}

async fn write_blob(parts: &LogParts, seed: u64, length: usize) -> (BlobId, Bytes) {
    let bytes = sample(seed, length);
    let mut writer = parts.blobs.create(&route()).await.unwrap();
    writer.write(bytes.clone()).await.unwrap();
    (writer.finish().await.unwrap(), bytes)
}

async fn run(ops: Vec<Op>) -> Story {
    let sim = Arc::new(Sim::new());
    let mut parts = open(&sim);
    let mut shown_now = Shown::default();
    let (mut steps, mut blobs) = (Vec::new(), BTreeMap::new());
    for op in ops {
        let start = sim.count();
        let mut batches = Vec::new();
        match op {
            Op::Batch(changes) => {
                done(&parts, changes.clone()).await;
                batches.push(changes);
            }
            Op::Together(all) => {
                join_all(all.iter().map(|changes| done(&parts, changes.clone()))).await;
                batches = all;
            }
            Op::Blob(seed, length) => {
                let (blob, bytes) = write_blob(&parts, seed, length).await;
                done(&parts, vec![name_blob(&blob)]).await;
                batches.push(vec![name_blob(&blob)]);
                blobs.insert(blob.0, bytes);
            }
            Op::Compact => drop(parts.compact().await.unwrap()),
            Op::Restart => {
                parts.close().await;
                drop(parts);
                parts = open(&sim);
            }
        }
        let end = sim.count();
        for changes in batches {
            for change in &changes {
                shown_now.change(change);
            }
            let shown = shown_now.clone();
            steps.push(Step { shown, start, end });
        }
        assert_eq!(shown(&parts).await, shown_now, "without a crash");
    }
    parts.close().await;
    Story { sim, steps, blobs }
}

/// States that a crash at `count` may leave.
fn states(sim: &Sim, count: usize) -> Vec<(String, Image)> {
    let mut states: Vec<(String, Image)> = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Holed]
        .map(|fate| (format!("all {fate:?}"), sim.crashed(count, |_| fate)))
        .into();
    for one in sim.loose(count) {
        for (this, others) in [
            (Fate::Kept, Fate::Lost),
            (Fate::Lost, Fate::Kept),
            (Fate::Torn, Fate::Kept),
            (Fate::Holed, Fate::Kept),
        ] {
            let image = sim.crashed(count, |at| if at == one { this } else { others });
            states.push((format!("call {one} {this:?}, others {others:?}"), image));
        }
    }
    states
}

async fn check_blobs(story: &Story, parts: &LogParts, shown: &Shown, context: &str) {
    for (name, (id, _)) in &shown.entries {
        if !name.starts_with(b"l/") {
            continue;
        }
        let id = String::from_utf8(id.to_vec()).unwrap();
        let expected = &story.blobs[&id];
        let blob = BlobId(id);
        let span = 0..expected.len() as u64;
        let body = parts.blobs.read(&route(), &blob, span).await.unwrap();
        let found = body.collect(expected.len()).await;
        assert_eq!(&found.expect(context).0, expected, "{context}");
    }
}

/// Opens all that crashes may leave, and compares.
async fn check(ops: Vec<Op>) {
    let story = run(ops).await;
    let empty = Shown::default();
    let mut seen = BTreeSet::new();
    for count in 0..=story.sim.count() {
        let steps = &story.steps;
        let acknowledged = steps.iter().filter(|step| step.end <= count).count();
        let begun = steps.iter().filter(|step| step.start < count).count();
        let at = |step: usize| step.checked_sub(1).map_or(&empty, |at| &steps[at].shown);
        for (what, image) in states(&story.sim, count) {
            let mut hasher = DefaultHasher::new();
            (&image, acknowledged, begun).hash(&mut hasher);
            if !seen.insert(hasher.finish()) {
                continue;
            }
            let context = format!("crash at call {count}, {what}");
            let (sim, parts) = open_image(image);
            let found = shown(&parts).await;
            let is_right = (acknowledged..=begun.max(acknowledged)).any(|step| *at(step) == found);
            assert!(
                is_right,
                "{context}: {found:#?}\nbut acknowledged {acknowledged}: {:#?}",
                at(acknowledged)
            );
            check_blobs(&story, &parts, &found, &context).await;
            // It goes on from there.
            done(&parts, vec![put(99, 99, Some(300)), delete(0), add(1)]).await;
            let expected = shown(&parts).await;
            parts.close().await;
            drop(parts);
            let parts = open(&sim);
            assert_eq!(shown(&parts).await, expected, "{context}, opened once more");
            check_blobs(&story, &parts, &expected, &context).await;
            parts.close().await;
            let unnamed = unnamed(&parts, &sim);
            assert_eq!(unnamed, [] as [u64; 0], "{context}: blobs nobody names");
        }
    }
}

/// Goal: what a log has shown stays, and a crash while it opens harms nothing.
/// Method: the process is killed after each call, so that all is there and some of it not synced;
/// the log is opened, and the machine crashes at each call of that, and once it is open.
#[tokio::test]
async fn what_a_life_has_shown_survives_a_crash_of_the_machine_after_it_was_killed() {
    let story = run(vec![
        Op::Batch(vec![put(0, 1, Some(100)), add(5)]),
        Op::Together(vec![
            vec![put(1, 2, Some(300)), put(2, 2, None)],
            vec![put(0, 3, Some(40))],
        ]),
        Op::Batch(vec![put(3, 4, Some(700)), delete(1)]),
        Op::Batch(vec![delete(0)]),
    ])
    .await;
    let empty = Shown::default();
    for count in 0..=story.sim.count() {
        let steps = &story.steps;
        let acknowledged = steps.iter().filter(|step| step.end <= count).count();
        let begun = steps.iter().filter(|step| step.start < count).count();
        let at = |step: usize| step.checked_sub(1).map_or(&empty, |at| &steps[at].shown);
        let sim = Arc::new(story.sim.killed(count));
        let parts = open(&sim);
        let opened = sim.count();
        let shown_first = shown(&parts).await;
        for second in count..=opened {
            for fate in [Fate::Lost, Fate::Torn, Fate::Holed, Fate::Kept] {
                let context = format!("killed at {count}, crash at {second}, {fate:?}");
                let (_, again) = open_image(sim.crashed(second, |_| fate));
                let found = shown(&again).await;
                let is_right =
                    (acknowledged..=begun.max(acknowledged)).any(|step| *at(step) == found);
                assert!(is_right, "{context}: {found:#?}");
                if second == opened {
                    assert_eq!(found, shown_first, "{context}");
                }
            }
        }
    }
}

/// Blobs on a disk that no entry of a closed log names.
fn unnamed(parts: &LogParts, sim: &Sim) -> Vec<u64> {
    let map = parts.opened.log().map.read();
    let is_named = |number: &u64| {
        map.after(None).any(|(name, _)| {
            let id = name.strip_prefix(b"l/").map(<[u8]>::to_vec);
            let blob = id.and_then(|id| Blob::of(&String::from_utf8(id).ok()?));
            blob.is_some_and(|blob| blob.number == *number)
        })
    };
    let blobs = sim.image().into_keys().filter(|key| key >> 62 == 2);
    blobs
        .map(|key| key & !(3 << 62))
        .filter(|number| !is_named(number))
        .collect()
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_crash_at_every_call() {
    check(vec![
        Op::Batch(vec![put(0, 1, Some(100)), add(5)]),
        Op::Batch(vec![put(1, 2, Some(0)), put(2, 2, None)]),
        Op::Together(vec![
            vec![put(3, 3, Some(300)), put(4, 3, Some(10)), add(1)],
            vec![put(0, 4, Some(40))],
            vec![delete(1), put(2, 5, Some(50))],
        ]),
        Op::Batch(vec![retag(3, 6)]),
        Op::Batch(vec![put(5, 7, Some(1500))]),
        Op::Batch(vec![delete(0), retag(5, 8), add(-2)]),
        Op::Restart,
        Op::Batch(vec![put(0, 9, Some(20)), delete(2)]),
        Op::Together(vec![
            vec![put(6, 10, Some(700))],
            vec![put(6, 11, Some(700)), add(1)],
            vec![delete(6)],
        ]),
    ])
    .await;
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_comes_back_when_a_crash_meets_compaction() {
    check(vec![
        Op::Batch(vec![put(0, 1, Some(300)), put(1, 1, Some(100)), add(7)]),
        Op::Batch(vec![put(2, 2, Some(600))]),
        Op::Batch(vec![delete(1), put(0, 3, Some(30))]),
        Op::Batch(vec![retag(2, 4)]),
        Op::Compact,
        Op::Batch(vec![delete(2), put(3, 5, Some(500)), add(1)]),
        Op::Compact,
        Op::Batch(vec![retag(3, 6), delete(0)]),
        Op::Restart,
        Op::Compact,
    ])
    .await;
}

#[tokio::test]
async fn large_payloads_are_there_with_their_entries_after_a_crash_at_every_call() {
    check(vec![
        Op::Batch(vec![put(0, 1, Some(10))]),
        Op::Blob(2, 100_000),
        Op::Blob(3, 1),
        Op::Restart,
        Op::Blob(4, 70_000),
    ])
    .await;
}
