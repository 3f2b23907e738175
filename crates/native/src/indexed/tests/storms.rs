//! Many gateways at once over one index, which is in several places.

use std::sync::Arc;

use forebay_s3::{checksum::Algorithm, code::Code, operation::ObjectId};
use forebay_store::{Body, Error};
use tokio::task::JoinSet;

use super::{Engine, World, bucket, code, get, if_absent, if_match, object, put, upload_record};
use crate::{
    engine::{Completion, Engine as _, PartPlace},
    gate::Gate,
    ingest::Ingest,
    record::{Attributes, ObjectRecord},
};

const TASKS: usize = 12;
const ROUNDS: usize = 12;

/// A body that lies beside its record, or one that is a blob.
fn bytes(number: usize) -> Vec<u8> {
    let text = number.to_string().into_bytes();
    if number.is_multiple_of(2) {
        text
    } else {
        [b"0000000000".as_slice(), &text].concat()
    }
}

fn number(bytes: &[u8]) -> usize {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_conditional_creations_one_wins() {
    let world = World::spread(3);
    let bucket = bucket("abc");
    world.engine().create_bucket(&bucket).await.unwrap();
    for round in 0..ROUNDS {
        let id = object(&bucket, &round.to_string());
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (engine, id) = (world.engine(), id.clone());
            tasks.spawn(async move {
                let written = put(&engine, &id, &bytes(task), if_absent()).await;
                match written {
                    Ok(_) => Some(task),
                    Err(error) => {
                        assert_eq!(code(&error), Some(Code::PreconditionFailed));
                        None
                    }
                }
            });
        }
        let won: Vec<usize> = tasks.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "round {round}: {won:?} won");
        let (_, found) = get(&world.engine(), &id).await.unwrap();
        assert_eq!(number(&found), won[0]);
    }
    assert_eq!(
        world.there(),
        world.named().await,
        "the losers left nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_conditional_write_is_lost() {
    let world = World::spread(3);
    let bucket = bucket("abc");
    world.engine().create_bucket(&bucket).await.unwrap();
    let id = object(&bucket, "sum");
    put(&world.engine(), &id, &bytes(0), Gate::default())
        .await
        .unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (engine, id) = (world.engine(), id.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                while !incremented(&engine, &id).await {}
            }
        });
    }
    tasks.join_all().await;
    let (_, found) = get(&world.engine(), &id).await.unwrap();
    assert_eq!(number(&found), TASKS * ROUNDS);
    assert_eq!(world.there(), world.named().await);
}

async fn incremented(engine: &Engine, id: &ObjectId) -> bool {
    // The blob may go while it is read.
    let Ok((record, found)) = get(engine, id).await else {
        return false;
    };
    let gate = if_match(&record.etag.to_string());
    match put(engine, id, &bytes(number(&found) + 1), gate).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(code(&error), Some(Code::PreconditionFailed));
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writes_and_deletes_of_one_key_leave_nothing_behind() {
    let world = World::spread(3);
    let bucket = bucket("abc");
    world.engine().create_bucket(&bucket).await.unwrap();
    let id = object(&bucket, "k");
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (engine, id) = (world.engine(), id.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                match (task + round) % 4 {
                    0 => engine.delete(&id, Gate::default()).await.unwrap(),
                    1 => {
                        let _ = engine.set_tags(&id, Vec::new()).await;
                    }
                    _ => drop(
                        put(&engine, &id, &bytes(round), Gate::default())
                            .await
                            .unwrap(),
                    ),
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(world.there(), world.named().await);
    let left = world.names("l/").await.len();
    world.engine().delete(&id, Gate::default()).await.unwrap();
    assert!(left <= 1);
    assert_eq!(world.names("l/").await.len() + world.there().len(), 0);
}

/// Goal: there is never an object in a bucket that is gone.
/// Method: gateways write and delete objects of a bucket that two others delete; some make it
/// again. Whoever has deleted it finds nothing left, unless it was made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_object_outlives_its_bucket() {
    let world = World::spread(3);
    for round in 0..ROUNDS {
        let name = bucket(&format!("bucket-{round}"));
        world.engine().create_bucket(&name).await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (engine, name) = (world.engine(), name.clone());
            tasks.spawn(async move {
                let id = object(&name, &task.to_string());
                for turn in 0..12 {
                    let done = match task {
                        0 | 1 => engine.delete_bucket(&name).await,
                        2 if round % 2 == 0 => engine.create_bucket(&name).await,
                        _ if turn % 2 == 0 => {
                            let bytes = bytes(task);
                            let written = put(&engine, &id, &bytes, Gate::default());
                            written.await.map(drop)
                        }
                        _ => engine.delete(&id, Gate::default()).await,
                    };
                    assert_allowed(done.err());
                }
            });
        }
        tasks.join_all().await;
        let engine = world.engine();
        let ended = engine.delete_bucket(&name).await;
        let left = world.names("o/").await;
        let here = |entry: &&bytes::Bytes| entry.starts_with(format!("o/{name}\0").as_bytes());
        let left = left.iter().filter(here).count();
        match ended.map_err(|error| code(&error)) {
            Ok(()) | Err(Some(Code::NoSuchBucket)) => {
                assert_eq!(left, 0, "round {round}: objects without a bucket");
            }
            Err(code) => {
                assert_eq!(code, Some(Code::BucketNotEmpty));
                let id = object(&name, "k");
                put(&engine, &id, b"1", Gate::default()).await.unwrap();
            }
        }
    }
    assert_eq!(world.there(), world.named().await);
}

fn assert_allowed(error: Option<Error>) {
    use Code::{BucketAlreadyOwnedByYou, BucketNotEmpty, NoSuchBucket};
    match error {
        None | Some(Error::SlowDown { .. }) => {}
        Some(error) => assert!(
            matches!(
                code(&error),
                Some(NoSuchBucket | BucketNotEmpty | BucketAlreadyOwnedByYou)
            ),
            "{error:?}"
        ),
    }
}

/// Goal: an upload ends once, whole, and leaves no part and no blob behind.
/// Method: gateways write parts of one upload while others complete and abort it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_upload_ends_once_and_leaves_nothing() {
    let world = World::spread(3);
    let name = bucket("abc");
    world.engine().create_bucket(&name).await.unwrap();
    for round in 0..ROUNDS {
        let id = format!("upload-{round}");
        let target = object(&name, &(round % 2).to_string());
        let upload = upload_record(&id, target.key.as_str());
        world.engine().create_upload(&name, upload).await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (engine, id, target) = (world.engine(), id.clone(), target.clone());
            tasks.spawn(async move {
                for turn in 0..4 {
                    match task % 4 {
                        0 if turn == 3 => return completed(&engine, &target, &id).await,
                        1 if turn == 3 && round % 3 == 0 => {
                            let _ = engine.abort_upload(&target, &id).await;
                        }
                        _ => write_part(&engine, &target, &id, task * 4 + turn).await,
                    }
                }
                None
            });
        }
        let completed: Vec<Vec<u8>> = tasks.join_all().await.into_iter().flatten().collect();
        assert!(completed.len() <= 1, "completed {} times", completed.len());
        let engine = world.engine();
        if let Some(bytes) = completed.first() {
            assert_eq!(get(&engine, &target).await.unwrap().1, bytes[..]);
        } else {
            let _ = engine.abort_upload(&target, &id).await;
        }
        assert_eq!(world.there(), world.named().await, "round {round}");
        assert_eq!(world.names("u/").await.len(), 0, "round {round}");
    }
    for key in ["0", "1"] {
        let delete = world
            .engine()
            .delete(&object(&name, key), Gate::default())
            .await;
        delete.unwrap();
    }
    assert_eq!(world.names("p/").await.len() + world.there().len(), 0);
}

