//! The mirror: several independent stores kept equal, as one.
//!
//! Writes go to all members and are acknowledged when enough have them; what a member missed is in
//! a journal, from which it is repaired in order. Reads go to the best member that is not behind.
//!
//! | module | step |
//! |---|---|
//! | `mirror` | the store: what all parts share, and which operation goes which way |
//! | `members` | who they are, how they answer, who is asked first |
//! | `journal` | which members lack the last state of which keys, and what was under way |
//! | `locks`, `tasks` | one write of a key at a time, which goes on when its client hangs up |
//! | `ask`, `copy` | what the mirror itself asks members; one key from one to another |
//! | `lists` | listings that are right whichever member answers |
//! | `operate` | what an operator asks |
//!
//! What is promised to clients is in docs/semantics.md.

#![allow(dead_code, unused_imports, reason = "the write path comes next")]

mod ask;
mod copy;
mod journal;
mod lists;
mod locks;
mod members;
mod mirror;
mod operate;
#[cfg(test)]
mod rig;
mod settings;
mod tasks;

use std::sync::Arc;

use forebay_native::hot::Parts;
use forebay_store::{Budget, Clock, Store};
use forebay_telemetry::mirror::MirrorMetrics;

pub use forebay_native::hot::Space;
pub use members::MEMBERS_MAX;
pub use mirror::MirrorStore;
pub use operate::{MemberState, MemberStatus, MirrorOperator, MirrorStatus};
pub use settings::MirrorSettings;

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
