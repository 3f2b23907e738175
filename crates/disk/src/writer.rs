//! The thread that writes: appends entries, seals segments, evicts the oldest.
//!
//! Nothing is synced for the sake of a single page: every entry proves itself when it is read. A
//! sync bounds what lies in the kernel's memory, ends a segment, and is what a flush waits for.
//!
//! After any failure the segment that was being written is left as it is, and all that was not
//! synced in it is forgotten and owed a removal: nobody knows what of it is on the disk.

use std::{io, sync::Arc};

use crate::{
    device::Device,
    format::{self, Entry, Item, Kind},
    index::Place,
    page_store::{PageId, Unwritten},
    shelf::{BATCH_BYTES_MAX, Batch, OnDisk, SharedShelf, Source, Written},
};

/// Bytes that may wait in the kernel's memory.
const UNSYNCED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Of a segment, a quarter at most is written once more when it makes room: a cache whose pages are
/// all in use is still to take new ones.
const REWRITTEN_SHARE: u64 = 4;
/// Segments given up for one more when the disk is full.
const GIVEN_UP_MAX: u32 = 4;

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    shelf: SharedShelf,
    device: Arc<dyn Device>,
    segment_bytes: u64,
    tail: Option<Tail>,
}

/// The segment that is written.
#[derive(Debug)]
struct Tail {
    segment: u64,
    /// Where the next entry begins.
    end: u64,
    /// The bytes before `end` that were not written yet.
    buffer: Vec<u8>,
    items: Vec<Item>,
    /// Of the items, so many are surely on the disk.
    synced: usize,
    unsynced_bytes: u64,
    /// What the buffer has.
    run: Vec<Written>,
}

impl Writer {
    pub(crate) fn new(shelf: SharedShelf, device: Arc<dyn Device>) -> Self {
        let segment_bytes = shelf.settings.segment_bytes();
        Self {
            shelf,
            device,
            segment_bytes,
            tail: None,
        }
    }

