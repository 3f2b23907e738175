//! An S3 service as a store: every request passes through, known or not, signed anew.
//!
//! ```text
//! Request ─▶ payload (what vouches for it) ─▶ headers
//!         ─▶ retry ⟲ { set (choose an endpoint) ─▶ attempt: sign ─▶ pool ─▶ connect, exchange }
//!         ─▶ Response
//! ```
//!
//! What passes and what does not:
//! - Method, path, query and all headers pass, but those of one connection (`headers`) and those
//!   of the client's signature. Answers pass whole, errors too, byte for byte.
//! - A payload hash or trailer that the client sent is what the origin gets, so that it verifies
//!   the client's own; where there is none, [`PayloadSigning`] decides (`payload`).
//! - Both directions stream. What is read is sent before more is read, and the origin has the
//!   whole of a payload only when the client's is whole and verified (`upload`).
//! - `Expect: 100-continue` ends here. An early refusal of the origin reaches the client while the
//!   payload is still on its way.
//! - A payload of unknown length is refused with `MissingContentLength`, as S3 does.
//! - An answer of more than 100 headers is refused by hyper, and becomes `Unavailable`.
//!
//! One client request is one origin request; `retry` says when it is tried again. A connection
//! serves one request at a time over HTTP/1.1 and up to `streams_max` over HTTP/2 (`pool`).
//!
//! Called by layers and by the gateway, as any store. Not here: endpoints that do not share their
//! data (`forebay-mirror`); caching.

mod address;
mod attempt;
mod balance;
mod buffers;
mod concurrency;
mod connect;
pub mod credentials;
mod dial;
mod direct;
mod endpoint;
mod exchange;
mod failure;
mod freed;
mod headers;
mod health;
mod hedge;
mod keeper;
pub mod operator;
mod payload;
mod pool;
mod presign;
mod rate;
mod read_back;
pub mod resolve;
mod resume;
mod retry;
mod set;
mod settings;
#[cfg(test)]
mod simulation;
mod store;
mod stream;
mod upload;
mod wire;

pub use settings::{
    Addressing, BalanceSettings, CredentialsSource, EndpointLimits, HealthSettings, HedgeSettings,
    OriginSettings, PayloadSigning, PoolSettings, Protocol, Retries, SettingsError, Timeouts,
};
pub use store::OriginStore;
