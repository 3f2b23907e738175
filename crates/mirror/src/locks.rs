//! One write of a key at a time: a lock in this gateway, and a lease over all of them where the
//! journal is shared.
//!
//! Who holds a lock for a long time, as the repair of a large object does, hears that somebody
//! waits ([`KeyLock::wanted`]) and may give way.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_native::leases::{Lease, Leases};
use forebay_store::{Clock, Error};
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedMutexGuard},
    task::JoinHandle,
};

use crate::{
    Gateways,
    journal::{Names, Subject},
};

/// Time of a lease; what a gateway that ended was writing waits so long.
const LEASE_TIME: Duration = Duration::from_secs(15);
/// What is left of a lease when a write is sent: in it the request is on its way.
const LEASE_LEFT_MIN: Duration = Duration::from_secs(2);
/// Time between two renewals of one.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Time between two tries to get one that another gateway has.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a key that others write.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The locks of all keys that are being written.
pub(crate) struct Locks {
    slots: Mutex<HashMap<Subject, Arc<Slot>>>,
    leases: Option<(Arc<dyn Leases>, Names)>,
    holder: Bytes,
    clock: Clock,
}

#[derive(Default)]
struct Slot {
    lock: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
    wanted: Notify,
}

/// The lock of one key; whoever has it is the only one who writes the key.
pub(crate) struct KeyLock {
    subject: Subject,
    locks: Arc<Locks>,
    slot: Arc<Slot>,
    /// Given up before anything else goes.
    guard: Option<OwnedMutexGuard<()>>,
    lease: Option<HeldLease>,
}

struct HeldLease {
    leases: Arc<dyn Leases>,
    /// Until it is given back.
    lease: Option<Lease>,
    /// When it ends unless it is renewed before.
    until: Arc<Mutex<Instant>>,
    renewing: JoinHandle<()>,
}

impl HeldLease {
    async fn release(mut self) {
        if let Some(lease) = self.lease.take() {
            // What fails ends with its time.
            drop(self.leases.release(lease).await);
        }
    }
}

impl Drop for HeldLease {
    /// A write that ended early gives its lease back all the same, and nobody waits for that: the
    /// lease ends by itself if it can't.
    fn drop(&mut self) {
        self.renewing.abort();
        if let (Some(lease), Ok(runtime)) = (self.lease.take(), Handle::try_current()) {
            let leases = Arc::clone(&self.leases);
            runtime.spawn(async move { drop(leases.release(lease).await) });
        }
    }
}

impl Locks {
    pub(crate) fn new(
        (leases, names): (Arc<dyn Leases>, Names),
        holder: Bytes,
        clock: Clock,
        gateways: Gateways,
    ) -> Self {
        Self {
            slots: Mutex::default(),
            leases: match gateways {
                Gateways::One => None,
                Gateways::Many => Some((leases, names)),
            },
            holder,
            clock,
        }
    }

    /// Names this life of this gateway.
    pub(crate) fn holder(&self) -> &Bytes {
        &self.holder
    }

    /// Waits for the lock of a key.
    ///
    /// # Errors
    /// `SlowDown` when others have it for too long, or the error of the leases.
    ///
    /// # Cancel safety
    /// A dropped future leaves at most a lease that ends by itself.
    pub(crate) async fn lock(self: &Arc<Self>, subject: &Subject) -> Result<KeyLock, Error> {
        let slot = self.slot(subject);
        let mut lock = KeyLock::of(self, subject, &slot);
        slot.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(&slot);
        slot.wanted.notify_waiters();
        let locked = tokio::time::timeout(WAIT_MAX, Arc::clone(&slot.lock).lock_owned()).await;
        drop(waiting);
        let slow_down = || Error::SlowDown {
            retry_after: Some(TRY_EVERY),
        };
        lock.guard = Some(locked.map_err(|_| slow_down())?);
        let deadline = self.clock.now() + WAIT_MAX;
        while !lock.take_lease().await? {
            if self.clock.now() >= deadline {
                return Err(slow_down());
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
        Ok(lock)
    }

    /// The locks of several keys, in an order in which no two wait for each other.
    pub(crate) async fn lock_all(
        self: &Arc<Self>,
        subjects: &[Subject],
    ) -> Result<Vec<KeyLock>, Error> {
        let mut ordered = subjects.to_vec();
        ordered.sort();
        ordered.dedup();
        let mut locks = Vec::with_capacity(ordered.len());
        for subject in &ordered {
            locks.push(self.lock(subject).await?);
        }
        Ok(locks)
    }

    /// The lock of a key, if nobody has it.
    ///
    /// # Errors
    /// That of the leases.
    pub(crate) async fn try_lock(
        self: &Arc<Self>,
        subject: &Subject,
    ) -> Result<Option<KeyLock>, Error> {
        let slot = self.slot(subject);
        let mut lock = KeyLock::of(self, subject, &slot);
        let Ok(guard) = Arc::clone(&slot.lock).try_lock_owned() else {
            return Ok(None);
        };
        lock.guard = Some(guard);
        Ok(lock.take_lease().await?.then_some(lock))
    }

    fn slot(&self, subject: &Subject) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        Arc::clone(slots.entry(subject.clone()).or_default())
    }
}

/// Counts who waits for a lock.
struct Waiting<'a>(&'a Slot);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl KeyLock {
    fn of(locks: &Arc<Locks>, subject: &Subject, slot: &Arc<Slot>) -> Self {
        Self {
            subject: subject.clone(),
            locks: Arc::clone(locks),
            slot: Arc::clone(slot),
            guard: None,
            lease: None,
        }
    }

