//! Sorted pieces of directories, for listings.
//!
//! A file system gives the names of a directory in no order. A window is the names from some place
//! on, sorted, at most so many: a directory of a million names is read once per window, not held
//! as a whole. Windows of large directories are kept for the next page of the listing, and hold as
//! long as the directory's times say that nothing changed in it.

use std::{
    borrow::Cow,
    collections::{BinaryHeap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::UNIX_EPOCH,
};

use forebay_s3::bucket::BucketName;
use forebay_store::Error;
use parking_lot::Mutex;
use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::Stat,
    io::Errno,
};

use crate::{
    fault,
    names::{self, Meaning, Place},
    store::Disk,
    tree::{self, DIRECTORY},
};

/// Names in a window: some 5 MB of them. A guess, revisit with `bench`.
pub(crate) const WINDOW_ENTRIES_MAX: usize = 65_536;
/// Smaller directories are read again each time, which costs less than keeping them.
const KEPT_ENTRIES_MIN: usize = 256;
/// Bytes of windows that are kept, by estimate.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// A directory's time tells of changes only once it is older than the clock ticks of file systems
/// and kernels, the coarsest of which is FAT's two seconds.
const QUIET_NS: i64 = 2_000_000_000;

/// Names of a directory from some place on: of a file, or of a directory with a `/` behind.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) names: Vec<Box<str>>,
    pub(crate) rest: Rest,
    /// All names that are not before this are here, up to the last one.
    from: Vec<u8>,
    has_joins: bool,
}

/// What comes after the last name of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Nothing.
    #[default]
    None,
    /// Perhaps more names.
    Unread,
}

impl Window {
    /// Whether the first name that is not before `from` would be here.
    pub(crate) fn covers(&self, from: &[u8]) -> bool {
        let reaches = || {
            self.names
                .last()
                .is_some_and(|last| last.as_bytes() >= from)
        };
        self.from.as_slice() <= from && (self.rest == Rest::None || reaches())
    }

    fn size_bytes(&self) -> usize {
        // A boxed text has a pointer, a length and an allocator's header of its own.
        self.names.iter().map(|name| name.len() + 32).sum()
    }
}

/// Whether a name, or a key that begins with it if it is a directory's, is not before `from`.
pub(crate) fn reaches(name: &str, from: &[u8]) -> bool {
    name.as_bytes() >= from || (name.ends_with('/') && from.starts_with(name.as_bytes()))
}

/// One state of one directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    modified_ns: i64,
    changed: (i64, i64),
}

impl State {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            modified_ns: tree::modified_ns(stat),
            changed: (
                stat.st_ctime,
                i64::try_from(stat.st_ctime_nsec).unwrap_or_default(),
            ),
        }
    }
}

/// Reads windows and keeps some.
#[derive(Debug)]
pub(crate) struct Windows {
    entries_max: usize,
    directories_read: AtomicU64,
    /// Latest used first.
    kept: Mutex<VecDeque<(State, Arc<Window>)>>,
}

impl Windows {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            entries_max,
            directories_read: AtomicU64::new(0),
            kept: Mutex::default(),
        }
    }

    pub(crate) fn directories_read(&self) -> u64 {
        self.directories_read.load(Ordering::Relaxed)
    }

    fn recall(&self, state: &State, from: &[u8]) -> Option<Arc<Window>> {
        let mut kept = self.kept.lock();
        let index = kept
            .iter()
            .position(|(s, window)| s == state && window.covers(from))?;
        let found = kept.remove(index)?;
        let window = Arc::clone(&found.1);
        kept.push_front(found);
        Some(window)
    }

    fn keep(&self, state: State, window: &Arc<Window>) {
        let mut kept = self.kept.lock();
        kept.retain(|(s, _)| (s.device, s.inode) != (state.device, state.inode) || *s == state);
        kept.push_front((state, Arc::clone(window)));
        let mut left = KEPT_BYTES_MAX;
        let fits = kept.iter().take_while(|(_, window)| {
            let size_bytes = window.size_bytes();
            let fits = size_bytes <= left;
            left = left.saturating_sub(size_bytes);
            fits
        });
        let count = fits.count();
        kept.truncate(count);
    }
}

impl Disk {
    /// The names of the directory of all keys that begin with `prefix`, from `from` on.
    ///
    /// `prefix` is empty or ends in `/`; a directory that is not there is empty.
    pub(crate) fn window(
        &self,
        bucket: &BucketName,
        prefix: &str,
        from: &[u8],
    ) -> Result<Arc<Window>, Error> {
        let mut path = vec![bucket.as_str().to_owned()];
        if let Some(folder) = prefix.strip_suffix('/') {
            path.extend(names::folder_names(folder));
        }
        match self.read_window(&path, from) {
            Ok(window) => Ok(window),
            Err(error) if fault::is_absent(error) => Ok(Arc::default()),
            Err(error) => Err(fault::of_io("read a directory", error)),
        }
    }

