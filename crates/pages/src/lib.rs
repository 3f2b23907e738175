//! Page memory: where cached bytes lie.
//!
//! [`Arena::store`] copies bytes once, into the pages of a memfd, and hands them out as
//! [`Bytes`](bytes::Bytes) over a read-only mapping of it. Whoever writes such bytes to a socket
//! may ask [`locate`] where they lie in the file and let the kernel send them from there
//! (`sendfile`), with no copy at all. Bytes too small to gain from that are on the heap, and
//! [`locate`] says `None` of them.
//!
//! The cache stores; the gateway's connections locate. This is the only crate with `unsafe`; each
//! use has its proof beside it, and the proof that bytes in flight never change is in [`arena`].

pub mod arena;
mod mapping;
mod page;
mod registry;

pub use arena::{Arena, ArenaKind};
pub use page::PageBuf;
pub use registry::{Located, locate};
