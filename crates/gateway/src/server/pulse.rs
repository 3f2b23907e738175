//! Signs of life of a connection, and the rule that says when it has none.
//!
//! The socket, the bodies and the service note what happens in a [`Pulse`] by plain stores; once
//! in a while the thread's watchdog takes a [`Sample`] of each and asks [`Watch::judge`]. So no
//! timer is set or reset on a request's way, and a slow client costs as much as a fast one.
//!
//! Not here: uploads that stall, which get an answer instead of a cut (`request::upload`).

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::{Duration, Instant},
};

use crate::settings::Limits;

/// What a connection tells about itself, and what it is told to do.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Reads since the last request ended: between requests, the beginning of the next one.
    reads: AtomicU32,
    /// Bytes the socket took.
    written_bytes: AtomicU64,
    /// Whether the socket refuses more bytes now.
    write_blocked: AtomicBool,
    /// Response bodies that have more to give and are not asked for it.
    bodies_offered: AtomicU32,
    /// Requests under way.
    in_flight: AtomicU32,
    /// Requests begun.
    begun: AtomicU32,
    /// An [`Order`].
    order: AtomicU8,
    closed: AtomicBool,
    /// The connection's task, once it runs.
    task: Mutex<Option<Waker>>,
}

/// What a connection is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Serve.
    Serve,
    /// Finish what is under way, take nothing new.
    Drain,
    /// End now.
    Cut,
}

impl Pulse {
    pub(crate) fn read(&self) {
        self.reads
            .store(self.reads.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
        self.write_blocked.store(false, Relaxed);
    }

    pub(crate) fn write_is_blocked(&self) {
        self.write_blocked.store(true, Relaxed);
    }

    pub(crate) fn request_begins(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
    }

    pub(crate) fn request_ends(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
        self.reads.store(0, Relaxed);
    }

    pub(crate) fn body_offers(&self) {
        self.bodies_offered.fetch_add(1, Relaxed);
    }

    pub(crate) fn body_is_taken(&self) {
        self.bodies_offered.fetch_sub(1, Relaxed);
    }

    pub(crate) fn order(&self) -> Order {
        match self.order.load(Relaxed) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Cut,
        }
    }

    /// Tells the connection what to do; an order never goes back.
    pub(crate) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Relaxed);
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Names the task that is to be woken for an order.
    pub(crate) fn runs_in(&self, task: &Waker) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.clone());
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn sample(&self) -> Sample {
        let is_blocked = self.write_blocked.load(Relaxed) || self.bodies_offered.load(Relaxed) > 0;
        Sample {
            reads: self.reads.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            writing: if is_blocked {
                Writing::Blocked
            } else {
                Writing::Free
            },
            in_flight: self.in_flight.load(Relaxed),
            begun: self.begun.load(Relaxed),
        }
    }
}

/// A pulse at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) reads: u32,
    pub(crate) written_bytes: u64,
    pub(crate) writing: Writing,
    pub(crate) in_flight: u32,
    pub(crate) begun: u32,
}

/// Whether the client takes what it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Nothing waits to be sent.
    Free,
    /// Bytes wait for the client.
    Blocked,
}

/// Which rules hold for bytes that arrive between requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// They are the beginning of the next request.
    Http1,
    /// They may be anything, such as pings.
    Http2,
}

/// What the watchdog remembers of one connection.
#[derive(Debug)]
pub(crate) struct Watch {
    protocol: Protocol,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request yet, or the beginning of one, since then.
    Head { since: Instant, begun: u32 },
    /// Between requests since then.
    Idle { since: Instant, begun: u32 },
    /// A request is under way and no byte waits for the client.
    Busy,
    /// The client has had bytes waiting since then.
    Blocked { since: Instant, written_bytes: u64 },
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes on.
    Lives,
    /// Nothing was asked for too long: close it politely.
    Idle,
    /// The client is too slow or silent: cut it.
    Stalled,
}

impl Watch {
    /// Begins with a connection accepted at `now`.
    pub(crate) fn new(protocol: Protocol, now: Instant) -> Self {
        Self {
            protocol,
            phase: Phase::Head {
                since: now,
                begun: 0,
            },
        }
    }

    /// Judges a sample taken at `now`.
    pub(crate) fn judge(&mut self, sample: Sample, now: Instant, limits: &Limits) -> Verdict {
        let longer_than =
            |since: Instant, timeout: Duration| now.saturating_duration_since(since) >= timeout;
        if sample.writing == Writing::Blocked {
            return self.judge_blocked(sample, now, limits);
        }
        if sample.in_flight > 0 {
            self.phase = Phase::Busy;
            return Verdict::Lives;
        }
        match self.phase {
            Phase::Head { since, begun } if begun == sample.begun => {
                if longer_than(since, limits.header_timeout) {
                    return Verdict::Stalled;
                }
            }
            Phase::Idle { since, begun } if begun == sample.begun => {
                if self.protocol == Protocol::Http1 && sample.reads > 0 {
                    self.phase = Phase::Head { since: now, begun };
                } else if longer_than(since, limits.idle_timeout) {
                    return Verdict::Idle;
                }
            }
            Phase::Head { .. } | Phase::Idle { .. } | Phase::Busy | Phase::Blocked { .. } => {
                self.phase = Phase::Idle {
                    since: now,
                    begun: sample.begun,
                };
            }
        }
        Verdict::Lives
    }

