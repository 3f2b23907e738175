//! The ordered map that engines of our own are built on, with changes in atomic batches.
//!
//! [`Index`] keeps what is small and must change in one step: records, marks, and the payloads of
//! small objects. What is large lies in [`crate::blobs::Blobs`]. Both are implemented in memory
//! here, as a log on a disk, and in Redis; S3's semantics over them are written once, in the
//! engine.
//!
//! Entries have a *name*, which orders them, and belong to a *route*. An implementation that is
//! spread over several servers may place routes as it likes, but all entries of one route lie
//! together. Not here: what the names and values mean.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::Error;

/// Which entries lie together, so that one batch can change them in one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Route {
    /// All entries of one route, named by any bytes; an object's route is its bucket and key.
    One(Bytes),
    /// A copy of the entry in every place, so that batches of any route can expect something of
    /// it: buckets. One place is its *home*, always the same: `get` and `range` read it there.
    ///
    /// A batch for it changes one place after another, each in one step: one that puts begins at
    /// home, one that deletes ends there, so whatever is in some place is at home as well (a batch
    /// does one of the two, and has no counters). [`Expect::NoneBefore`] is judged in each place
    /// in one step with the change there, all else at home alone. When the batch ends before the
    /// last place, by a fault or because a place has what is not expected, the places before it
    /// stay changed: whoever asked for it repeats it, or puts the entry again.
    Every,
}

/// When an entry was last changed: a later change of the same name has a larger number, also when
/// the entry was deleted between them. Nothing is said of numbers of different names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// An entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, at most [`NAME_BYTES_MAX`] bytes.
    pub name: Bytes,
    /// When it was last changed.
    pub sequence: Sequence,
    /// What it says, at most [`VALUE_BYTES_MAX`] bytes.
    pub value: Bytes,
    /// The payload kept with it; `None` where it has none or none was asked for.
    pub payload: Option<Bytes>,
}

/// Whether a read wants the payload too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The value alone.
    Value,
    /// Value and payload, of one version.
    Payload,
}

/// Changes that happen as one, if all that is expected holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// What must hold, by name.
    pub expects: Vec<(Bytes, Expect)>,
    /// What changes, in order; a name occurs once.
    pub changes: Vec<Change>,
}

/// What must hold of a name for a batch to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// There is no such entry.
    Absent,
    /// There is one.
    Present,
    /// There is one, last changed then.
    At(Sequence),
    /// There is no entry from the name to this one, itself excluded, in the place that the batch
    /// is for; with [`Route::Every`], in each place in turn.
    NoneBefore(Bytes),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writes an entry, over any that is there.
    Put {
        /// Its name.
        name: Bytes,
        /// Its value.
        value: Bytes,
        /// What becomes of its payload.
        payload: Payload,
    },
    /// Deletes an entry; one that is not there is success.
    Delete {
        /// Its name.
        name: Bytes,
    },
    /// Adds to a counter, which begins at zero. Counters have names of their own.
    Count {
        /// The counter.
        counter: Bytes,
        /// What is added.
        by: i64,
    },
}

/// What becomes of the payload of an entry that is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// It has none.
    None,
    /// It has this one, at most [`Index::payload_bytes_max`] bytes.
    Inline(Bytes),
    /// It keeps the one it has; an entry that was not there has none.
    Keep,
}

/// What came of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It happened and is durable; every name in it was changed at this number.
    Done(Sequence),
    /// Nothing happened (but see [`Route::Every`]): what is at this place of `expects` does not
    /// hold, the first of those that do not.
    Unexpected {
        /// Place in [`Batch::expects`].
        expect_index: usize,
    },
}

/// Bytes of a name: room for a bucket, a key, an upload's id and what tells kinds apart.
pub const NAME_BYTES_MAX: usize = 2048;
/// Bytes of a value: system headers, user metadata (2 KiB in S3) and tags, with room to spare.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Changes of one batch: a multipart object that is replaced forgets its 10,000 parts.
pub const CHANGES_MAX: usize = 10_010;
/// Expectations of one batch: completing an upload expects each of its 10,000 parts as it was.
pub const EXPECTS_MAX: usize = 10_010;

impl Batch {
    /// Refuses what is beyond the limits; every implementation asks this before anything else.
    ///
    /// # Errors
    /// `Internal`: the engine asked for what it must not.
    pub fn check(&self, payload_bytes_max: usize) -> Result<(), Error> {
        let names = self.expects.iter().map(|(name, _)| name);
        let mut within = self.expects.len() <= EXPECTS_MAX
            && self.changes.len() <= CHANGES_MAX
            && names.clone().all(|name| name.len() <= NAME_BYTES_MAX);
        for change in &self.changes {
            within &= match change {
                Change::Put {
                    name,
                    value,
                    payload,
                } => {
                    let payload_bytes = match payload {
                        Payload::None | Payload::Keep => 0,
                        Payload::Inline(bytes) => bytes.len(),
                    };
                    name.len() <= NAME_BYTES_MAX
                        && value.len() <= VALUE_BYTES_MAX
                        && payload_bytes <= payload_bytes_max
                }
                Change::Delete { name } | Change::Count { counter: name, .. } => {
                    name.len() <= NAME_BYTES_MAX
                }
            };
        }
        if within {
            Ok(())
        } else {
            Err(Error::internal(
                "apply a batch",
                "it is beyond the limits of an index",
            ))
        }
    }
}

/// Keeps entries in the order of their names.
///
/// Contract, checked for every implementation by `contract::index`:
/// - **Atomic.** A batch happens as a whole or not at all, its expectations judged in one step
///   with it, also across a crash and when its future is dropped. A reader sees all of it or none.
/// - **Durable** to the degree that the implementation documents, once `apply` has returned
///   [`Applied::Done`]; what was durable is never lost by a later failure.
/// - **Ordered.** `range` gives names in byte order, each once, those of [`Route::Every`] too. A
///   range is no snapshot: an entry changed while it is read may be seen before or after.
/// - **Errors** that had no effect are `SlowDown` or `Unavailable`; [`Error::Indeterminate`] says
///   that a batch may or may not have happened, and then later reads tell. After a fault of the
///   media nothing more is acknowledged.
/// - **Cancel-safe.** A dropped future of `apply` leaves the batch done or not, whole.
/// - **Limited.** A batch that [`Batch::check`] refuses is refused so, and nothing happens.
#[async_trait]
pub trait Index: Send + Sync + 'static {
    /// An entry; for an entry of [`Route::Every`], the one at home.
    async fn get(&self, route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error>;

    /// The first entries of `names`, `1..=entries_max` of them, without payloads; fewer than asked
    /// for do not mean the end, none do. `entries_max` is at least 1.
    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error>;

    /// Changes entries of one route.
    async fn apply(&self, route: &Route, batch: Batch) -> Result<Applied, Error>;

    /// A counter, over all routes.
    async fn counter(&self, counter: &[u8]) -> Result<i64, Error>;

    /// Bytes of the largest payload that an entry may keep.
    fn payload_bytes_max(&self) -> usize;
}
