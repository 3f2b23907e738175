//! Objects in the tree: find, replace, delete. Everything here blocks.

use forebay_native::{
    gate::{Absent, Act, Gate},
    record::ObjectRecord,
    refuse,
};
use forebay_s3::{code::Code, operation::ObjectId};
use forebay_store::Error;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::Stat,
    io::Errno,
};

use crate::{
    device::{Entry, New, Over},
    fault,
    names::{Kind, Place},
    record::{self, Version},
    staged::Staged,
    store::Disk,
    tree::{self, DIRECTORY, FILE, LOOKUP},
};

/// Tries before giving up on a tree that somebody else changes all the time.
const RACES_MAX: usize = 128;

/// An object that is there.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: OwnedFd,
    pub(crate) stat: Stat,
    pub(crate) record: ObjectRecord,
}

impl Found {
    pub(crate) fn version(&self) -> Version {
        Version::of(&self.stat)
    }
}

/// Where a file goes.
struct Target<'a> {
    directory: &'a OwnedFd,
    name: &'a str,
    /// What is there now.
    current: Option<Stat>,
}

impl Disk {
    /// Opens an object and reads its record.
    pub(crate) fn find(&self, object: &ObjectId) -> Result<Option<Found>, Error> {
        let place = Place::of_key(object.key.as_str());
        for _ in 0..RACES_MAX {
            let Some((file, stat)) = self.open_file(object, &place)? else {
                return Ok(None);
            };
            let record = self.load_record(object, file.as_fd(), Version::of(&stat))?;
            if let Some(record) = record {
                return Ok(Some(Found { file, stat, record }));
            }
            // A sidecar goes right after its file: only if the file is still the one in the tree
            // does it really have no record.
            if let Some((_, again)) = self.open_file(object, &place)?
                && (again.st_dev, again.st_ino) == (stat.st_dev, stat.st_ino)
                && Version::of(&again) == Version::of(&stat)
            {
                let record = record::of_plain_file(&stat);
                return Ok(Some(Found { file, stat, record }));
            }
        }
        Err(Error::SlowDown { retry_after: None })
    }

    /// The same; `NoSuchKey` or `NoSuchBucket` when there is none.
    pub(crate) fn require(&self, object: &ObjectId) -> Result<Found, Error> {
        if let Some(found) = self.find(object)? {
            return Ok(found);
        }
        self.require_bucket(&object.bucket)?;
        Err(refuse::no_such_key(&object.key))
    }

    fn open_file(
        &self,
        object: &ObjectId,
        place: &Place,
    ) -> Result<Option<(OwnedFd, Stat)>, Error> {
        let context = "open an object";
        let mut names: Vec<&str> = Vec::with_capacity(place.folders.len() + 2);
        names.push(object.bucket.as_str());
        names.extend(place.folders.iter().map(String::as_str));
        // The plain name first: a file that gets in a directory's way moves from plain to escaped.
        let plain = place.plain.as_deref().map(|plain| vec![plain]);
        let escaped = || {
            let joins = place.joins.iter().map(String::as_str);
            joins.chain([place.escaped.as_str()]).collect()
        };
        for tail in plain.into_iter().chain(std::iter::once_with(escaped)) {
            let folders = names.len();
            names.extend(tail);
            let opened = self.tree.open(self.tree.root(), &names, FILE);
            names.truncate(folders);
            let file = match opened {
                Ok(file) => file,
                Err(error) if fault::is_absent(error) => continue,
                Err(Errno::ACCESS) => return Err(unreadable()),
                Err(error) => return Err(fault::of_io(context, error)),
            };
            let stat = rustix::fs::fstat(&file).map_err(|e| fault::of_io(context, e))?;
            if tree::is_file(&stat) {
                return Ok(Some((file, stat)));
            }
        }
        Ok(None)
    }

    /// Judges the object that is there; the caller holds the key's lock, or judges again with it.
    pub(crate) fn check(&self, object: &ObjectId, gate: &Gate, act: Act) -> Result<(), Error> {
        if gate.is_open() {
            return Ok(());
        }
        let current = self.find(object)?;
        gate.check(
            act,
            &object.key,
            current.as_ref().map(|found| &found.record.etag),
        )
    }

