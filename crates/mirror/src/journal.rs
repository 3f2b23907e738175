//! The journal: which members lack the last state of which keys, and what was under way.
//!
//! An [`Entry`] of a subject is there from before the first request of a write is sent until all
//! members have the state that it left. It lies in an [`Index`](forebay_native::index::Index), so
//! it is as durable as the engine, and changes in one step with its place in the [queue](Due) and
//! with the counters. What may follow what is `ledger`'s; the bytes are in docs/formats.md.
//!
//! Where this gateway is the only one it knows by a count per hash which subjects have an entry,
//! 16 bytes each, so a read of any other key costs no look into the engine.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use forebay_native::{
    hot::{HotKey, Parts, Space},
    index::{self, Applied, Batch, Change, Expect, Payload, Sequence, Want},
};
use forebay_s3::bucket::BucketName;
use forebay_store::Error;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::{
    Gateways,
    members::{MemberId, MemberSet, Members},
};

mod entry;
mod names;
mod stranded;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Entry, Intent, Owed, Standing, WriteKind};
pub(crate) use names::Names;
pub use stranded::stranded;

/// Entries read at once.
const ENTRIES_MAX: usize = 1000;

/// What an entry is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Subject {
    /// Whether there is a bucket.
    Bucket(BucketName),
    /// What a key holds.
    Object(HotKey),
}

impl Subject {
    /// The bucket.
    pub(crate) fn bucket(&self) -> &BucketName {
        match self {
            Self::Bucket(bucket) => bucket,
            Self::Object(key) => &key.bucket,
        }
    }

    /// The key; empty for the bucket itself.
    fn key_bytes(&self) -> &[u8] {
        match self {
            Self::Bucket(_) => &[],
            Self::Object(key) => key.key.as_str().as_bytes(),
        }
    }
}

/// A place in the queue, in which repair finds entries in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Due {
    /// [`Entry::at_ms`].
    pub(crate) at_ms: i64,
    /// What it is about.
    pub(crate) subject: Subject,
}

/// An entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// The entry.
    pub(crate) entry: Entry,
    /// When it was last changed: a later write of the key has the larger one.
    pub(crate) sequence: Sequence,
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swapped {
    /// It happened, and is durable.
    Done(Sequence),
    /// Nothing happened: something else was there.
    Changed,
}

/// See the module.
pub(crate) struct Journal {
    parts: Parts,
    names: Names,
    members: Arc<Members>,
    known: Known,
}

/// Which subjects have an entry.
enum Known {
    /// Nobody but this gateway writes: counts of entries by the hashes of their subjects, once
    /// they were read.
    Here {
        counts: Mutex<HashMap<u64, u32>>,
        hasher: RandomState,
        is_read: OnceCell<()>,
    },
    /// Others write as well, so the engine is asked.
    Elsewhere,
}

impl Journal {
    pub(crate) fn new(
        parts: Parts,
        space: Space,
        members: Arc<Members>,
        gateways: Gateways,
    ) -> Self {
        Self {
            parts,
            names: Names::new(space),
            members,
            known: match gateways {
                Gateways::One => Known::Here {
                    counts: Mutex::default(),
                    hasher: RandomState::new(),
                    is_read: OnceCell::new(),
                },
                Gateways::Many => Known::Elsewhere,
            },
        }
    }

    /// The engine, for what other modules keep beside the journal.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Names of what other modules keep beside the journal.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Reads which subjects have entries, once; everything else rests on it.
    ///
    /// # Errors
    /// The engine's own; the next call tries again.
    pub(crate) async fn read_known(&self) -> Result<(), Error> {
        let Known::Here {
            counts,
            hasher,
            is_read,
        } = &self.known
        else {
            return Ok(());
        };
        let read = async || {
            let mut found = HashMap::new();
            let mut names = self.names.entries();
            loop {
                let entries = self.parts.index.range(names.clone(), ENTRIES_MAX).await?;
                let Some(last) = entries.last() else { break };
                names.start = after(&last.name);
                for entry in &entries {
                    let subject = subject_of(&entry.name)?;
                    *found.entry(hasher.hash_one(&subject)).or_default() += 1;
                }
            }
            *counts.lock() = found;
            Ok(())
        };
        is_read.get_or_try_init(read).await?;
        Ok(())
    }

    /// The entry of a subject.
    ///
    /// # Errors
    /// The engine's own: nobody knows then which members are current.
    pub(crate) async fn get(&self, subject: &Subject) -> Result<Option<Held>, Error> {
        self.read_known().await?;
        if self.has_none(subject) {
            return Ok(None);
        }
        let route = names::route(subject);
        let name = self.names.entry(subject);
        let entry = self.parts.index.get(&route, &name, Want::Value).await?;
        entry.map(|entry| self.held(&entry)).transpose()
    }

