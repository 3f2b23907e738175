//! Keys of a bucket in byte order, reading only the directories that the listing gets to.
//!
//! Within a directory, names sort as keys do when a directory's name has its `/`: all keys below
//! `a/` come between `a-` and `a0`. So the walk goes down where a directory's turn comes, and a
//! seek skips directories without reading them.

use std::sync::Arc;

use forebay_native::listing::{Bound, Cursor, Summary};
use forebay_s3::{bucket::BucketName, key::ObjectKey, operation::ObjectId};
use forebay_store::Error;

use crate::{
    store::Disk,
    windows::{Rest, Window, reaches},
};

/// A walk through one bucket.
pub(crate) struct Walk<'a> {
    disk: &'a Disk,
    bucket: &'a BucketName,
    /// The directories down to where the walk is.
    frames: Vec<Frame>,
    begun: bool,
    structure: Structure,
}

/// Whether the caller holds the lock of the bucket's structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Structure {
    /// It does.
    Locked,
    /// It does not: an object that moves aside must not be missed, so each directory is read with
    /// the lock.
    Unlocked,
}

/// A directory on the way.
struct Frame {
    /// What all keys in it begin with: nothing, or a path with its `/`.
    prefix: String,
    window: Arc<Window>,
    /// The next name.
    index: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(disk: &'a Disk, bucket: &'a BucketName, structure: Structure) -> Self {
        Self {
            disk,
            bucket,
            frames: Vec::new(),
            begun: false,
            structure,
        }
    }

    fn window(&self, prefix: &str, from: &[u8]) -> Result<Arc<Window>, Error> {
        let _structure = match self.structure {
            Structure::Locked => None,
            Structure::Unlocked => Some(self.disk.locks.structure_kept(self.bucket.as_str())),
        };
        self.disk.window(self.bucket, prefix, from)
    }

    fn enter(&mut self, prefix: String, from: &Bound) -> Result<(), Error> {
        let Some(from) = within(&prefix, from) else {
            return Ok(());
        };
        let window = self.window(&prefix, from)?;
        self.frames.push(Frame {
            prefix,
            window,
            index: 0,
        });
        Ok(())
    }
}

/// The part of a bound that concerns names in a directory; `None` when all of them are before it.
fn within<'b>(prefix: &str, from: &'b Bound) -> Option<&'b [u8]> {
    let from = from.as_bytes();
    match from.strip_prefix(prefix.as_bytes()) {
        Some(rest) => Some(rest),
        None if from < prefix.as_bytes() => Some(&[]),
        None => None,
    }
}

/// The first place after a name, and after all keys below it if it is a directory's.
fn just_after(name: &str) -> Vec<u8> {
    match name.strip_suffix('/') {
        // `0` is the byte after `/`.
        Some(folder) => [folder.as_bytes(), b"0"].concat(),
        None => [name.as_bytes(), &[0]].concat(),
    }
}

