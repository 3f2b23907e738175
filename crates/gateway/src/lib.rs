//! The gateway: listeners, the path of a request, and what is set up around them.
//!
//! `request` is the design: the steps of a request in their order. `server` owns sockets and
//! threads, [`settings`] says what it is told, [`routes`] and [`users`] what it looks up.

pub mod access;
mod access_log;
pub mod admin;
pub mod assemble;
pub mod config;
mod request;
pub mod routes;
mod server;
pub mod settings;
pub mod users;

#[cfg(test)]
mod tests;

pub use server::{Drained, Gateway, Parts, Running, StartError, TlsError};