    /// Writes until the store is closed.
    pub(crate) fn run(mut self) {
        loop {
            let batch = self.shelf.next_batch();
            let written = self.write(&batch);
            let outcome = match written {
                Ok(()) => Ok(()),
                Err(error) => {
                    self.failed(&batch, &error);
                    Err(Unwritten)
                }
            };
            for flush in batch.flushes {
                // Whoever waited may have gone.
                let _ = flush.done.send(outcome);
            }
            if batch.is_last {
                return;
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        if batch.all_owed {
            self.give_up_all()?;
        }
        while self.shelf.is_crowded(batch.pages.len()) {
            self.make_fewer()?;
        }
        for id in &batch.removals {
            self.append(*id, Entry::Removal, Source::Queue)?;
        }
        for (id, page) in &batch.pages {
            self.append(*id, Entry::Page(page), Source::Queue)?;
        }
        self.write_out()?;
        if batch.is_last {
            self.seal()?;
        } else if !batch.flushes.is_empty() {
            self.sync()?;
        }
        self.shelf.batch_written();
        if !batch.pages.is_empty() {
            self.shelf.write_succeeded();
        }
        Ok(())
    }

    /// Leaves the segment as it is.
    fn failed(&mut self, batch: &Batch, error: &io::Error) {
        let folder = self.shelf.settings.folder.display();
        tracing::debug!(%folder, %error, "the disk has not taken what was to be written");
        let mut unwritten: Vec<PageId> = batch.removals.clone();
        unwritten.extend(batch.pages.iter().map(|(id, _)| *id));
        if let Some(tail) = self.tail.take() {
            unwritten.extend(tail.items[tail.synced..].iter().map(|item| item.id));
            let written = tail.end - tail.buffer.len() as u64;
            // Gives back what was taken in advance; where that fails too, it counts as used.
            if self.device.resize(tail.segment, written).is_ok() {
                self.shelf.segment_resized(written);
            }
        }
        self.shelf.batch_failed(batch, &unwritten);
        if is_full(error) {
            if let Some(oldest) = self.shelf.oldest() {
                // What can't be removed now is tried again when room is needed.
                let _ = self.evict(oldest);
            }
            self.shelf.pause();
            self.shelf.metrics.writes_failed.inc();
        } else {
            self.shelf.write_failed();
        }
    }

    fn append(&mut self, id: PageId, entry: Entry<'_>, source: Source) -> io::Result<()> {
        let kind = match entry {
            Entry::Page(page) => {
                Kind::Page(u32::try_from(page.len()).map_err(|_| io::ErrorKind::InvalidInput)?)
            }
            Entry::Removal => Kind::Removal,
        };
        let mut item = Item {
            id,
            offset: 0,
            kind,
        };
        let entry_bytes = item.entry_bytes();
        if self
            .tail
            .as_ref()
            .is_some_and(|t| !t.has_room(entry_bytes, self.segment_bytes))
        {
            self.seal()?;
        }
        if self.tail.is_none() {
            self.begin()?;
        }
        let Some(tail) = &mut self.tail else {
            return Err(io::Error::other("there is no segment"));
        };
        item.offset = tail.end;
        format::push_entry(&mut tail.buffer, tail.segment, id, entry);
        if let Kind::Page(_) = kind {
            let place = Place::new(tail.segment, tail.end, entry_bytes);
            tail.run.push(Written { id, place, source });
        }
        tail.items.push(item);
        tail.end += entry_bytes;
        self.shelf.metrics.written_bytes.inc_by(entry_bytes);
        if tail.buffer.len() as u64 >= BATCH_BYTES_MAX {
            self.write_out()?;
        }
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        let Some(tail) = &mut self.tail else {
            return Ok(());
        };
        if tail.buffer.is_empty() {
            return Ok(());
        }
        let bytes = tail.buffer.len() as u64;
        self.device
            .write(tail.segment, tail.end - bytes, &tail.buffer)?;
        tail.buffer.clear();
        // A page of the largest size would stay for as long as the store.
        tail.buffer.shrink_to(format::size(2 * BATCH_BYTES_MAX));
        tail.unsynced_bytes += bytes;
        self.shelf.written(&tail.run);
        tail.run.clear();
        if tail.unsynced_bytes >= UNSYNCED_BYTES_MAX {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if let Some(tail) = &mut self.tail {
            self.device.sync(tail.segment)?;
            tail.synced = tail.items.len();
            tail.unsynced_bytes = 0;
        }
        Ok(())
    }

    /// Ends the segment with its footer.
    fn seal(&mut self) -> io::Result<()> {
        self.write_out()?;
        let Some(tail) = &mut self.tail else {
            return Ok(());
        };
        let end = seal(&*self.device, tail.segment, tail.end, &tail.items)?;
        self.shelf.segment_resized(end);
        self.tail = None;
        Ok(())
    }

    /// Makes the next segment, and then room for the one after it.
    fn begin(&mut self) -> io::Result<()> {
        while let Some(oldest) = self.shelf.oldest_without_room(self.segment_bytes) {
            self.evict(oldest)?;
        }
        let segment = self.make()?;
        self.shelf.segment_made(self.segment_bytes);
        let head = format::segment_head(segment);
        self.tail = Some(Tail {
            segment,
            end: head.len() as u64,
            buffer: head,
            items: Vec::new(),
            synced: 0,
            unsynced_bytes: 0,
            run: Vec::new(),
        });
        while let Some(oldest) = self.shelf.oldest_without_room(self.segment_bytes) {
            if oldest == segment {
                break;
            }
            self.rewrite_used(oldest)?;
            self.evict(oldest)?;
        }
        Ok(())
    }

    /// Makes the next segment; where the disk is full, in the place of others.
    fn make(&mut self) -> io::Result<u64> {
        let segment = self.shelf.next_segment();
        // What an attempt that failed may have left.
        self.device.remove(segment)?;
        let mut given_up = 0;
        loop {
            match self.device.make(segment, self.segment_bytes) {
                Ok(()) => return Ok(segment),
                Err(error) if is_full(&error) => {
                    given_up += 1;
                    match self.shelf.oldest() {
                        Some(oldest) if given_up <= GIVEN_UP_MAX => self.evict(oldest)?,
                        Some(_) | None => return Err(error),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Appends what was used of a segment once more, up to its share.
    fn rewrite_used(&mut self, segment: u64) -> io::Result<()> {
        let mut left = self.segment_bytes / REWRITTEN_SHARE;
        for entry in self.shelf.used_of(segment) {
            let OnDisk { hash, place, .. } = entry;
            let entry_bytes = place.entry_bytes();
            let fits = self.tail.as_ref().is_some_and(|tail| {
                // A segment that is sealed for these would need room itself.
                tail.has_room(entry_bytes, self.segment_bytes)
            });
            if entry_bytes > left || !fits || !self.shelf.may_rewrite(entry_bytes) {
                continue;
            }
            // What can't be read is not worth keeping.
            let Ok(read) = self.device.read(segment, place.offset(), entry_bytes) else {
                continue;
            };
            let Some(item) = format::entry_head(&read, segment, place.offset()) else {
                continue;
            };
            let page = format::page_in(&read, segment, item.id);
            let Some(page) = page.filter(|_| self.shelf.hash(item.id) == hash) else {
                continue;
            };
            self.append(item.id, Entry::Page(&read[page]), Source::Segment(place))?;
            self.shelf.metrics.rewritten_bytes.inc_by(entry_bytes);
            left -= entry_bytes;
        }
        self.write_out()
    }

    fn evict(&mut self, segment: u64) -> io::Result<()> {
        // First the file: what is counted as free must be.
        self.device.remove(segment)?;
        self.shelf.evict(segment);
        Ok(())
    }

    /// Evicts the oldest segment, that which is written if there is no other.
    fn make_fewer(&mut self) -> io::Result<()> {
        let Some(oldest) = self.shelf.oldest() else {
            return Ok(());
        };
        if self
            .tail
            .as_ref()
            .is_some_and(|tail| tail.segment == oldest)
        {
            self.seal()?;
        }
        self.evict(oldest)
    }

    /// Removes all segments, as more removals are owed than can be kept in mind.
    fn give_up_all(&mut self) -> io::Result<()> {
        self.tail = None;
        while let Some(oldest) = self.shelf.oldest() {
            self.evict(oldest)?;
        }
        Ok(())
    }
}

impl Tail {
    /// Whether an entry fits, and the footer behind it.
    fn has_room(&self, entry_bytes: u64, segment_bytes: u64) -> bool {
        let footer_bytes = format::footer_bytes(self.items.len() as u64 + 1);
        self.end + entry_bytes + footer_bytes <= segment_bytes
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Writes a segment's footer where its entries end, and cuts off what is behind; its length then.
pub(crate) fn seal(device: &dyn Device, segment: u64, end: u64, items: &[Item]) -> io::Result<u64> {
    let footer = format::footer(segment, items);
    device.write(segment, end, &footer)?;
    let end = end + footer.len() as u64;
    device.resize(segment, end)?;
    device.sync(segment)?;
    Ok(end)
}
