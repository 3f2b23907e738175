//! The same locks and counters, which give turns to others while [`explore`] runs.
//!
//! Threads are shuttle's then: all on one thread of the system, one step at a time, in an order
//! that a seed chooses. The locks stay `parking_lot`'s, so that they work outside as well; who
//! finds one taken waits its turn. What waits for ever runs into [`STEPS_MAX`], or shuttle sees
//! that nobody can go on.
//!
//! Not here: weak orders of memory, which shuttle does not explore either.

use std::{
    cell::Cell,
    ops::Deref,
    sync::atomic::{self, Ordering},
};

use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use shuttle::{
    Config, MaxSteps, Runner,
    scheduler::{PctScheduler, RandomScheduler},
};

/// Orders of each kind that one test tries: in the tests here, broken code is found within some
/// hundred.
const SCHEDULES: usize = 1000;
/// Where both kinds begin.
const SEED: u64 = 7;
/// Moments at which another thread goes first, and one (Burckhardt et al., "A randomized scheduler
/// with probabilistic guarantees of finding bugs", 2010): most faults need no more than two.
const PCT_DEPTH: usize = 3;
/// Turns after which nothing will end any more.
const STEPS_MAX: usize = 200_000;

/// Stack of a thread: futures of the layer are large where nothing is optimised, and a stack that
/// is too small ends the whole process.
const STACK_BYTES: usize = 1024 * 1024;

thread_local! {
    static EXPLORES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `schedule`, whose threads must be shuttle's, in many orders. One that fails is printed.
pub(crate) fn explore(schedule: impl Fn() + Send + Sync + 'static) {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            EXPLORES.set(false);
        }
    }
    EXPLORES.set(true);
    let _end = End;
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.stack_size = STACK_BYTES;
    let schedule = std::sync::Arc::new(schedule);
    println!("seed {SEED}");
    let pct = PctScheduler::new_from_seed(SEED, PCT_DEPTH, SCHEDULES);
    let same = std::sync::Arc::clone(&schedule);
    Runner::new(pct, config.clone()).run(move || same());
    let random = RandomScheduler::new_from_seed(SEED, SCHEDULES);
    Runner::new(random, config).run(move || schedule());
}

/// Lets others go first, if the schedule says so.
pub(crate) fn turn() {
    if EXPLORES.get() && !std::thread::panicking() {
        // Any use of an atomic of shuttle's is a turn.
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

/// Takes a lock when its turn comes; `wait` is for outside of a schedule.
fn taken<G>(attempt: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
    if !EXPLORES.get() || std::thread::panicking() {
        return wait();
    }
    turn();
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        shuttle::thread::yield_now();
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        turn();
        self.0.try_lock()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        taken(|| self.0.try_lock(), || self.0.lock())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        taken(|| self.0.try_read(), || self.0.read())
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        taken(|| self.0.try_write(), || self.0.write())
    }
}

macro_rules! counters {
    ($($name:ident: $of:ty)+) => {$(
        /// See the module.
        #[derive(Debug)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) fn new(value: $of) -> Self {
                Self(value.into())
            }
        }

        impl From<$of> for $name {
            fn from(value: $of) -> Self {
                Self::new(value)
            }
        }

        impl Deref for $name {
            type Target = atomic::$name;

            /// Before each use.
            fn deref(&self) -> &Self::Target {
                turn();
                &self.0
            }
        }
    )+};
}

counters! { AtomicU64: u64 AtomicUsize: usize }
