//! A model of a file system that keeps only what was synced, and the states it may leave.
//!
//! Of what was not synced, each change of a name and of a file's content may be kept or lost by
//! itself, in any order, with two exceptions that journalling file systems make: a rename does not
//! take the old name away before the new one is there, and moves a directory as a whole.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::{OsStr, OsString},
    fs::{self, File},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

use rustix::fd::AsFd as _;

use super::recorder::{Call, Name, Node};
use crate::{
    device::{Attribute, Device as _, System},
    names::Kind,
    record::ATTRIBUTE,
};

/// The file system after some calls, and what of them is durable.
#[derive(Debug, Default)]
pub(super) struct Medium {
    changes: Vec<Change>,
    files: BTreeMap<Node, FileState>,
    /// The names as the process sees them.
    latest: HashMap<Name, Node>,
}

/// A name that came, went, or leads to something else.
#[derive(Debug)]
struct Change {
    name: Name,
    to: Option<Node>,
    /// Another change without which this one is not there.
    needs: Option<usize>,
    durable: bool,
}

#[derive(Debug, Default)]
struct FileState {
    durable: Content,
    latest: Content,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Content {
    bytes: Vec<u8>,
    modified_ns: i64,
    attribute: Option<Vec<u8>>,
}

/// What a crash makes of a file's changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Lost,
    Kept,
    /// Half of the new bytes.
    Torn,
    /// The new length, and zeros.
    Zeroed,
    BytesOnly,
    AttributesOnly,
}

impl Fate {
    pub(super) const ALL: [Self; 6] = [
        Self::Lost,
        Self::Kept,
        Self::Torn,
        Self::Zeroed,
        Self::BytesOnly,
        Self::AttributesOnly,
    ];
}

/// What one crash keeps: of the changes not durable, and of each file that is not.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) changes: HashMap<usize, bool>,
    pub(super) files: HashMap<Node, Fate>,
}

/// What lies on the medium after a crash: names in directories, and contents.
#[derive(Debug, Hash)]
pub(super) struct Left(BTreeMap<OsString, Thing>);

#[derive(Debug, Hash)]
enum Thing {
    Directory(Left),
    File(Node, Content),
}

impl Medium {
    pub(super) fn apply(&mut self, call: &Call) {
        match call {
            Call::Make { name, node, kind } => {
                if *kind == Kind::File {
                    self.files.insert(*node, FileState::default());
                }
                self.change(name, Some(*node), None);
            }
            Call::Append { file, bytes } => self.content(*file).bytes.extend(bytes),
            Call::SetTime { file, modified_ns } => self.content(*file).modified_ns = *modified_ns,
            Call::SetAttribute { file, value } => {
                self.content(*file).attribute.clone_from(value);
            }
            Call::Rename { from, to, kind } => {
                let node = self.latest[from];
                let added = self.changes.len();
                let needs = (*kind == Kind::Directory).then_some(added + 1);
                self.change(to, Some(node), needs);
                self.change(from, None, Some(added));
            }
            Call::Remove { name } => self.change(name, None, None),
            Call::Sync { node } => self.sync(*node),
            Call::SyncAll => {
                self.changes
                    .iter_mut()
                    .for_each(|change| change.durable = true);
                for file in self.files.values_mut() {
                    file.durable = file.latest.clone();
                }
            }
        }
    }

    fn content(&mut self, file: Node) -> &mut Content {
        &mut self.files.get_mut(&file).unwrap().latest
    }

    fn change(&mut self, name: &Name, to: Option<Node>, needs: Option<usize>) {
        match to {
            Some(node) => self.latest.insert(name.clone(), node),
            None => self.latest.remove(name),
        };
        let name = name.clone();
        self.changes.push(Change {
            name,
            to,
            needs,
            durable: false,
        });
    }

    fn sync(&mut self, node: Node) {
        if let Some(file) = self.files.get_mut(&node) {
            file.durable = file.latest.clone();
            return;
        }
        for at in 0..self.changes.len() {
            if self.changes[at].name.0 == node {
                self.changes[at].durable = true;
                if let Some(needed) = self.changes[at].needs {
                    self.changes[needed].durable = true;
                }
            }
        }
    }

    /// All that is not durable.
    pub(super) fn pending(&self) -> Choice {
        let changes = self.changes.iter().enumerate();
        let changes = changes.filter(|(_, change)| !change.durable);
        let files = self.files.iter();
        let files = files.filter(|(_, file)| file.durable != file.latest);
        Choice {
            changes: changes.map(|(index, _)| (index, true)).collect(),
            files: files.map(|(node, _)| (*node, Fate::Kept)).collect(),
        }
    }

    /// What a crash leaves.
    pub(super) fn crash(&self, choice: &Choice) -> Left {
        let is_kept =
            |index: usize| self.changes[index].durable || choice.changes.get(&index) == Some(&true);
        let mut names: BTreeMap<Node, BTreeMap<&OsStr, Node>> = BTreeMap::new();
        for (index, change) in self.changes.iter().enumerate() {
            if is_kept(index) && change.needs.is_none_or(is_kept) {
                let (at, name) = &change.name;
                let names = names.entry(*at).or_default();
                match change.to {
                    Some(node) => names.insert(name, node),
                    None => names.remove(name.as_os_str()),
                };
            }
        }
        self.left(0, &names, choice)
    }

