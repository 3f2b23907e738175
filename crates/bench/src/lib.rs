//! Measures S3 endpoints: a load generator, a counting relay, reports and costs.
//!
//! | module | command | does |
//! |---|---|---|
//! | [`run`] | `forebay bench run` | puts load on endpoints, side by side, and measures |
//! | [`results`] | – | the run file: what was measured, as JSON; everything else reads it |
//! | [`compare`] | – | how many times one thing is another, and whether that may be said |
//! | [`table`], [`export`] | – | a run as text for a terminal, and as CSV |
//! | [`report`] | `forebay report` | tables, CSV, charts and a self-contained page from run files |
//! | [`tap`] | `forebay tap` | relays, counts and disturbs what passes between two programs |
//! | [`cost`] | `forebay cost` | what a workload costs in S3, in Redis and in a tier |
//!
//! Beneath [`run`]: `workload` says what is asked, `load` when and from how many connections,
//! `wire` puts it on them, `sign` signs it, `content` makes and checks the bytes, `prepare` sees to
//! it that the objects are there. `alarm` waits for whoever cannot wait in milliseconds.
//!
//! Nothing here links the gateway: a figure must not depend on the code that it judges.

mod alarm;
mod arrange;
pub mod chart;
pub mod compare;
mod content;
pub mod cost;
pub mod export;
pub mod fault;
mod load;
mod prepare;
mod quantity;
pub mod report;
pub mod results;
pub mod run;
#[cfg(test)]
mod scripted;
mod shown;
mod sign;
pub mod table;
pub mod tap;
mod wire;
mod workload;
