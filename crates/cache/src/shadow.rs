//! Shadow caches: what less or more memory, or disk, would bring.
//!
//! Each is an [`Outline`]: the index's own policy over names and weights, without bytes, at half,
//! once, twice and four times the capacity. They see one object in [`SAMPLED`], chosen by its name,
//! with all its reads, in so much less capacity: so they behave like a whole cache of that size
//! (spatial sampling). That of the cache's own size tells how far the sample is off: it should show
//! the ratio that the cache itself has.
//!
//! Called by `read` for each read that is answered from a version, wherever its bytes came from;
//! for objects that are not in the sample that is one test of a hash that is there already. What is
//! read is a hit of a shadow if the record and all pages of the range would have been there.
//! Freshness is not looked at: a stale record that the origin calls unchanged costs no bytes.
//!
//! Those of the disk are of memory and disk together: for what is in neither the origin is asked.
//! They do not know what the disk admits, so they show what it could bring at best.
//!
//! Memory: some 45 bytes an entry, of which there are no more than the capacity has room for at
//! [`ENTRY_BYTES_MIN`] each, or [`DISK_ENTRY_BYTES_MIN`]: less than 0.1 % of the memory for all
//! together, and for a disk of 200 GiB 70 MB.
//!
//! Source: Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST'15.

mod outline;

use std::ops::Range;

use forebay_telemetry::cache::ShadowMetrics;
use parking_lot::Mutex;

use crate::{
    index,
    version::{Version, Vid},
};

pub use outline::Outline;

/// One object in so many is followed, a power of two: as in the paper, which finds errors of the
/// ratio below 0.02 from a few thousand sampled objects on.
const SAMPLED: u64 = 64;
/// The bits of a name's hash that choose it: neither the shards' nor the epochs' (`index`).
const SAMPLE_SHIFT: u32 = 16;
/// A shadow has no more entries than its capacity has room for at this weight, that of a record
/// of an object without much of a name and a page.
const ENTRY_BYTES_MIN: u64 = 512;
/// The same of disks, which are larger: objects smaller than this count as if they were as large.
const DISK_ENTRY_BYTES_MIN: u64 = 16 * 1024;
/// Of a longer read the first pages count: the shadows take some 100 ns for each.
const PAGES_MAX: u64 = 1024;
/// Sizes of the shadows: what they are called, and in halves of the capacity.
const SIZES: [(&str, u64); 4] = [("0.5", 1), ("1", 2), ("2", 4), ("4", 8)];

/// The shadows of one tier of a cache.
#[derive(Debug)]
pub(crate) struct Shadows {
    outlines: Mutex<[Outline; SIZES.len()]>,
    /// What all of them have besides what is scaled.
    base_bytes: u64,
    capacity_bytes: u64,
    metrics: ShadowMetrics,
}

/// What one shadow came to since the program began, in the sample alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowReport {
    /// The size, as a factor of the cache's: `0.5`, `1`, `2`, `4`.
    pub size: &'static str,
    /// The size in bytes, of a disk that of the memory included.
    pub capacity_bytes: u64,
    /// Reads of the cache, those of the sample or not.
    pub reads_count: u64,
    /// Reads of the sample.
    pub lookups_count: u64,
    /// Those that would have been hits.
    pub hits_count: u64,
    /// Bytes that were read.
    pub lookup_bytes: u64,
    /// Those that would have been here.
    pub hit_bytes: u64,
}

impl ShadowReport {
    /// Hits of all reads, 0 to 1; `None` before the first read.
    ///
    /// The sample has more or fewer reads than its share by its few most popular objects alone,
    /// which a cache of any size has: what is too many, or too few, are hits (the paper's
    /// adjustment).
    pub fn hit_ratio(&self) -> Option<f64> {
        let expected = self.reads_count / SAMPLED;
        let hits = (self.hits_count + expected).saturating_sub(self.lookups_count);
        ratio(hits.min(expected), expected)
    }

    /// Hit bytes of the bytes of the sample, as they are: which objects are in it tells.
    pub fn byte_hit_ratio(&self) -> Option<f64> {
        ratio(self.hit_bytes, self.lookup_bytes)
    }
}

impl Shadows {
    /// Those of a memory of so many bytes.
    pub(crate) fn of_memory(capacity_bytes: u64, metrics: ShadowMetrics) -> Self {
        Self::new(0, capacity_bytes, ENTRY_BYTES_MIN, metrics)
    }

