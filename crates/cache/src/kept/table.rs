//! The answers that are kept, and the requests under way for more of them.
//!
//! Looked up by every request that may be answered so, emptied by writes. A name has its place here
//! from the moment the origin is asked, and a write takes away the places of all that it may
//! change. What comes is stored only in the place that its request was given. So an answer that was
//! asked for before a write is neither stored nor joined after it, without a counter of writes.
//!
//! A write of a key looks for listings whose prefix the key begins with: one lookup for each length
//! of a prefix in use, however many listings there are. Where in a listing the key would stand
//! is not looked at; its pages after a token or a marker are invalidated as well.
//!
//! Room is made by turns (FIFO with a second turn for what was used, as CLOCK): who walks through a
//! large bucket page by page leaves listings that nobody asks for twice, and they go first.
//!
//! Invariant: `used_bytes` is the sum of the weights of all answers here, and at most the capacity.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use bytes::Bytes;
use forebay_s3::bucket::BucketName;
use forebay_telemetry::cache::{KeptEvent, KeptMetrics};
use hashbrown::HashMap;
use http::HeaderMap;
use parking_lot::Mutex;

use super::{
    flight::{Flight, Seat},
    name::Name,
    settings::Lifetime,
};
use crate::{headers, index::Written};

/// Memory of a place and its turn beside text, headers and body: an estimate, generous.
const PLACE_BYTES: usize = 768;

/// An answer that is kept whole.
#[derive(Debug)]
pub(crate) struct Kept {
    pub name: Arc<Name>,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// When the origin was asked, on the layer's clock.
    pub asked_ms: i64,
    used_ms: AtomicI64,
    was_used: AtomicBool,
}

impl Kept {
    pub(crate) fn new(name: Arc<Name>, headers: HeaderMap, body: Bytes, asked_ms: i64) -> Self {
        Self {
            name,
            headers,
            body,
            asked_ms,
            used_ms: asked_ms.into(),
            was_used: false.into(),
        }
    }

    /// Milliseconds that it may still answer; `None` when it may not, and without a limit
    /// `i64::MAX`.
    fn left_ms(&self, lifetime: Lifetime, now_ms: i64) -> Option<i64> {
        let left = |limit: Option<i64>, since_ms: i64| {
            let age_ms = now_ms.saturating_sub(since_ms).max(0);
            limit.map_or(i64::MAX, |limit_ms| limit_ms.saturating_sub(age_ms))
        };
        let idle_ms = left(lifetime.tti_ms, self.used_ms.load(Ordering::Relaxed));
        let ttl_ms = left(lifetime.ttl_ms, self.asked_ms);
        (idle_ms > 0 && ttl_ms > 0).then_some(ttl_ms)
    }

    fn weight(&self) -> u64 {
        let text = 2 * self.name.length() + headers::footprint_bytes(&self.headers);
        (PLACE_BYTES + text + self.body.len()) as u64
    }
}

/// What a request finds.
#[derive(Debug)]
pub(crate) enum Found {
    /// An answer, and how many milliseconds more it may be given.
    Answer(Arc<Kept>, i64),
    /// A seat at a request under way.
    Follower(Seat),
    /// The first seat at a new one, which the caller has to start; `None` when something was
    /// kept but is stale.
    Leader(Seat, Before),
}

/// What was kept before the origin is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Stale,
}

/// How a request looks for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub now_ms: i64,
    pub lifetime: Lifetime,
    pub take: Take,
}

/// What may answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// What is kept or on its way.
    Any,
    /// Only what the origin is asked for now.
    New,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    places: Mutex<Places>,
    capacity_bytes: u64,
    metrics: KeptMetrics,
}

#[derive(Debug, Default)]
struct Places {
    /// `ListBuckets`.
    service: Slots,
    buckets: HashMap<BucketName, OfBucket>,
    /// In which answers make room; those of answers that are gone hold no memory of theirs.
    turns: VecDeque<Weak<Kept>>,
    kept_count: usize,
    used_bytes: u64,
}

