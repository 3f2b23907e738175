//! What a request asks of the index, and what of a body is held.

use std::sync::atomic::Ordering;

use super::{World, bucket, get, if_absent, if_match, object, put};
use crate::{
    engine::Engine as _,
    gate::Gate,
    listing::{Entry, Scan},
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
