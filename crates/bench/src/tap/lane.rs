//! One direction of a connection: what was read and what is to be written, in order.
//!
//! A lane owns no socket: `relay` lends it one to fill from and one to drain into. Between the two
//! stands a queue of bytes, waits and cuts. Waits hold back what is queued after them, while the
//! lane goes on filling: so the delays of pipelined answers run side by side.
//!
//! Limits: a lane holds at most [`LANE_BYTES_MAX`] and one read; beyond that it stops reading, and
//! the peer feels it as a full window.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::atomic::AtomicU64,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWrite},
    net::TcpStream,
    time::Instant,
};

use super::counts::add;
use crate::alarm::Wait;

/// Bytes that wait in one direction: what a gigabit line with 2 ms holds.
pub(super) const LANE_BYTES_MAX: usize = 256 * 1024;
/// A read while heads are awaited, and one in a body.
const READ_BYTES_SMALL: usize = 16 * 1024;
const READ_BYTES_LARGE: usize = 128 * 1024;
/// Slices of one write: heads and bodies of a few pipelined messages.
const SLICES_MAX: usize = 16;

/// A bandwidth limit writes in portions of a hundredth of a second, and may catch up on so much.
const PORTIONS_PER_SECOND: u64 = 100;
const CATCH_UP_MAX: Duration = Duration::from_millis(50);
/// The smallest portion: a segment of Ethernet.
const PORTION_BYTES_MIN: u64 = 1460;

/// Something to write, or to do between writes.
#[derive(Debug)]
pub(super) enum Item {
    /// Heads, chunk framing, bytes of an opaque connection.
    Framing(Bytes),
    /// Bytes of a body.
    Payload(Bytes),
    /// What follows waits for this moment.
    Until(Instant),
    /// What follows waits for so long, counted from when all before it is written.
    For(Duration),
    /// Both connections end here, with a reset.
    Cut,
}

/// What draining came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// Bytes were written.
    Some,
    /// Nothing is queued.
    Empty,
    /// A cut stands at the front.
    Cut,
}

/// How large the next read may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadSize {
    Small,
    Large,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Read and not yet framed.
    pub(super) input: BytesMut,
    /// The peer that fills the lane sends no more.
    pub(super) has_ended: bool,
    /// The end was passed on.
    pub(super) is_shut: bool,
    queue: VecDeque<Item>,
    queued_bytes: usize,
    timer: Option<Wait>,
    pub(super) pace: Pace,
}

/// The limits and counters that a lane shares.
pub(super) struct Tolls<'a> {
    pub(super) total_pace: Option<&'a Mutex<Pace>>,
    pub(super) bytes: &'a AtomicU64,
    pub(super) body_bytes: &'a AtomicU64,
}

/// A bandwidth limit: when the next portion may be written.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Bytes per second; `None`: no limit.
    pub(super) rate: Option<u64>,
    next: Option<Instant>,
}

impl Pace {
    /// Bytes that may be written now, or when to ask again.
    fn allowance(&self, now: Instant) -> Result<usize, Instant> {
        match (self.rate, self.next) {
            (None, _) => Ok(usize::MAX),
            (Some(_), Some(next)) if next > now => Err(next),
            (Some(rate), _) => {
                let bytes = (rate / PORTIONS_PER_SECOND).max(PORTION_BYTES_MIN);
                Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
        }
    }

    fn spend(&mut self, bytes: usize, now: Instant) {
        let Some(rate) = self.rate else {
            return;
        };
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate.max(1));
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(CATCH_UP_MAX).unwrap_or(now);
        let from = self.next.map_or(now, |next| next.max(earliest));
        self.next = Some(from + cost);
    }
}