#[derive(Debug, Default)]
struct OfBucket {
    /// `HeadBucket`.
    itself: Slots,
    listings: HashMap<Box<str>, Slots>,
    /// Lengths of the prefixes, and how many have each.
    lengths: BTreeMap<usize, usize>,
}

type Slots = HashMap<Arc<Name>, Slot>;

#[derive(Debug, Default)]
struct Slot {
    kept: Option<Arc<Kept>>,
    flight: Option<Arc<Flight>>,
}

impl Table {
    pub(crate) fn new(capacity_bytes: u64, metrics: KeptMetrics) -> Self {
        metrics
            .capacity
            .set(i64::try_from(capacity_bytes).unwrap_or(i64::MAX));
        Self {
            places: Mutex::default(),
            capacity_bytes,
            metrics,
        }
    }

    /// Finds what answers a request, or gives it a place to ask for it.
    pub(crate) fn find(&self, name: &Arc<Name>, want: Want) -> Found {
        let mut places = self.places.lock();
        let slot = places.slot_of(name);
        let before = match slot.as_ref().and_then(|slot| slot.kept.as_ref()) {
            Some(_) => Before::Stale,
            None => Before::Nothing,
        };
        let usable = slot.filter(|_| want.take == Take::Any);
        if let Some(found) = usable.and_then(|slot| slot.found(want)) {
            return found;
        }
        let seat = Flight::begin(Arc::clone(name), want.now_ms);
        places.slot(name).flight = Some(Arc::clone(seat.flight()));
        Found::Leader(seat, before)
    }

    /// Stores what a request brought, unless a write has passed since it was begun.
    pub(crate) fn store(&self, flight: &Arc<Flight>, kept: &Arc<Kept>) {
        let weight = kept.weight();
        let mut dropped = Vec::new();
        let mut places = self.places.lock();
        if weight > self.capacity_bytes {
            places.end(flight);
            return;
        }
        let Some(slot) = places.slot_of(&flight.name) else {
            return;
        };
        if !slot.holds(flight) {
            return;
        }
        slot.flight = None;
        let replaced = slot.kept.replace(Arc::clone(kept));
        places.account_for(replaced.as_ref());
        dropped.extend(replaced);
        places.used_bytes += weight;
        places.kept_count += 1;
        places.turns.push_back(Arc::downgrade(kept));
        while places.used_bytes > self.capacity_bytes {
            let Some(evicted) = places.evict() else { break };
            self.metrics
                .count(KeptEvent::Evicted, evicted.name.kind.as_str());
            dropped.push(evicted);
        }
        places.forget_old_turns();
        self.metrics
            .count(KeptEvent::Stored, kept.name.kind.as_str());
        self.tell(&places);
    }

    /// Gives up the place of a request that brought nothing to keep.
    pub(crate) fn end(&self, flight: &Arc<Flight>) {
        self.places.lock().end(flight);
    }

    /// Makes everything that a write may have changed unknown, and what is under way unfit to be
    /// stored or joined.
    pub(crate) fn invalidate(&self, written: &Written) {
        let mut gone = Vec::new();
        let mut places = self.places.lock();
        match written {
            Written::Object(bucket, key) => {
                places.take_listings_of(bucket, key.as_str(), &mut gone);
            }
            Written::Bucket(bucket) => {
                gone.push(mem::take(&mut places.service));
                if let Some(of_bucket) = places.buckets.remove(bucket) {
                    gone.push(of_bucket.itself);
                    gone.extend(of_bucket.listings.into_values());
                }
            }
            Written::All => {
                gone.push(mem::take(&mut places.service));
                for (_, of_bucket) in places.buckets.drain() {
                    gone.push(of_bucket.itself);
                    gone.extend(of_bucket.listings.into_values());
                }
            }
        }
        let kept = || {
            gone.iter()
                .flat_map(HashMap::values)
                .filter_map(|slot| slot.kept.as_ref())
        };
        kept().for_each(|kept| places.account_for(Some(kept)));
        places.forget_old_turns();
        self.tell(&places);
        drop(places);
        for kept in kept() {
            self.metrics
                .count(KeptEvent::Invalidated, kept.name.kind.as_str());
        }
    }

