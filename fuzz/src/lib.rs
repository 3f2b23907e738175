//! What must hold of each parser, whatever bytes it is given: one module per fuzz target.
//!
//! Each module has `check(data)`, which panics when something does not hold. `fuzz_targets/` runs
//! it below libFuzzer; `crates/oracle/tests/corpus.rs` runs [`TARGETS`] over the committed
//! corpora in every `cargo test`. Inputs are text as far as they can be, so that a seed can be
//! written and read by hand.
//!
//! Where there is a printer, what was read is printed and must read the same; where there is
//! none, a slower and simpler reading of the same input must agree.

#[cfg(feature = "cache")]
pub mod cache_record;
pub mod checksum;
pub mod chunked_body;
pub mod chunked_round_trip;
pub mod classify;
pub mod conditions;
#[cfg(feature = "gateway")]
pub mod config;
pub mod copy_source;
pub mod dates;
#[cfg(feature = "cache")]
pub mod disk_segment;
pub mod etag;
pub mod form;
pub mod form_policy;
#[cfg(feature = "gateway")]
pub mod fs_names;
mod input;
#[cfg(feature = "cache")]
pub mod log_record;
#[cfg(feature = "native")]
pub mod native_entry;
pub mod policy;
#[cfg(feature = "origin")]
pub mod profile;
pub mod range;
pub mod signature_forged;
pub mod signature_round_trip;
pub mod uri;
pub mod xml;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of its corpus and its binary.
    pub name: &'static str,
    /// Panics when the parser breaks a promise on this input.
    pub check: fn(&[u8]),
}

macro_rules! targets {
    ($($(#[$condition:meta])? $name:ident)+) => {
        /// All targets.
        pub const TARGETS: &[Target] = &[$(
            $(#[$condition])?
            Target {
                name: stringify!($name),
                check: $name::check,
            }
        ),+];
    };
}

targets! {
    checksum chunked_body chunked_round_trip classify conditions copy_source dates etag form
    form_policy policy range signature_forged signature_round_trip uri xml
    #[cfg(feature = "cache")] cache_record
    #[cfg(feature = "cache")] disk_segment
    #[cfg(feature = "cache")] log_record
    #[cfg(feature = "gateway")] config
    #[cfg(feature = "gateway")] fs_names
    #[cfg(feature = "native")] native_entry
    #[cfg(feature = "origin")] profile
}
