//! What must hold of the bytes of version records, for whoever makes them up (`fuzz/`).

use bytes::Bytes;
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};

use super::record::{self, Reading, RunId};
use crate::{
    CacheSettings,
    epochs::{Epochs, Hashes},
    policy::Policies,
    purges::Generation,
};

/// Reads `data` as a record of `bucket/key`, in run 3. What is read prints to bytes that read the
/// same; the checksum of the store is no concern here.
///
/// # Panics
/// When that does not hold.
pub fn check_record(data: &[u8]) {
    let names = (BucketName::parse("bucket"), ObjectKey::parse("key"));
    let (Ok(bucket), Ok(key)) = names else {
        panic!("plain names are names");
    };
    let object = ObjectId {
        bucket,
        key,
        version: None,
    };
    let policies = Policies::new(&CacheSettings::default());
    let run = RunId(3);
    let reading = Reading {
        object: &object,
        run,
        stamp: Epochs::new().stamp(Hashes { key: 0, bucket: 0 }),
        generation: Generation::default(),
        policies: &policies,
    };
    let Some(version) = record::decode(Bytes::copy_from_slice(data), reading) else {
        return;
    };
    let printed = record::encode(&version, run);
    // Purges of an earlier run are part of the version's id, and none of this run's.
    let reading = Reading {
        generation: version.generation,
        ..reading
    };
    let again = record::decode(printed.clone(), reading);
    let again = again.expect("what was printed is a record");
    assert_eq!(again.vid, version.vid);
    assert_eq!(record::encode(&again, run), printed);
}
