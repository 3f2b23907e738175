//! The members: who they are, how each answers, and which of them is asked first.
//!
//! A member is *down* after [`FAILURES_MAX`] failures in a row and gets nothing but probes until
//! one is answered. What it holds is another matter, which the journal knows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use forebay_store::{Clock, Store};
use parking_lot::Mutex;

/// Members of one mirror at most: their sets are 16 bits, and every write goes to each of them.
pub const MEMBERS_MAX: usize = 16;
/// Failures in a row after which a member is taken for down. One may be an accident; each of a
/// member that is down costs a read the time of a failed attempt.
const FAILURES_MAX: u32 = 3;
/// Weight of the newest time to first byte in the average, as a divisor; a guess.
const NEWEST_WEIGHT: u64 = 8;
/// Time after which an average counts for half, so that a member which was slow once is asked
/// again; a guess.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// A member, by its place in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MemberId(pub(crate) u8);

/// Some of the members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct MemberSet(u16);

impl MemberSet {
    /// None of them.
    pub(crate) const EMPTY: Self = Self(0);

    /// The first `count` of them.
    pub(crate) fn first(count: usize) -> Self {
        (0..count.min(MEMBERS_MAX))
            .filter_map(|at| u8::try_from(at).ok())
            .map(MemberId)
            .collect()
    }

    /// Whether a member is in it.
    pub(crate) fn has(self, member: MemberId) -> bool {
        self.0 & (1 << member.0) != 0
    }

    /// With this member.
    #[must_use]
    pub(crate) fn with(self, member: MemberId) -> Self {
        Self(self.0 | 1 << member.0)
    }

    /// Those of it that are not in the other.
    #[must_use]
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those in both.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether nobody is in it.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Its members in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = MemberId> {
        (0..16)
            .map(MemberId)
            .filter(move |member| self.has(*member))
    }
}

impl FromIterator<MemberId> for MemberSet {
    fn from_iter<I: IntoIterator<Item = MemberId>>(members: I) -> Self {
        members.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// All members of a mirror.
pub(crate) struct Members {
    all: Vec<Member>,
    clock: Clock,
}

/// One of them.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    failures_in_row: AtomicU32,
    requests: AtomicU64,
    failures: AtomicU64,
    in_flight: AtomicUsize,
    first_byte: Mutex<FirstByte>,
    clock: Clock,
}

/// The average time to first byte of a member.
#[derive(Default)]
struct FirstByte {
    /// Microseconds; zero before the first.
    average_us: u64,
    /// When it was last measured.
    at: Option<Instant>,
}

/// How an attempt at a member ended, as far as its health goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It answered, whatever it said.
    Answered,
    /// It did not, or with a fault of its own.
    Failed,
    /// Neither: it is busy, or the client went away.
    Neither,
}

