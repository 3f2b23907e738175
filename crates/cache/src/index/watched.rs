//! A lock that counts who had to wait for it.

use parking_lot::MutexGuard;
use prometheus_client::metrics::counter::Counter;

use crate::sync::Mutex;

/// A lock and what it protects. Nobody is counted while nobody waits, so that a lock that is free
/// costs what it costs without the count.
#[derive(Debug)]
pub(super) struct Watched<T> {
    inner: Mutex<T>,
    waits: Counter,
}

impl<T> Watched<T> {
    /// Counts in `waits`.
    pub(super) fn new(inner: T, waits: Counter) -> Self {
        Self {
            inner: Mutex::new(inner),
            waits,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.try_lock().unwrap_or_else(|| {
            self.waits.inc();
            self.inner.lock()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn those_who_wait_are_counted() {
        let waits = Counter::default();
        let lock = Watched::new(0, waits.clone());
        *lock.lock() += 1;
        assert_eq!(waits.get(), 0);
        let (held, is_held) = mpsc::channel();
        std::thread::scope(|threads| {
            let lock = &lock;
            let waits = &waits;
            threads.spawn(move || {
                let mut value = lock.lock();
                held.send(()).unwrap();
                // Until the other waits.
                while waits.get() == 0 {
                    std::thread::yield_now();
                }
                *value += 1;
            });
            is_held.recv().unwrap();
            *lock.lock() += 1;
        });
        assert_eq!((*lock.lock(), waits.get()), (3, 1));
    }
}
