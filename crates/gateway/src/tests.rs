//! Tests of the whole edge, in process: real sockets, and a store that remembers what it was asked.

mod admission;
mod answers;
mod harness;
mod late_answers;
mod life;
mod patience;
mod payloads;
mod protocols;
