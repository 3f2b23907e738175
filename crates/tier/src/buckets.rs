//! What is known of the cold store's buckets: that they are there, and whether they keep versions.
//!
//! A bucket with versions, or with locks, which need versions, is not for the tier. What is known
//! counts for a while; when the cold store can't be asked it counts on, so that writes go on while
//! the origin is down. What was never known is an error then.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use forebay_s3::{
    bucket::BucketName,
    operation::{Operation, OperationName, Target},
};
use forebay_store::Error;
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::cold::{Cold, Trouble};

/// Buckets remembered; a guess, some 100 bytes each. Past it all are forgotten and asked again.
const BUCKETS_MAX: usize = 10_000;

/// What a bucket is to the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BucketKind {
    /// Without versions: objects of it may be hot.
    Plain,
    /// It keeps versions, or did, or it can't be told: everything of it goes to the cold store.
    NotForTier,
    /// There is none of this name.
    Missing,
}

/// What is known of buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    known: Mutex<HashMap<BucketName, (BucketKind, Instant)>>,
    ttl: Duration,
}

impl Buckets {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self {
            known: Mutex::default(),
            ttl,
        }
    }

    /// What a bucket is, asked of the cold store when it is not known, or not any more.
    ///
    /// # Errors
    /// `Unavailable` when it was never known and can't be asked.
    pub(crate) async fn kind(
        &self,
        bucket: &BucketName,
        cold: &Cold,
        now: Instant,
    ) -> Result<BucketKind, Error> {
        let known = self.known.lock().get(bucket).copied();
        if let Some((kind, at)) = known
            && now.saturating_duration_since(at) < self.ttl
        {
            return Ok(kind);
        }
        let operation = Operation::Other(
            OperationName::GetBucketVersioning,
            Target::Bucket(bucket.clone()),
        );
        let kind = match cold
            .ask(cold.request(Method::GET, operation, "versioning"))
            .await
        {
            Ok((_, body)) => kind_in(&String::from_utf8_lossy(&body)),
            Err(Trouble::Refused(StatusCode::NOT_FOUND, _)) => BucketKind::Missing,
            // A store that knows no versions has none.
            Err(Trouble::Refused(StatusCode::NOT_IMPLEMENTED, _)) => BucketKind::Plain,
            Err(Trouble::Refused(..)) => BucketKind::NotForTier,
            Err(Trouble::Busy | Trouble::Unknown) => {
                return known.map(|(kind, _)| kind).ok_or(Error::Unavailable {
                    reason: "the bucket is not known yet and the cold store can't be asked".into(),
                });
            }
        };
        let mut buckets = self.known.lock();
        if kind == BucketKind::Missing {
            buckets.remove(bucket);
        } else {
            if buckets.len() >= BUCKETS_MAX {
                buckets.clear();
            }
            buckets.insert(bucket.clone(), (kind, now));
        }
        Ok(kind)
    }

    /// Asks anew next time.
    pub(crate) fn forget(&self, bucket: &BucketName) {
        self.known.lock().remove(bucket);
    }
}

fn kind_in(document: &str) -> BucketKind {
    let has = |status: &str| document.contains(&format!(">{status}</Status>"));
    if has("Enabled") || has("Suspended") {
        BucketKind::NotForTier
    } else {
        BucketKind::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use forebay_native::MemoryStore;
    use forebay_store::{
        Clock,
        contract::requests::create_bucket,
        faulty::{Fault, Faulty},
    };

    #[test]
    fn versions_on_or_suspended_keep_a_bucket_out() {
        for (document, kind) in [
            ("<VersioningConfiguration/>", BucketKind::Plain),
            ("<V><Status>Enabled</Status></V>", BucketKind::NotForTier),
            ("<V><Status>Suspended</Status></V>", BucketKind::NotForTier),
        ] {
            assert_eq!(kind_in(document), kind, "{document}");
        }
    }

    #[tokio::test]
    async fn what_was_known_counts_on_while_the_cold_store_is_down() {
        let clock = Clock::manual(std::time::UNIX_EPOCH);
        let store = Arc::new(Faulty::new(MemoryStore::new(clock.clone())));
        let cold = Cold::new(store.clone(), clock.clone(), Duration::from_secs(1));
        let buckets = Buckets::new(Duration::from_secs(10));
        let name = BucketName::parse("bucket").unwrap();
        let kind = async || buckets.kind(&name, &cold, clock.now()).await;
        store.script([Fault::Unavailable]);
        assert!(kind().await.is_err());
        assert_eq!(kind().await.unwrap(), BucketKind::Missing);
        create_bucket("bucket").expect(200, &*store).await;
        assert_eq!(kind().await.unwrap(), BucketKind::Plain);
        let calls = store.calls();
        assert_eq!(kind().await.unwrap(), BucketKind::Plain);
        assert_eq!(store.calls(), calls);
        clock.advance(Duration::from_secs(10));
        store.script([Fault::AnswerLost]);
        assert_eq!(kind().await.unwrap(), BucketKind::Plain);
        assert_eq!(store.calls(), calls + 1);
    }
}