    fn held(&self, entry: &index::Entry) -> Result<Held, Error> {
        Ok(Held {
            entry: Entry::from_bytes(&entry.value, &self.members)?,
            sequence: entry.sequence,
        })
    }

    /// Whether it is known without a look that a subject has no entry.
    fn has_none(&self, subject: &Subject) -> bool {
        match &self.known {
            Known::Here { counts, hasher, .. } => {
                !counts.lock().contains_key(&hasher.hash_one(subject))
            }
            Known::Elsewhere => false,
        }
    }

    /// Counts an entry more, or one less.
    fn count(&self, subject: &Subject, by: i8) {
        let Known::Here { counts, hasher, .. } = &self.known else {
            return;
        };
        let hash = hasher.hash_one(subject);
        let mut counts = counts.lock();
        match by {
            1.. => *counts.entry(hash).or_default() += 1,
            0 => {}
            ..0 => {
                if let Some(count) = counts.get_mut(&hash) {
                    *count -= 1;
                    if *count == 0 {
                        counts.remove(&hash);
                    }
                }
            }
        }
    }

    /// Changes the entry of a subject in one step, if it is the one that was read.
    ///
    /// # Errors
    /// The engine's own, with `Indeterminate` only when looking does not tell what happened.
    ///
    /// # Cancel safety
    /// A dropped future leaves the old entry or the new one; which of them, a look tells.
    pub(crate) async fn swap(
        &self,
        subject: &Subject,
        from: Option<&Held>,
        to: Option<Entry>,
    ) -> Result<Swapped, Error> {
        self.read_known().await?;
        let batch = self.batch(subject, from, to.as_ref())?;
        let by = i8::from(to.is_some()) - i8::from(from.is_some());
        // Readers look from the moment on at which there may be something to see. A future that
        // is dropped here leaves a count too many, which costs a look and no more.
        if by > 0 {
            self.count(subject, 1);
        }
        let route = names::route(subject);
        let swapped = match self.parts.index.apply(&route, batch).await {
            Ok(Applied::Done(sequence)) => Ok(Swapped::Done(sequence)),
            Ok(Applied::Unexpected { .. }) => Ok(Swapped::Changed),
            Err(Error::Indeterminate { elapsed }) => {
                let name = self.names.entry(subject);
                match self.parts.index.get(&route, &name, Want::Value).await {
                    Ok(now) => self.look(now.as_ref(), from, to.as_ref()),
                    Err(_) => Err(Error::Indeterminate { elapsed }),
                }
            }
            Err(error) => Err(error),
        };
        let is_one_less = match (&swapped, by) {
            (Ok(Swapped::Done(_)), by) => by < 0,
            (Ok(Swapped::Changed), by) => by > 0,
            // After an unknown outcome a count too many costs a look.
            (Err(error), by) => by > 0 && error.is_retryable(),
        };
        if is_one_less {
            self.count(subject, -1);
        }
        swapped
    }

    /// What came of a change whose answer was lost, by what is there now.
    fn look(
        &self,
        now: Option<&index::Entry>,
        from: Option<&Held>,
        to: Option<&Entry>,
    ) -> Result<Swapped, Error> {
        let now = now.map(|entry| self.held(entry)).transpose()?;
        if now.as_ref().map(|held| &held.entry) == to
            && now.as_ref().map(|held| held.sequence) != from.map(|held| held.sequence)
        {
            return Ok(Swapped::Done(now.map_or(Sequence(0), |held| held.sequence)));
        }
        Ok(Swapped::Changed)
    }

    fn batch(
        &self,
        subject: &Subject,
        from: Option<&Held>,
        to: Option<&Entry>,
    ) -> Result<Batch, Error> {
        let name = self.names.entry(subject);
        let mut changes = Vec::with_capacity(4);
        match to {
            None => changes.push(Change::Delete { name: name.clone() }),
            Some(entry) => changes.push(Change::Put {
                name: name.clone(),
                value: entry.to_bytes(&self.members)?.into(),
                payload: Payload::None,
            }),
        }
        let place = |entry: &Entry| self.names.place(entry.at_ms, subject);
        let (old, new) = (from.map(|held| place(&held.entry)), to.map(place));
        if old != new {
            changes.extend(old.map(|name| Change::Delete { name }));
            changes.extend(new.map(|name| Change::Put {
                name,
                value: Bytes::new(),
                payload: Payload::None,
            }));
        }
        let owing = |entry: Option<&Entry>| entry.map(Entry::owing).unwrap_or_default();
        let (before, after) = (owing(from.map(|held| &held.entry)), owing(to));
        let counted = |name: &str, by: i64| Change::Count {
            counter: self.names.counter(name),
            by,
        };
        for (members, by) in [(after.without(before), 1), (before.without(after), -1)] {
            changes.extend(
                members
                    .iter()
                    .map(|member| counted(&self.members.get(member).name, by)),
            );
        }
        let keys = |owing: MemberSet| i64::from(!owing.is_empty());
        if keys(before) != keys(after) {
            changes.push(Change::Count {
                counter: self.names.keys(),
                by: keys(after) - keys(before),
            });
        }
        Ok(Batch {
            expects: vec![(
                name,
                from.map_or(Expect::Absent, |held| Expect::At(held.sequence)),
            )],
            changes,
        })
    }

