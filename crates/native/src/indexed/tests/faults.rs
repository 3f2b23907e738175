//! An index that fails before a batch, or after it, and gateways that go away half way.

use std::{collections::BTreeSet, time::Duration};

use forebay_s3::{bucket::BucketName, checksum::Algorithm, code::Code, operation::ObjectId};
use forebay_store::{Body, Error};
use futures_util::FutureExt as _;

use super::{Engine, World, bucket, code, get, if_absent, object, put, upload_record};
use crate::{
    engine::{Completion, Engine as _, PartPlace},
    gate::Gate,
    ingest::Ingest,
    record::{Attributes, ObjectRecord},
};

/// Decides what fails, by a seed.
#[derive(Debug)]
pub(super) struct Dice(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    Before,
    After,
}

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64, Steele, Lea & Flood, OOPSLA '14.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn throw(&mut self) -> Fault {
        match self.below(8) {
            0 => Fault::Before,
            1 => Fault::After,
            _ => Fault::None,
        }
    }
}

pub(super) fn before(fault: Option<Fault>) -> Result<(), Error> {
    match fault {
        Some(Fault::Before) => Err(Error::Unavailable {
            reason: "a fault before".into(),
        }),
        Some(Fault::After | Fault::None) | None => Ok(()),
    }
}

pub(super) fn after(fault: Option<Fault>) -> Result<(), Error> {
    match fault {
        Some(Fault::After) => Err(Error::Indeterminate {
            elapsed: Duration::from_secs(1),
        }),
        Some(Fault::Before | Fault::None) | None => Ok(()),
    }
}

/// The second part of each upload.
const SECOND: &[u8] = b"0123456789";

/// What a key may hold; `None` is nothing.
type May = BTreeSet<Option<Vec<u8>>>;

/// What is tested, and what the keys may hold.
struct Run {
    world: World,
    dice: Dice,
    bucket: BucketName,
    may: Vec<May>,
    uploads_count: usize,
}

impl Run {
    async fn new(seed: u64) -> Self {
        let (world, bucket) = (World::spread(2), bucket("abc"));
        world.engine().create_bucket(&bucket).await.unwrap();
        Self {
            world,
            dice: Dice(seed),
            bucket,
            may: vec![[None].into(); 3],
            uploads_count: 0,
        }
    }

    /// Makes one request of a gateway that may go away at any time, then looks at what is there.
    async fn step(&mut self) {
        let key = usize::try_from(self.dice.below(3)).unwrap();
        let id = object(&self.bucket, &key.to_string());
        let length = usize::try_from(self.dice.below(20)).unwrap();
        let bytes = vec![u8::try_from(self.dice.below(256)).unwrap(); length];
        let polls = self.dice.below(14);
        match self.dice.below(10) {
            0..=3 => {
                let engine = self.faulty();
                let asked = put(&engine, &id, &bytes, Gate::default());
                let outcome = given_up(asked, polls);
                self.judge(key, Some(bytes), outcome.map(|o| o.map(drop)));
            }
            4 => {
                let before = self.may[key].clone();
                let engine = self.faulty();
                let asked = put(&engine, &id, &bytes, if_absent());
                let outcome = given_up(asked, polls).map(|o| o.map(drop));
                if matches!(outcome, Some(Ok(()))) {
                    assert!(before.contains(&None), "it was there");
                }
                self.judge(key, Some(bytes), outcome);
            }
            5 | 6 => {
                let engine = self.faulty();
                let outcome = given_up(engine.delete(&id, Gate::default()), polls);
                self.judge(key, None, outcome);
            }
            7 | 8 => self.upload(key, &id, &bytes, polls).await,
            _ => self.drop_bucket(polls).await,
        }
        *self.world.faults.lock() = None;
        for (key, may) in self.may.iter_mut().enumerate() {
            let id = object(&self.bucket, &key.to_string());
            let found = found(&self.world.engine(), &id).await;
            assert!(may.contains(&found), "{key}: {found:?} of {may:?}");
            *may = [found].into();
        }
        let named = self.world.named().await;
        assert!(
            named.is_subset(&self.world.there()),
            "a blob is named and gone"
        );
    }

    /// A gateway of its own, whose index fails from now on.
    fn faulty(&mut self) -> Engine {
        *self.world.faults.lock() = Some(Dice(self.dice.next()));
        self.world.engine()
    }

