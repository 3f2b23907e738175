//! The engine against a plain map.

use std::collections::BTreeMap;

use forebay_s3::{code::Code, etag::ETag, range::RangeHeader};
use forebay_store::Error;
use md5::{Digest as _, Md5};
use proptest::{collection::vec, prelude::*};

use super::{
    Engine, Unmeasured, World, bucket, code, get, if_absent, if_match, new_object, object,
    upload_record,
};
use crate::{
    engine::{Completion, Engine as _, PartPlace},
    gate::Gate,
    index::Index as _,
    ingest::Ingest,
    listing::{Entry, Scan},
    reading::{Extent, Reading},
    record::{Attributes, ObjectRecord, PartRecord},
};

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    bytes: Vec<u8>,
    etag: String,
    tags: Vec<(String, String)>,
    /// Lengths of its parts.
    parts: Vec<usize>,
}

#[derive(Debug, Default)]
struct Model {
    buckets: BTreeMap<String, BTreeMap<String, Held>>,
    /// By id: bucket, key, parts.
    uploads: BTreeMap<String, Upload>,
    uploads_count: usize,
}

type Upload = (String, String, BTreeMap<u16, Vec<u8>>);

#[derive(Debug, Clone)]
enum Op {
    Create(usize),
    Drop(usize),
    Put(Key, Vec<u8>, Condition),
    Delete(Key, Condition),
    Get(Key, u8, u8),
    Tag(Key, u8),
    List(usize, String, Option<String>, usize),
    Begin(Key),
    Part(usize, u16, Vec<u8>),
    /// Of an upload, whether to name each of the parts 1 to 4.
    Complete(usize, [bool; 4], Condition),
    Abort(usize),
}

type Key = (usize, String);

#[derive(Debug, Clone, Copy)]
enum Condition {
    None,
    Absent,
    Any,
    Current,
    Other,
}

const BUCKETS: [&str; 2] = ["abc", "abc-d"];

fn any_condition() -> impl Strategy<Value = Condition> {
    use Condition::{Absent, Any, Current, None, Other};
    prop_oneof![
        4 => Just(None),
        1 => Just(Absent),
        1 => Just(Any),
        1 => Just(Current),
        1 => Just(Other),
    ]
}

fn any_key() -> impl Strategy<Value = Key> {
    (0..BUCKETS.len(), "[ab/]{1,3}")
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    // Shorter and longer than what lies beside a record.
    vec(any::<u8>(), 0..20)
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..BUCKETS.len()).prop_map(Op::Create),
        1 => (0..BUCKETS.len()).prop_map(Op::Drop),
        6 => (any_key(), any_bytes(), any_condition()).prop_map(|(k, b, c)| Op::Put(k, b, c)),
        3 => (any_key(), any_condition()).prop_map(|(k, c)| Op::Delete(k, c)),
        4 => (any_key(), any::<u8>(), any::<u8>()).prop_map(|(k, a, b)| Op::Get(k, a % 20, b % 20)),
        2 => (any_key(), any::<u8>()).prop_map(|(k, t)| Op::Tag(k, t)),
        3 => (0..BUCKETS.len(), "[ab/]{0,2}", proptest::option::of("[ab/]"), 1_usize..5)
            .prop_map(|(b, p, d, n)| Op::List(b, p, d, n)),
        2 => any_key().prop_map(Op::Begin),
        5 => (0_usize..4, 1_u16..5, any_bytes()).prop_map(|(u, n, b)| Op::Part(u, n, b)),
        3 => (0_usize..4, any::<[bool; 4]>(), any_condition())
            .prop_map(|(u, n, c)| Op::Complete(u, n, c)),
        1 => (0_usize..4).prop_map(Op::Abort),
    ]
}

/// What a call came to: a value, or the code of its refusal.
fn told<T>(result: Result<T, Error>) -> Result<T, Code> {
    result.map_err(|error| code(&error).unwrap_or_else(|| panic!("{error:?}")))
}

fn md5_hex(bytes: &[u8]) -> String {
    hex::encode(Md5::digest(bytes))
}

impl Model {
    fn bucket(&mut self, name: usize) -> Result<&mut BTreeMap<String, Held>, Code> {
        self.buckets
            .get_mut(BUCKETS[name])
            .ok_or(Code::NoSuchBucket)
    }

    fn held(&mut self, key: &Key) -> Result<&mut Held, Code> {
        self.bucket(key.0)?.get_mut(&key.1).ok_or(Code::NoSuchKey)
    }

