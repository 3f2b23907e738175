//! A page as the cache's index holds it: behind one thin pointer, as there may be millions.
//!
//! A page below [`STORED_BYTES_MIN`](crate::arena::STORED_BYTES_MIN) takes its bytes and
//! [`PageBuf::OWNER_BYTES`]; what is larger has one allocation more, which does not count beside
//! it. The bytes of a small page are an allocation of their own, since pages are powers of two and
//! so are an allocator's sizes: a header before them would cost a quarter of a page of 4 KiB.

use std::sync::Arc;

use bytes::Bytes;

use crate::arena::{FilePage, HeapPage};

/// A page of an arena, or bytes from elsewhere; shared by cloning.
#[derive(Debug, Clone)]
pub struct PageBuf(Arc<Held>);

#[derive(Debug)]
pub(crate) enum Held {
    /// Not counted by an arena.
    Small(Box<[u8]>),
    Other(Box<Owner>),
}

#[derive(Debug)]
pub(crate) enum Owner {
    File(FilePage),
    Heap(HeapPage),
    Elsewhere(Bytes),
}

impl PageBuf {
    /// What a page takes besides its bytes: two counters and a fat pointer.
    pub const OWNER_BYTES: u64 = size_of::<Held>() as u64 + 2 * size_of::<usize>() as u64;

    pub(crate) fn small(bytes: Box<[u8]>) -> Self {
        Self(Arc::new(Held::Small(bytes)))
    }

    pub(crate) fn owned(owner: Owner) -> Self {
        Self(Arc::new(Held::Other(Box::new(owner))))
    }

    /// Number of its bytes.
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same bytes for a body: one small allocation, or none if nobody else has the page.
    pub fn into_bytes(self) -> Bytes {
        match Arc::try_unwrap(self.0) {
            Ok(Held::Small(bytes)) => bytes.into(),
            Ok(Held::Other(owner)) => match *owner {
                Owner::File(page) => Bytes::from_owner(page),
                Owner::Heap(page) => Bytes::from_owner(page),
                Owner::Elsewhere(bytes) => bytes,
            },
            Err(shared) => Bytes::from_owner(Self(shared)),
        }
    }
}

impl AsRef<[u8]> for PageBuf {
    fn as_ref(&self) -> &[u8] {
        match &*self.0 {
            Held::Small(bytes) => bytes,
            Held::Other(owner) => match &**owner {
                Owner::File(page) => page.as_ref(),
                Owner::Heap(page) => page.as_ref(),
                Owner::Elsewhere(bytes) => bytes,
            },
        }
    }
}

impl From<Bytes> for PageBuf {
    /// Holds what is not page memory, without a copy.
    fn from(bytes: Bytes) -> Self {
        Self::owned(Owner::Elsewhere(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arena;

    #[test]
    fn a_page_is_a_pointer_and_its_owner_32_bytes() {
        assert_eq!(size_of::<Option<PageBuf>>(), 8);
        assert_eq!(PageBuf::OWNER_BYTES, 32);
    }

    #[test]
    fn a_page_has_the_bytes_that_were_stored_shared_or_not() {
        for arena in [Arena::new(1 << 22).unwrap(), Arena::on_heap(1 << 22)] {
            for length in [0, 1, 4096, 32 * 1024, 32 * 1024 + 1, 1 << 20] {
                let bytes = Bytes::from(vec![7; length]);
                let (first, second) = (bytes.slice(..length / 3), bytes.slice(length / 3..));
                let page = arena.store_page(&[first, second]).unwrap();
                assert_eq!(page.len(), length);
                assert_eq!(page.clone().into_bytes(), bytes);
                assert_eq!(page.into_bytes(), bytes);
            }
            assert_eq!(
                arena.used_bytes(),
                0,
                "whoever is gone gives its memory back"
            );
        }
    }
}
