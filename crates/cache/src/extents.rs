//! Which bytes of a version are fetched together, from where, and for whom.
//!
//! Called by readers for what they want now or next, and for each ranged read for what a reader of
//! ranges in a row will want (`read_ahead`). Not here: how it is fetched (`pump`).

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use crate::{
    ask::{EXTENT_BYTES_MAX, Template},
    fill::{Fill, Purpose, Source},
    fills::{Joined, Wanted},
    layer::Layer,
    policy::Keep,
    pump,
    read_ahead::RangeRead,
    version::Version,
};

/// Pages that are here are fetched again when they lie between missing ones and are no more than
/// this: at 100 MB/s as long as 2.5 ms, where a request of its own for what follows takes a round
/// trip and, at S3, a price.
const GAP_BYTES_MAX: u64 = 256 * 1024;

impl Layer {
    /// Joins or begins the fill that brings what is wanted of a version: the byte at a position,
    /// whose page is not here, and as many of the pages after it as are missing and fit an extent.
    pub(crate) fn extent(
        self: &Arc<Self>,
        version: &Arc<Version>,
        template: &Template,
        wanted: Wanted,
    ) -> Joined {
        let object = &version.object;
        let name_hash = self.index.name_hash(&object.bucket, &object.key);
        let joined = self.fills.extent(name_hash, version.vid, wanted, || {
            let (range, source) = self.missing(version, wanted.position, wanted.end);
            let purpose = Purpose::Extent {
                version: Arc::clone(version),
                range,
                source,
            };
            Fill::new(object.clone(), purpose, self.index.stamp(object))
        });
        match &joined {
            Joined::Leader(attachment) => {
                let fill = Arc::clone(attachment.fill());
                let filler = pump::run_extent(Arc::clone(self), fill, template.clone());
                let task = tokio::spawn(filler).abort_handle();
                attachment.fill().set_task(task);
            }
            Joined::Follower(_) => {
                self.metrics.collapsed.inc();
            }
        }
        joined
    }

    /// Fetches what a reader of ranges in a row will ask for next, without waiting for it.
    pub(crate) fn read_ahead(
        self: &Arc<Self>,
        version: &Arc<Version>,
        range: &Range<u64>,
        template: impl FnOnce() -> Template,
    ) {
        let page_bytes = version.policy.page_bytes;
        if version.size_bytes <= page_bytes.get() || version.policy.keep == Keep::No {
            return;
        }
        let read = RangeRead {
            vid: version.vid,
            page_bytes,
            size_bytes: version.size_bytes,
            range: range.clone(),
        };
        let Some(ahead) = self.read_ahead.note(&read) else {
            return;
        };
        let template = template();
        let mut position = ahead.start;
        while position < ahead.end {
            if self.has_page_at(version, position) {
                position = page_bytes.ceil(position + 1);
                continue;
            }
            let Some(place) = self.read_ahead.place() else {
                return;
            };
            // Nobody reads it yet, so it goes on by itself: it is no longer than an extent.
            let joined = self.extent(version, &template, Wanted::next(position, ahead.end));
            let (Joined::Leader(attachment) | Joined::Follower(attachment)) = &joined;
            let covers = attachment.covers();
            position = covers.end.max(page_bytes.ceil(position + 1));
            if let Joined::Leader(attachment) = &joined {
                attachment.fill().hold(place);
                let bytes = covers.end - covers.start;
                self.metrics.read_ahead_bytes.inc_by(bytes);
            }
        }
    }

    /// The page at `start`, from the disk.
    pub(crate) async fn page_on_disk(&self, version: &Version, start: u64) -> Option<Bytes> {
        let page_bytes = version.policy.page_bytes;
        let length = page_bytes.get().min(version.size_bytes - start);
        let disk = self.disk.as_ref()?;
        let page = disk.page(version.vid, page_bytes.index_of(start)).await;
        page.filter(|page| page.len() as u64 == length)
    }

    /// Whether the page that holds the byte at `position` is in memory.
    pub(crate) fn has_page_at(&self, version: &Version, position: u64) -> bool {
        let page_index = version.policy.page_bytes.index_of(position);
        self.index.has_page(version.vid, page_index)
    }

    /// The pages from that of `position` on that are to be brought to memory at once, as bytes, and
    /// from where: a row of those on disk, or else of those that are nowhere here, and between them
    /// a few that are, where fetching them again is cheaper than asking twice.
    fn missing(&self, version: &Version, position: u64, end: u64) -> (Range<u64>, Source) {
        let page_bytes = version.policy.page_bytes;
        let start = page_bytes.floor(position);
        let extent_end = start + EXTENT_BYTES_MAX.max(page_bytes.get());
        let end_max = page_bytes.ceil(end).min(version.size_bytes).min(extent_end);
        let mut end = page_bytes.ceil(start + 1).min(version.size_bytes);
        let on_disk = |offset| self.is_on_disk(version, page_bytes.index_of(offset));
        let next = |offset: u64| (offset + page_bytes.get()).min(end_max);
        if on_disk(start) {
            while end < end_max && !self.has_page_at(version, end) && on_disk(end) {
                end = next(end);
            }
            return (start..end, Source::Disk);
        }
        let mut reached = end;
        while reached < end_max && reached - end <= GAP_BYTES_MAX {
            let is_missing = !self.has_page(version, page_bytes.index_of(reached));
            reached = next(reached);
            if is_missing {
                end = reached;
            }
        }
        (start..end, Source::Origin)
    }
}
