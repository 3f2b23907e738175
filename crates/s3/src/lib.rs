//! The S3 language: what requests and answers mean, with no sockets, clocks or I/O.
//!
//! Everything here is a pure value or a pure function; whoever needs the time passes `now`.
//! The gateway reads requests with it, the origin store writes them, native stores obey it.
//!
//! | module | knows |
//! |---|---|
//! | [`bucket`], [`key`], [`etag`], [`range`], [`condition`] | values that can't be wrong |
//! | [`operation`], [`classify`] | every operation of the API and how a request names one |
//! | [`code`], [`xml`] | error codes, their status, and the documents that carry them |
//! | [`sigv4`], [`post_policy`] | Signature Version 4: verify and sign, header, query and form |
//! | [`chunked`], [`checksum`] | the `aws-chunked` coding and the checksums of payloads |
//! | [`policy`] | AWS policy documents: compile once, decide often |
//! | [`wildcard`] | patterns with `*` and `?` |

pub mod bucket;
pub mod checksum;
pub mod chunked;
pub mod classify;
pub mod code;
pub mod condition;
pub mod etag;
pub mod key;
pub mod operation;
pub mod policy;
pub mod post_policy;
pub mod range;
pub mod sigv4;
pub mod time;
pub mod uri;
pub mod wildcard;
pub mod xml;
