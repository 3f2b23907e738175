//! What a request asks of the index, and what of a body is held.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_s3::{
    checksum::{Algorithm, Checksum},
    operation::ObjectId,
};

use super::{
    super::{
        entry::PartEntry,
        names::{self, Place},
    },
    Engine, World, bucket, get, if_absent, if_match, object, put, upload_record,
};
use crate::{
    engine::{Completion, Engine as _},
    gate::Gate,
    index::{Batch, Change, Index as _, Payload},
    listing::{Entry, Scan},
    record::{Attributes, ObjectRecord, PartRecord},
};

#[tokio::test]
async fn a_small_write_is_one_batch_and_a_small_read_one_get() {
    let world = World::new();
    let (engine, bucket) = (world.engine(), bucket("abc"));
    engine.create_bucket(&bucket).await.unwrap();
    let object = object(&bucket, "k");
    put(&engine, &object, b"1", Gate::default()).await.unwrap();
    world.asked();
    for gate in [Gate::default(), if_absent()] {
        let _ = put(&engine, &object, b"2", gate).await;
        assert_eq!(world.asked(), [0, 0, 0, 1], "a write");
    }
    get(&engine, &object).await.unwrap();
    assert_eq!(world.asked(), [1, 0, 0, 0], "a read");
    put(&engine, &object, b"3", if_match("*")).await.unwrap();
    assert_eq!(world.asked(), [1, 0, 0, 1], "a write that looks at the tag");
    engine.delete(&object, Gate::default()).await.unwrap();
    assert_eq!(world.asked(), [0, 0, 0, 1], "a delete");
}

#[tokio::test]
async fn a_body_becomes_a_blob_where_it_outgrows_a_payload() {
    let world = World::new();
    let (engine, bucket) = (world.engine(), bucket("abc"));
    engine.create_bucket(&bucket).await.unwrap();
    for (length, blobs) in [(0, 0), (8, 0), (9, 1), (700, 1)] {
        let bytes = forebay_store::contract::sample_bytes(length);
        let object = object(&bucket, &length.to_string());
        for body in [bytes.clone().into(), super::Unmeasured::body(&bytes)] {
            let new = super::new_object(Gate::default());
            engine.write(&object, new, body).await.unwrap();
            let created = world.seen.created.swap(0, Ordering::Relaxed);
            assert_eq!(created, blobs, "{length} bytes");
            assert_eq!(get(&engine, &object).await.unwrap().1, bytes);
        }
    }
    assert_eq!(world.there(), world.named().await);
    assert_eq!(world.there().len(), 2, "those that were replaced are gone");
}

/// Goal: a listing costs its entries, not the keys behind a prefix that is rolled up.
#[tokio::test]
async fn a_listing_reads_few_keys_behind_a_rolled_up_prefix() {
    let world = World::new();
    let (engine, bucket) = (world.engine(), bucket("abc"));
    engine.create_bucket(&bucket).await.unwrap();
    for folder in 0..20 {
        for number in 0..100 {
            let object = object(&bucket, &format!("{folder:02}/{number}"));
            put(&engine, &object, b"", Gate::default()).await.unwrap();
        }
    }
    world.asked();
    let folders = Scan {
        delimiter: Some("/".into()),
        entries_max: 1000,
        ..Scan::default()
    };
    let page = engine.list(&bucket, folders).await.unwrap();
    assert_eq!(page.entries.len(), 20);
    let [gets, _, entries, _] = world.asked();
    assert_eq!(gets, 0);
    assert!(
        entries <= 20 * 4,
        "{entries} keys were read for 20 prefixes"
    );
    let flat = Scan {
        prefix: "03/".into(),
        delimiter: Some("/".into()),
        entries_max: 50,
        ..Scan::default()
    };
    let page = engine.list(&bucket, flat).await.unwrap();
    assert_eq!(page.entries.len(), 50);
    assert!(page.next.is_some());
    assert!(matches!(&page.entries[0], Entry::Object { key, .. } if key == "03/0"));
    let [_, ranges, entries, _] = world.asked();
    assert!(entries <= 60 && ranges <= 6, "{entries} in {ranges} ranges");
}

const PARTS_MAX: u16 = 10_000;

/// Begins an upload with as many parts as one can have, a byte each.
async fn largest_upload(world: &World, engine: &Engine, object: &ObjectId, id: &str) {
    let upload = upload_record(id, object.key.as_str());
    engine.create_upload(&object.bucket, upload).await.unwrap();
    let part = |number| {
        let record = PartRecord {
            number,
            size_bytes: 1,
            md5: [0; 16],
            checksum: Checksum::of(Algorithm::Crc64Nvme, b"x"),
            modified_ms: 0,
        };
        let blob = None;
        Change::Put {
            name: names::part(&object.bucket, id, number),
            value: PartEntry { record, blob }.encode().unwrap(),
            payload: Payload::Inline(Bytes::from_static(b"x")),
        }
    };
    let batch = Batch {
        expects: Vec::new(),
        changes: (1..=PARTS_MAX).map(part).collect(),
    };
    let route = Place::of(object).route;
    world.index.apply(&route, batch).await.unwrap();
}

/// Completes an upload with these of its parts.
async fn complete(engine: &Engine, object: &ObjectId, id: &str, numbers: std::ops::Range<usize>) {
    let parts = engine.upload_parts(object, id).await.unwrap()[numbers].to_vec();
    let completion = Completion {
        record: ObjectRecord {
            etag: parts[0].etag(),
            size_bytes: parts.len() as u64,
            modified_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
            part_count: u32::try_from(parts.len()).ok(),
            upload_id: Some(id.to_owned()),
        },
        parts,
        gate: Gate::default(),
    };
    let completed = engine.complete_upload(object, id, completion).await;
    completed.unwrap();
}

/// Goal: what S3 allows fits a batch: an upload of 10,000 parts is completed in one step, and so is
/// another over it that has as many parts that its completion does not name.
#[tokio::test]
async fn the_largest_uploads_are_completed_and_replaced() {
    let world = World::new();
    let (engine, bucket) = (world.engine(), bucket("abc"));
    engine.create_bucket(&bucket).await.unwrap();
    let object = object(&bucket, "k");
    let parts_max = usize::from(PARTS_MAX);
    largest_upload(&world, &engine, &object, "one").await;
    complete(&engine, &object, "one", 0..parts_max).await;
    assert_eq!(get(&engine, &object).await.unwrap().1.len(), parts_max);
    largest_upload(&world, &engine, &object, "two").await;
    complete(&engine, &object, "two", 1..2).await;
    assert_eq!(get(&engine, &object).await.unwrap().1, "x");
    assert_eq!(world.names("p/").await.len(), 1);
    largest_upload(&world, &engine, &object, "three").await;
    engine.abort_upload(&object, "three").await.unwrap();
    assert_eq!(world.names("p/").await.len(), 1);
}
