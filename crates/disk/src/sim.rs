//! A disk that is told to fail, to be full or to hang, and that can be looked at as a crash after
//! any change would have left it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};

use crate::device::Device;

/// Segments as bytes.
pub type Image = BTreeMap<u64, Vec<u8>>;

/// A change that was made, or a sync.
#[derive(Debug, Clone)]
enum Change {
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
pub enum Fate {
    /// It is there.
    Kept,
    /// It is not.
    Lost,
    /// The first half of a write.
    Torn,
    /// The second half of it.
    Holed,
}

/// Calls that a fault is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Those that read.
    Reads,
    /// Those that change.
    Writes,
    /// Those that make changes durable.
    Syncs,
}

/// The disk.
#[derive(Debug, Default)]
pub struct Sim {
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
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// One with these segments on it, all durable.
    pub fn of(image: Image) -> Self {
        let sim = Self::new();
        sim.state.lock().start = image.clone();
        sim.state.lock().image = image;
        sim
    }

    /// Fails such calls from now on.
    pub fn fail(&self, calls: Calls, kind: io::ErrorKind) {
        self.state.lock().failing = Some((calls, kind));
    }

    /// Lets such calls hang from now on.
    pub fn hang(&self, calls: Calls) {
        self.state.lock().hanging = Some(calls);
    }

    /// Blocks until so many calls hang.
    pub fn wait_for_hanging(&self, count: usize) {
        let mut state = self.state.lock();
        while state.hanging_count < count {
            self.changed.wait(&mut state);
        }
    }