impl Lane {
    /// Puts something at the end of the queue.
    pub(super) fn push(&mut self, item: Item) {
        if let Item::Framing(bytes) | Item::Payload(bytes) = &item {
            if bytes.is_empty() {
                return;
            }
            self.queued_bytes += bytes.len();
        }
        self.queue.push_back(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.input.is_empty()
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Drops all that is queued and read.
    pub(super) fn discard(&mut self) {
        self.queue.clear();
        self.queued_bytes = 0;
        self.input.clear();
    }

    /// Gives the memory of an idle lane back.
    pub(super) fn release_memory(&mut self) {
        if self.is_empty() && self.input.capacity() > 0 {
            self.input = BytesMut::new();
        }
    }

    /// Whether there is room for another read, and something to expect from it.
    pub(super) fn may_fill(&self) -> bool {
        !self.has_ended && self.queued_bytes + self.input.len() < LANE_BYTES_MAX
    }

    /// Reads once. `Ready(Ok(()))` means that something changed: bytes came, or the end.
    pub(super) fn poll_fill(
        &mut self,
        from: &mut TcpStream,
        size: ReadSize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = match size {
            ReadSize::Small => READ_BYTES_SMALL,
            ReadSize::Large => READ_BYTES_LARGE,
        };
        if self.input.capacity() - self.input.len() < bytes / 2 {
            self.input.reserve(bytes);
        }
        let count = ready!(pin!(from.read_buf(&mut self.input)).poll(cx))?;
        self.has_ended = count == 0;
        Poll::Ready(Ok(()))
    }

    /// Writes what is due, once.
    pub(super) fn poll_drain(
        &mut self,
        to: &mut TcpStream,
        tolls: &Tolls<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Drained>> {
        loop {
            match self.queue.front() {
                None => return Poll::Ready(Ok(Drained::Empty)),
                Some(Item::Cut) => return Poll::Ready(Ok(Drained::Cut)),
                Some(Item::For(time)) => {
                    let until = Instant::now() + *time;
                    self.queue[0] = Item::Until(until);
                }
                Some(Item::Until(at)) => {
                    let at = *at;
                    ready!(self.poll_wait(at, cx));
                    self.queue.pop_front();
                }
                Some(Item::Framing(_) | Item::Payload(_)) => {
                    let allowed = ready!(self.poll_allowance(tolls, cx));
                    let count = ready!(self.poll_write(to, allowed, cx))?;
                    self.spend(count, tolls);
                    self.take_written(count, tolls);
                    return Poll::Ready(Ok(Drained::Some));
                }
            }
        }
    }

    fn poll_allowance(&mut self, tolls: &Tolls<'_>, cx: &mut Context<'_>) -> Poll<usize> {
        if self.pace.rate.is_none() && tolls.total_pace.is_none() {
            return Poll::Ready(usize::MAX);
        }
        loop {
            let now = Instant::now();
            let own = self.pace.allowance(now);
            let total = tolls
                .total_pace
                .map_or(Ok(usize::MAX), |total| total.lock().allowance(now));
            match (own, total) {
                (Ok(own), Ok(total)) => return Poll::Ready(own.min(total)),
                (Err(at), _) | (_, Err(at)) => ready!(self.poll_wait(at, cx)),
            }
        }
    }

    fn spend(&mut self, count: usize, tolls: &Tolls<'_>) {
        if self.pace.rate.is_none() && tolls.total_pace.is_none() {
            return;
        }
        let now = Instant::now();
        self.pace.spend(count, now);
        if let Some(total) = tolls.total_pace {
            total.lock().spend(count, now);
        }
    }

    fn poll_write(
        &mut self,
        to: &mut TcpStream,
        allowed: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut slice_count, mut left) = (0, allowed);
        for (slice, item) in slices.iter_mut().zip(&self.queue) {
            let (Item::Framing(bytes) | Item::Payload(bytes)) = item else {
                break;
            };
            if left == 0 {
                break;
            }
            let bytes = &bytes[..bytes.len().min(left)];
            *slice = IoSlice::new(bytes);
            left -= bytes.len();
            slice_count += 1;
        }
        Pin::new(to).poll_write_vectored(cx, &slices[..slice_count])
    }

    /// Takes written bytes out of the queue and counts them.
    fn take_written(&mut self, count: usize, tolls: &Tolls<'_>) {
        add(tolls.bytes, count as u64);
        self.queued_bytes -= count;
        let (mut left, mut body_bytes) = (count, 0);
        while left > 0 {
            let Some(item) = self.queue.front_mut() else {
                break;
            };
            let (bytes, is_payload) = match item {
                Item::Framing(bytes) => (bytes, false),
                Item::Payload(bytes) => (bytes, true),
                Item::Until(_) | Item::For(_) | Item::Cut => break,
            };
            let taken = bytes.len().min(left);
            bytes.advance(taken);
            left -= taken;
            body_bytes += if is_payload { taken } else { 0 };
            if bytes.is_empty() {
                self.queue.pop_front();
            }
        }
        if body_bytes > 0 {
            add(tolls.body_bytes, body_bytes as u64);
        }
    }

    fn poll_wait(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= until {
            return Poll::Ready(());
        }
        let timer = self.timer.get_or_insert_with(|| Wait::new(until));
        timer.poll_until(until, cx)
    }
}
