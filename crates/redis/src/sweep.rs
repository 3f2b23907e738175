//! Removes blobs that nothing names: their writers died between blob and entry, or between entry
//! and removal.
//!
//! The blobs are listed first, those who name some are asked after, and what was listed and nobody
//! named goes: see [`forebay_native::blobs`]. Younger blobs than [`UNNAMED_TIME_MAX`] are let be.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use forebay_native::{
    blobs::{BlobId, UNNAMED_TIME_MAX},
    index::Route,
    indexed::References,
    leases::Leases as _,
};
use forebay_store::Error;

use crate::{RedisBlobs, RedisEngine, keys::Shard};

/// What the lease of sweeps is for; no object has such a route, as buckets have no spaces.
const ROUTE: Bytes = Bytes::from_static(b"sweep of blobs");
/// Who else wants to sweep waits so long at most for a gateway that died while it did.
const LEASE_TIME: Duration = Duration::from_hours(1);

/// Blobs that may have to go; 100 bytes for each blob in Redis, which has a quarter of a megabyte.
#[derive(Debug)]
pub struct Sweep {
    blobs: RedisBlobs,
    unnamed: BTreeMap<BlobId, Shard>,
}

impl RedisBlobs {
    /// Lists all blobs that are old enough to be named. Whoever keeps entries that name blobs under
    /// this prefix must then say so, with [`Sweep::keep`], before [`Sweep::finish`]: engine *and*
    /// tier.
    ///
    /// # Errors
    /// Those of reading from Redis.
    pub async fn sweep(&self) -> Result<Sweep, Error> {
        let age_seconds = i64::try_from(UNNAMED_TIME_MAX.as_secs()).unwrap_or(i64::MAX);
        let before = self.clock.unix_seconds() - age_seconds;
        let mut unnamed = BTreeMap::new();
        for shard in Shard::all() {
            for blob in self.finished_before(shard, before).await? {
                unnamed.insert(blob, shard);
            }
        }
        Ok(Sweep {
            blobs: self.clone(),
            unnamed,
        })
    }
}

impl RedisEngine {
    /// Removes the blobs that no entry names, those of tiers included, and says how many; `None`
    /// when another gateway does so now. `holder` names this gateway.
    ///
    /// # Errors
    /// Those of Redis, and `Internal` for an entry that can't be read; nothing that is named was
    /// removed.
    ///
    /// # Cancel safety
    /// A dropped future leaves the rest to the next sweep.
    pub async fn sweep(&self, holder: &Bytes) -> Result<Option<u64>, Error> {
        let route = Route::One(ROUTE);
        let Some(lease) = self.leases().acquire(&route, holder, LEASE_TIME).await? else {
            return Ok(None);
        };
        let mut sweep = self.blobs().sweep().await?;
        let mut references = References::new();
        while let Some(named) = references.next(&**self.index()).await? {
            sweep.keep(&named);
        }
        let removed = sweep.finish().await?;
        self.leases().release(lease).await?;
        Ok(Some(removed))
    }
}

impl Sweep {
    /// These are named by an entry.
    pub fn keep<'a>(&mut self, blobs: impl IntoIterator<Item = &'a BlobId>) {
        for blob in blobs {
            self.unnamed.remove(blob);
        }
    }

    /// Removes all others, and says how many.
    ///
    /// # Errors
    /// Those of Redis; what was not removed is found by the next sweep.
    pub async fn finish(self) -> Result<u64, Error> {
        let mut count = 0;
        for (blob, shard) in &self.unnamed {
            self.blobs.remove_from(*shard, blob).await?;
            self.blobs.fleet.metrics().blobs_swept.inc();
            count += 1;
        }
        Ok(count)
    }
}