/// An attempt under way; counts until it is dropped.
pub(crate) struct Attempt<'a> {
    member: &'a Member,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Members {
    pub(crate) fn new(members: Vec<(String, Arc<dyn Store>)>, clock: Clock) -> Self {
        let member = |(name, store)| Member {
            name,
            store,
            failures_in_row: AtomicU32::default(),
            requests: AtomicU64::default(),
            failures: AtomicU64::default(),
            in_flight: AtomicUsize::default(),
            first_byte: Mutex::default(),
            clock: clock.clone(),
        };
        Self {
            all: members.into_iter().map(member).collect(),
            clock,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// All of them.
    pub(crate) fn set(&self) -> MemberSet {
        MemberSet::first(self.all.len())
    }

    pub(crate) fn get(&self, member: MemberId) -> &Member {
        &self.all[usize::from(member.0)]
    }

    /// The member of this name, if it is still configured.
    pub(crate) fn named(&self, name: &str) -> Option<MemberId> {
        let at = self.all.iter().position(|member| member.name == name)?;
        u8::try_from(at).ok().map(MemberId)
    }

    /// Those that are not down.
    pub(crate) fn up(&self) -> MemberSet {
        let is_up = |member: &MemberId| !self.get(*member).is_down();
        self.set().iter().filter(is_up).collect()
    }

    /// These, the one from which an answer is expected first at the front.
    pub(crate) fn by_promise(&self, members: MemberSet) -> Vec<MemberId> {
        let now = self.clock.now();
        let mut ordered: Vec<MemberId> = members.iter().collect();
        ordered.sort_by_cached_key(|member| self.get(*member).promise(now));
        ordered
    }
}

impl Member {
    /// Begins an attempt.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        Attempt { member: self }
    }

    /// Counts how an attempt ended.
    pub(crate) fn ended(&self, health: Health) {
        match health {
            Health::Answered => self.failures_in_row.store(0, Ordering::Relaxed),
            Health::Failed => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                let in_row = self.failures_in_row.fetch_add(1, Ordering::Relaxed) + 1;
                if in_row == FAILURES_MAX {
                    tracing::warn!(member = self.name, "a member is down");
                }
            }
            Health::Neither => {}
        }
    }

    /// Takes in how long a first byte took.
    pub(crate) fn took(&self, time: Duration) {
        let now = self.clock.now();
        let newest = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2);
        let mut first_byte = self.first_byte.lock();
        let before = first_byte.average_us;
        let average = if first_byte.at.is_none() {
            newest
        } else {
            before - before / NEWEST_WEIGHT + newest / NEWEST_WEIGHT
        };
        *first_byte = FirstByte {
            average_us: average.max(1),
            at: Some(now),
        };
    }

    pub(crate) fn is_down(&self) -> bool {
        self.failures_in_row.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Smaller is better. A member that was never asked is asked first.
    fn promise(&self, now: Instant) -> u64 {
        let in_flight = self.in_flight.load(Ordering::Relaxed) as u64;
        let first_byte = self.first_byte.lock();
        let idle = first_byte.at.map(|at| now.saturating_duration_since(at));
        let halvings = idle.unwrap_or_default().as_secs() / HALF_LIFE.as_secs();
        let average_us = first_byte.average_us >> halvings.min(63);
        average_us.saturating_mul(in_flight + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use forebay_store::null::NullStore;

    use super::*;

    fn three() -> Members {
        let member = |name: &str| (name.to_owned(), Arc::new(NullStore::default()) as _);
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        Members::new(["a", "b", "c"].map(member).into(), clock)
    }

    #[test]
    fn sets_are_sets() {
        let all = MemberSet::first(3);
        let one = MemberSet::EMPTY.with(MemberId(1));
        assert_eq!(
            all.without(one).iter().map(|m| m.0).collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!((all.count(), all.and(one)), (3, one));
        assert!(MemberSet::EMPTY.is_empty() && !one.has(MemberId(0)));
        assert_eq!(MemberSet::first(MEMBERS_MAX).count(), MEMBERS_MAX);
    }

    #[test]
    fn a_member_is_down_after_failures_in_a_row_and_up_with_an_answer() {
        let members = three();
        let b = members.get(MemberId(1));
        for health in [
            Health::Failed,
            Health::Failed,
            Health::Answered,
            Health::Failed,
        ] {
            b.ended(health);
        }
        b.ended(Health::Neither);
        b.ended(Health::Failed);
        assert_eq!(members.up(), members.set());
        b.ended(Health::Failed);
        assert_eq!(
            members.up(),
            members.set().without(MemberSet::EMPTY.with(MemberId(1)))
        );
        b.ended(Health::Answered);
        assert_eq!(members.up(), members.set());
        assert_eq!(b.failures(), 5);
    }

    #[test]
    fn the_quick_and_idle_are_asked_first() {
        let members = three();
        let took = |at, ms| {
            let member = members.get(MemberId(at));
            member.took(Duration::from_millis(ms));
        };
        took(0, 20);
        took(1, 10);
        took(2, 15);
        let order = || {
            let ordered = members.by_promise(members.set());
            ordered.iter().map(|m| m.0).collect::<Vec<_>>()
        };
        assert_eq!(order(), [1, 2, 0]);
        let busy = members.get(MemberId(1)).attempt();
        assert_eq!(order(), [2, 0, 1]);
        drop(busy);
        assert_eq!(order(), [1, 2, 0]);
        members.clock.advance(HALF_LIFE * 2);
        took(1, 10);
        took(2, 15);
        assert_eq!(order(), [0, 1, 2], "the slow one is asked again");
    }
}