async fn write_part(engine: &Engine, target: &ObjectId, id: &str, salt: usize) {
    let place = PartPlace {
        object: target,
        upload_id: id,
        number: u16::try_from(salt % 3 + 1).unwrap(),
        ingest: Ingest::computing(Algorithm::Crc64Nvme),
    };
    if let Err(error) = engine.write_part(place, Body::from(bytes(salt))).await {
        assert_eq!(code(&error), Some(Code::NoSuchUpload));
    }
}

/// Completes an upload with the parts that it finds; the bytes that it must have then.
async fn completed(engine: &Engine, target: &ObjectId, id: &str) -> Option<Vec<u8>> {
    let parts = engine.upload_parts(target, id).await.ok()?;
    let size_bytes = parts.iter().map(|part| part.size_bytes).sum();
    let digests: Vec<[u8; 16]> = parts.iter().map(|part| part.md5).collect();
    let completion = Completion {
        record: ObjectRecord {
            etag: parts.first()?.etag(),
            size_bytes,
            modified_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
            part_count: u32::try_from(parts.len()).ok(),
            upload_id: Some(id.to_owned()),
        },
        parts,
        gate: Gate::default(),
    };
    match engine.complete_upload(target, id, completion).await {
        Ok(_) => Some(digests.iter().flat_map(of_digest).collect()),
        Err(error) => {
            let code = code(&error);
            assert!(matches!(code, Some(Code::NoSuchUpload | Code::InvalidPart)));
            None
        }
    }
}

/// The bytes of a part that was written here, by their MD5.
fn of_digest(digest: &[u8; 16]) -> Vec<u8> {
    use md5::{Digest as _, Md5};
    let mut all = (0..TASKS * 4).map(bytes);
    let found = all.find(|bytes| Md5::digest(bytes).as_slice() == digest);
    found.expect("it was written here")
}

/// Goal: a read gives one version, whole, or is cut; never a mix.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_gives_one_version_or_is_cut() {
    use md5::{Digest as _, Md5};
    let world = World::spread(3);
    let name = bucket("abc");
    world.engine().create_bucket(&name).await.unwrap();
    let id = object(&name, "k");
    let engine = Arc::new(world.engine());
    put(&engine, &id, &bytes(1), Gate::default()).await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (engine, id) = (Arc::clone(&engine), id.clone());
        tasks.spawn(async move {
            for round in 0..ROUNDS * 4 {
                if task % 2 == 0 {
                    put(&engine, &id, &bytes(task * 100 + round), Gate::default())
                        .await
                        .unwrap();
                    continue;
                }
                match get(&engine, &id).await {
                    Ok((record, bytes)) => {
                        assert_eq!(record.etag.value(), hex::encode(Md5::digest(&bytes)));
                    }
                    Err(error) => assert!(matches!(error, Error::Cut { .. }), "{error:?}"),
                }
            }
        });
    }
    tasks.join_all().await;
}
