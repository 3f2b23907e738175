//! Page memory: where cached bytes lie.
//!
//! [`Arena::store`] copies bytes once, into the pages of a memfd, and hands them out as
//! [`Bytes`](bytes::Bytes) over a mapping of it. Whoever writes such bytes to a socket
//! may ask [`locate`] where they lie in the file and let the kernel send them from there
//! (`sendfile`), with no copy at all. Bytes too small to gain from that are on the heap, and
//! [`locate`] says `None` of them.
//!
//! Page memory may be written again as soon as its page is dropped, unless the page was located.
//! So no system call may be given it by address that refers to it after its return: see [`arena`].
//!
//! The cache stores; the gateway's connections locate. This is the only crate with `unsafe`; each
//! use has its proof beside it, and the proof that bytes in flight never change is in [`arena`].

pub mod arena;
mod mapping;
mod marks;
mod page;
mod registry;

pub use arena::{Arena, ArenaKind};
pub use page::PageBuf;
pub use registry::{Located, locate};
