//! Compaction: what it moves at a time, what it leaves, and what it may not forget.

use std::sync::Arc;

use bytes::Bytes;
use forebay_disk::sim::Sim;
use forebay_native::index::{Change, Index as _, Payload, Want};

use super::{COUNTER, Shown, delete, done, name, open, open_with, put, route, settings, shown};
use crate::{
    LogSettings,
    compact::{STEP_BYTES_MAX, STEP_ENTRIES_MAX},
};

/// Goal: a writer waits for one step of compaction at most, and a step is bounded.
/// Method: entries of all sizes are moved; no write to the log is larger than a step, or a single
/// large entry.
#[tokio::test]
async fn compaction_joins_groups_in_bounded_steps() {
    let sim = Arc::new(Sim::new());
    let settings = LogSettings {
        segment_bytes: 8 << 20,
        payload_bytes_max: 600 << 10,
        ..settings()
    };
    let parts = open_with(&sim, settings).unwrap();
    let many: Vec<Change> = (0..3000).map(|index| put(index, index, Some(10))).collect();
    done(&parts, many).await;
    for index in 3000..3006 {
        done(&parts, vec![put(index, index, Some(200 << 10))]).await;
    }
    done(&parts, vec![put(4000, 1, Some(600 << 10))]).await;
    let before = shown(&parts).await;
    let writes = sim.writes().len();
    let metrics = &parts.opened.log().metrics;
    parts.compact().await.unwrap();
    assert_eq!(metrics.moved_entries.get(), 3007);
    let compacting = &sim.writes()[writes..];
    let moves: Vec<usize> = compacting
        .iter()
        .filter(|(file, _)| file >> 62 == 0)
        .map(|(_, bytes)| *bytes)
        // Zeros of the next segment, and the head of one.
        .filter(|bytes| *bytes != 1 << 20 && *bytes != 72)
        .collect();
    assert!(
        moves.len() >= 3000 / STEP_ENTRIES_MAX + 6,
        "{} moves",
        moves.len()
    );
    let large = 600 << 10;
    for bytes in &moves {
        let is_step = *bytes <= STEP_BYTES_MAX + 4096;
        assert!(
            is_step || (large..large + 4096).contains(bytes),
            "a step of {bytes} bytes"
        );
    }
    assert_eq!(shown(&parts).await, before);
    let stats = parts.stats();
    assert!(stats.garbage_bytes < 600 << 10, "{stats:?}");
}

#[tokio::test]
async fn the_log_stays_within_twice_what_lives_and_a_few_segments() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    let mut expected = Shown::default();
    for turn in 0..300 {
        let change = put(turn % 7, turn, Some(150));
        done(&parts, vec![change.clone()]).await;
        expected.change(&change);
        parts.opened.log().stock.wait_for_seals();
        parts.opened.log().compaction.wait_until_idle();
        let stats = parts.stats();
        let most = 2 * stats.live_bytes + 6 * super::SEGMENT_BYTES;
        assert!(stats.segments_bytes <= most, "turn {turn}: {stats:?}");
    }
    assert_eq!(shown(&parts).await, expected);
    assert!(parts.opened.log().metrics.compacted_segments.get() > 10);
}

#[tokio::test]
async fn what_was_deleted_stays_deleted_and_counters_stay_when_their_segments_go() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    let add = Change::Count {
        counter: Bytes::from_static(COUNTER),
        by: 42,
    };
    done(
        &parts,
        vec![put(0, 1, Some(300)), put(1, 1, Some(300)), add],
    )
    .await;
    done(&parts, vec![delete(0), put(2, 2, Some(900))]).await;
    for _ in 0..3 {
        parts.compact().await.unwrap();
    }
    let expected = shown(&parts).await;
    assert_eq!((expected.entries.len(), expected.counter), (2, 42));
    parts.close().await;
    drop(parts);
    assert_eq!(shown(&open(&sim)).await, expected);
}

#[tokio::test]
async fn an_entry_that_was_found_damaged_stays_told_when_its_segment_goes() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, Some(300)), put(1, 1, Some(300))]).await;
    sim.meddle(|image| image.get_mut(&1).unwrap()[300] ^= 1);
    parts.compact().await.unwrap();
    let told = parts.stats().quarantined;
    assert_eq!(told.keys().collect::<Vec<_>>(), [&name(0)]);
    parts.close().await;
    drop(parts);
    let parts = open(&sim);
    let read = parts.index.get(&route(), &name(0), Want::Payload).await;
    assert!(read.is_err(), "{read:?}");
    let other = parts.index.get(&route(), &name(1), Want::Payload).await;
    assert!(other.unwrap().is_some());
    // What is written anew is not discarded.
    done(&parts, vec![put(0, 2, Some(5))]).await;
    assert_eq!(parts.discard_damaged().await.unwrap(), [] as [Bytes; 0]);
    assert!(shown(&parts).await.entries.contains_key(&name(0)));
}

#[tokio::test]
async fn an_operator_lets_damaged_entries_go() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, Some(300)), put(1, 1, Some(300))]).await;
    sim.meddle(|image| image.get_mut(&1).unwrap()[300] ^= 1);
    assert_eq!(parts.verify().await.unwrap().damaged.len(), 1);
    assert_eq!(parts.discard_damaged().await.unwrap(), [name(0)]);
    assert_eq!(parts.stats().quarantined.len(), 0);
    let read = parts.index.get(&route(), &name(0), Want::Payload).await;
    assert_eq!(read.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_go_on_while_the_log_is_compacted() {
    let parts = open(&Arc::new(Sim::new()));
    for index in 0..20 {
        done(&parts, vec![put(index, 0, Some(100))]).await;
    }
    let writer = {
        let parts = parts.clone();
        tokio::spawn(async move {
            for turn in 1..100 {
                done(&parts, vec![put(turn % 5, turn, Some(100))]).await;
                let retag = Change::Put {
                    name: name(5),
                    value: format!("turn {turn}").into(),
                    payload: Payload::Keep,
                };
                done(&parts, vec![retag]).await;
            }
        })
    };
    let reader = {
        let parts = parts.clone();
        tokio::spawn(async move {
            for turn in 0..400 {
                let found = parts
                    .index
                    .get(&route(), &name(turn % 20), Want::Payload)
                    .await;
                assert!(found.unwrap().unwrap().payload.is_some());
            }
        })
    };
    for _ in 0..10 {
        parts.compact().await.unwrap();
    }
    writer.await.unwrap();
    reader.await.unwrap();
    let entries = shown(&parts).await.entries;
    assert_eq!(entries[&name(5)].0, "turn 99");
    assert_eq!(entries[&name(5)].1, Some(super::sample(0, 100)));
}
