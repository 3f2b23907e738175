//! The origin store against scripted origins on real sockets.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

mod direct;
mod endpoints;
mod failures;
mod headers;
mod hedge;
mod payload;
mod pool;
mod protocols;
mod read_back;
mod resume;
mod scripted;
mod stage;
mod streaming;
mod versitygw;
