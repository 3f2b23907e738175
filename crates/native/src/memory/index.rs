//! An [`Index`] in memory: every rule in its plainest form, under one lock.
//!
//! It may be spread over several places, as a cluster is, so that what only happens between places
//! is seen in tests of the engine as well.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroUsize,
    ops::{
        Bound::{Excluded, Included},
        Range,
    },
    task::Poll,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_store::Error;
use parking_lot::Mutex;

use crate::index::{Applied, Batch, Change, Entry, Expect, Index, Payload, Route, Sequence, Want};

/// Where the copies of [`Route::Every`] are read.
const HOME: usize = 0;
/// Bytes of the largest payload beside a record; larger ones are blobs. As much as the log keeps.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// An index that forgets when the process ends.
#[derive(Debug)]
pub struct MemoryIndex {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    places: Vec<BTreeMap<Bytes, Kept>>,
    counters: BTreeMap<Bytes, i64>,
    /// The number of the last change, over all names.
    last: u64,
}

#[derive(Debug, Clone)]
struct Kept {
    sequence: Sequence,
    value: Bytes,
    payload: Option<Bytes>,
}

/// Which of a batch's expectations are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    All,
    /// Those of ranges alone: away from home.
    Ranges,
}

impl MemoryIndex {
    /// An empty index in one place.
    pub fn new() -> Self {
        Self::spread(NonZeroUsize::MIN)
    }

    /// An empty index in so many places.
    pub fn spread(places: NonZeroUsize) -> Self {
        Self {
            state: Mutex::new(State {
                places: vec![BTreeMap::new(); places.get()],
                counters: BTreeMap::new(),
                last: 0,
            }),
        }
    }
}

impl Default for MemoryIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The places that a route names, in the order in which a batch changes them.
    fn places_of(&self, route: &Route, batch: &Batch) -> Vec<usize> {
        match route {
            Route::One(_) => vec![self.place_of(route)],
            Route::Every => {
                let deletes = |change: &Change| matches!(change, Change::Delete { .. });
                let mut places: Vec<usize> = (0..self.places.len()).collect();
                if batch.changes.iter().any(deletes) {
                    places.reverse();
                }
                places
            }
        }
    }

    fn place_of(&self, route: &Route) -> usize {
        match route {
            Route::Every => HOME,
            Route::One(bytes) => {
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                let places = self.places.len() as u64;
                usize::try_from(hasher.finish() % places).unwrap_or(HOME)
            }
        }
    }

    /// The place in `expects` of the first that does not hold.
    fn unexpected(&self, place: usize, batch: &Batch, judged: Judged) -> Option<usize> {
        let entries = &self.places[place];
        batch.expects.iter().position(|(name, expect)| {
            let holds = match (expect, judged) {
                (Expect::NoneBefore(end), _) => {
                    let bounds = (Included(name.clone()), Excluded(end.clone()));
                    name >= end || entries.range(bounds).next().is_none()
                }
                (_, Judged::Ranges) => true,
                (Expect::Absent, Judged::All) => !entries.contains_key(name),
                (Expect::Present, Judged::All) => entries.contains_key(name),
                (Expect::At(sequence), Judged::All) => entries
                    .get(name)
                    .is_some_and(|kept| kept.sequence == *sequence),
            };
            !holds
        })
    }

    fn change(&mut self, place: usize, changes: &[Change]) -> Sequence {
        self.last += 1;
        let sequence = Sequence(self.last);
        let entries = &mut self.places[place];
        for change in changes {
            match change {
                Change::Put {
                    name,
                    value,
                    payload,
                } => {
                    let payload = match payload {
                        Payload::None => None,
                        Payload::Inline(bytes) => Some(bytes.clone()),
                        Payload::Keep => entries.get(name).and_then(|kept| kept.payload.clone()),
                    };
                    let kept = Kept {
                        sequence,
                        value: value.clone(),
                        payload,
                    };
                    entries.insert(name.clone(), kept);
                }
                Change::Delete { name } => {
                    entries.remove(name);
                }
                Change::Count { counter, by } => {
                    *self.counters.entry(counter.clone()).or_default() += by;
                }
            }
        }
        sequence
    }
}

impl Kept {
    fn entry(&self, name: &Bytes, want: Want) -> Entry {
        Entry {
            name: name.clone(),
            sequence: self.sequence,
            value: self.value.clone(),
            payload: match want {
                Want::Value => None,
                Want::Payload => self.payload.clone(),
            },
        }
    }
}

#[async_trait]
impl Index for MemoryIndex {
    async fn get(&self, route: &Route, name: &[u8], want: Want) -> Result<Option<Entry>, Error> {
        let state = self.state.lock();
        let found = state.places[state.place_of(route)].get_key_value(name);
        Ok(found.map(|(name, kept)| kept.entry(name, want)))
    }

    async fn range(&self, names: Range<Bytes>, entries_max: usize) -> Result<Vec<Entry>, Error> {
        let state = self.state.lock();
        if names.start >= names.end {
            return Ok(Vec::new());
        }
        // A name that is in several places is a copy of the one at home, which comes first.
        let mut seen = BTreeSet::new();
        let mut found: Vec<Entry> = Vec::new();
        for entries in &state.places {
            let bounds = (Included(names.start.clone()), Excluded(names.end.clone()));
            for (name, kept) in entries.range(bounds).take(entries_max) {
                if seen.insert(name.clone()) {
                    found.push(kept.entry(name, Want::Value));
                }
            }
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found.truncate(entries_max);
        Ok(found)
    }

    async fn apply(&self, route: &Route, batch: Batch) -> Result<Applied, Error> {
        batch.check(PAYLOAD_BYTES_MAX)?;
        let places = self.state.lock().places_of(route, &batch);
        let mut done = Sequence(0);
        for (turn, &place) in places.iter().enumerate() {
            if turn > 0 {
                let_others_run().await;
            }
            let judged = match route {
                Route::Every if place != HOME => Judged::Ranges,
                Route::Every | Route::One(_) => Judged::All,
            };
            let mut state = self.state.lock();
            if let Some(expect_index) = state.unexpected(place, &batch, judged) {
                return Ok(Applied::Unexpected { expect_index });
            }
            let sequence = state.change(place, &batch.changes);
            if place == HOME || done == Sequence(0) {
                done = sequence;
            }
        }
        Ok(Applied::Done(done))
    }

    async fn counter(&self, counter: &[u8]) -> Result<i64, Error> {
        Ok(self
            .state
            .lock()
            .counters
            .get(counter)
            .copied()
            .unwrap_or(0))
    }

    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }
}

/// Gives way once, so that other tasks see what lies between the changes of two places.
async fn let_others_run() {
    let mut waited = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
