//! The frame of Forebay: everything that answers S3 requests is a [`Store`], and a layer is a
//! store around another store.
//!
//! The gateway parses a request once into a [`Request`] and sends it down a stack of layers to a
//! store; a [`Response`] or an [`Error`] comes back. The same interface holds inside one process
//! and, as HTTP, between processes.
//!
//! Here also are the parts that every store and layer needs: the streaming [`Body`], the global
//! byte [`Budget`], the [`Clock`], the [`null`] store, and, with feature `testing`, the contract
//! suite, fault injection and the judge of histories. Not here: sockets, configuration, metrics.

mod body;
mod budget;
mod cache_status;
pub mod changes;
mod clock;
mod error;
pub mod null;
mod request;
mod response;

#[cfg(feature = "testing")]
pub mod contract;
#[cfg(feature = "testing")]
pub mod faulty;
#[cfg(feature = "testing")]
pub mod history;

use std::{pin::Pin, sync::Arc};

use async_trait::async_trait;

pub use body::Body;
pub use budget::{Budget, Reservation};
pub use cache_status::{CacheStatus, Forward, NAME_DEFAULT};
pub use clock::Clock;
pub use error::{Error, Refusal, Side};
pub use request::{Caller, Identity, PayloadProof, Query, Request, RequestId};
pub use response::Response;

/// Anything that answers S3 requests.
///
/// Contract, checked for every store and for every layer over the memory store by
/// `contract::check`:
/// - **Whole or not at all.** A write is visible as a whole once `call` has returned `Ok` with a
///   2xx status, and not at all before that; a body that ends in an error changes nothing.
/// - **Durable** to the degree that the store's documentation names, at that same moment.
/// - **Errors.** An answer of another service, errors included, is `Ok` and unchanged. `Err` says
///   what this process found out itself, and what the caller may do about it ([`Error`]).
/// - **Concurrent.** Any number of calls at once; writes of one key happen in some order.
/// - **Cancel-safe.** A dropped future leaves the old object or the new one, whole.
/// - A layer passes every operation it is not for on to the store below, untouched.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Answers one request.
    async fn call(&self, request: Request) -> Result<Response, Error>;
}

impl<S: Store + ?Sized> Store for Arc<S> {
    /// Written as `async_trait` writes it, so that no second future is boxed around the first.
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        (**self).call(request)
    }
}