    /// Fails and hangs no more.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        (state.failing, state.hanging) = (None, None);
        self.changed.notify_all();
    }

    /// From now on, segments take so many bytes at most; of a write that needs more, a first part
    /// may be made.
    pub fn room(&self, bytes: Option<u64>) {
        self.state.lock().room_bytes = bytes;
    }

    /// What is there.
    pub fn image(&self) -> Image {
        self.state.lock().image.clone()
    }

    /// Changes what is there behind the store's back.
    pub fn meddle(&self, change: impl FnOnce(&mut Image)) {
        change(&mut self.state.lock().image);
    }

    /// Calls so far.
    pub fn count(&self) -> usize {
        self.state.lock().changes.len()
    }

    /// The segment and the length of each write so far.
    pub fn writes(&self) -> Vec<(u64, usize)> {
        let state = self.state.lock();
        let write = |change: &Change| match change {
            Change::Write { segment, bytes, .. } => Some((*segment, bytes.len())),
            Change::Make { .. }
            | Change::Resize { .. }
            | Change::Remove { .. }
            | Change::Sync { .. } => None,
        };
        state.changes.iter().filter_map(write).collect()
    }

    /// The changes of `0..count` that are not durable.
    pub fn loose(&self, count: usize) -> Vec<usize> {
        let state = self.state.lock();
        let (mut segments, mut folders) = (BTreeSet::new(), BTreeSet::new());
        let mut loose = Vec::new();
        for (at, change) in state.changes[..count].iter().enumerate().rev() {
            let is_durable = match change {
                Change::Make { segment, .. } | Change::Remove { segment } => {
                    folders.contains(&folder_of(*segment))
                }
                Change::Write { segment, .. } | Change::Resize { segment, .. } => {
                    segments.contains(segment)
                }
                Change::Sync { segment } => {
                    segments.insert(*segment);
                    folders.insert(folder_of(*segment));
                    true
                }
            };
            if !is_durable {
                loose.push(at);
            }
        }
        loose.reverse();
        loose
    }

    /// The disk of a process that was killed after the first `count` calls: all is there, and what
    /// was not synced a later crash may take back.
    #[must_use]
    pub fn killed(&self, count: usize) -> Self {
        let state = self.state.lock();
        let (start, changes) = (state.start.clone(), state.changes[..count].to_vec());
        let mut image = start.clone();
        for change in &changes {
            apply(&mut image, change);
        }
        let state = State {
            start,
            image,
            changes,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// What a crash after the first `count` calls leaves.
    pub fn crashed(&self, count: usize, fate: impl Fn(usize) -> Fate) -> Image {
        let loose: BTreeSet<usize> = self.loose(count).into_iter().collect();
        let state = self.state.lock();
        let mut image = state.start.clone();
        for (at, change) in state.changes[..count].iter().enumerate() {
            let fate = if loose.contains(&at) {
                fate(at)
            } else {
                Fate::Kept
            };
            match (fate, change) {
                (Fate::Lost, _) => {}
                (
                    Fate::Torn | Fate::Holed,
                    Change::Write {
                        segment,
                        offset,
                        bytes,
                    },
                ) => {
                    let middle = bytes.len() / 2;
                    let (skipped, kept) = match fate {
                        Fate::Holed => (middle, &bytes[middle..]),
                        _ => (0, &bytes[..middle]),
                    };
                    let (segment, offset) = (*segment, *offset + skipped as u64);
                    let bytes = kept.to_vec();
                    apply(
                        &mut image,
                        &Change::Write {
                            segment,
                            offset,
                            bytes,
                        },
                    );
                }
                (Fate::Kept | Fate::Torn | Fate::Holed, _) => apply(&mut image, change),
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
        let missing = state
            .room_bytes
            .map_or(0, |room| (bytes + grows).saturating_sub(room));
        if grows > 0 && missing > 0 {
            if let Change::Write {
                segment,
                offset,
                bytes,
            } = change
            {
                // As on a real disk, its first part may have found room.
                let kept = bytes.len().saturating_sub(size(missing));
                let bytes = bytes[..kept].to_vec();
                let part = Change::Write {
                    segment,
                    offset,
                    bytes,
                };
                apply(&mut state.image, &part);
                state.changes.push(part);
            }
            return Err(io::ErrorKind::StorageFull.into());
        }
        apply(&mut state.image, &change);
        state.changes.push(change);
        Ok(())
    }
}

/// One of four folders of one disk, whose names become durable apart from each other's.
#[derive(Debug)]
struct Part {
    sim: Arc<Sim>,
    first: u64,
}

/// A length, for memory.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("simulated segments are in memory")
}

/// Which folder a segment is in.
fn folder_of(segment: u64) -> u64 {
    segment >> 62
}

impl Sim {
    /// One of four folders, by index; its segments are those of numbers with the index in front.
    ///
    /// # Panics
    /// When there is no such folder.
    pub fn folder(self: &Arc<Self>, index: u64) -> Arc<dyn Device> {
        assert!(index < 4, "two bits tell folders apart");
        Arc::new(Part {
            sim: Arc::clone(self),
            first: index << 62,
        })
    }
}

impl Device for Part {
    fn list(&self) -> io::Result<Vec<(u64, u64)>> {
        let mut all = self.sim.list()?;
        all.retain(|(segment, _)| folder_of(*segment) == folder_of(self.first));
        Ok(all
            .into_iter()
            .map(|(segment, bytes)| (segment - self.first, bytes))
            .collect())
    }

    fn make(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.sim.make(self.first + segment, bytes)
    }

    fn write(&self, segment: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.sim.write(self.first + segment, offset, bytes)
    }

    fn read(&self, segment: u64, offset: u64, bytes: u64) -> io::Result<Vec<u8>> {
        self.sim.read(self.first + segment, offset, bytes)
    }

    fn resize(&self, segment: u64, bytes: u64) -> io::Result<()> {
        self.sim.resize(self.first + segment, bytes)
    }

    fn sync(&self, segment: u64) -> io::Result<()> {
        self.sim.sync(self.first + segment)
    }

    fn remove(&self, segment: u64) -> io::Result<()> {
        self.sim.remove(self.first + segment)
    }
}

fn apply(image: &mut Image, change: &Change) {
    match change {
        Change::Make { segment, bytes } => {
            image.insert(*segment, vec![0; size(*bytes)]);
        }
        Change::Write {
            segment,
            offset,
            bytes,
        } => {
            // Its making may be lost.
            if let Some(content) = image.get_mut(segment) {
                let start = size(*offset);
                let end = start + bytes.len();
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(bytes);
            }
        }
        Change::Resize { segment, bytes } => {
            if let Some(content) = image.get_mut(segment) {
                content.resize(size(*bytes), 0);
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
        let (start, length) = (size(offset), size(bytes));
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
