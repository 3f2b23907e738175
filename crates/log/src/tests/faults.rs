//! Disks that fail and disks that are full.

use std::{io, sync::Arc};

use bytes::Bytes;
use forebay_disk::sim::{Calls, Fate, Sim};
use forebay_native::{
    blobs::{BlobWriter, Blobs as _},
    index::{Index as _, Want},
};
use forebay_store::Error;

use super::{
    Shown, apply, delete, done, name, open, open_with, put, route, sample, settings, shown,
};
use crate::LogSettings;

#[tokio::test]
async fn a_failed_sync_ends_all_writes_and_reads_go_on() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, Some(100))]).await;
    let before = shown(&parts).await;
    sim.fail(Calls::Syncs, io::ErrorKind::Other);
    let failed = apply(&parts, vec![put(0, 2, Some(100))]).await;
    assert!(
        matches!(failed, Err(Error::Indeterminate { .. })),
        "{failed:?}"
    );
    sim.heal();
    let refused = apply(&parts, vec![put(1, 3, None)]).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    let refused = parts.blobs.create(&route()).await.map(|_| ());
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(
        shown(&parts).await,
        before,
        "nobody sees what may not be there"
    );
    let poisoned = parts.stats().poisoned.expect("it is told");
    assert!(poisoned.contains("sync the log"), "{poisoned}");
    parts.close().await;
    drop(parts);
    // The next life takes what is on the disk for what it is, and writes it once more.
    let parts = open(&sim);
    let entry = parts.index.get(&route(), &name(0), Want::Payload).await;
    let payload = entry.unwrap().unwrap().payload.unwrap();
    assert!([sample(1, 100), sample(2, 100)].contains(&payload));
    done(&parts, vec![put(1, 4, None)]).await;
}

/// Goal: a full disk refuses before it acknowledges, loses nothing, and takes writes again once it
/// has room.
#[tokio::test]
async fn a_full_disk_refuses_and_recovers_by_itself() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    sim.room(Some(6 * 1024));
    let mut expected = Shown::default();
    let mut index = 0;
    let refused = loop {
        let change = put(index, index, Some(300));
        match apply(&parts, vec![change.clone()]).await {
            Ok(_) => expected.change(&change),
            Err(error) => break error,
        }
        index += 1;
        assert!(index < 100, "it never fills up");
    };
    assert!(matches!(refused, Error::SlowDown { .. }), "{refused:?}");
    assert_eq!(shown(&parts).await, expected);
    let blob = parts.blobs.create(&route()).await.map(|_| ());
    assert!(matches!(blob, Err(Error::SlowDown { .. })), "{blob:?}");
    // A delete is taken, and may let compaction make room.
    done(&parts, vec![delete(0)]).await;
    expected.change(&delete(0));
    sim.room(None);
    let change = put(0, 77, Some(300));
    // The next segment is made in the background, after a write has asked for it.
    while let Err(error) = apply(&parts, vec![change.clone()]).await {
        assert!(matches!(error, Error::SlowDown { .. }), "{error:?}");
        tokio::task::yield_now().await;
    }
    expected.change(&change);
    assert_eq!(shown(&parts).await, expected);
    parts.close().await;
    drop(parts);
    assert_eq!(shown(&open(&sim)).await, expected);
}

/// Goal: a group that finds no room while it is written leaves nothing, and the log goes on in
/// another segment.
/// Method: a batch larger than a segment needs more than the room that its segment has taken.
#[tokio::test]
async fn a_batch_that_finds_no_room_while_it_is_written_has_not_happened() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, Some(100))]).await;
    parts.opened.log().stock.wait_until_ready();
    let before = shown(&parts).await;
    let bytes = sim.image().values().map(Vec::len).sum::<usize>() as u64;
    sim.room(Some(bytes + 100));
    let refused = apply(&parts, vec![put(0, 2, Some(1800)), put(1, 2, None)]).await;
    assert!(
        matches!(refused, Err(Error::SlowDown { .. })),
        "{refused:?}"
    );
    assert_eq!(shown(&parts).await, before);
    assert_eq!(parts.stats().poisoned, None);
    for fate in [Fate::Kept, Fate::Lost, Fate::Torn] {
        let again = open(&Arc::new(Sim::of(sim.crashed(sim.count(), |_| fate))));
        assert_eq!(shown(&again).await, before, "after a crash, {fate:?}");
    }
    sim.room(None);
    while let Err(error) = apply(&parts, vec![put(0, 3, Some(1800))]).await {
        assert!(matches!(error, Error::SlowDown { .. }), "{error:?}");
        tokio::task::yield_now().await;
    }
    let after = shown(&parts).await;
    parts.close().await;
    drop(parts);
    assert_eq!(shown(&open(&sim)).await, after);
}