    /// The first places of the queue, `1..=places_max` or none at the end, after `after`.
    pub(crate) async fn queue(
        &self,
        after_place: Option<&Due>,
        places_max: usize,
    ) -> Result<Vec<Due>, Error> {
        let mut names = self.names.places();
        if let Some(due) = after_place {
            names.start = after(&self.names.place(due.at_ms, &due.subject));
        }
        let entries = self.parts.index.range(names, places_max).await?;
        let places = entries.iter().map(|entry| names::due_of_place(&entry.name));
        places
            .collect::<Option<_>>()
            .ok_or_else(|| Error::internal("read the mirror's queue", "a name in it is none"))
    }

    /// The first entries of a bucket whose keys are in `keys`, which are compared as bytes: some,
    /// `1..=entries_max`, or none at the end. That of the bucket itself is at the empty key.
    pub(crate) async fn range(
        &self,
        bucket: &BucketName,
        keys: Range<Vec<u8>>,
        entries_max: usize,
    ) -> Result<Vec<(Subject, Held)>, Error> {
        let start = self.names.entry_at(bucket, &keys.start);
        let end = self.names.entry_at(bucket, &keys.end);
        let names = start..end.min(self.names.entries_end(bucket));
        let entries = self.parts.index.range(names, entries_max).await?;
        entries
            .iter()
            .map(|entry| Ok((subject_of(&entry.name)?, self.held(entry)?)))
            .collect()
    }

    /// Keys that a member is behind by.
    pub(crate) async fn pending(&self, member: MemberId) -> Result<u64, Error> {
        let counter = self.names.counter(&self.members.get(member).name);
        let count = self.parts.index.counter(&counter).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Keys and buckets that some member is behind by.
    pub(crate) async fn keys(&self) -> Result<u64, Error> {
        let count = self.parts.index.counter(&self.names.keys()).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// How each member stands; `None` for one that the journal has not met.
    pub(crate) async fn standings(&self) -> Result<Vec<(MemberId, Option<Standing>)>, Error> {
        let mut found = HashMap::new();
        let mut names = self.names.members();
        loop {
            let entries = self.parts.index.range(names.clone(), ENTRIES_MAX).await?;
            let Some(last) = entries.last() else { break };
            names.start = after(&last.name);
            for entry in &entries {
                let standing = serde_json::from_slice::<Standing>(&entry.value)
                    .map_err(|error| Error::internal("read what is kept of a member", error))?;
                if let Some(name) = names::member_of(&entry.name) {
                    found.insert(name.to_owned(), standing);
                }
            }
        }
        let all = self.members.set();
        Ok(all
            .iter()
            .map(|member| (member, found.get(&self.members.get(member).name).copied()))
            .collect())
    }

    /// Writes down how a member stands.
    pub(crate) async fn set_standing(
        &self,
        member: MemberId,
        standing: Standing,
    ) -> Result<(), Error> {
        self.set_standings(&[(member, standing)]).await
    }

    /// Writes down how some members stand, in one step.
    pub(crate) async fn set_standings(
        &self,
        standings: &[(MemberId, Standing)],
    ) -> Result<(), Error> {
        let mut changes = Vec::with_capacity(standings.len());
        for (member, standing) in standings {
            let value = serde_json::to_vec(standing)
                .map_err(|error| Error::internal("write what is kept of a member", error))?;
            changes.push(Change::Put {
                name: self.names.member(&self.members.get(*member).name),
                value: value.into(),
                payload: Payload::None,
            });
        }
        let batch = Batch {
            expects: Vec::new(),
            changes,
        };
        let route = names::members_route();
        self.parts.index.apply(&route, batch).await.map(drop)
    }
}

/// The first name after this one.
fn after(name: &[u8]) -> Bytes {
    [name, &[0]].concat().into()
}

fn subject_of(name: &[u8]) -> Result<Subject, Error> {
    names::subject_of_entry(name)
        .ok_or_else(|| Error::internal("read a mirror entry", "its name is none"))
}
