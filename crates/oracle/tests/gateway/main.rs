//! The whole gateway in this process: under the contract of stores, with HTTP in between, and
//! before a client that is not ours.
#![expect(clippy::unwrap_used, reason = "a test that can't go on stops")]

mod aws_sdk;
mod contract;
mod server;