    /// Puts a sealed file in the place of an object, durably.
    pub(crate) fn commit(
        &self,
        object: &ObjectId,
        mut staged: Staged,
        gate: &Gate,
    ) -> Result<(), Error> {
        let place = Place::of_key(object.key.as_str());
        let key_lock = self.locks.key(object);
        self.check(object, gate, Act::Write)?;
        let over = match gate.absent {
            Absent::Required => Over::Nothing,
            Absent::NotRequired => Over::Anything,
        };
        let (directory, old) = self.replace(object, &place, &mut staged, over)?;
        drop(key_lock);
        self.sync(&directory)
            .map_err(|e| fault::of_io("sync a directory", e))?;
        match old {
            Some(old) => self.forget_version(object, old),
            None => Ok(()),
        }
    }

    /// Renames a file into place; tells the directory, and the version that was there.
    fn replace(
        &self,
        object: &ObjectId,
        place: &Place,
        staged: &mut Staged,
        over: Over,
    ) -> Result<(OwnedFd, Option<Version>), Error> {
        let bucket = object.bucket.as_str();
        for _ in 0..RACES_MAX {
            {
                let _structure = self.locks.structure_kept(bucket);
                match self.try_replace(object, place, staged, over) {
                    Ok(done) => return Ok(done),
                    Err(Errno::EXIST) if over == Over::Nothing => {
                        return Err(refuse::precondition_failed("If-None-Match"));
                    }
                    // A directory is missing, or was pruned just now, or one has the file's name.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::EXIST) => {}
                    Err(error) => return Err(fault::of_io("rename a file into place", error)),
                }
            }
            self.make_folders(object, place)?;
        }
        Err(Error::SlowDown { retry_after: None })
    }

    fn try_replace(
        &self,
        object: &ObjectId,
        place: &Place,
        staged: &mut Staged,
        over: Over,
    ) -> Result<(OwnedFd, Option<Version>), Errno> {
        let folder = self.open_folder(object, place)?;
        let joined = match place.joins.as_slice() {
            [] => None,
            joins => Some(self.tree.open(folder.as_fd(), joins, DIRECTORY)),
        };
        let below = joined.as_ref().map_or(Ok(&folder), Result::as_ref);
        let target = choose(place, &folder, below)?;
        let over = if target.current.is_some() {
            Over::Anything
        } else {
            over
        };
        let old = target.current.as_ref().filter(|stat| tree::is_file(stat));
        let old = old.map(Version::of);
        let escaped = target.name == place.escaped;
        staged.rename(target.directory.as_fd(), target.name, over)?;
        match joined {
            Some(Ok(below)) if escaped => Ok((below, old)),
            _ => Ok((folder, old)),
        }
    }

    fn open_folder(&self, object: &ObjectId, place: &Place) -> Result<OwnedFd, Errno> {
        let mut names = vec![object.bucket.as_str()];
        names.extend(place.folders.iter().map(String::as_str));
        self.tree.open(self.tree.root(), &names, DIRECTORY)
    }

