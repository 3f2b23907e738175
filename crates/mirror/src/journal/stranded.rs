//! Journals whose mirror is gone: what is in them is owed to some store by nobody.
//!
//! Called at a start, before anything is served. Reads a name for each space, and one entry.

use forebay_native::hot::{Parts, Space};
use forebay_store::Error;

use super::names::{self, Names};

/// The spaces of an engine, other than those `used`, in which a member still lacks something, with
/// the number of its keys and buckets.
///
/// # Errors
/// The index's own.
pub async fn stranded(parts: &Parts, used: &[Space]) -> Result<Vec<(Space, u64)>, Error> {
    let mut found = Vec::new();
    let mut left = names::all_spaces();
    loop {
        let first = parts.index.range(left.clone(), 1).await?;
        let Some((space, after)) = first.first().and_then(|entry| names::space_of(&entry.name))
        else {
            return Ok(found);
        };
        left.start = after;
        if used.contains(&space) {
            continue;
        }
        let names = Names::new(space.clone());
        if parts.index.range(names.entries(), 1).await?.is_empty() {
            continue;
        }
        let counted = parts.index.counter(&names.keys()).await?;
        // What was under way at a crash is an entry, and counts for nothing yet.
        found.push((space, u64::try_from(counted).unwrap_or(0).max(1)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use forebay_native::{
        hot::HotDurability,
        index::{Batch, Change, Payload},
        memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
    };
    use forebay_s3::bucket::BucketName;
    use forebay_store::Clock;

    use super::*;
    use crate::journal::Subject;

    fn space(name: &str) -> Space {
        Space::parse(name).unwrap()
    }

    async fn put(parts: &Parts, space: &Space, bucket: &str) {
        let subject = Subject::Bucket(BucketName::parse(bucket).unwrap());
        let names = Names::new(space.clone());
        let put = Change::Put {
            name: names.entry(&subject),
            value: Bytes::new(),
            payload: Payload::None,
        };
        let batch = Batch {
            expects: Vec::new(),
            changes: vec![
                put,
                Change::Count {
                    counter: names.keys(),
                    by: 1,
                },
            ],
        };
        parts
            .index
            .apply(&names::route(&subject), batch)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_nobody_looks_after_is_found_by_its_space() {
        let parts = Parts {
            index: Arc::new(MemoryIndex::new()),
            blobs: Arc::new(MemoryBlobs::new()),
            leases: Arc::new(MemoryLeases::new(Clock::system())),
            durability: HotDurability::Volatile,
        };
        let (ours, theirs) = (space("mirror-a"), space("mirror-b"));
        assert_eq!(stranded(&parts, &[]).await.unwrap(), []);
        put(&parts, &ours, "one").await;
        put(&parts, &theirs, "one").await;
        put(&parts, &theirs, "two").await;
        let used = [ours.clone()];
        assert_eq!(
            stranded(&parts, &used).await.unwrap(),
            [(theirs.clone(), 2)]
        );
        let all = stranded(&parts, &[]).await.unwrap();
        assert_eq!(all, [(ours, 1), (theirs, 2)]);
    }
}
