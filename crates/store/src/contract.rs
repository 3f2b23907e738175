//! The contract suite: what every store, and every layer over the memory store, must do.
//!
//! A store's tests call [`check`] with a function that makes an empty store. Each check below
//! makes its own buckets, so one store may serve them all; a failed one panics where it failed.
//! [`requests`] and [`bodies`] make the requests; other crates' tests use them as well.
//!
//! Sources: Amazon S3 API Reference and User Guide; RFC 9110 for conditions and ranges.

pub mod answers;
pub mod bodies;
pub mod requests;

mod atomicity;
mod attributes;
mod buckets;
mod checksums;
mod conditions;
mod copies;
mod deletes;
mod keys;
mod listings;
mod objects;
mod tags;
mod uploads;

use std::sync::Arc;

use crate::Store;
use requests::create_bucket;

/// Bytes of the smallest part that need not be the last.
pub const PART_BYTES_MIN: usize = 5 << 20;

/// Runs the whole suite; `make` makes an empty store, or gives the same store again.
///
/// # Panics
/// When the store breaks the contract.
pub async fn check<F>(make: F)
where
    F: AsyncFn() -> Arc<dyn Store>,
{
    buckets::check(&*make().await).await;
    objects::check(&*make().await).await;
    conditions::check(&make().await).await;
    copies::check(&*make().await).await;
    deletes::check(&*make().await).await;
    listings::check(&*make().await).await;
    uploads::check(&*make().await).await;
    tags::check(&*make().await).await;
    checksums::check(&*make().await).await;
    attributes::check(&*make().await).await;
    keys::check(&*make().await).await;
    atomicity::check(&make().await).await;
}

/// Makes a bucket.
async fn bucket(store: &dyn Store, name: &'static str) -> &'static str {
    create_bucket(name).expect(200, store).await;
    name
}

/// `length` bytes that differ from their neighbours, so that a shifted copy shows.
pub fn sample_bytes(length: usize) -> Vec<u8> {
    // 251 is prime, so no power-of-two page or piece repeats the pattern.
    (0..length)
        .map(|at| u8::try_from(at % 251).unwrap_or_default())
        .collect()
}
