//! Ids for uploads and buckets.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

/// Makes ids that nobody can guess and that sort by time.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    random: RandomState,
    count: AtomicU64,
}

impl Ids {
    /// 16 hex digits of time and 32 of keyed hash, whose key the operating system chose.
    pub(crate) fn next(&self, now_ms: i64) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let half = |salt: u8| {
            let mut hasher = self.random.build_hasher();
            hasher.write_u8(salt);
            hasher.write_u64(count);
            hasher.write_i64(now_ms);
            hasher.finish()
        };
        format!("{now_ms:016x}{:016x}{:016x}", half(0), half(1))
    }
}
