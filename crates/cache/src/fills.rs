//! The fills under way, by object: one for each thing wanted, however many want it.

use std::{collections::HashMap, sync::Arc};

use forebay_s3::operation::ObjectId;
use tokio::sync::Notify;

use crate::{
    ask::EXTENT_BYTES_MAX,
    fill::{Attachment, Fill, Role},
    sync::Mutex,
    version::Vid,
};

/// Shards, so that fills of different objects rarely meet at a lock; a power of two.
const SHARD_COUNT: usize = 16;

type Shard = HashMap<u64, Vec<Arc<Fill>>>;

/// The fills under way.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    shards: [Mutex<Shard>; SHARD_COUNT],
    /// Told of each fill that has become unknown.
    removed: Notify,
}

/// What a reader got.
#[derive(Debug)]
pub(crate) enum Joined {
    /// A place at a fill that was under way.
    Follower(Attachment),
    /// A place at a new fill, which the caller has to start.
    Leader(Attachment),
}

/// Bytes of a version that a reader wants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The first, which is not here.
    pub position: u64,
    /// Up to where it will want more.
    pub end: u64,
    /// How many bytes a fill may bring before those, to be worth joining.
    pub before_bytes_max: u64,
}

impl Wanted {
    /// Bytes that a reader wants now or next: it waits for those before them meanwhile.
    pub(crate) fn next(position: u64, end: u64) -> Self {
        Self {
            position,
            end,
            before_bytes_max: EXTENT_BYTES_MAX,
        }
    }

    /// Bytes that are to come beside those before them.
    pub(crate) fn beside(position: u64, end: u64) -> Self {
        Self {
            before_bytes_max: 0,
            ..Self::next(position, end)
        }
    }
}

impl Fills {
    /// Joins the fill that tells what version of `object` there is, or begins one.
    ///
    /// `name_hash` is that of the object's name; `is_current` says whether what a fill has learned,
    /// or will, may answer a reader that comes now.
    pub(crate) fn learn(
        &self,
        name_hash: u64,
        object: &ObjectId,
        position: u64,
        mut is_current: impl FnMut(&Fill) -> bool,
        begin: impl FnOnce() -> Arc<Fill>,
    ) -> Joined {
        let may_join = |fill: &Fill| fill.object == *object && fill.may_teach() && is_current(fill);
        self.join(name_hash, position, may_join, begin)
    }

    /// Joins the fill that brings the byte at `position` of a version, or begins one.
    pub(crate) fn extent(
        &self,
        name_hash: u64,
        vid: Vid,
        wanted: Wanted,
        begin: impl FnOnce() -> Arc<Fill>,
    ) -> Joined {
        let Wanted {
            position,
            end: _,
            before_bytes_max,
        } = wanted;
        let may_join = |fill: &Fill| fill.may_serve(vid, position, before_bytes_max);
        self.join(name_hash, position, may_join, begin)
    }

    fn join(
        &self,
        name_hash: u64,
        position: u64,
        mut may_join: impl FnMut(&Fill) -> bool,
        begin: impl FnOnce() -> Arc<Fill>,
    ) -> Joined {
        let mut shard = self.shard(name_hash).lock();
        let fills = shard.entry(name_hash).or_default();
        if let Some(fill) = fills.iter().find(|fill| may_join(fill)) {
            return Joined::Follower(fill.attach(position, Role::Follower));
        }
        let fill = begin();
        let attachment = fill.attach(position, Role::Leader);
        fills.push(fill);
        Joined::Leader(attachment)
    }

    /// Makes a fill unknown, at its end.
    pub(crate) fn remove(&self, name_hash: u64, fill: &Arc<Fill>) {
        let mut shard = self.shard(name_hash).lock();
        if let Some(fills) = shard.get_mut(&name_hash) {
            fills.retain(|other| !Arc::ptr_eq(other, fill));
            if fills.is_empty() {
                shard.remove(&name_hash);
            }
        }
        drop(shard);
        self.removed.notify_waiters();
    }

    /// Waits until no fill of that name is under way: what they brought is stored.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(crate) async fn settled(&self, name_hash: u64) {
        loop {
            let removed = self.removed.notified();
            if !self.shard(name_hash).lock().contains_key(&name_hash) {
                return;
            }
            removed.await;
        }
    }

    /// Stops those that nobody reads.
    pub(crate) fn abort_unread(&self) {
        for shard in &self.shards {
            shard
                .lock()
                .values()
                .flatten()
                .for_each(|fill| fill.abort_unread());
        }
    }

    /// Fills under way.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().values().map(Vec::len).sum::<usize>())
            .sum()
    }

    fn shard(&self, name_hash: u64) -> &Mutex<Shard> {
        &self.shards[(name_hash >> 32) as usize & (SHARD_COUNT - 1)]
    }
}
