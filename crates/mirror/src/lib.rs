//! The mirror: several independent stores kept equal, as one.
//!
//! Writes go to all members and are acknowledged when enough have them; what a member missed is in
//! a journal, from which it is repaired in order. Reads go to the best member that is not behind.
//!
//! | module | step |
//! |---|---|
//! | `layer` | which operation goes which way |
//! | `ledger` | what a write leaves in the journal, and when it may be acknowledged (pure) |
//! | `journal` | which members lack the last state of which keys, and what was under way |
//! | `write`, `round`, `tee` | a write of a key: intent, all members at once, a body for each |
//! | `send` | one request at one member |
//! | `settle` | what came of a write whose gateway ended |
//! | `buckets`, `many` | writes of buckets; deletes of many keys |
//! | `read` | reads, and how they fall back |
//! | `lists` | listings that are right whichever member answers |
//! | `repair` | beside all requests: members that lack something are brought up to date |
//! | `uploads` | multipart uploads over all members |
//! | `verify` | comparisons of members, and a member that is brought back as a whole |
//! | `ask`, `copy` | what the mirror itself asks members; one key from one to another |
//! | `mirror`, `members` | what all of these share; who the members are, and how they answer |
//! | `locks`, `tasks` | one write of a key at a time, which goes on when its client hangs up |
//! | `operate` | what an operator asks |
//!
//! What is promised to clients is in docs/semantics.md.

mod ask;
mod buckets;
mod copy;
mod journal;
mod layer;
mod ledger;
mod lists;
mod locks;
mod many;
mod members;
mod mirror;
mod operate;
mod read;
mod repair;
mod request;
#[cfg(test)]
mod rig;
mod round;
mod send;
mod settings;
mod settle;
mod tasks;
mod tee;
#[cfg(test)]
mod tests;
mod uploads;
mod verify;
mod write;

use std::sync::Arc;

use forebay_native::hot::Parts;
use forebay_store::{Budget, Clock, Store};
use forebay_telemetry::mirror::MirrorMetrics;

pub use forebay_native::hot::Space;
pub use journal::stranded;
pub use layer::MirrorStore;
pub use members::MEMBERS_MAX;
pub use operate::{MemberState, MemberStatus, MirrorOperator, MirrorStatus};
pub use repair::{Repairer, Turn};
pub use settings::MirrorSettings;
pub use verify::{
    CompareCounts, CompareOrder, CompareProgress, CompareScope, Depth, Difference, DifferenceKind,
    Remedy,
};

/// What a mirror is made of.
pub struct MirrorParts {
    /// The members by their names in the config, at least two, none of them twice.
    pub members: Vec<(String, Arc<dyn Store>)>,
    /// The engine that keeps the journal: a log of one gateway, or a Redis of many.
    pub journal: Parts,
    /// Which part of it, so that several mirrors may share an engine.
    pub space: Space,
    /// Who else writes to the members through such a mirror.
    pub gateways: Gateways,
    /// The time.
    pub clock: Clock,
    /// Room for payload bytes in flight.
    pub budget: Budget,
    /// Counts.
    pub metrics: MirrorMetrics,
    /// Names this life of this gateway.
    pub holder: String,
}

/// Which gateways share a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateways {
    /// This one is alone, as with a log: it remembers which keys have an entry.
    One,
    /// Any number, as with Redis: each read asks the journal, each write takes a lease.
    Many,
}