    fn gate(&mut self, key: &Key, condition: Condition) -> Gate {
        match condition {
            Condition::None => Gate::default(),
            Condition::Absent => if_absent(),
            Condition::Any => if_match("*"),
            Condition::Current => {
                let held = self.held(key);
                if_match(&held.map_or("\"none\"".to_owned(), |held| format!("\"{}\"", held.etag)))
            }
            Condition::Other => if_match("\"other\""),
        }
    }

    /// Whether a write, or a delete, may happen.
    fn judge(&mut self, key: &Key, condition: Condition, gone: Code) -> Result<(), Code> {
        let there = self.bucket(key.0)?.contains_key(&key.1);
        match (condition, there) {
            (Condition::None, _)
            | (Condition::Absent, false)
            | (Condition::Any | Condition::Current, true) => Ok(()),
            (Condition::Absent | Condition::Other, true) => Err(Code::PreconditionFailed),
            (Condition::Any | Condition::Current | Condition::Other, false) => Err(gone),
        }
    }

    /// The upload of that number; one that never was, too.
    fn upload_id(&self, number: usize) -> String {
        format!("upload-{}", (self.uploads_count + number).saturating_sub(3))
    }

    fn list(
        &mut self,
        name: usize,
        prefix: &str,
        delimiter: Option<&str>,
    ) -> Result<Vec<String>, Code> {
        let mut listed: Vec<String> = Vec::new();
        for key in self
            .bucket(name)?
            .keys()
            .filter(|key| key.starts_with(prefix))
        {
            let end = delimiter.and_then(|d| Some(prefix.len() + key[prefix.len()..].find(d)? + 1));
            let entry = end.map_or(key.clone(), |end| format!("{}*", &key[..end]));
            if listed.last() != Some(&entry) {
                listed.push(entry);
            }
        }
        Ok(listed)
    }
}

/// Both, side by side.
struct Pair {
    engine: Engine,
    model: Model,
}

impl Pair {
    async fn step(&mut self, op: Op) {
        match op {
            Op::Create(name) => {
                let made = told(self.engine.create_bucket(&bucket(BUCKETS[name])).await);
                let expected = match self.model.bucket(name) {
                    Ok(_) => Err(Code::BucketAlreadyOwnedByYou),
                    Err(_) => Ok(()),
                };
                self.model.buckets.entry(BUCKETS[name].into()).or_default();
                assert_eq!(made, expected);
            }
            Op::Drop(name) => self.drop_bucket(name).await,
            Op::Put(key, bytes, condition) => self.put(&key, bytes, condition).await,
            Op::Delete(key, condition) => {
                let gate = self.model.gate(&key, condition);
                let id = object(&bucket(BUCKETS[key.0]), &key.1);
                let deleted = told(self.engine.delete(&id, gate).await);
                let judged = self.model.judge(&key, condition, Code::PreconditionFailed);
                if judged.is_ok() {
                    self.model.bucket(key.0).unwrap().remove(&key.1);
                }
                assert_eq!(deleted, judged);
            }
            Op::Get(key, first, last) => self.get(&key, first.into(), last.into()).await,
            Op::Tag(key, tag) => {
                let tags = vec![("t".to_owned(), tag.to_string())];
                let id = object(&bucket(BUCKETS[key.0]), &key.1);
                let tagged = told(self.engine.set_tags(&id, tags.clone()).await);
                let held = self.model.held(&key);
                assert_eq!(tagged, held.map(|held| held.tags = tags));
            }
            Op::List(name, prefix, delimiter, page) => {
                self.list(name, prefix, delimiter, page).await;
            }
            Op::Begin(key) => {
                let id = format!("upload-{}", self.model.uploads_count);
                let bucket = bucket(BUCKETS[key.0]);
                let begun = self
                    .engine
                    .create_upload(&bucket, upload_record(&id, &key.1))
                    .await;
                let expected = self.model.bucket(key.0).map(|_| ());
                assert_eq!(told(begun), expected);
                if expected.is_ok() {
                    self.model.uploads_count += 1;
                    let parts = BTreeMap::new();
                    let upload = (BUCKETS[key.0].to_owned(), key.1, parts);
                    self.model.uploads.insert(id, upload);
                }
            }
            Op::Part(number, part, bytes) => self.part(number, part, bytes).await,
            Op::Complete(number, named, condition) => {
                self.complete(number, named, condition).await;
            }
            Op::Abort(number) => {
                let id = self.model.upload_id(number);
                let Some((name, key, _)) = self.model.uploads.remove(&id) else {
                    return;
                };
                let object = object(&bucket(&name), &key);
                told(self.engine.abort_upload(&object, &id).await).unwrap();
                let again = told(self.engine.abort_upload(&object, &id).await);
                assert_eq!(again, Err(Code::NoSuchUpload));
            }
        }
    }

