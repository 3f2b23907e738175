//! Which blobs are live.

use std::ops::Range;

use bytes::Bytes;
use forebay_store::Error;

use super::{entry::PartEntry, names};
use crate::{blobs::BlobId, hot, index::Index};

/// Entries read at a time.
const ENTRIES_MAX: usize = 1000;

/// Walks the blobs that entries of an index name.
///
/// A blob is named by one entry from its first to its last day, so a walk that goes on while
/// entries change still meets each blob that was named before it began and is named after it ends.
#[derive(Debug)]
pub struct References {
    /// Names that are left, by kind of entry.
    left: Vec<(Kind, Range<Bytes>)>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Large,
    Part,
    /// A tier's.
    Hot,
}

impl Default for References {
    fn default() -> Self {
        Self::new()
    }
}

impl References {
    /// A walk from the start.
    pub fn new() -> Self {
        Self {
            left: vec![
                (Kind::Part, names::all_parts()),
                (Kind::Large, names::all_large()),
                (Kind::Hot, hot::all()),
            ],
        }
    }

    /// The next blobs, perhaps none of them; `None` at the end.
    ///
    /// # Errors
    /// The index's own, and `Internal` for an entry that can't be read: then remove nothing.
    pub async fn next<I: Index + ?Sized>(
        &mut self,
        index: &I,
    ) -> Result<Option<Vec<BlobId>>, Error> {
        while let Some((kind, names)) = self.left.last_mut() {
            let entries = index.range(names.clone(), ENTRIES_MAX).await?;
            let Some(last) = entries.last() else {
                self.left.pop();
                continue;
            };
            names.start = names::after(&last.name);
            let mut blobs = Vec::new();
            for found in &entries {
                blobs.extend(kind.blob(&found.name, &found.value)?);
            }
            return Ok(Some(blobs));
        }
        Ok(None)
    }
}

impl Kind {
    fn blob(self, name: &[u8], value: &[u8]) -> Result<Option<BlobId>, Error> {
        match self {
            Self::Hot => hot::blob_named_by(name, value),
            Self::Part => Ok(PartEntry::decode(value)?.blob),
            // Without one, the blobs are those of its parts.
            Self::Large if value.is_empty() => Ok(None),
            Self::Large => match std::str::from_utf8(value) {
                Ok(id) => Ok(Some(BlobId(id.to_owned()))),
                Err(error) => Err(Error::internal("read the name of a blob", error)),
            },
        }
    }
}