    /// Completes an upload of two parts, and aborts it if it is there still.
    async fn upload(&mut self, key: usize, id: &ObjectId, bytes: &[u8], polls: u64) {
        self.uploads_count += 1;
        let upload_id = format!("upload-{}", self.uploads_count);
        let engine = self.world.engine();
        let upload = upload_record(&upload_id, id.key.as_str());
        engine.create_upload(&self.bucket, upload).await.unwrap();
        for (number, bytes) in [(1, bytes), (2, SECOND)] {
            let place = PartPlace {
                object: id,
                upload_id: &upload_id,
                number,
                ingest: Ingest::computing(Algorithm::Crc64Nvme),
            };
            let body = Body::from(bytes.to_vec());
            engine.write_part(place, body).await.unwrap();
        }
        let parts = engine.upload_parts(id, &upload_id).await.unwrap();
        let whole = [bytes, SECOND].concat();
        let completion = Completion {
            record: ObjectRecord {
                etag: parts[0].etag(),
                size_bytes: whole.len() as u64,
                modified_ms: 0,
                attributes: Attributes::default(),
                checksum: None,
                part_count: Some(2),
                upload_id: Some(upload_id.clone()),
            },
            parts,
            gate: Gate::default(),
        };
        let asked = self.faulty();
        let asked = asked.complete_upload(id, &upload_id, completion);
        let outcome = given_up(asked, polls);
        self.judge(key, Some(whole), outcome.map(|o| o.map(drop)));
        let aborting = self.faulty();
        given_up(aborting.abort_upload(id, &upload_id), polls);
        *self.world.faults.lock() = None;
        if let Err(error) = engine.abort_upload(id, &upload_id).await {
            assert_eq!(code(&error), Some(Code::NoSuchUpload));
        }
        assert_eq!(self.world.names("u/").await.len(), 0);
    }

    /// Deletes the bucket, and makes it again if it is gone.
    async fn drop_bucket(&mut self, polls: u64) {
        let engine = self.faulty();
        let outcome = given_up(engine.delete_bucket(&self.bucket), polls);
        if matches!(outcome, Some(Ok(()))) {
            let empty = self.may.iter().all(|may| may.contains(&None));
            assert!(empty, "a bucket with objects was deleted");
        }
        *self.world.faults.lock() = None;
        if let Err(error) = self.world.engine().create_bucket(&self.bucket).await {
            assert_eq!(code(&error), Some(Code::BucketAlreadyOwnedByYou));
        }
        // Whatever is left of the attempt, the bucket can be written to.
        let id = object(&self.bucket, "0");
        let engine = self.world.engine();
        put(&engine, &id, b"again", Gate::default()).await.unwrap();
        self.may[0] = [Some(b"again".to_vec())].into();
    }

    /// What a key may hold after a request that would make it `new`.
    fn judge(&mut self, key: usize, new: Option<Vec<u8>>, outcome: Option<Result<(), Error>>) {
        let may = &mut self.may[key];
        match outcome {
            Some(Ok(())) => *may = [new].into(),
            Some(Err(Error::Indeterminate { .. })) | None => {
                may.insert(new);
            }
            Some(Err(error)) => {
                let without_effect = matches!(error, Error::Unavailable { .. } | Error::Refused(_));
                assert!(without_effect, "{error:?}");
            }
        }
    }
}

/// What a key holds.
async fn found(engine: &Engine, id: &ObjectId) -> Option<Vec<u8>> {
    match get(engine, id).await {
        Ok((_, bytes)) => Some(bytes.to_vec()),
        Err(error) => {
            assert_eq!(code(&error), Some(Code::NoSuchKey), "{error:?}");
            None
        }
    }
}

/// Polls a request so many times, then gives it up: `None`.
fn given_up<T>(request: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut request = std::pin::pin!(request);
    for _ in 0..polls {
        if let Some(outcome) = request.as_mut().now_or_never() {
            return Some(outcome);
        }
    }
    None
}

/// Goal: no fault of the index shows half a write, or loses one that was acknowledged.
/// Method: writes, deletes and uploads of a few keys, and deletes of their bucket, some of which
/// fail or are given up at an await. What a key may hold is a set: one outcome after an answer,
/// two after none. A read must find a member, and makes it the only one.
#[tokio::test]
async fn faults_of_the_index_lose_nothing_and_show_no_half() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut run = Run::new(seed).await;
        for _ in 0..60 {
            run.step().await;
        }
    }
}