    async fn drop_bucket(&mut self, name: usize) {
        let dropped = told(self.engine.delete_bucket(&bucket(BUCKETS[name])).await);
        let expected = match self.model.bucket(name) {
            Ok(objects) if objects.is_empty() => Ok(()),
            Ok(_) => Err(Code::BucketNotEmpty),
            Err(code) => Err(code),
        };
        if expected.is_ok() {
            self.model.buckets.remove(BUCKETS[name]);
            self.model
                .uploads
                .retain(|_, upload| upload.0 != BUCKETS[name]);
        }
        assert_eq!(dropped, expected);
    }

    async fn put(&mut self, key: &Key, bytes: Vec<u8>, condition: Condition) {
        let gate = self.model.gate(key, condition);
        let id = object(&bucket(BUCKETS[key.0]), &key.1);
        let body = Unmeasured::body(&bytes);
        let written = told(self.engine.write(&id, new_object(gate), body).await);
        let judged = self.model.judge(key, condition, Code::NoSuchKey);
        let held = Held {
            etag: md5_hex(&bytes),
            bytes,
            tags: Vec::new(),
            parts: Vec::new(),
        };
        let etag = judged.map(|()| held.etag.clone());
        assert_eq!(written.map(|record| record.etag.value().to_owned()), etag);
        if judged.is_ok() {
            let objects = self.model.bucket(key.0).unwrap();
            objects.insert(key.1.clone(), held);
        }
    }

    async fn get(&mut self, key: &Key, first: u64, last: u64) {
        let id = object(&bucket(BUCKETS[key.0]), &key.1);
        let expected = self.model.held(key).cloned();
        let found = told(get(&self.engine, &id).await);
        let found =
            found.map(|(record, bytes)| (record.etag, record.attributes.tags, bytes.to_vec()));
        let whole = expected
            .clone()
            .map(|held| (ETag::strong(&held.etag).unwrap(), held.tags, held.bytes));
        assert_eq!(found, whole);
        let Ok(held) = expected else { return };
        let (_, parts) = self.engine.parts(&id).await.unwrap();
        let lengths = parts
            .iter()
            .map(|part| usize::try_from(part.size_bytes).unwrap());
        assert_eq!(lengths.collect::<Vec<_>>(), held.parts);
        let (first, last) = (first.min(last), first.max(last));
        let reading = Reading {
            extent: Extent::Range(RangeHeader::FromTo { first, last }),
            ..Reading::default()
        };
        let opened = told(self.engine.read(&id, reading).await);
        let length = held.bytes.len() as u64;
        if first >= length {
            assert_eq!(opened.map(drop), Err(Code::InvalidRange));
            return;
        }
        let (bytes, _) = opened.unwrap().body.collect(1000).await.unwrap();
        let at = |place: u64| usize::try_from(place.min(length)).unwrap();
        assert_eq!(bytes, held.bytes[at(first)..at(last + 1)]);
    }

    async fn list(&mut self, name: usize, prefix: String, delimiter: Option<String>, page: usize) {
        let expected = self.model.list(name, &prefix, delimiter.as_deref());
        let mut scan = Scan {
            prefix,
            delimiter,
            entries_max: page,
            ..Scan::default()
        };
        let mut joined = Vec::new();
        loop {
            match told(self.engine.list(&bucket(BUCKETS[name]), scan.clone()).await) {
                Err(code) => {
                    assert_eq!(Err(code), expected);
                    return;
                }
                Ok(page) => {
                    joined.extend(page.entries.iter().map(|entry| match entry {
                        Entry::Object { key, .. } => key.clone(),
                        Entry::Prefix(prefix) => format!("{prefix}*"),
                    }));
                    let Some(next) = page.next else { break };
                    scan.from = next;
                }
            }
        }
        assert_eq!(Ok(joined), expected);
    }