    fn read_window(&self, path: &[String], from: &[u8]) -> Result<Arc<Window>, Errno> {
        let directory = self.tree.open(self.tree.root(), path, DIRECTORY)?;
        let state = State::of(&rustix::fs::fstat(&directory)?);
        if let Some(window) = self.windows.recall(&state, from) {
            return Ok(window);
        }
        let since = self
            .clock
            .wall()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ns = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        let mut reader = Reader {
            disk: self,
            from,
            smallest: BinaryHeap::new(),
            rest: Rest::None,
            has_joins: false,
        };
        reader.read(directory.as_fd(), "", &mut Vec::new())?;
        let mut names = reader.smallest.into_sorted_vec();
        names.dedup();
        let (rest, has_joins) = (reader.rest, reader.has_joins);
        let window = Arc::new(Window {
            names,
            rest,
            from: from.to_vec(),
            has_joins,
        });
        let quiet = state.modified_ns.saturating_add(QUIET_NS) < now_ns;
        // A change within a joined directory does not show in the times of this one.
        if quiet && !window.has_joins && window.names.len() >= KEPT_ENTRIES_MIN {
            self.windows.keep(state, &window);
        }
        Ok(window)
    }
}

/// Collects the smallest names of a directory.
struct Reader<'a> {
    disk: &'a Disk,
    from: &'a [u8],
    smallest: BinaryHeap<Box<str>>,
    rest: Rest,
    has_joins: bool,
}

impl Reader<'_> {
    /// Reads a directory; names in it continue the text `begun`, `joins` is how it was reached.
    fn read(
        &mut self,
        directory: BorrowedFd<'_>,
        begun: &str,
        joins: &mut Vec<String>,
    ) -> Result<(), Errno> {
        let read = &self.disk.windows.directories_read;
        read.fetch_add(1, Ordering::Relaxed);
        tree::visit_entries(directory, |name, kind| {
            match names::meaning(name, kind) {
                None => {}
                Some(Meaning::Object(text)) => {
                    let text = continued(begun, text);
                    if self.may_hold(&text) && leads_here(&text, name, joins) {
                        self.add(text.into());
                    }
                }
                Some(Meaning::Folder(text)) => {
                    let text = continued(begun, text);
                    if names::is_folder_of(&text, joins, name) {
                        let text = text.into_owned() + "/";
                        if self.may_hold(&text) {
                            self.add(text.into());
                        }
                    }
                }
                Some(Meaning::Join(text)) => {
                    self.has_joins = true;
                    let begun = continued(begun, text);
                    let inner = match self.disk.tree.open(directory, &[name], DIRECTORY) {
                        Ok(inner) => inner,
                        Err(error) if fault::is_absent(error) => return Ok(()),
                        Err(error) => return Err(error),
                    };
                    joins.push(name.to_owned());
                    self.read(inner.as_fd(), &begun, joins)?;
                    joins.pop();
                }
            }
            Ok(())
        })
    }

    /// Whether a name belongs into the window, as far as is known by now.
    fn may_hold(&mut self, name: &str) -> bool {
        if !reaches(name, self.from) {
            return false;
        }
        let full = self.smallest.len() == self.disk.windows.entries_max;
        let holds = !full || self.smallest.peek().is_none_or(|last| name <= &**last);
        if !holds {
            self.rest = Rest::Unread;
        }
        holds
    }

    fn add(&mut self, name: Box<str>) {
        self.smallest.push(name);
        if self.smallest.len() > self.disk.windows.entries_max {
            self.smallest.pop();
            self.rest = Rest::Unread;
        }
    }
}

/// A text that goes on from the one that a joined directory stands for.
fn continued<'a>(begun: &str, text: Cow<'a, str>) -> Cow<'a, str> {
    if begun.is_empty() {
        text
    } else {
        Cow::Owned([begun, &text].concat())
    }
}

/// Whether a file that stands for `segment` is where the segment's key is looked for.
fn leads_here(segment: &str, name: &str, joins: &[String]) -> bool {
    if joins.is_empty() && name == segment {
        return true;
    }
    let place = Place::of_key(segment);
    place.folders.is_empty() && place.escaped == name && place.joins == joins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_covers_from_its_beginning_to_its_last_name() {
        let window = |rest| Window {
            names: ["b".into(), "d".into()].into(),
            rest,
            from: b"b".into(),
            has_joins: false,
        };
        for (from, whole, cut) in [
            ("a", false, false),
            ("b", true, true),
            ("d", true, true),
            ("e", true, false),
        ] {
            assert_eq!(window(Rest::None).covers(from.as_bytes()), whole, "{from}");
            assert_eq!(window(Rest::Unread).covers(from.as_bytes()), cut, "{from}");
        }
        assert!(reaches("a/", b"a/b") && !reaches("a", b"a/b") && !reaches("a/", b"a0"));
    }

    #[test]
    fn windows_kept_stay_within_their_bytes() {
        let windows = Windows::new(10);
        let state = |inode| State {
            device: 1,
            inode,
            modified_ns: 0,
            changed: (0, 0),
        };
        let large = Arc::new(Window {
            names: vec!["x".repeat(KEPT_BYTES_MAX / 3).into()],
            ..Window::default()
        });
        for inode in 0..5 {
            windows.keep(state(inode), &large);
        }
        assert!(windows.recall(&state(4), b"").is_some());
        assert!(windows.recall(&state(3), b"").is_some());
        assert!(windows.recall(&state(2), b"").is_none());
        let newer = State {
            modified_ns: 1,
            ..state(4)
        };
        windows.keep(newer, &large);
        assert!(
            windows.recall(&state(4), b"").is_none(),
            "an older state of the directory"
        );
    }
}
