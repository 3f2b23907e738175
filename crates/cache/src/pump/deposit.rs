//! Where a fill's pages go: to memory, to disk, to both, as the version's policy says.

use std::sync::Arc;

use bytes::Bytes;
use forebay_pages::PageBuf;
use forebay_store::Reservation;

use crate::{
    disk::Disk, fill::PagePieces, index::Stored, layer::Layer, policy::Place, version::Version,
};

/// Where a fill's bytes go.
pub(super) struct Deposit {
    pub version: Arc<Version>,
    pub shape: Shape,
    pub _room: Reservation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The page is part of the record, as there is only one.
    OnePage,
    /// Pages have entries of their own.
    ManyPages,
}

/// Puts a page where its policy wants it.
pub(super) fn put_page(layer: &Layer, deposit: &Deposit, page: &PagePieces) -> Stored {
    let version = &deposit.version;
    if deposit.shape == Shape::ManyPages && layer.has_page_at(version, page.start) {
        return Stored::Yes;
    }
    match &layer.disk {
        Some(disk) if version.policy.place == Place::Disk => {
            let bytes = Bytes::from(page.pieces.concat());
            offer(disk, deposit, page.start, bytes);
            Stored::Yes
        }
        Some(disk) => match put_in_memory(layer, deposit, page) {
            Ok(kept) => {
                offer(disk, deposit, page.start, kept.into_bytes());
                Stored::Yes
            }
            Err(stored) => stored,
        },
        None => put_in_memory(layer, deposit, page)
            .err()
            .unwrap_or(Stored::Yes),
    }
}

/// What came from the origin is offered to the disk; what came from there it knows.
fn offer(disk: &Disk, deposit: &Deposit, start: u64, bytes: Bytes) {
    let version = &deposit.version;
    match deposit.shape {
        Shape::OnePage => disk.offer_record(&version.with_page(bytes)),
        Shape::ManyPages => {
            disk.offer_page(version, version.policy.page_bytes.index_of(start), &bytes);
        }
    }
}

/// Room in the index first, which makes others leave the arena, then the copy.
fn put_in_memory(layer: &Layer, deposit: &Deposit, page: &PagePieces) -> Result<PageBuf, Stored> {
    let (index, version, now_ms) = (&layer.index, &deposit.version, layer.now_ms());
    let length = page.end - page.start;
    let page_index = version.policy.page_bytes.index_of(page.start);
    let room = match deposit.shape {
        Shape::OnePage => index.room_for_version(version, length),
        Shape::ManyPages => index.room_for_page(length),
    };
    let room = room.ok_or(Stored::NoRoom)?;
    let stored = layer.arena.store_page(&page.pieces);
    let page = stored.ok_or(Stored::NoRoom)?;
    let stored = match deposit.shape {
        Shape::OnePage => {
            let version = Arc::new(version.with_page(page.clone().into_bytes()));
            index.put_version_in(room, version, now_ms)
        }
        Shape::ManyPages => index.put_page_in(room, version.vid, page_index, page.clone(), now_ms),
    };
    match stored {
        Stored::Yes => Ok(page),
        Stored::Outdated | Stored::NoRoom => Err(stored),
    }
}
