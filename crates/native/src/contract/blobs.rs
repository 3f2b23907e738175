//! Blobs: bytes, ids, removal.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_store::Error;
use tokio::task::JoinSet;

use super::of_index::route;
use crate::blobs::{BlobId, Blobs};

/// Pieces that a blob is written in: odd sizes, and one above any chunk of an implementation.
const PIECES: [usize; 5] = [1, 300_000, 65_536, 0, 77_777];
const TOTAL: u64 = 443_314;

pub(super) async fn check<F: AsyncFn() -> Arc<dyn Blobs>>(make: &F) {
    any_span_of_a_blob_is_read(&*make().await).await;
    blobs_written_at_once_are_their_own(&make().await).await;
    a_dropped_writer_harms_no_other(&*make().await).await;
    a_removed_blob_is_not_read(&*make().await).await;
    a_body_under_way_is_right_or_cut_when_its_blob_goes(&*make().await).await;
}

/// Bytes that differ from their neighbours and from blob to blob.
fn sample(salt: usize, span: Range<u64>) -> Vec<u8> {
    span.map(|at| u8::try_from((at + salt as u64) % 251).unwrap_or_default())
        .collect()
}

async fn written(blobs: &dyn Blobs, salt: usize) -> BlobId {
    let mut writer = blobs.create(&route(salt)).await.expect("a writer");
    let mut at = 0;
    for size in PIECES {
        let bytes = sample(salt, at..at + size as u64);
        at += size as u64;
        writer.write(bytes.into()).await.expect("a write");
    }
    assert_eq!(at, TOTAL);
    writer.finish().await.expect("a blob")
}

async fn read(
    blobs: &dyn Blobs,
    salt: usize,
    blob: &BlobId,
    span: Range<u64>,
) -> Result<Bytes, Error> {
    let body = blobs.read(&route(salt), blob, span).await?;
    let length = usize::try_from(TOTAL).expect("a small number");
    Ok(body.collect(length).await?.0)
}

async fn any_span_of_a_blob_is_read(blobs: &dyn Blobs) {
    let blob = written(blobs, 1).await;
    let BlobId(id) = &blob;
    assert!((1..=64).contains(&id.len()), "{id}");
    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
    for span in [
        0..TOTAL,
        0..1,
        0..2,
        1..300_001,
        299_999..300_003,
        365_536..TOTAL,
        TOTAL - 1..TOTAL,
    ] {
        let found = read(blobs, 1, &blob, span.clone()).await.expect("bytes");
        assert!(found == sample(1, span.clone()), "other bytes in {span:?}");
        let body = blobs.read(&route(1), &blob, span.clone()).await;
        let length = body.expect("a body").length();
        assert_eq!(length, Some(span.end - span.start), "{span:?}");
    }
}

async fn blobs_written_at_once_are_their_own(blobs: &Arc<dyn Blobs>) {
    let mut tasks = JoinSet::new();
    for salt in 10..22 {
        let blobs = Arc::clone(blobs);
        tasks.spawn(async move { (salt, written(&*blobs, salt).await) });
    }
    let mut written = tasks.join_all().await;
    for (salt, blob) in &written {
        let found = read(&**blobs, *salt, blob, 0..TOTAL).await.expect("bytes");
        assert!(found == sample(*salt, 0..TOTAL), "blob {salt} has others");
    }
    written.sort_by(|a, b| a.1.cmp(&b.1));
    written.dedup_by(|a, b| a.1 == b.1);
    assert_eq!(written.len(), 12, "an id was given twice");
}

async fn a_dropped_writer_harms_no_other(blobs: &dyn Blobs) {
    let before = written(blobs, 30).await;
    let mut dropped = blobs.create(&route(30)).await.expect("a writer");
    let bytes = Bytes::from(sample(31, 0..400_000));
    dropped.write(bytes).await.expect("a write");
    drop(dropped);
    let after = written(blobs, 30).await;
    for blob in [before, after] {
        let found = read(blobs, 30, &blob, 0..TOTAL).await.expect("bytes");
        assert!(found == sample(30, 0..TOTAL));
    }
}

async fn a_removed_blob_is_not_read(blobs: &dyn Blobs) {
    let (gone, kept) = (written(blobs, 40).await, written(blobs, 40).await);
    blobs.remove(&route(40), &gone).await.expect("a removal");
    assert!(read(blobs, 40, &gone, 0..TOTAL).await.is_err());
    let found = read(blobs, 40, &kept, 0..TOTAL).await.expect("bytes");
    assert!(found == sample(40, 0..TOTAL));
    blobs.remove(&route(40), &gone).await.expect("gone already");
}

async fn a_body_under_way_is_right_or_cut_when_its_blob_goes(blobs: &dyn Blobs) {
    let blob = written(blobs, 50).await;
    let body = blobs.read(&route(50), &blob, 0..TOTAL).await;
    let mut body = body.expect("a body");
    let mut found = Vec::new();
    let mut removed = false;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            assert!(removed, "it was cut before the removal");
            break;
        };
        found.extend_from_slice(&frame.into_data().expect("bytes"));
        if !removed {
            blobs.remove(&route(50), &blob).await.expect("a removal");
            removed = true;
        }
    }
    let end = found.len() as u64;
    assert!(found == sample(50, 0..end), "other bytes than were written");
}

pub(super) async fn reopened<F: AsyncFn() -> Arc<dyn Blobs>>(open: &F) {
    let first = open().await;
    let blob = written(&*first, 60).await;
    drop(first);
    let second = open().await;
    let found = read(&*second, 60, &blob, 0..TOTAL).await.expect("bytes");
    assert!(found == sample(60, 0..TOTAL));
    let next = written(&*second, 61).await;
    assert_ne!(next, blob, "an id was given twice");
}
