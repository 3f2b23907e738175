//! Memory for bodies that are read straight from their connections, used again while it is warm.
//!
//! A piece of a body lives until its last reader has dropped it, which for a page of the cache is
//! some pieces later: whoever reads the body needs more than one buffer. Memory that goes back to
//! the system between two of them comes back as system pages that must be found and zeroed, one
//! fault each, which at 1 GiB took as much time as receiving and sending together (`make bench
//! BENCH_ARGS="cold-read"`). So buffers are put aside with their last pieces still out, and taken
//! again when those are gone.
//!
//! Called by [`crate::direct`]. Bounded: [`KEPT_MAX`] buffers, [`IDLE_MAX`] while no body is read.

use std::{collections::VecDeque, sync::Arc};

use bytes::BytesMut;
use parking_lot::Mutex;

/// Bytes of one buffer, and of its largest read: what a socket of this machine has ready at once.
/// Larger reads fall out of the processor's second-level cache before they are sent on.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;
/// Buffers that are put aside: 16 MiB, what the reads of all bodies may hold together.
const KEPT_MAX: usize = 64;
/// The same while no body is read: 2 MiB, two pages of the cache.
const IDLE_MAX: usize = 8;
/// Buffers looked at for one that is free: the oldest, unless a slow reader holds it.
const LOOKS_MAX: usize = 4;

/// Buffers of all connections to one origin.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    stock: Mutex<Stock>,
}

#[derive(Debug, Default)]
struct Stock {
    /// The one that was put aside first is the first to be free.
    kept: VecDeque<BytesMut>,
    body_count: usize,
}

/// The buffers of one body, one at a time.
#[derive(Debug)]
pub(crate) struct BodyBuffer {
    buffers: Arc<Buffers>,
    current: Option<BytesMut>,
}

impl Buffers {
    /// Counts one more body.
    pub(crate) fn body(self: &Arc<Self>) -> BodyBuffer {
        self.stock.lock().body_count += 1;
        BodyBuffer {
            buffers: Arc::clone(self),
            current: None,
        }
    }
}

impl Stock {
    /// A buffer with room for so many bytes.
    fn take(&mut self, bytes: usize) -> Option<BytesMut> {
        for _ in 0..LOOKS_MAX.min(self.kept.len()) {
            let mut buffer = self.kept.pop_front()?;
            if buffer.capacity() >= bytes || buffer.try_reclaim(bytes) {
                return Some(buffer);
            }
            self.kept.push_back(buffer);
        }
        None
    }

    /// Puts an emptied buffer aside, whose pieces may still be out.
    fn give(&mut self, buffer: BytesMut) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push_back(buffer);
        }
    }
}

impl BodyBuffer {
    /// An empty buffer for `1..=BUFFER_BYTES` bytes; the one before it is put aside unless half of
    /// them still fit there.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut BytesMut {
        let enough = bytes.div_ceil(2);
        self.current = match self.current.take() {
            Some(current) if current.capacity() >= enough => Some(current),
            used_up => {
                let mut stock = self.buffers.stock.lock();
                let next = stock.take(bytes);
                if let Some(used_up) = used_up {
                    stock.give(used_up);
                }
                next
            }
        };
        (self.current).get_or_insert_with(|| BytesMut::with_capacity(BUFFER_BYTES))
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        let mut stock = self.buffers.stock.lock();
        if let Some(current) = self.current.take() {
            stock.give(current);
        }
        stock.body_count -= 1;
        if stock.body_count == 0 {
            stock.kept.truncate(IDLE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Receives so many bytes; returns them and where they lie.
    fn receive(body: &mut BodyBuffer, bytes: usize) -> (Bytes, *const u8) {
        let room = body.room(bytes);
        room.resize(bytes, 7);
        let piece = room.split().freeze();
        let place = piece.as_ptr();
        (piece, place)
    }

    #[test]
    fn a_buffer_is_used_again_once_its_pieces_are_gone_and_not_before() {
        let mut body = Arc::new(Buffers::default()).body();
        let (held, first) = receive(&mut body, BUFFER_BYTES);
        let (gone, second) = receive(&mut body, BUFFER_BYTES);
        let (_held_too, third) = receive(&mut body, BUFFER_BYTES);
        assert!(first != second && second != third && third != first);
        drop(gone);
        assert_eq!(receive(&mut body, BUFFER_BYTES).1, second);
        assert!(held.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_left_of_a_buffer_serves_the_next_body() {
        let buffers = Arc::new(Buffers::default());
        let (_piece, place) = receive(&mut buffers.body(), BUFFER_BYTES / 2);
        let rest = receive(&mut buffers.body(), BUFFER_BYTES / 2).1;
        assert_eq!(rest, place.wrapping_add(BUFFER_BYTES / 2));
    }

    #[test]
    fn few_buffers_are_kept_and_fewer_while_nobody_reads() {
        let buffers = Arc::new(Buffers::default());
        let (mut body, other) = (buffers.body(), buffers.body());
        let pieces: Vec<_> = (0..KEPT_MAX + 2)
            .map(|_| receive(&mut body, BUFFER_BYTES))
            .collect();
        assert_eq!(buffers.stock.lock().kept.len(), KEPT_MAX);
        drop((body, pieces));
        assert_eq!(buffers.stock.lock().kept.len(), KEPT_MAX);
        drop(other);
        assert_eq!(buffers.stock.lock().kept.len(), IDLE_MAX);
    }
}