    fn left(
        &self,
        directory: Node,
        names: &BTreeMap<Node, BTreeMap<&OsStr, Node>>,
        choice: &Choice,
    ) -> Left {
        let entries = names.get(&directory).into_iter().flatten();
        let things = entries.map(|(name, node)| {
            let thing = match self.files.get(node) {
                None => Thing::Directory(self.left(*node, names, choice)),
                Some(file) => {
                    let fate = choice.files.get(node).copied().unwrap_or(Fate::Kept);
                    Thing::File(*node, file.after(fate))
                }
            };
            ((*name).to_owned(), thing)
        });
        Left(things.collect())
    }

    /// The path of a file or directory, with names that are the store's own choice left out.
    pub(super) fn path(&self, node: Node) -> String {
        let parent = self.latest.iter().find(|(_, child)| **child == node);
        let Some(((at, name), _)) = parent else {
            return String::new();
        };
        let above = self.path(*at);
        let own = ["/tmp", "/uploads", "/records"];
        let name = if own.iter().any(|own| above.ends_with(own)) {
            "*".into()
        } else {
            name.to_string_lossy()
        };
        format!("{above}/{name}")
    }
}

impl FileState {
    fn after(&self, fate: Fate) -> Content {
        let (old, new) = (&self.durable, &self.latest);
        let (old_length, new_length) = (old.bytes.len(), new.bytes.len());
        let mut left = new.clone();
        match fate {
            Fate::Kept => {}
            Fate::Lost => return old.clone(),
            Fate::Torn => left.bytes.truncate(old_length.midpoint(new_length)),
            Fate::Zeroed => left.bytes[old_length..].fill(0),
            Fate::BytesOnly => left.attribute.clone_from(&old.attribute),
            Fate::AttributesOnly => left.bytes.clone_from(&old.bytes),
        }
        left
    }
}

impl Left {
    /// Makes it real.
    pub(super) fn write(&self, at: &Path) {
        self.write_in(at, &mut HashMap::new());
    }

    fn write_in(&self, at: &Path, written: &mut HashMap<Node, PathBuf>) {
        for (name, thing) in &self.0 {
            let path = at.join(name);
            match thing {
                Thing::Directory(left) => {
                    fs::create_dir(&path).unwrap();
                    left.write_in(&path, written);
                }
                Thing::File(node, content) => {
                    if let Some(same) = written.get(node) {
                        // A rename of which only the new name is there.
                        fs::hard_link(same, &path).unwrap();
                    } else {
                        content.write(&path);
                        written.insert(*node, path);
                    }
                }
            }
        }
    }
}

impl Content {
    fn write(&self, path: &Path) {
        fs::write(path, &self.bytes).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        if let Some(value) = &self.attribute {
            let name = ATTRIBUTE;
            let attribute = Attribute { name, value };
            System.set_attribute(file.as_fd(), attribute).unwrap();
        }
        let modified = Duration::from_nanos(self.modified_ns.unsigned_abs());
        file.set_modified(UNIX_EPOCH + modified).unwrap();
    }
}

/// The crashes worth a look: everything kept or lost, each thing by itself kept or lost, each fate
/// of each file, and some at random.
pub(super) fn choices(pending: &Choice, random_count: usize, seed: u64) -> Vec<Choice> {
    let all = |kept: bool| Choice {
        changes: pending.changes.keys().map(|index| (*index, kept)).collect(),
        files: {
            let fate = if kept { Fate::Kept } else { Fate::Lost };
            pending.files.keys().map(|node| (*node, fate)).collect()
        },
    };
    let mut choices = vec![all(true), all(false)];
    for kept in [true, false] {
        for index in pending.changes.keys() {
            let mut choice = all(kept);
            choice.changes.insert(*index, !kept);
            choices.push(choice);
        }
        for node in pending.files.keys() {
            for fate in Fate::ALL {
                let mut choice = all(kept);
                choice.files.insert(*node, fate);
                choices.push(choice);
            }
        }
    }
    let mut random = Random(seed);
    for _ in 0..random_count {
        let mut choice = all(true);
        // In order, so that a seed always gives the same.
        let mut indexes: Vec<_> = choice.changes.keys().copied().collect();
        indexes.sort_unstable();
        for index in indexes {
            choice.changes.insert(index, random.below(2) == 0);
        }
        let mut nodes: Vec<_> = choice.files.keys().copied().collect();
        nodes.sort_unstable();
        for node in nodes {
            choice
                .files
                .insert(node, Fate::ALL[random.below(Fate::ALL.len())]);
        }
        choices.push(choice);
    }
    choices
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// States seen already, so that none is looked at twice with the same expectation.
pub(super) type Seen = HashSet<(usize, u64)>;

/// A state in short.
pub(super) fn digest(left: &Left) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(left)
}
