//! Two requests, the second made whole at each await of the first.

use forebay_s3::{checksum::Algorithm, code::Code, operation::ObjectId};
use forebay_store::{Body, Error};
use futures_util::FutureExt as _;

use super::{
    super::names::{self, Place},
    Engine, World, bucket, code, get, object, put, upload_record,
};
use crate::{
    engine::{Completion, Engine as _, PartPlace},
    gate::Gate,
    index::{Batch, Change, Index as _, Payload},
    ingest::Ingest,
    record::{Attributes, ObjectRecord, PartRecord},
};

/// Polls `first` so many times, makes `second`, and goes on; whether `first` had not ended by then.
async fn interleaved<A, B>(
    polls: usize,
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> (A, B, bool) {
    let mut first = std::pin::pin!(first);
    for _ in 0..polls {
        if let Some(done) = first.as_mut().now_or_never() {
            return (done, second.await, false);
        }
    }
    let second = second.await;
    (first.await, second, true)
}

/// A world with a bucket, and two gateways that know it.
async fn prepared() -> (World, Engine, Engine) {
    let world = World::spread(3);
    let (one, other) = (world.engine(), world.engine());
    let name = bucket("abc");
    one.create_bucket(&name).await.unwrap();
    for engine in [&one, &other] {
        let id = object(&name, "gone");
        put(engine, &id, b"1", Gate::default()).await.unwrap();
        engine.delete(&id, Gate::default()).await.unwrap();
    }
    (world, one, other)
}

fn codes<T>(result: Result<T, Error>) -> Result<(), Code> {
    result.map(drop).map_err(|error| code(&error).unwrap())
}

#[tokio::test]
async fn a_write_at_any_moment_of_a_bucket_ending_is_kept_or_refused() {
    let id = object(&bucket("abc"), "k");
    for polls in 0.. {
        let (world, one, other) = prepared().await;
        let ending = one.delete_bucket(&id.bucket);
        let writing = put(&other, &id, b"2", Gate::default());
        let (ended, written, goes_on) = interleaved(polls, ending, writing).await;
        let left = world.names("o/").await.len();
        match (codes(ended), codes(written)) {
            (Ok(()), Err(Code::NoSuchBucket)) => assert_eq!(left, 0),
            (Err(Code::BucketNotEmpty), Ok(())) => assert_eq!(left, 1),
            other => panic!("after {polls} polls: {other:?}"),
        }
        if !goes_on {
            assert!(polls > 5, "the first was over at once");
            return;
        }
    }
}

#[tokio::test]
async fn a_bucket_that_ends_at_any_moment_of_a_write_is_empty() {
    let id = object(&bucket("abc"), "k");
    for polls in 0.. {
        let (world, one, other) = prepared().await;
        let writing = put(&one, &id, b"longer than a payload", Gate::default());
        let ending = other.delete_bucket(&id.bucket);
        let (written, ended, goes_on) = interleaved(polls, writing, ending).await;
        let left = world.names("o/").await.len();
        match (codes(written), codes(ended)) {
            (Err(Code::NoSuchBucket), Ok(())) => assert_eq!(left, 0),
            (Ok(()), Err(Code::BucketNotEmpty)) => assert_eq!(left, 1),
            other => panic!("after {polls} polls: {other:?}"),
        }
        assert_eq!(world.there(), world.named().await);
        if !goes_on {
            return;
        }
    }
}

#[tokio::test]
async fn a_mark_that_a_gateway_remembers_ends_with_its_bucket() {
    let (world, one, other) = prepared().await;
    let id = object(&bucket("abc"), "k");
    let seen = one.look_at_bucket(&id.bucket).await.unwrap();
    // As if a place had lost it.
    one.mend_bucket(&id.bucket, &seen).await.unwrap();
    one.delete_bucket(&id.bucket).await.unwrap();
    let written = put(&other, &id, b"1", Gate::default()).await;
    assert_eq!(codes(written), Err(Code::NoSuchBucket));
    assert_eq!(world.names("o/").await.len(), 0);
    assert_eq!(world.names("m/").await.len(), 0);
}

async fn part(engine: &Engine, id: &ObjectId, bytes: &[u8]) -> Result<PartRecord, Error> {
    let place = PartPlace {
        object: id,
        upload_id: "upload",
        number: 1,
        ingest: Ingest::computing(Algorithm::Crc64Nvme),
    };
    engine.write_part(place, Body::from(bytes.to_vec())).await
}

/// A world with an upload of one part.
async fn uploading(id: &ObjectId) -> (World, Engine, Engine, Completion) {
    let (world, one, other) = prepared().await;
    let upload = upload_record("upload", id.key.as_str());
    one.create_upload(&id.bucket, upload).await.unwrap();
    let part = part(&one, id, b"the first bytes").await.unwrap();
    let completion = Completion {
        record: ObjectRecord {
            etag: part.etag(),
            size_bytes: part.size_bytes,
            modified_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
            part_count: Some(1),
            upload_id: Some("upload".to_owned()),
        },
        parts: vec![part],
        gate: Gate::default(),
    };
    (world, one, other, completion)
}

#[tokio::test]
async fn a_part_replaced_at_any_moment_of_a_completion_is_not_mixed_in() {
    let id = object(&bucket("abc"), "k");
    for polls in 0.. {
        let (world, one, other, completion) = uploading(&id).await;
        let completing = one.complete_upload(&id, "upload", completion);
        let replacing = part(&other, &id, b"other bytes, as many");
        let (completed, replaced, goes_on) = interleaved(polls, completing, replacing).await;
        match (codes(completed), codes(replaced)) {
            (Ok(()), Err(Code::NoSuchUpload)) => {
                assert_eq!(get(&one, &id).await.unwrap().1, "the first bytes");
            }
            (Err(Code::InvalidPart), Ok(())) => {
                one.abort_upload(&id, "upload").await.unwrap();
            }
            other => panic!("after {polls} polls: {other:?}"),
        }
        assert_eq!(world.there(), world.named().await);
        if !goes_on {
            return;
        }
    }
}

#[tokio::test]
async fn an_upload_aborted_at_any_moment_of_its_completion_ends_one_way() {
    let id = object(&bucket("abc"), "k");
    for polls in 0.. {
        let (world, one, other, completion) = uploading(&id).await;
        let completing = one.complete_upload(&id, "upload", completion);
        let aborting = other.abort_upload(&id, "upload");
        let (completed, aborted, goes_on) = interleaved(polls, completing, aborting).await;
        let objects = world.names("o/").await.len();
        match (codes(completed), codes(aborted)) {
            (Ok(()), Err(Code::NoSuchUpload)) => assert_eq!(objects, 1),
            (Err(Code::NoSuchUpload | Code::InvalidPart), Ok(())) => assert_eq!(objects, 0),
            other => panic!("after {polls} polls: {other:?}"),
        }
        assert_eq!(world.names("p/").await.len(), objects);
        assert_eq!(world.names("u/").await.len(), 0);
        assert_eq!(world.there(), world.named().await);
        if !goes_on {
            return;
        }
    }
}

/// Goal: an upload that a bucket left behind is none of the next bucket of that name.
/// Method: its entry is put back once both are there, as if whoever ended the bucket had died.
#[tokio::test]
async fn an_upload_of_an_earlier_bucket_is_gone_and_swept() {
    let id = object(&bucket("abc"), "k");
    let (world, one, other, _) = uploading(&id).await;
    let uploads = names::uploads(&id.bucket);
    let left = world.index.range(uploads, 10).await.unwrap();
    one.delete_bucket(&id.bucket).await.unwrap();
    assert_eq!(world.there().len(), 0);
    one.create_bucket(&id.bucket).await.unwrap();
    let back = Batch {
        expects: Vec::new(),
        changes: vec![Change::Put {
            name: left[0].name.clone(),
            value: left[0].value.clone(),
            payload: Payload::None,
        }],
    };
    world
        .index
        .apply(&Place::of(&id).route, back)
        .await
        .unwrap();
    assert_eq!(other.uploads(&id.bucket).await.unwrap(), []);
    let found = other.upload(&id, "upload").await;
    assert_eq!(codes(found), Err(Code::NoSuchUpload));
    let written = part(&other, &id, b"1").await;
    assert_eq!(codes(written), Err(Code::NoSuchUpload));
    one.delete_bucket(&id.bucket).await.unwrap();
    assert_eq!(world.names("u/").await.len(), 0);
}

#[tokio::test]
async fn an_abort_that_was_cut_is_finished_by_whoever_lists_or_aborts_again() {
    let id = object(&bucket("abc"), "k");
    for polls in 0.. {
        let (world, one, other, _) = uploading(&id).await;
        let given_up = {
            let mut aborting = std::pin::pin!(one.abort_upload(&id, "upload"));
            (0..polls).all(|_| aborting.as_mut().now_or_never().is_none())
        };
        let listed = other.uploads(&id.bucket).await.unwrap();
        if !listed.is_empty() {
            other.abort_upload(&id, "upload").await.unwrap();
        }
        for kind in ["u/", "p/"] {
            assert_eq!(world.names(kind).await.len(), 0, "after {polls} polls");
        }
        assert_eq!(world.named().await.len(), 0);
        if !given_up {
            return;
        }
    }
}