    /// What it locks.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Waits until somebody else waits for the lock.
    pub(crate) async fn wanted(&self) {
        let wanted = self.slot.wanted.notified();
        if self.slot.waiting.load(Ordering::SeqCst) == 0 {
            wanted.await;
        }
    }

    /// Whether no other gateway can have it, by our clock: one that stood still for too long must
    /// not send what it was about to.
    pub(crate) fn is_held(&self) -> bool {
        let now = self.locks.clock.now();
        let lease = self.lease.as_ref();
        lease.is_none_or(|held| now + LEASE_LEFT_MIN < *held.until.lock())
    }

    async fn take_lease(&mut self) -> Result<bool, Error> {
        let Some((leases, names)) = &self.locks.leases else {
            return Ok(true);
        };
        let route = names.lease(&self.subject);
        let holder = &self.locks.holder;
        let clock = self.locks.clock.clone();
        let until = Arc::new(Mutex::new(clock.now() + LEASE_TIME));
        let Some(lease) = leases.acquire(&route, holder, LEASE_TIME).await? else {
            return Ok(false);
        };
        let renewing = tokio::spawn({
            let (leases, lease) = (Arc::clone(leases), lease.clone());
            let until = Arc::clone(&until);
            async move {
                loop {
                    tokio::time::sleep(RENEW_EVERY).await;
                    // What can't be renewed is tried again; one that is lost is noticed by the
                    // journal, in which another has written then.
                    let begun = clock.now();
                    match leases.renew(&lease, LEASE_TIME).await {
                        Ok(true) => *until.lock() = begun + LEASE_TIME,
                        Ok(false) => return,
                        Err(_) => {}
                    }
                }
            }
        });
        self.lease = Some(HeldLease {
            leases: Arc::clone(leases),
            lease: Some(lease),
            until,
            renewing,
        });
        Ok(true)
    }

    /// Gives the lock back, and the lease at once, not only when its time is over.
    pub(crate) async fn release(mut self) {
        if let Some(held) = self.lease.take() {
            held.release().await;
        }
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        self.guard = None;
        let mut slots = self.locks.slots.lock();
        // Ours, the map's: nobody else has it or waits for it.
        if Arc::strong_count(&self.slot) == 2 {
            slots.remove(&self.subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use forebay_native::{hot::Space, memory::MemoryLeases};
    use forebay_s3::bucket::BucketName;

    use super::*;

    fn locks(clock: &Clock, gateways: Gateways) -> Arc<Locks> {
        let leases = Arc::new(MemoryLeases::new(clock.clone()));
        let names = Names::new(Space::parse("m").unwrap());
        let holder = Bytes::from_static(b"g1");
        Arc::new(Locks::new((leases, names), holder, clock.clone(), gateways))
    }

    #[tokio::test(start_paused = true)]
    async fn who_stood_still_for_too_long_does_not_hold_its_lock() {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let subject = Subject::Bucket(BucketName::parse("bucket").unwrap());
        let many = locks(&clock, Gateways::Many).lock(&subject).await.unwrap();
        let one = locks(&clock, Gateways::One).lock(&subject).await.unwrap();
        assert!(many.is_held() && one.is_held());
        clock.advance(Duration::from_secs(10));
        tokio::time::sleep(RENEW_EVERY * 2).await;
        clock.advance(Duration::from_secs(10));
        assert!(many.is_held(), "it was renewed");
        clock.advance(Duration::from_secs(10));
        assert!(!many.is_held() && one.is_held());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_goes_from_one_to_the_next_and_is_forgotten() {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH);
        let subject = Subject::Bucket(BucketName::parse("bucket").unwrap());
        let locks = locks(&clock, Gateways::One);
        let first = locks.lock(&subject).await.unwrap();
        assert!(locks.try_lock(&subject).await.unwrap().is_none());
        let next = tokio::spawn({
            let (locks, subject) = (Arc::clone(&locks), subject.clone());
            async move { locks.lock(&subject).await.unwrap() }
        });
        first.wanted().await;
        drop(first);
        next.await.unwrap().release().await;
        assert!(locks.slots.lock().is_empty());
    }
}