    /// Bytes that answers and their index take.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.places.lock().used_bytes
    }

    fn tell(&self, places: &Places) {
        let used_bytes = i64::try_from(places.used_bytes).unwrap_or(i64::MAX);
        self.metrics.used.set(used_bytes);
    }

    /// Places there are, for tests.
    #[cfg(test)]
    pub(crate) fn place_count(&self) -> usize {
        let places = self.places.lock();
        let of_bucket = |of: &OfBucket| {
            let listings = of.listings.values().map(HashMap::len);
            listings.sum::<usize>() + of.itself.len()
        };
        places.service.len() + places.buckets.values().map(of_bucket).sum::<usize>()
    }

    /// Checks that the accounts are right, for tests.
    #[cfg(test)]
    pub(crate) fn audit(&self) {
        let places = self.places.lock();
        let slots = || {
            let of_buckets = places.buckets.values();
            let of_buckets = of_buckets.flat_map(|of| of.listings.values().chain([&of.itself]));
            of_buckets
                .chain([&places.service])
                .flat_map(HashMap::values)
        };
        let kept = || slots().filter_map(|slot| slot.kept.as_ref());
        assert_eq!(
            kept().map(|kept| kept.weight()).sum::<u64>(),
            places.used_bytes
        );
        assert_eq!(kept().count(), places.kept_count);
        assert!(places.used_bytes <= self.capacity_bytes);
        assert!(slots().all(|slot| slot.kept.is_some() || slot.flight.is_some()));
        for of_bucket in places.buckets.values() {
            let listed: usize = of_bucket.lengths.values().sum();
            assert_eq!(listed, of_bucket.listings.len());
        }
    }
}

impl Slot {
    /// What is here and may answer.
    fn found(&self, want: Want) -> Option<Found> {
        let Want {
            now_ms, lifetime, ..
        } = want;
        if let Some(kept) = &self.kept
            && let Some(left_ms) = kept.left_ms(lifetime, now_ms)
        {
            kept.used_ms.fetch_max(now_ms, Ordering::Relaxed);
            kept.was_used.store(true, Ordering::Relaxed);
            return Some(Found::Answer(Arc::clone(kept), left_ms));
        }
        // Not what was asked for so long ago that it will be stale when it comes.
        let is_fresh = |flight: &&Arc<Flight>| {
            let age_ms = now_ms.saturating_sub(flight.asked_ms);
            lifetime.ttl_ms.is_none_or(|ttl_ms| age_ms < ttl_ms)
        };
        let flight = self.flight.as_ref().filter(is_fresh)?;
        flight.join().map(Found::Follower)
    }

    fn holds(&self, flight: &Arc<Flight>) -> bool {
        self.flight
            .as_ref()
            .is_some_and(|other| Arc::ptr_eq(other, flight))
    }
}

impl Places {
    /// The slot of a name, made if there is none.
    fn slot(&mut self, name: &Arc<Name>) -> &mut Slot {
        let slots = match &name.bucket {
            None => &mut self.service,
            Some(bucket) => {
                let of_bucket = self.buckets.entry(bucket.clone()).or_default();
                if name.kind.lists_keys() {
                    let OfBucket {
                        listings, lengths, ..
                    } = of_bucket;
                    listings.entry(name.prefix.clone()).or_insert_with(|| {
                        *lengths.entry(name.prefix.len()).or_default() += 1;
                        Slots::default()
                    })
                } else {
                    &mut of_bucket.itself
                }
            }
        };
        slots.entry(Arc::clone(name)).or_default()
    }

    fn slots_of(&mut self, name: &Name) -> Option<&mut Slots> {
        let Some(bucket) = &name.bucket else {
            return Some(&mut self.service);
        };
        let of_bucket = self.buckets.get_mut(bucket)?;
        if name.kind.lists_keys() {
            of_bucket.listings.get_mut(&name.prefix)
        } else {
            Some(&mut of_bucket.itself)
        }
    }

