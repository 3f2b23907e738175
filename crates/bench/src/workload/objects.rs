//! The objects of a case: their keys, sizes and places.

use forebay_s3::uri::encode_path;

use super::OWN_OBJECTS;
use crate::content::Content;

/// Objects in a folder: what one listing of a folder gives.
pub(crate) const FOLDER_OBJECTS: usize = 100;

/// One object.
#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) key: Box<str>,
    /// Bucket and key as on the wire, with a leading slash.
    pub(crate) path: Box<str>,
    /// `None` when nobody said.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) content: Content,
}

impl Object {
    pub(crate) fn new(bucket: &str, key: &str, size_bytes: Option<u64>) -> Self {
        Self {
            key: key.into(),
            path: format!("/{bucket}/{}", encode_path(key)).into(),
            size_bytes,
            content: Content::of(key),
        }
    }

    /// Everything up to its last slash.
    pub(crate) fn folder(&self) -> &str {
        self.key.rfind('/').map_or("", |at| &self.key[..=at])
    }
}

/// Where numbered objects are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    pub(crate) bucket: &'a str,
    /// What their keys begin with, without the last slash.
    pub(crate) folder: &'a str,
    /// Workers that get objects of their own, after the others.
    pub(crate) own_objects_of: u32,
}

/// All objects of a case.
#[derive(Debug)]
pub(crate) struct Objects {
    bucket: Box<str>,
    list: Vec<Object>,
    /// Those that every worker may read; what follows are workers' own.
    shared_count: usize,
}

impl Objects {
    /// `count` objects of one size, named by their numbers, in folders of [`FOLDER_OBJECTS`].
    pub(crate) fn numbered(layout: &Layout<'_>, size_bytes: u64, count: usize) -> Self {
        let shared = (0..count).map(|number| {
            let folder = number / FOLDER_OBJECTS;
            format!("{}/{folder:05}/{number:07}", layout.folder)
        });
        let own = (0..layout.own_objects_of).flat_map(|worker| {
            (0..OWN_OBJECTS)
                .map(move |place| format!("{}/own/{worker:04}/{place:02}", layout.folder))
        });
        let object = |key: String| Object::new(layout.bucket, &key, Some(size_bytes));
        Self {
            bucket: layout.bucket.into(),
            list: shared.chain(own).map(object).collect(),
            shared_count: count,
        }
    }

    /// The objects that are named, with their sizes as far as known.
    pub(crate) fn named(
        bucket: &str,
        names: impl IntoIterator<Item = (String, Option<u64>)>,
    ) -> Self {
        let list: Vec<_> = names
            .into_iter()
            .map(|(key, size_bytes)| Object::new(bucket, &key, size_bytes))
            .collect();
        Self {
            bucket: bucket.into(),
            shared_count: list.len(),
            list,
        }
    }

    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Those that every worker may read.
    pub(crate) fn shared_count(&self) -> usize {
        self.shared_count
    }

    pub(crate) fn shared(&self) -> &[Object] {
        &self.list[..self.shared_count]
    }

    pub(crate) fn get(&self, number: usize) -> &Object {
        &self.list[number]
    }

    /// The number of a worker's own object.
    pub(crate) fn own(&self, worker: u32, place: u32) -> usize {
        self.shared_count + (worker * OWN_OBJECTS + place) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_in_folders_and_workers_have_their_own() {
        let layout = Layout {
            bucket: "b",
            folder: "x/1KiB",
            own_objects_of: 2,
        };
        let objects = Objects::numbered(&layout, 1024, 250);
        assert_eq!(objects.shared().len(), 250);
        let object = objects.get(249);
        assert_eq!(&*object.key, "x/1KiB/00002/0000249");
        assert_eq!(&*object.path, "/b/x/1KiB/00002/0000249");
        assert_eq!(object.folder(), "x/1KiB/00002/");
        assert_eq!(&*objects.get(objects.own(1, 15)).key, "x/1KiB/own/0001/15");
    }

    #[test]
    fn keys_are_escaped_on_the_wire() {
        let object = Object::new("b", "a b/ü?", None);
        assert_eq!(&*object.path, "/b/a%20b/%C3%BC%3F");
    }
}
