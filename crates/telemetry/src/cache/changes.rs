//! What a cache counts of the changes that gateways tell each other.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::{Registry, Unit},
};

/// Why other gateways are told of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// It was just written.
    Written,
    /// Again, as the write, whose outcome nobody knows, may have come by now.
    Doubt,
    /// It could not be told before.
    Late,
}

/// Why a change was not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untold {
    /// Whoever passes it on said so.
    Error,
    /// It took too long.
    Timeout,
    /// Another one has just failed, so this one was not tried; or there was no time to.
    NotTried,
    /// Too many wait to be told.
    NoRoom,
    /// It names no bucket.
    Unnamed,
}

/// What was heard of another gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It changed an object.
    Object,
    /// It changed all that a prefix names.
    Prefix,
}

/// Counters of one cache layer; clones count together.
#[derive(Debug, Clone, Default)]
pub struct ChangeMetrics {
    told: Family<CauseLabel, Counter>,
    untold: Family<CauseLabel, Counter>,
    heard: Family<OfLabel, Counter>,
    unheard_seconds: Counter<f64, AtomicU64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLabel {
    of: &'static str,
}

impl Telling {
    fn label(self) -> CauseLabel {
        let cause = match self {
            Self::Written => "written",
            Self::Doubt => "doubt",
            Self::Late => "late",
        };
        CauseLabel { cause }
    }
}

impl Untold {
    fn label(self) -> CauseLabel {
        let cause = match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::NotTried => "not_tried",
            Self::NoRoom => "no_room",
            Self::Unnamed => "unnamed",
        };
        CauseLabel { cause }
    }
}

impl Heard {
    fn label(self) -> OfLabel {
        let of = match self {
            Self::Object => "object",
            Self::Prefix => "prefix",
        };
        OfLabel { of }
    }
}

impl ChangeMetrics {
    /// Counts a change that was told.
    pub fn told(&self, telling: Telling) {
        self.told.get_or_create(&telling.label()).inc();
    }

    /// Counts a change that was not told, for now or at all.
    pub fn untold(&self, untold: Untold) {
        self.untold.get_or_create(&untold.label()).inc();
    }

    /// Counts a change of another gateway.
    pub fn heard(&self, heard: Heard) {
        self.heard.get_or_create(&heard.label()).inc();
    }

    /// Counts time in which changes may have been missed.
    pub fn unheard(&self, time: Duration) {
        self.unheard_seconds.inc_by(time.as_secs_f64());
    }

    /// How many were told for this reason.
    pub fn told_total(&self, telling: Telling) -> u64 {
        self.told.get_or_create(&telling.label()).get()
    }

    /// How many were not told for this reason.
    pub fn untold_total(&self, untold: Untold) -> u64 {
        self.untold.get_or_create(&untold.label()).get()
    }

    /// How many were heard.
    pub fn heard_total(&self, heard: Heard) -> u64 {
        self.heard.get_or_create(&heard.label()).get()
    }

    /// Time in which changes may have been missed.
    pub fn unheard_total(&self) -> Duration {
        Duration::from_secs_f64(self.unheard_seconds.get())
    }

    /// Makes the counters part of what a scrape gives.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Changes that other gateways were told of";
        registry.register("changes_told", help, self.told.clone());
        let help = "Changes that they were not told of, for now or at all";
        registry.register("changes_untold", help, self.untold.clone());
        let help = "Changes that other gateways told of";
        registry.register("changes_heard", help, self.heard.clone());
        let help = "Time in which changes of other gateways may have been missed";
        let time = self.unheard_seconds.clone();
        registry.register_with_unit("changes_unverified", help, Unit::Seconds, time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_names_of_the_docs() {
        let metrics = ChangeMetrics::default();
        metrics.told(Telling::Written);
        metrics.untold(Untold::Timeout);
        metrics.heard(Heard::Object);
        metrics.unheard(Duration::from_millis(1500));
        let mut registry = Registry::default();
        metrics.register(registry.sub_registry_with_prefix("forebay_cache"));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "forebay_cache_changes_told_total{cause=\"written\"} 1",
            "forebay_cache_changes_untold_total{cause=\"timeout\"} 1",
            "forebay_cache_changes_heard_total{of=\"object\"} 1",
            "forebay_cache_changes_unverified_seconds_total 1.5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