    /// Makes the directories of a key, each on stable storage before anybody relies on it.
    fn make_folders(&self, object: &ObjectId, place: &Place) -> Result<(), Error> {
        let _structure = self.locks.structure_changed(object.bucket.as_str());
        let bucket = self.require_bucket(&object.bucket)?;
        match self.make_path(bucket, place) {
            // Pruned by a delete just now: the caller comes again.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Error::refused_because(
                Code::AccessDenied,
                "Something that is neither a file nor a directory is in the key's way.",
            )),
            Err(error) => Err(fault::of_io("make a directory", error)),
        }
    }

    fn make_path(&self, bucket: OwnedFd, place: &Place) -> Result<(), Errno> {
        let mut at = bucket;
        for name in &place.folders {
            at = self.make_folder(at.as_fd(), name)?;
        }
        // The escaped name is used where no plain one is possible, or a directory has it.
        let escaped = match &place.plain {
            None => true,
            Some(plain) => {
                tree::kind_of(at.as_fd(), plain)?.is_some_and(|s| tree::is_directory(&s))
            }
        };
        if escaped {
            for name in &place.joins {
                at = self.make_folder(at.as_fd(), name)?;
            }
        }
        Ok(())
    }

    /// Opens a directory, making it if need be; a file that has its name moves aside.
    pub(crate) fn make_folder(&self, at: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
        match self.tree.open(at, &[name], LOOKUP) {
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR) => self.move_aside(at, name)?,
            other => return other,
        }
        if self.device.make_directory(Entry::new(at, name))? == New::Made {
            self.sync_directory(at)?;
        }
        self.tree.open(at, &[name], LOOKUP)
    }

    /// Gives the object that has the name of a directory its escaped name.
    fn move_aside(&self, at: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        let there = tree::kind_of(at, name)?;
        if !there.is_some_and(|stat| tree::is_file(&stat)) {
            return Err(Errno::NOTDIR);
        }
        let place = Place::of_key(name);
        // A file under a name that is marked is nobody's object.
        if place.plain.is_none() {
            return Err(Errno::NOTDIR);
        }
        let mut below = self.tree.open(at, &[""; 0], DIRECTORY)?;
        for join in &place.joins {
            below = self.make_folder(below.as_fd(), join)?;
        }
        let to = Entry::new(below.as_fd(), &place.escaped);
        self.device
            .rename(Entry::new(at, name), to, Over::Anything)?;
        self.sync_directory(below.as_fd())
    }

    /// Deletes an object; none is success.
    pub(crate) fn delete(&self, object: &ObjectId, gate: &Gate) -> Result<(), Error> {
        let place = Place::of_key(object.key.as_str());
        let key_lock = self.locks.key(object);
        self.require_bucket(&object.bucket)?;
        self.check(object, gate, Act::Delete)?;
        let removed = {
            let _structure = self.locks.structure_kept(object.bucket.as_str());
            self.remove_files(object, &place)?
        };
        drop(key_lock);
        for version in removed {
            self.forget_version(object, version)?;
        }
        self.prune(object, &place);
        Ok(())
    }

    /// Removes the files of a key, durably.
    fn remove_files(&self, object: &ObjectId, place: &Place) -> Result<Vec<Version>, Error> {
        let context = "delete an object";
        let mut removed = Vec::new();
        let folder = match self.open_folder(object, place) {
            Ok(folder) => folder,
            Err(error) if fault::is_absent(error) => return Ok(removed),
            Err(error) => return Err(fault::of_io(context, error)),
        };
        let below = self.tree.open(folder.as_fd(), &place.joins, DIRECTORY).ok();
        let escaped = below.as_ref().map(|below| (below, place.escaped.as_str()));
        let plain = place.plain.as_deref().map(|plain| (&folder, plain));
        // The plain name wins while both are there, so it goes last.
        for (directory, name) in escaped.into_iter().chain(plain) {
            let stat = tree::kind_of(directory.as_fd(), name);
            let Some(stat) = stat.map_err(|e| fault::of_io(context, e))? else {
                continue;
            };
            if tree::is_file(&stat) {
                self.remove(Entry::new(directory.as_fd(), name), Kind::File)
                    .and_then(|()| self.sync(directory))
                    .map_err(|e| fault::of_io(context, e))?;
                removed.push(Version::of(&stat));
            }
        }
        Ok(removed)
    }

    /// Removes directories that a delete left empty. Whoever is about to use one finds it gone and
    /// makes it again.
    fn prune(&self, object: &ObjectId, place: &Place) {
        let mut names = vec![object.bucket.as_str()];
        names.extend(place.folders.iter().chain(&place.joins).map(String::as_str));
        while names.len() > 1 {
            let Some(last) = names.pop() else { return };
            let gone = self
                .tree
                .open(self.tree.root(), &names, LOOKUP)
                .and_then(|parent| {
                    let entry = Entry::new(parent.as_fd(), last);
                    self.device.remove(entry, Kind::Directory)
                });
            match gone {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                // Not empty, or not ours to remove: either way it stays.
                Err(_) => return,
            }
        }
    }
}

/// The name that a write uses: the one that has the object, else the plain one if it is free.
fn choose<'a>(
    place: &'a Place,
    folder: &'a OwnedFd,
    below: Result<&'a OwnedFd, &Errno>,
) -> Result<Target<'a>, Errno> {
    let escaped = || match below {
        Ok(directory) => {
            let current = tree::kind_of(directory.as_fd(), &place.escaped)?;
            Ok(Target {
                directory,
                name: &place.escaped,
                current,
            })
        }
        Err(error) => Err(*error),
    };
    let Some(plain) = &place.plain else {
        return escaped();
    };
    let there = tree::kind_of(folder.as_fd(), plain)?;
    match &there {
        Some(stat) if tree::is_directory(stat) => escaped(),
        Some(_) => Ok(Target {
            directory: folder,
            name: plain,
            current: there,
        }),
        None => match escaped() {
            Ok(target) if target.current.is_some() => Ok(target),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(Target {
                directory: folder,
                name: plain,
                current: None,
            }),
            Err(error) => Err(error),
        },
    }
}

fn unreadable() -> Error {
    let message = "The file of this object may not be read by this store's process.";
    Error::refused_because(Code::AccessDenied, message)
}
