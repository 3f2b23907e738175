//! Remembers the writes whose outcome nobody knows, for caches that rest on knowing every write
//! (`exclusive`).
//!
//! A write whose answer was lost, or whose client left, may be carried out by the origin later than
//! all that the gateway does about it. What was read in the meantime would then be kept for ever.
//! So what such a write may touch is validated at each read for [`DOUBT_MS`]; what was validated
//! after that is certain again.
//!
//! Called by `write` when a write ends, and before the origin is asked (`Layer::asked`); never on a
//! hit.
//! Not here: a write that was under way when a gateway was killed, which no other one knows of.

use forebay_s3::{bucket::BucketName, operation::ObjectId};
use parking_lot::Mutex;

use crate::index::Written;

/// How long a write may still come: a signed request is refused by S3 when its date is more than 15
/// minutes off (Amazon S3 API Reference, "Authenticating Requests").
pub(crate) const DOUBT_MS: i64 = 15 * 60 * 1000;

/// Doubts that are told apart; when there are more, everything is in doubt. A guess: so many
/// writes fail within 15 minutes only when the origin is down, and then nothing is lost.
const DOUBTS_MAX: usize = 256;

/// The doubts, each with its end in milliseconds of the layer's clock.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Vec<(Written, i64)>>);

impl Doubts {
    /// What `written` names may change until a while from `now_ms`.
    pub(crate) fn note(&self, written: &Written, now_ms: i64) {
        let mut doubts = self.0.lock();
        doubts.retain(|(other, until_ms)| *until_ms > now_ms && other != written);
        let of = if doubts.len() < DOUBTS_MAX {
            written.clone()
        } else {
            doubts.clear();
            Written::All
        };
        doubts.push((of, now_ms + DOUBT_MS));
    }

    /// Until when anything in a bucket is in doubt; a moment long past when nothing is.
    pub(crate) fn of_bucket_until_ms(&self, bucket: &BucketName) -> i64 {
        let doubts = self.0.lock();
        let touches = |written: &Written| match written {
            Written::Object(other, _) | Written::Bucket(other) => other == bucket,
            Written::All => true,
        };
        let mut ends = doubts.iter().filter(|(written, _)| touches(written));
        ends.next_back().map_or(i64::MIN, |(_, until_ms)| *until_ms)
    }

    /// Until when an object is in doubt; a moment long past when it is not.
    pub(crate) fn until_ms(&self, object: &ObjectId) -> i64 {
        let doubts = self.0.lock();
        let touches = |written: &Written| match written {
            Written::Object(bucket, key) => *bucket == object.bucket && *key == object.key,
            Written::Bucket(bucket) => *bucket == object.bucket,
            Written::All => true,
        };
        let mut ends = doubts.iter().filter(|(written, _)| touches(written));
        // They were noted in the order of their ends.
        ends.next_back().map_or(i64::MIN, |(_, until_ms)| *until_ms)
    }
}

#[cfg(test)]
mod tests {
    use forebay_s3::key::ObjectKey;
    use forebay_store::contract::requests::{bucket_name, object};

    use super::*;

    fn key(index: usize) -> Written {
        let key = ObjectKey::parse(&format!("key{index}")).unwrap();
        Written::Object(bucket_name("bucket"), key)
    }

    #[test]
    fn a_doubt_is_of_what_the_write_names_and_ends() {
        let doubts = Doubts::default();
        doubts.note(&key(1), 0);
        doubts.note(&Written::Bucket(bucket_name("other")), 10);
        doubts.note(&key(1), 20);
        let until_ms = |bucket, key| doubts.until_ms(&object(bucket, key));
        assert_eq!(until_ms("bucket", "key1"), DOUBT_MS + 20);
        assert_eq!(until_ms("bucket", "key2"), i64::MIN);
        assert_eq!(until_ms("other", "key2"), DOUBT_MS + 10);
        doubts.note(&key(2), DOUBT_MS + 20);
        assert_eq!(doubts.0.lock().len(), 1, "those that have ended are gone");
    }

    #[test]
    fn too_many_doubts_are_a_doubt_of_everything() {
        let doubts = Doubts::default();
        for index in 0..=DOUBTS_MAX {
            doubts.note(&key(index), 0);
        }
        assert_eq!(doubts.0.lock().len(), 1);
        assert_eq!(doubts.until_ms(&object("elsewhere", "key")), DOUBT_MS);
    }
}
