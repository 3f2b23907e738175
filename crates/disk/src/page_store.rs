//! The trait of page stores.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

/// A store of pages: it may forget any page, but never lies about one.
///
/// Contract, checked for every implementation by `contract::check`:
/// - **Never torn, never another's.** `get` gives all bytes of one `put` under that very id, or
///   `None`. Damage is `None`, counted, and the entry is gone.
/// - **The latest.** Within a process those are the bytes of the last `put` that was accepted, and
///   none after `remove`, from the moment it returns.
/// - **Across restarts** the same holds for all that happened before a `flush` that succeeded, or
///   before `close`. What happened later may be forgotten by a crash, and then the id shows what it
///   was at an earlier moment: who keeps under one id what can change must keep with the bytes what
///   tells whether they still hold. Ids that name their content need nothing.
/// - **Never in the way.** `put`, `contains`, `remove` and `stats` touch memory alone. `get` ends
///   within a bounded time whatever the disk does.
/// - **Cancel-safe.** A future that is dropped has no effect on what is kept.
#[async_trait]
pub trait PageStore: fmt::Debug + Send + Sync {
    /// Reads a page; counts as a use of it.
    async fn get(&self, id: PageId) -> Option<Bytes>;

    /// Takes a page for writing, in the place of any other of its id.
    ///
    /// A put that is refused changes nothing, but that an older page of the id is forgotten.
    fn put(&self, id: PageId, page: Bytes) -> Put;

    /// Whether `get` would most likely find the page; no use of it.
    fn contains(&self, id: PageId) -> bool;

    /// Forgets a page; absent is success.
    fn remove(&self, id: PageId);

    /// What is kept now.
    fn stats(&self) -> Stats;

    /// Waits until all puts and removals so far are on stable storage; as long as the disk takes.
    ///
    /// # Errors
    /// [`Unwritten`] when some are not: a restart might show what they replaced.
    async fn flush(&self) -> Result<(), Unwritten>;

    /// Flushes, and stops all threads; later puts are refused and later gets find nothing.
    ///
    /// # Errors
    /// As of `flush`.
    async fn close(&self) -> Result<(), Unwritten>;
}

/// Names a page: whose it is, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// Whose: a hash that nobody can collide.
    pub content: [u8; 16],
    /// Which of them.
    pub index: u64,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It can be read, and will be written.
    Taken,
    /// It is not kept.
    Refused(Refusal),
}

/// Why a page is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// So many bytes wait to be written already: the disk is slower than the puts.
    QueueFull,
    /// So many bytes were written already: the disk is to last.
    Budget,
    /// The disk has failed repeatedly and is left alone for a while.
    Breaker,
    /// The disk was full a moment ago.
    NoSpace,
    /// The page is larger than a page may be.
    TooLarge,
    /// The store is closed.
    Closed,
}

/// What a store keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Pages that can be found.
    pub entries: u64,
    /// Bytes on the disk, preallocated ones included.
    pub used_bytes: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
}

/// The disk has refused writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the disk has not taken all puts and removals; a restart may show what they replaced")]
pub struct Unwritten;