    async fn part(&mut self, number: usize, part: u16, bytes: Vec<u8>) {
        let id = self.model.upload_id(number);
        let upload = self.model.uploads.get_mut(&id);
        let (name, key) = upload
            .as_ref()
            .map_or(("abc", "a"), |u| (u.0.as_str(), u.1.as_str()));
        let object = object(&bucket(name), key);
        let place = PartPlace {
            object: &object,
            upload_id: &id,
            number: part,
            ingest: Ingest::computing(UPLOAD_ALGORITHM),
        };
        let written = told(
            self.engine
                .write_part(place, Unmeasured::body(&bytes))
                .await,
        );
        match upload {
            Some(upload) => {
                assert_eq!(hex::encode(written.unwrap().md5), md5_hex(&bytes));
                upload.2.insert(part, bytes);
            }
            None => assert!(matches!(
                written,
                Err(Code::NoSuchUpload | Code::NoSuchBucket)
            )),
        }
    }

    async fn complete(&mut self, number: usize, named: [bool; 4], condition: Condition) {
        let id = self.model.upload_id(number);
        let Some((name, key, parts)) = self.model.uploads.get(&id).cloned() else {
            return;
        };
        let key = (
            BUCKETS.iter().position(|known| *known == name).unwrap(),
            key,
        );
        let object = object(&bucket(&name), &key.1);
        let there = self.engine.upload_parts(&object, &id).await.unwrap();
        assert_eq!(
            there.iter().map(|part| part.number).collect::<Vec<_>>(),
            parts.keys().copied().collect::<Vec<_>>()
        );
        let is_named = |number: u16| named[usize::from(number) - 1];
        let chosen: Vec<PartRecord> = there
            .into_iter()
            .filter(|part| is_named(part.number))
            .collect();
        if chosen.is_empty() {
            return;
        }
        let bytes = chosen.iter().map(|part| parts[&part.number].clone());
        let bytes: Vec<Vec<u8>> = bytes.collect();
        let held = Held {
            etag: format!("{}-{}", md5_hex(&bytes.concat()), chosen.len()),
            tags: Vec::new(),
            parts: bytes.iter().map(Vec::len).collect(),
            bytes: bytes.concat(),
        };
        let completion = Completion {
            record: ObjectRecord {
                etag: ETag::strong(&held.etag).unwrap(),
                size_bytes: held.bytes.len() as u64,
                modified_ms: 0,
                attributes: Attributes::default(),
                checksum: None,
                part_count: u32::try_from(chosen.len()).ok(),
                upload_id: Some(id.clone()),
            },
            parts: chosen,
            gate: self.model.gate(&key, condition),
        };
        let completed = told(self.engine.complete_upload(&object, &id, completion).await);
        let judged = self.model.judge(&key, condition, Code::NoSuchKey);
        assert_eq!(completed.map(drop), judged);
        if judged.is_ok() {
            self.model.uploads.remove(&id);
            self.model.bucket(key.0).unwrap().insert(key.1, held);
        }
    }
}

const UPLOAD_ALGORITHM: forebay_s3::checksum::Algorithm =
    forebay_s3::checksum::Algorithm::Crc64Nvme;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Goal: the engine is a map with S3's rules, and leaves nothing behind.
    /// Method: the same operations on both, over an index in two places; in the end no blob is
    /// there that nobody names, and no part of an upload that is over.
    #[test]
    fn the_engine_is_a_map_with_the_rules_of_s3(ops in vec(any_op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::spread(2);
            let mut pair = Pair { engine: world.engine(), model: Model::default() };
            for op in ops {
                pair.step(op).await;
            }
            for name in 0..BUCKETS.len() {
                pair.list(name, String::new(), None, 1000).await;
                let keys: Vec<String> = match pair.model.bucket(name) {
                    Ok(objects) => objects.keys().cloned().collect(),
                    Err(_) => Vec::new(),
                };
                for key in keys {
                    pair.get(&(name, key), 0, 19).await;
                }
            }
            assert_eq!(world.there(), world.named().await);
            let of_objects = pair.model.buckets.values().flat_map(BTreeMap::values);
            let parts = of_objects.map(|held| held.parts.len()).sum::<usize>()
                + pair.model.uploads.values().map(|upload| upload.2.len()).sum::<usize>();
            assert_eq!(world.names("p/").await.len(), parts);
            assert_eq!(world.names("u/").await.len(), pair.model.uploads.len());
            assert_eq!(world.names("m/").await.len(), pair.model.buckets.len());
            let all = world.index.range("".into().."z".into(), 100_000).await.unwrap();
            let objects = pair.model.buckets.values().map(BTreeMap::len).sum::<usize>();
            let large = world.names("l/").await.len();
            let buckets = pair.model.buckets.len();
            let expected = objects + large + parts + pair.model.uploads.len() + 2 * buckets;
            assert_eq!(all.len(), expected, "entries of other kinds");
        });
    }
}
