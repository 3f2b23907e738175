//! A disk that is told to fail, to be full or to hang, and that can be looked at as a crash after
//! any change would have left it.

use std::{collections::BTreeMap, io};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;

/// Segments as bytes.
pub(super) type Image = BTreeMap<u64, Vec<u8>>;

/// A change that was made, or a sync.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Make {
        segment: u64,
        bytes: u64,
    },
    Write {
        segment: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Resize {
        segment: u64,
        bytes: u64,
    },
    Remove {
        segment: u64,
    },
    Sync {
        segment: u64,
    },
}

/// What becomes of a change that was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// The first half of a write.
    Torn,
}

/// Calls that a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    Reads,
    Writes,
    Syncs,
}

#[derive(Debug, Default)]
pub(super) struct Sim {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// What was there at the start, and is there now.
    start: Image,
    image: Image,
    changes: Vec<Change>,
    failing: Option<(Calls, io::ErrorKind)>,
    hanging: Option<Calls>,
    hanging_count: usize,
    room_bytes: Option<u64>,
}

impl Sim {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn of(image: Image) -> Self {
        let sim = Self::new();
        sim.state.lock().start = image.clone();
        sim.state.lock().image = image;
        sim
    }

    pub(super) fn fail(&self, calls: Calls, kind: io::ErrorKind) {
        self.state.lock().failing = Some((calls, kind));
    }

    pub(super) fn hang(&self, calls: Calls) {
        self.state.lock().hanging = Some(calls);
    }

    /// Blocks until so many calls hang.
    pub(super) fn wait_for_hanging(&self, count: usize) {
        let mut state = self.state.lock();
        while state.hanging_count < count {
            self.changed.wait(&mut state);
        }
    }

    pub(super) fn heal(&self) {
        let mut state = self.state.lock();
        (state.failing, state.hanging) = (None, None);
        self.changed.notify_all();
    }

    /// From now on, segments take so many bytes at most.
    pub(super) fn room(&self, bytes: Option<u64>) {
        self.state.lock().room_bytes = bytes;
    }

    pub(super) fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// Changes what is there behind the store's back.
    pub(super) fn meddle(&self, change: impl FnOnce(&mut Image)) {
        change(&mut self.state.lock().image);
    }

    /// Calls so far.
    pub(super) fn count(&self) -> usize {
        self.state.lock().changes.len()
    }

    /// The changes of `0..count` that are not durable.
    pub(super) fn loose(&self, count: usize) -> Vec<usize> {
        let state = self.state.lock();
        let durable = |at: usize| {
            let later = || state.changes[at + 1..count].iter();
            let is_synced = |by: &dyn Fn(u64) -> bool| {
                later().any(|c| matches!(c, Change::Sync { segment } if by(*segment)))
            };
            match state.changes[at] {
                Change::Make { .. } | Change::Remove { .. } => is_synced(&|_| true),
                Change::Write { segment, .. } | Change::Resize { segment, .. } => {
                    is_synced(&|synced| synced == segment)
                }
                Change::Sync { .. } => true,
            }
        };
        (0..count).filter(|at| !durable(*at)).collect()
    }

    /// What a crash after the first `count` calls leaves.
    pub(super) fn crashed(&self, count: usize, fate: impl Fn(usize) -> Fate) -> Image {
        let loose = self.loose(count);
        let state = self.state.lock();
        let mut image = state.start.clone();
        for (at, change) in state.changes[..count].iter().enumerate() {
            match (loose.contains(&at).then(|| fate(at)), change) {
                (Some(Fate::Lost), _) => {}
                (
                    Some(Fate::Torn),
                    Change::Write {
                        segment,
                        offset,
                        bytes,
                    },
                ) => {
                    let bytes = bytes[..bytes.len() / 2].to_vec();
                    let (segment, offset) = (*segment, *offset);
                    apply(
                        &mut image,
                        &Change::Write {
                            segment,
                            offset,
                            bytes,
                        },
                    );
                }
                _ => apply(&mut image, change),
            }
        }
        image
    }

    fn call(&self, calls: Calls, change: Option<Change>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.hanging_count += 1;
        self.changed.notify_all();
        while state.hanging == Some(calls) {
            self.changed.wait(&mut state);
        }
        state.hanging_count -= 1;
        if let Some((_, kind)) = state.failing.filter(|(failing, _)| *failing == calls) {
            return Err(kind.into());
        }
        let Some(change) = change else {
            return Ok(());
        };
        let grows = match &change {
            Change::Make { bytes, .. } => *bytes,
            Change::Write {
                segment,
                offset,
                bytes,
            } => {
                let end = offset + bytes.len() as u64;
                end.saturating_sub(state.image.get(segment).map_or(0, Vec::len) as u64)
            }
            Change::Resize { .. } | Change::Remove { .. } | Change::Sync { .. } => 0,
        };
        let bytes = state.image.values().map(Vec::len).sum::<usize>() as u64;
        if grows > 0 && state.room_bytes.is_some_and(|room| bytes + grows > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut state.image, &change);
        state.changes.push(change);
        Ok(())
    }
}

fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Make { segment, bytes } => {
            image.insert(*segment, vec![0; usize::try_from(*bytes).unwrap()]);
        }
        Change::Write {
            segment,
            offset,
            bytes,
        } => {
            // Its making may be lost.
            if let Some(content) = image.get_mut(segment) {
                let start = usize::try_from(*offset).unwrap();
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
            }
        }
        Change::Resize { segment, bytes } => {
            if let Some(content) = image.get_mut(segment) {
                content.resize(usize::try_from(*bytes).unwrap(), 0);
            }
        }
        Change::Remove { segment } => drop(image.remove(segment)),
        Change::Sync { .. } => {}
    }
}

impl Device for Sim {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let state = self.state.lock();
        let segments = state.image.iter();
        Ok(segments
            .map(|(n, bytes)| (*n, bytes.len() as u64))
            .collect())
    }

    fn make(&self, segment: u64, bytes: u64) -> io::Result<()> {
        if self.state.lock().image.contains_key(&segment) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.call(Calls::Writes, Some(Change::Make { segment, bytes }))
    }

    fn write(&self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let bytes = bytes.to_vec();
        self.call(
            Calls::Writes,
            Some(Change::Write {
                segment,
                offset,
                bytes,
            }),
        )
    }

    fn read(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.call(Calls::Reads, None)?;
        let state = self.state.lock();
        let content = state.image.get(&segment).ok_or(io::ErrorKind::NotFound)?;
        let (start, length) = (
            usize::try_from(offset).unwrap(),
            usize::try_from(bytes).unwrap(),
        );
        let read = content.get(start..start + length);
        Ok(read.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }

    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.call(Calls::Writes, Some(Change::Resize { segment, bytes }))
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        self.call(Calls::Syncs, Some(Change::Sync { segment }))
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        if !self.state.lock().image.contains_key(&segment) {
            return Ok(());
        }
        self.call(Calls::Writes, Some(Change::Remove { segment }))
    }
}
