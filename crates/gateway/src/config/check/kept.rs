//! Judges what a cache layer keeps besides objects, and for how long.

use forebay_cache::{CacheSettings, Coherence, KeptSettings, Lasting};

use super::{Rule, Section, Wrong, server::seconds};
use crate::config::{
    raw::{RawKeptFor, RawLasting},
    section::{Given, quoted},
    value::Span,
};

/// The keys of a cache layer that are about this.
pub(super) struct RawKept {
    pub(super) list_objects: Option<RawLasting>,
    pub(super) list_objects_v2: Option<RawLasting>,
    pub(super) list_object_versions: Option<RawLasting>,
    pub(super) head_bucket: Option<RawLasting>,
    pub(super) list_buckets: Option<RawLasting>,
    pub(super) negative_ttl: Option<String>,
}

/// Judges them; `settings` has the layer's modes.
pub(super) fn check_kept(
    table: &mut Section<'_, '_>,
    raw: RawKept,
    settings: &CacheSettings,
) -> KeptSettings {
    let RawKept {
        list_objects,
        list_objects_v2,
        list_object_versions,
        head_bucket,
        list_buckets,
        negative_ttl,
    } = raw;
    let rules = settings.rules.iter().map(|rule| rule.policy.coherence);
    let mut modes = rules.chain([settings.coherence]);
    let is_strict = modes.all(|mode| mode == Coherence::Strict);
    let mut lasting = |key, raw: Option<RawLasting>| {
        if is_strict && matches!(raw, Some(RawLasting::For(_))) {
            let wrong = Wrong {
                value: "{ … }".to_owned(),
                allowed: "\"usual\" or \"off\" with mode = \"strict\"",
                remedy: "remove it, as strict answers nothing unasked, or choose another mode",
            };
            table.fault(key, wrong);
        }
        check_lasting(table, key, raw)
    };
    let longest = KeptSettings::NEGATIVE_TTL_MAX;
    KeptSettings {
        list_objects: lasting("list_objects", list_objects),
        list_objects_v2: lasting("list_objects_v2", list_objects_v2),
        list_object_versions: lasting("list_object_versions", list_object_versions),
        head_bucket: lasting("head_bucket", head_bucket),
        list_buckets: lasting("list_buckets", list_buckets),
        negative_ttl: table.span(
            "negative_ttl",
            negative_ttl,
            Rule {
                default: longest,
                range: std::time::Duration::ZERO..=longest,
            },
        ),
    }
}

fn check_lasting(table: &mut Section<'_, '_>, key: &str, raw: Option<RawLasting>) -> Lasting {
    let word = match raw {
        None => None,
        Some(RawLasting::Word(word)) => Some(word),
        Some(RawLasting::For(raw)) => return check_for(&mut table.inner(key), raw),
    };
    let given = Given::from(word.is_some());
    let lasting = match word.as_deref() {
        None | Some("usual") => Lasting::Usual,
        Some("off") => Lasting::Off,
        Some(other) => {
            let wrong = Wrong {
                value: quoted(other),
                allowed: "\"usual\", \"off\", or a table with a ttl",
                remedy: &format!("write {key} = {{ ttl = \"10s\" }}"),
            };
            table.fault(key, wrong);
            Lasting::Usual
        }
    };
    table.note(key, quoted(word.as_deref().unwrap_or("usual")), given);
    lasting
}

fn check_for(table: &mut Section<'_, '_>, raw: RawKeptFor) -> Lasting {
    let RawKeptFor { ttl, tti } = raw;
    let range = || seconds(10, 0..=365 * 24 * 3600);
    if ttl.is_none() {
        table.missing(
            "ttl",
            "write ttl = \"10s\", or \"off\" in place of the table",
        );
    }
    let ttl = table.span("ttl", ttl, range());
    let tti = match tti {
        None => {
            table.text("tti", None);
            None
        }
        Some(tti) => Some(table.span("tti", Some(tti), range())),
    };
    if let Some(tti) = tti.filter(|tti| *tti > ttl) {
        let wrong = Wrong {
            value: quoted(&Span(tti).to_string()),
            allowed: "at most ttl",
            remedy: "make tti shorter, or leave it out: ttl already ends before it",
        };
        table.fault("tti", wrong);
    }
    Lasting::For { ttl, tti }
}
