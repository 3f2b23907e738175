//! Removes blobs that no entry names: what a writer left that ended between the two.
//!
//! Once after the log was opened, in the background: it lists the blobs that earlier lives have
//! made, then walks what entries name, and removes the difference. A blob is named by one entry
//! from its first to its last day, so a walk beside writers misses none.
//!
//! An id stands as it is in the value of the entry that names it, whoever wrote that. So whatever
//! looks like one counts, in all entries but those that are known to name none.

use std::{collections::BTreeSet, io, sync::Arc};

use bytes::Bytes;

use crate::{blobs, chunks, log::Log, reads};

/// Names that are walked: all but those of buckets, their marks, objects and uploads, of which
/// the entries beside them name the blobs (docs/formats.md, entries of an object space).
const WALKED: [(&[u8], &[u8]); 5] = [
    (b"", b"b/"),
    (b"b0", b"m/"),
    (b"m0", b"o/"),
    (b"o0", b"u/"),
    (b"u0", b"\xff\xff\xff\xff"),
];
/// Entries read at a time.
const ENTRIES_MAX: usize = 1000;

/// What the thread does.
pub(crate) fn run(log: &Arc<Log>) {
    match sweep(log) {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "large payloads that nobody named were removed"),
        Err(reason) => tracing::warn!(%reason, "large payloads that nobody names are left"),
    }
}

/// Removes what nobody names; gives the number of blobs.
fn sweep(log: &Log) -> Result<usize, String> {
    let of_io = |error: io::Error| error.to_string();
    let listed = log.devices.blobs.list().map_err(of_io)?;
    let first_of_this_life = u64::from(log.life.get()) << 32;
    let mut unnamed = BTreeSet::new();
    for (number, bytes) in listed {
        if number < first_of_this_life {
            blobs::count(log, bytes, 0);
            unnamed.insert((number, bytes));
        }
    }
    if unnamed.is_empty() {
        return Ok(0);
    }
    let mut named = BTreeSet::new();
    for (start, end) in WALKED {
        let (mut start, end) = (Bytes::from_static(start), Bytes::from_static(end));
        loop {
            if log.compaction.is_closed() {
                return Ok(0);
            }
            let entries = reads::range_now(log, start..end.clone(), ENTRIES_MAX);
            let entries = entries.map_err(|error| error.to_string())?;
            let Some(last) = entries.last() else {
                break;
            };
            start = [&last.name[..], &[0]].concat().into();
            for entry in &entries {
                named.extend(chunks::numbers_in(&entry.value));
            }
        }
    }
    // A damaged entry is left out of ranges, and may be the one that names a blob.
    if !log.quarantine.lock().names.is_empty() {
        return Err("entries are damaged, and may have named them".to_owned());
    }
    unnamed.retain(|(number, _)| !named.contains(number));
    for (number, bytes) in &unnamed {
        log.devices.blobs.remove(*number).map_err(of_io)?;
        blobs::count(log, 0, *bytes);
    }
    Ok(unnamed.len())
}