#[tokio::test]
async fn a_large_payload_that_finds_no_room_is_refused_and_leaves_nothing() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    done(&parts, vec![put(0, 1, None)]).await;
    parts.opened.log().stock.wait_until_ready();
    let bytes = sim.image().values().map(Vec::len).sum::<usize>() as u64;
    sim.room(Some(bytes + 1000));
    let mut writer = parts.blobs.create(&route()).await.unwrap();
    writer.write(sample(1, 5000)).await.unwrap();
    let refused = writer.finish().await;
    assert!(
        matches!(refused, Err(Error::SlowDown { .. })),
        "{refused:?}"
    );
    parts.close().await;
    let blobs = sim
        .image()
        .into_keys()
        .filter(|file| file >> 62 == 2)
        .count();
    assert_eq!(blobs, 0);
}

#[tokio::test]
async fn limits_of_bytes_and_memory_refuse_new_entries_and_deletes_make_room() {
    let limited = LogSettings {
        index_bytes_max: 3 * (96 + name(0).len() as u64),
        ..settings()
    };
    let parts = open_with(&Arc::new(Sim::new()), limited).unwrap();
    for index in 0..3 {
        done(&parts, vec![put(index, 1, None)]).await;
    }
    let refused = apply(&parts, vec![put(3, 1, None)]).await;
    assert!(
        matches!(refused, Err(Error::SlowDown { .. })),
        "{refused:?}"
    );
    done(&parts, vec![put(0, 2, None)]).await;
    done(&parts, vec![delete(1)]).await;
    done(&parts, vec![put(3, 1, None)]).await;

    let limited = LogSettings {
        bytes_max: Some(6 * 1024),
        ..settings()
    };
    let parts = open_with(&Arc::new(Sim::new()), limited).unwrap();
    let mut index = 0;
    while apply(&parts, vec![put(index, 1, Some(400))]).await.is_ok() {
        index += 1;
        assert!(index < 100, "it never fills up");
    }
    assert!(
        parts.stats().segments_bytes <= 7 * 1024,
        "{:?}",
        parts.stats()
    );
    for gone in 0..index {
        done(&parts, vec![delete(gone)]).await;
    }
    // Compaction makes room in the background.
    while let Err(error) = apply(&parts, vec![put(0, 2, Some(400))]).await {
        assert!(matches!(error, Error::SlowDown { .. }), "{error:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn more_bytes_than_may_wait_are_refused() {
    let limited = LogSettings {
        queue_bytes_max: 1000,
        ..settings()
    };
    let sim = Arc::new(Sim::new());
    let parts = open_with(&sim, limited).unwrap();
    sim.hang(Calls::Syncs);
    let index = Arc::clone(&parts.index);
    let batches = (0..5).map(|n| {
        let (index, changes) = (Arc::clone(&index), vec![put(n, 1, Some(500))]);
        async move {
            let batch = forebay_native::index::Batch {
                expects: Vec::new(),
                changes,
            };
            index.apply(&route(), batch).await
        }
    });
    let healing = async {
        tokio::task::yield_now().await;
        sim.heal();
    };
    let (results, ()) = tokio::join!(futures_util::future::join_all(batches), healing);
    let refused = results
        .iter()
        .filter(|result| matches!(result, Err(Error::SlowDown { .. })))
        .count();
    assert!((1..5).contains(&refused), "{results:?}");
    assert_eq!(shown(&parts).await.entries.len(), 5 - refused);
}

#[tokio::test]
async fn damaged_chunks_of_a_large_payload_cut_its_body() {
    let sim = Arc::new(Sim::new());
    let parts = open(&sim);
    let mut writer: Box<dyn BlobWriter> = parts.blobs.create(&route()).await.unwrap();
    let bytes: Bytes = sample(1, 200_000);
    writer.write(bytes.clone()).await.unwrap();
    let blob = writer.finish().await.unwrap();
    sim.meddle(|image| {
        let file = image
            .iter_mut()
            .find(|(file, _)| **file >> 62 == 2)
            .unwrap();
        file.1[70_000] ^= 1;
    });
    let read = async |span: std::ops::Range<u64>| {
        let body = parts.blobs.read(&route(), &blob, span).await.unwrap();
        body.collect(bytes.len()).await.map(|(bytes, _)| bytes)
    };
    assert_eq!(read(0..65_536).await.unwrap(), bytes[..65_536]);
    assert_eq!(read(140_000..200_000).await.unwrap(), bytes[140_000..]);
    assert!(matches!(read(0..200_000).await, Err(Error::Cut { .. })));
    assert!(matches!(read(65_536..65_537).await, Err(Error::Cut { .. })));
    let verified = parts.verify().await.unwrap();
    assert_eq!(verified.damaged.len(), 1, "{verified:?}");
}
