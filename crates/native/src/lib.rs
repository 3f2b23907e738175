//! S3's semantics for stores that own their data, once.
//!
//! [`Native`] is a [`forebay_store::Store`] over an [`Engine`]: it reads typed requests, judges
//! conditions and ranges, assembles listings, checks multipart lists, and writes the answers. An
//! engine only keeps bytes and [`record`]s, atomically per key. [`Indexed`] is the engine of our
//! own stores, over an ordered index and blobs; [`MemoryStore`] is that engine over a plain map:
//! simple, correct, and the reference model for the tests of all layers. The directory store is
//! another engine, in a crate of its own.
//!
//! The typed layer is our own and not crate `s3s`, which was looked at: its way in is a whole HTTP
//! service, so each request would be taken apart twice; it refuses where S3 ignores (a malformed
//! `Range` or `If-Modified-Since`); and it brings 250 crates and 140,000 lines for the thirty
//! operations that are needed here.
//!
//! | module | knows |
//! |---|---|
//! | [`engine`] | what a storage must do |
//! | [`record`] | what is kept beside the bytes of an object, a part, an upload |
//! | [`ingest`], [`pieces`] | digests of bytes that pass, and how a body is taken in |
//! | [`reading`], [`gate`] | conditions and ranges of reads; conditions of writes |
//! | [`listing`] | listings from an ordered cursor: prefix, delimiter, continuation |
//! | [`fragments`] | documents taken apart by a layer that passes most of it on |
//! | [`index`], [`blobs`], [`leases`] | what an engine of our own is built on |
//! | [`indexed`] | the engine over these |
//! | [`memory`] | these in memory, and the store of them |
//! | [`hot`] | what a tier keeps in an engine |
//! | `contract` | with feature `testing`: what every index, blobs and leases must do |
//!
//! Not here: authentication, decoding and verification of payloads (the edge did that), and
//! whatever else of S3 is not named in [`Native`]: it answers `NotImplemented`.

mod answer;
mod attributes;
pub mod blobs;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
pub mod engine;
pub mod fragments;
pub mod gate;
pub mod hot;
mod ids;
pub mod index;
pub mod indexed;
pub mod ingest;
pub mod leases;
pub mod listing;
pub mod memory;
mod operations;
pub mod pieces;
pub mod reading;
pub mod record;
pub mod refuse;
mod tags;
mod xml;

pub use engine::Engine;
pub use indexed::Indexed;
pub use memory::MemoryStore;
pub use operations::{Native, Settings};
