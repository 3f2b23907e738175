//! Every metric once: name, unit and labels, as plain structs of counters found before they are
//! needed, so that no label is looked up on a request's way.
//!
//! Each module belongs to one crate, which counts; the admin listener registers and prints.

pub mod cache;
pub mod disk;
pub mod gateway;
pub mod hedge;
pub mod log;
pub mod mirror;
pub mod origin;
pub mod redis;
pub mod tier;
