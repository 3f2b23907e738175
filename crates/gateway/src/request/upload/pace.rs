//! The pace of a body that arrives.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

use crate::server::{Connection, is_too_slow};

/// Notices a client that sends too slowly, counting only the time that was spent waiting for it.
#[derive(Debug)]
pub(super) struct Pace {
    clock: forebay_store::Clock,
    stall_timeout: Duration,
    rate_bytes_min: u64,
    /// Bytes that came in this window.
    moved_bytes: u64,
    /// Time spent waiting in this window, but for the wait under way.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// Made at the first wait; set again only when it has rung.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(super) fn new(connection: &Connection) -> Self {
        let shared = &connection.worker.shared;
        let limits = &shared.settings.limits;
        Self {
            clock: shared.clock.clone(),
            stall_timeout: limits.stall_timeout,
            rate_bytes_min: limits.rate_bytes_min,
            moved_bytes: 0,
            waited: Duration::ZERO,
            waiting_since: None,
            timer: None,
        }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved_bytes += bytes as u64;
        if let Some(since) = self.waiting_since.take() {
            self.waited += self.clock.now().saturating_duration_since(since);
        }
    }

    /// To be asked while there is nothing to read: ready once the client is too slow.
    pub(super) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = self.stall_timeout;
        if self.waiting_since.is_none() {
            self.waiting_since = Some(self.clock.now());
        }
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        while timer.as_mut().poll(cx).is_ready() {
            let now = self.clock.now();
            let since = self.waiting_since.replace(now).unwrap_or(now);
            self.waited += now.saturating_duration_since(since);
            let mut left = timeout.saturating_sub(self.waited);
            if left.is_zero() {
                if is_too_slow(self.moved_bytes, self.waited, self.rate_bytes_min) {
                    return Poll::Ready(());
                }
                (self.moved_bytes, self.waited, left) = (0, Duration::ZERO, timeout);
            }
            *timer = Box::pin(tokio::time::sleep(left));
        }
        Poll::Pending
    }
}
