//! What an operator chooses about a cache layer.

use std::{path::PathBuf, time::Duration};

use forebay_telemetry::cache::Mode;

use crate::{
    KeptSettings,
    policy::{Keep, Place, Policy, Rule},
};

/// Settings of one cache layer.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// Bytes that pages, version records and their index take at most.
    pub capacity_bytes: u64,
    /// Size of a page, unless a rule says otherwise.
    pub page_bytes: PageBytes,
    /// Where pages lie on disk, if they do; whoever makes the layer opens it ([`crate::DiskPart`]).
    pub disk: Option<DiskChoice>,
    /// How stale an answer may be, unless a rule says otherwise.
    pub coherence: Coherence,
    /// What is different for some objects; the first rule that matches counts.
    pub rules: Vec<Rule>,
    /// `Cache-Control` of requests: `no-store`, `no-cache`, `max-age=0`. Turn it off where clients
    /// must not be able to send their reads to the origin.
    pub client_directives: Directives,
    /// `Cache-Control: no-store` of objects. Other directives are never obeyed: S3's users set
    /// them for browsers. Turn it off where `no-store` is meant for browsers as well.
    pub origin_directives: Directives,
    /// What is kept besides objects.
    pub kept: KeptSettings,
}

/// The part of a cache that lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskChoice {
    /// The folder, of this layer alone.
    pub folder: PathBuf,
    /// Bytes that its files take at most.
    pub capacity_bytes: u64,
    /// Bytes that may be written in a day, since disks wear; `None` is no limit.
    pub written_bytes_per_day_max: Option<u64>,
}

/// Size of a page, a power of two from 4 KiB to 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageBytes(u32);

/// When a stored version may answer without asking the origin. What each promises to clients is in
/// docs/semantics.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coherence {
    /// Never: each read asks whether it is still the current one.
    Strict,
    /// For `ttl` after the origin was last asked, as long as it was used within `tti`.
    Bounded {
        /// Time to live, counted from the last validation.
        ttl: Duration,
        /// Time to idle, counted from the last use.
        tti: Option<Duration>,
        /// How much longer on purpose.
        stale: StaleUse,
    },
    /// Until a write passes this gateway: nobody writes around it.
    Exclusive,
    /// For ever: no key is ever written twice, or only through this gateway.
    Immutable,
}

/// How long after it has become stale a version may answer all the same (RFC 5861); zero is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StaleUse {
    /// While the origin is asked in the background.
    pub while_revalidate: Duration,
    /// When the origin was asked and has failed.
    pub if_error: Duration,
}

impl Coherence {
    /// The mode without its settings.
    pub fn mode(self) -> Mode {
        match self {
            Self::Strict => Mode::Strict,
            Self::Bounded { .. } => Mode::Bounded,
            Self::Exclusive => Mode::Exclusive,
            Self::Immutable => Mode::Immutable,
        }
    }
}

/// Whether `Cache-Control` directives count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directives {
    /// They count.
    Honour,
    /// They don't.
    Ignore,
}

impl PageBytes {
    /// The smallest page, 4 KiB: what a disk reads at least. The index takes 2 % on top of it.
    pub const MIN: Self = Self(4 * 1024);
    /// Small enough for tests to have several.
    #[cfg(test)]
    pub(crate) const OF_TESTS: Self = Self(64 * 1024);
    /// The default: one lookup serves an object up to 1 MiB, and a page leaves in one `sendfile`.
    pub const DEFAULT: Self = Self(1024 * 1024);
    /// The largest page, 16 MiB.
    pub const MAX: Self = Self(16 * 1024 * 1024);

    /// A page of `bytes`, or `None` when that is no power of two in the range.
    pub fn new(bytes: u64) -> Option<Self> {
        let bytes = u32::try_from(bytes).ok()?;
        let fits = (Self::MIN.0..=Self::MAX.0).contains(&bytes);
        (fits && bytes.is_power_of_two()).then_some(Self(bytes))
    }

    /// The size in bytes.
    pub fn get(self) -> u64 {
        u64::from(self.0)
    }

    /// Number of the page that holds the byte at `offset`.
    pub(crate) fn index_of(self, offset: u64) -> u64 {
        offset / self.get()
    }

    /// Start of the page that holds the byte at `offset`.
    pub(crate) fn floor(self, offset: u64) -> u64 {
        offset - offset % self.get()
    }

    /// First page boundary not below `offset`.
    pub(crate) fn ceil(self, offset: u64) -> u64 {
        offset
            .checked_next_multiple_of(self.get())
            .unwrap_or(u64::MAX)
    }
}

impl CacheSettings {
    /// What is done with objects that no rule is for.
    pub fn policy(&self) -> Policy {
        Policy {
            keep: Keep::Yes,
            page_bytes: self.page_bytes,
            coherence: self.coherence,
            place: Place::Everywhere,
        }
    }
}

impl Default for CacheSettings {
    /// 256 MiB, pages of 1 MiB, `bounded` with a ttl of 60 s, directives honoured.
    fn default() -> Self {
        Self {
            capacity_bytes: 256 * 1024 * 1024,
            page_bytes: PageBytes::DEFAULT,
            disk: None,
            coherence: Coherence::Bounded {
                ttl: Duration::from_mins(1),
                tti: None,
                stale: StaleUse::default(),
            },
            rules: Vec::new(),
            client_directives: Directives::Honour,
            origin_directives: Directives::Honour,
            kept: KeptSettings::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_power_of_two_within_bounds() {
        for (bytes, expected) in [
            (4096, true),
            (65_536, true),
            (1 << 20, true),
            (1 << 24, true),
            (2048, false),
            (6144, false),
            (1 << 25, false),
            (1_000_000, false),
            (0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(PageBytes::new(bytes).is_some(), expected, "{bytes}");
        }
        let page = PageBytes::OF_TESTS;
        assert_eq!((page.floor(65_535), page.floor(65_536)), (0, 65_536));
        assert_eq!(
            (page.ceil(0), page.ceil(1), page.ceil(u64::MAX)),
            (0, 65_536, u64::MAX)
        );
    }
}
