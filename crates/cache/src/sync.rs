//! The locks and counters at which threads meet.
//!
//! Those of `parking_lot` and of the standard library. In tests they are the same with one
//! addition: within `scheduled::explore` another thread may get its turn before each use of one, so
//! that orders of events come up which no stress test would meet (`tests/interleavings`).

#[cfg(test)]
pub(crate) mod scheduled;

#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(test)]
pub(crate) use scheduled::{AtomicU64, AtomicUsize, Mutex, RwLock};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize};