impl Cursor for Walk<'_> {
    type Error = Error;

    fn seek(&mut self, from: &Bound) -> Result<Option<String>, Error> {
        if !self.begun {
            self.begun = true;
            self.enter(String::new(), from)?;
        }
        while let Some(frame) = self.frames.last_mut() {
            let Some(local) = within(&frame.prefix, from) else {
                self.frames.pop();
                continue;
            };
            let names = &frame.window.names[frame.index..];
            frame.index += names.partition_point(|name| !reaches(name, local));
            match frame.window.names.get(frame.index) {
                Some(name) if name.ends_with('/') => {
                    let prefix = [&frame.prefix, &**name].concat();
                    frame.index += 1;
                    self.enter(prefix, from)?;
                }
                Some(name) => return Ok(Some([&frame.prefix, &**name].concat())),
                None if frame.window.rest == Rest::None => drop(self.frames.pop()),
                None => {
                    let last = frame.window.names.last().map_or("", |name| name);
                    let after = just_after(last);
                    let next = local.max(after.as_slice());
                    let prefix = std::mem::take(&mut frame.prefix);
                    let window = self.window(&prefix, next)?;
                    self.frames.pop();
                    self.frames.push(Frame {
                        prefix,
                        window,
                        index: 0,
                    });
                }
            }
        }
        Ok(None)
    }

    fn describe(&mut self, key: &str) -> Result<Option<Summary>, Error> {
        // A path that somebody made may be longer than a key can be.
        let Ok(key) = ObjectKey::parse(key) else {
            return Ok(None);
        };
        let object = ObjectId {
            bucket: self.bucket.clone(),
            key,
            version: None,
        };
        match self.disk.find(&object) {
            Ok(found) => Ok(found.map(|found| Summary::from(&found.record))),
            // A file that this process may not read is no object to it.
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

    use forebay_native::listing::{Entry, Scan};
    use forebay_store::Clock;
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{FsSettings, device::System, names::Place, windows::Windows};

    fn open(root: &Path, window_entries_max: usize) -> Disk {
        let windows = Windows::new(window_entries_max);
        Disk::open(
            Arc::new(System),
            FsSettings::new(root),
            Clock::system(),
            windows,
        )
        .unwrap()
    }

    /// Writes a file where the key's object is, as the store would.
    fn write(bucket: &Path, key: &str) {
        let Place {
            folders,
            plain,
            joins,
            escaped,
        } = Place::of_key(key);
        let mut path = bucket.to_path_buf();
        path.extend(folders);
        fs::create_dir_all(&path).unwrap();
        let plain = plain
            .map(|plain| path.join(plain))
            .filter(|path| !path.is_dir());
        if let Some(file) = plain {
            fs::write(file, key).unwrap();
        } else {
            path.extend(joins);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(escaped), key).unwrap();
        }
    }

    fn listed(disk: &Disk, bucket: &BucketName, mut scan: Scan) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let page = scan
                .page(&mut Walk::new(disk, bucket, Structure::Unlocked))
                .unwrap();
            names.extend(page.entries.iter().map(|entry| match entry {
                Entry::Object { key, .. } => key.clone(),
                Entry::Prefix(prefix) => format!("{prefix}*"),
            }));
            let Some(next) = page.next else { return names };
            scan.from = next;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

        /// Goal: a walk gives the keys that are there in byte order, whatever the sizes of windows
        /// and pages. Method: against a sorted set.
        #[test]
        fn walks_give_all_keys_in_order(
            keys in vec(
                prop_oneof!["[ab/.-]{1,6}", "(x{241,260}/?){1,2}[ab]?", "(\\.join%|\\.|/|a){1,5}"],
                1..24,
            ),
            window_entries_max in 1_usize..6,
            entries_max in 1_usize..8,
            prefix in "[ab/]{0,2}",
        ) {
            // A path that is a file in the way of a directory is the store's business, not the
            // walk's: longest first, so that directories are there before files of their names.
            let mut keys: Vec<String> = keys;
            keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
            let root = tempfile::tempdir().unwrap();
            let bucket = root.path().join("bucket");
            for key in &keys {
                write(&bucket, key);
            }
            let keys: BTreeSet<String> = keys.into_iter().collect();
            let expected: Vec<_> =
                keys.iter().filter(|key| key.starts_with(&prefix)).cloned().collect();
            let disk = open(root.path(), window_entries_max);
            let bucket = BucketName::parse("bucket").unwrap();
            let scan = Scan { prefix, entries_max, ..Scan::default() };
            prop_assert_eq!(listed(&disk, &bucket, scan), expected);
        }
    }

    /// Goal: a page costs the directories it shows, not those of the bucket.
    #[test]
    fn a_page_reads_only_the_directories_it_needs() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..200 {
            for m in 0..100 {
                write(&root.path().join("bucket"), &format!("{n:03}/{m:02}"));
            }
        }
        let disk = open(root.path(), crate::windows::WINDOW_ENTRIES_MAX);
        let bucket = BucketName::parse("bucket").unwrap();
        let read = |scan: &Scan| {
            let before = disk.windows.directories_read();
            let page = scan
                .page(&mut Walk::new(&disk, &bucket, Structure::Unlocked))
                .unwrap();
            (page.entries.len(), disk.windows.directories_read() - before)
        };
        let slash = || Some("/".to_owned());
        let first = Scan {
            entries_max: 1000,
            ..Scan::default()
        };
        assert_eq!(
            read(&first),
            (1000, 12),
            "the root, ten directories, and the next one"
        );
        let late = Scan {
            from: Bound::after("150/49"),
            entries_max: 10,
            ..Scan::default()
        };
        assert_eq!(read(&late), (10, 2), "the root and one directory");
        let prefixed = Scan {
            prefix: "100/5".into(),
            entries_max: 1000,
            ..Scan::default()
        };
        assert_eq!(read(&prefixed), (10, 2), "the root and one directory");
        let rolled = Scan {
            delimiter: slash(),
            entries_max: 1000,
            ..Scan::default()
        };
        assert_eq!(
            read(&rolled),
            (200, 201),
            "each directory must prove that it holds a key"
        );
    }

    #[test]
    fn a_large_directory_is_read_once_for_all_pages() {
        let root = tempfile::tempdir().unwrap();
        for n in 0..2000 {
            write(&root.path().join("bucket"), &format!("{n:05}"));
        }
        // The directory must be older than the grain of file times to be trusted.
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let bucket = fs::File::open(root.path().join("bucket")).unwrap();
        bucket.set_modified(old).unwrap();
        let disk = open(root.path(), crate::windows::WINDOW_ENTRIES_MAX);
        let name = BucketName::parse("bucket").unwrap();
        let scan = || Scan {
            entries_max: 100,
            ..Scan::default()
        };
        assert_eq!(listed(&disk, &name, scan()).len(), 2000);
        assert_eq!(disk.windows.directories_read(), 1);
        write(&root.path().join("bucket"), "00000a");
        assert_eq!(
            listed(&disk, &name, scan()).len(),
            2001,
            "a change is seen at once"
        );
    }
}