    /// Those of a disk of so many bytes behind a memory.
    pub(crate) fn of_disk(memory_bytes: u64, capacity_bytes: u64, metrics: ShadowMetrics) -> Self {
        Self::new(memory_bytes, capacity_bytes, DISK_ENTRY_BYTES_MIN, metrics)
    }

    fn new(
        base_bytes: u64,
        capacity_bytes: u64,
        entry_bytes_min: u64,
        metrics: ShadowMetrics,
    ) -> Self {
        let outlines = SIZES.map(|(_, halves)| {
            let sampled_bytes = (base_bytes + scaled(capacity_bytes, halves)) / SAMPLED;
            let entries_max = sampled_bytes / entry_bytes_min;
            Outline::new(
                sampled_bytes,
                usize::try_from(entries_max).unwrap_or(usize::MAX),
            )
        });
        Self {
            outlines: Mutex::new(outlines),
            base_bytes,
            capacity_bytes,
            metrics,
        }
    }

    /// A version answers, with these bytes; none for an answer without a body.
    pub(crate) fn read(&self, version: &Version, range: &Range<u64>, now_ms: i64) {
        if is_sampled(version.stamp.key_hash()) {
            self.read_sampled(version, range, now_ms);
        }
    }

    fn read_sampled(&self, version: &Version, range: &Range<u64>, now_ms: i64) {
        let page_bytes = version.policy.page_bytes;
        let end_max = page_bytes.floor(range.start) + PAGES_MAX * page_bytes.get();
        let range = &(range.start..range.end.min(end_max));
        let mut outlines = self.outlines.lock();
        let length = range.end - range.start;
        self.metrics.lookups.inc();
        self.metrics.lookup_bytes.inc_by(length);
        for ((name, _), outline) in SIZES.iter().zip(outlines.iter_mut()) {
            let (hit, bytes) = read_one(outline, version, range, now_ms);
            if hit {
                self.metrics.hits(name).inc();
            }
            self.metrics.hit_bytes(name).inc_by(bytes);
        }
    }

    /// What each of them came to, the smallest first.
    /// `reads_count` are the reads of the cache as a whole.
    pub(crate) fn report(&self, reads_count: u64) -> Vec<ShadowReport> {
        let report = |(size, halves)| ShadowReport {
            size,
            capacity_bytes: self.base_bytes + scaled(self.capacity_bytes, halves),
            reads_count,
            lookups_count: self.metrics.lookups.get(),
            hits_count: self.metrics.hits(size).get(),
            lookup_bytes: self.metrics.lookup_bytes.get(),
            hit_bytes: self.metrics.hit_bytes(size).get(),
        };
        SIZES.map(report).to_vec()
    }
}

/// Whether a read would be a hit, and how many of its bytes would be there.
fn read_one(
    outline: &mut Outline,
    version: &Version,
    range: &Range<u64>,
    now_ms: i64,
) -> (bool, u64) {
    let (page_bytes, size_bytes) = (version.policy.page_bytes, version.size_bytes);
    let has_one_page = size_bytes <= page_bytes.get();
    let page_length = if has_one_page { size_bytes } else { 0 };
    let record_bytes = index::record_weight_bytes(version, page_length);
    let mut hit = outline.read(name(version.vid, u64::MAX), record_bytes, now_ms);
    if has_one_page || range.is_empty() {
        let bytes = range.end - range.start;
        return (hit, if hit { bytes } else { 0 });
    }
    let mut bytes = 0;
    let (first, last) = (
        page_bytes.index_of(range.start),
        page_bytes.index_of(range.end - 1),
    );
    for page_index in first..=last {
        let start = page_index * page_bytes.get();
        let end = (start + page_bytes.get()).min(size_bytes);
        let weight = index::page_weight_bytes(end - start);
        if outline.read(name(version.vid, page_index), weight, now_ms) {
            bytes += end.min(range.end) - start.max(range.start);
        } else {
            hit = false;
        }
    }
    (hit, bytes)
}

fn scaled(capacity_bytes: u64, halves: u64) -> u64 {
    (capacity_bytes / 2).saturating_mul(halves)
}

fn is_sampled(name_hash: u64) -> bool {
    (name_hash >> SAMPLE_SHIFT).is_multiple_of(SAMPLED)
}

/// A name for a page, or for the record: a version's id is a hash already.
#[expect(clippy::cast_possible_truncation, reason = "64 bits are meant")]
fn name(vid: Vid, page_index: u64) -> u64 {
    let page = page_index
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (vid.0 as u64) ^ page.rotate_right(17)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs a few digits")]
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests;
