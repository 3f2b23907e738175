//! The contract suites of [`crate::index`], [`crate::blobs`] and [`crate::leases`].
//!
//! An implementation's tests call [`index`], [`blobs`] and [`leases`] with a function that makes
//! an empty one, or gives the same one again: each check keeps to names of its own. One that keeps
//! things on disk also calls [`index_reopened`], [`blobs_reopened`] and [`leases_reopened`] with a
//! function that opens the same place again. A failed check panics where it failed.

use std::{sync::Arc, time::Duration};

use crate::{blobs::Blobs, index::Index, leases::Leases};

mod batches;
#[path = "contract/blobs.rs"]
mod of_blobs;
#[path = "contract/index.rs"]
mod of_index;
#[path = "contract/leases.rs"]
mod of_leases;
mod storms;

/// Runs the suite of an index on what `make` gives.
///
/// # Panics
/// When the index breaks the contract.
pub async fn index<F, T>(make: F)
where
    F: AsyncFn() -> Arc<T>,
    T: Index,
{
    let make = async || make().await as Arc<dyn Index>;
    of_index::check(&make).await;
    batches::check(&make).await;
    storms::check(&make).await;
}

/// What is acknowledged is there when the place is opened again; `open` is called twice, the
/// second time when the first index has been dropped.
///
/// # Panics
/// When it is not.
pub async fn index_reopened<F, T>(open: F)
where
    F: AsyncFn() -> Arc<T>,
    T: Index,
{
    let open = async || open().await as Arc<dyn Index>;
    of_index::reopened(&open).await;
}

/// Runs the suite of blobs on what `make` gives.
///
/// # Panics
/// When they break the contract.
pub async fn blobs<F, T>(make: F)
where
    F: AsyncFn() -> Arc<T>,
    T: Blobs,
{
    let make = async || make().await as Arc<dyn Blobs>;
    of_blobs::check(&make).await;
}

/// A finished blob is there when the place is opened again; see [`index_reopened`].
///
/// # Panics
/// When it is not.
pub async fn blobs_reopened<F, T>(open: F)
where
    F: AsyncFn() -> Arc<T>,
    T: Blobs,
{
    let open = async || open().await as Arc<dyn Blobs>;
    of_blobs::reopened(&open).await;
}

/// Runs the suite of leases on what `make` gives; `pass` returns when so much time has passed for
/// whoever keeps the leases, a second at most.
///
/// # Panics
/// When they break the contract.
pub async fn leases<F, P, T>(make: F, pass: P)
where
    F: AsyncFn() -> Arc<T>,
    T: Leases,
    P: AsyncFn(Duration),
{
    let make = async || make().await as Arc<dyn Leases>;
    of_leases::check(&make, &pass).await;
}

/// Fences grow across restarts; see [`index_reopened`].
///
/// # Panics
/// When they do not.
pub async fn leases_reopened<F, T>(open: F)
where
    F: AsyncFn() -> Arc<T>,
    T: Leases,
{
    let open = async || open().await as Arc<dyn Leases>;
    of_leases::reopened(&open).await;
}