    fn slot_of(&mut self, name: &Name) -> Option<&mut Slot> {
        self.slots_of(name)?.get_mut(name)
    }

    /// Removes a slot, and what has become empty by that.
    fn remove_slot(&mut self, name: &Name) {
        let Some(slots) = self.slots_of(name) else {
            return;
        };
        slots.remove(name);
        let is_empty = slots.is_empty();
        let Some(bucket) = &name.bucket else { return };
        let Some(of_bucket) = self.buckets.get_mut(bucket) else {
            return;
        };
        if is_empty && name.kind.lists_keys() {
            of_bucket.listings.remove(&name.prefix);
            of_bucket.forget_length(name.prefix.len());
        }
        self.forget_if_empty(bucket);
    }

    fn forget_if_empty(&mut self, bucket: &BucketName) {
        let of_bucket = self.buckets.get(bucket);
        if of_bucket.is_some_and(|of| of.itself.is_empty() && of.listings.is_empty()) {
            self.buckets.remove(bucket);
        }
    }

    /// Takes away the listings that a key may be in.
    fn take_listings_of(&mut self, bucket: &BucketName, key: &str, gone: &mut Vec<Slots>) {
        let Some(of_bucket) = self.buckets.get_mut(bucket) else {
            return;
        };
        let lengths: Vec<usize> = of_bucket
            .lengths
            .range(..=key.len())
            .map(|(l, _)| *l)
            .collect();
        for length in lengths {
            // A prefix is text: one that would end within a character is none of this key.
            let taken = key
                .get(..length)
                .and_then(|prefix| of_bucket.listings.remove(prefix));
            if let Some(slots) = taken {
                of_bucket.forget_length(length);
                gone.push(slots);
            }
        }
        self.forget_if_empty(bucket);
    }

    fn end(&mut self, flight: &Arc<Flight>) {
        let Some(slot) = self.slot_of(&flight.name) else {
            return;
        };
        if !slot.holds(flight) {
            return;
        }
        slot.flight = None;
        if slot.kept.is_none() {
            self.remove_slot(&flight.name);
        }
    }

    /// Takes an answer that is gone out of the accounts.
    fn account_for(&mut self, gone: Option<&Arc<Kept>>) {
        if let Some(kept) = gone {
            self.used_bytes -= kept.weight();
            self.kept_count -= 1;
        }
    }

    fn is_kept(&mut self, kept: &Arc<Kept>) -> bool {
        let slot = self.slot_of(&kept.name);
        slot.and_then(|slot| slot.kept.as_ref())
            .is_some_and(|other| Arc::ptr_eq(other, kept))
    }

    /// Removes the answer whose turn it is.
    fn evict(&mut self) -> Option<Arc<Kept>> {
        loop {
            let turn = self.turns.pop_front()?;
            let Some(kept) = turn.upgrade().filter(|kept| self.is_kept(kept)) else {
                continue;
            };
            if kept.was_used.swap(false, Ordering::Relaxed) {
                self.turns.push_back(turn);
                continue;
            }
            self.account_for(Some(&kept));
            let slot = self.slot_of(&kept.name)?;
            slot.kept = None;
            if slot.flight.is_none() {
                self.remove_slot(&kept.name);
            }
            return Some(kept);
        }
    }

    /// Turns of what is gone are let go once they are more than those of what is there: each is
    /// paid for by the removal that made it old.
    fn forget_old_turns(&mut self) {
        if self.turns.len() <= 2 * self.kept_count + 16 {
            return;
        }
        let turns = mem::take(&mut self.turns).into_iter();
        let is_kept = |turn: &Weak<Kept>| turn.upgrade().is_some_and(|kept| self.is_kept(&kept));
        self.turns = turns.filter(is_kept).collect();
    }
}

impl OfBucket {
    fn forget_length(&mut self, length: usize) {
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }
}