    fn judge_blocked(&mut self, sample: Sample, now: Instant, limits: &Limits) -> Verdict {
        let window = Phase::Blocked {
            since: now,
            written_bytes: sample.written_bytes,
        };
        let Phase::Blocked {
            since,
            written_bytes,
        } = self.phase
        else {
            self.phase = window;
            return Verdict::Lives;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < limits.stall_timeout {
            return Verdict::Lives;
        }
        let moved_bytes = sample.written_bytes.saturating_sub(written_bytes);
        if is_too_slow(moved_bytes, elapsed, limits.rate_bytes_min) {
            return Verdict::Stalled;
        }
        self.phase = window;
        Verdict::Lives
    }
}

/// Whether so few bytes in so long are below the slowest pace.
pub(crate) fn is_too_slow(moved_bytes: u64, elapsed: Duration, rate_bytes_min: u64) -> bool {
    let expected_bytes = u128::from(rate_bytes_min) * elapsed.as_millis() / 1000;
    u128::from(moved_bytes) < expected_bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Sample = Sample {
        reads: 0,
        written_bytes: 0,
        writing: Writing::Free,
        in_flight: 0,
        begun: 0,
    };

    fn limits() -> Limits {
        Limits {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            rate_bytes_min: 100,
            ..Limits::default()
        }
    }

    /// Judges samples at these seconds; the verdicts in order.
    fn verdicts(protocol: Protocol, samples: &[(u64, Sample)]) -> Vec<Verdict> {
        let start = forebay_store::Clock::system().now();
        let mut watch = Watch::new(protocol, start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        samples
            .iter()
            .map(|(s, sample)| watch.judge(*sample, at(*s), &limits()))
            .collect()
    }

    #[test]
    fn a_head_that_does_not_come_or_end_in_time_is_a_stall() {
        use Verdict::{Lives, Stalled};
        let dripping = |reads| Sample { reads, ..QUIET };
        let samples = [
            (1, dripping(1)),
            (5, dripping(3)),
            (9, dripping(7)),
            (10, dripping(8)),
        ];
        assert_eq!(
            verdicts(Protocol::Http1, &samples),
            [Lives, Lives, Lives, Stalled]
        );
        // A second request that drips after a first that was answered.
        let next = |reads| Sample {
            reads,
            begun: 1,
            ..QUIET
        };
        let samples = [(1, next(0)), (20, next(1)), (25, next(2)), (30, next(3))];
        assert_eq!(
            verdicts(Protocol::Http1, &samples),
            [Lives, Lives, Lives, Stalled]
        );
        // On HTTP/2 such bytes may be pings.
        assert_eq!(
            verdicts(Protocol::Http2, &samples),
            [Lives, Lives, Lives, Lives]
        );
    }

    #[test]
    fn silence_between_requests_ends_in_a_polite_close() {
        use Verdict::{Idle, Lives};
        let done = Sample { begun: 1, ..QUIET };
        let more = Sample { begun: 2, ..QUIET };
        let samples = [(1, done), (75, done), (75, more), (149, more), (150, more)];
        assert_eq!(
            verdicts(Protocol::Http1, &samples),
            [Lives, Lives, Lives, Lives, Idle]
        );
    }

    #[test]
    fn a_busy_connection_lives_however_long_the_store_takes() {
        let busy = Sample {
            in_flight: 1,
            begun: 1,
            reads: 1,
            ..QUIET
        };
        let samples = [(1, busy), (1000, busy), (9999, busy)];
        assert_eq!(verdicts(Protocol::Http1, &samples), [Verdict::Lives; 3]);
    }

    #[test]
    fn a_client_that_takes_too_few_bytes_in_a_window_is_cut() {
        use Verdict::{Lives, Stalled};
        let blocked = |written_bytes| Sample {
            written_bytes,
            writing: Writing::Blocked,
            in_flight: 1,
            ..QUIET
        };
        let steady = [
            (0, blocked(0)),
            (29, blocked(10)),
            (30, blocked(3000)),
            (60, blocked(6000)),
        ];
        assert_eq!(verdicts(Protocol::Http1, &steady), [Lives; 4]);
        let slow = [(0, blocked(0)), (30, blocked(3000)), (60, blocked(5999))];
        assert_eq!(verdicts(Protocol::Http1, &slow), [Lives, Lives, Stalled]);
        // Bytes that wait after the body was handed over count as well.
        let flushing = |written_bytes| Sample {
            in_flight: 0,
            ..blocked(written_bytes)
        };
        let stuck = [(0, flushing(5)), (31, flushing(5))];
        assert_eq!(verdicts(Protocol::Http1, &stuck), [Lives, Stalled]);
    }

    #[test]
    fn an_order_never_goes_back() {
        let pulse = Pulse::default();
        assert_eq!(pulse.order(), Order::Serve);
        pulse.give(Order::Cut);
        pulse.give(Order::Drain);
        assert_eq!(pulse.order(), Order::Cut);
    }
}
