//! The mirror: several independent stores kept equal, as one.
//!
//! Writes go to all members and are acknowledged when enough have them; what a member missed is in
//! a journal, from which it is repaired in order. Reads go to the best member that is not behind.

mod settings;

use std::sync::Arc;

use forebay_native::hot::Parts;
use forebay_store::{Budget, Clock, Store};

pub use forebay_native::hot::Space;
pub use settings::MirrorSettings;

/// What a mirror is made of.
pub struct MirrorParts {
    /// The members by their names in the config, at least two, none of them twice.
    pub members: Vec<(String, Arc<dyn Store>)>,
    /// The engine that keeps the journal: a log of one gateway, or a Redis of many.
    pub journal: Parts,
    /// Which part of it, so that several mirrors may share an engine.
    pub space: Space,
    /// The time.
    pub clock: Clock,
    /// Room for payload bytes in flight.
    pub budget: Budget,
    /// Names this life of this gateway.
    pub holder: String,
}
