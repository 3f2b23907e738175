//! Judges the `disk` of a cache layer.

use forebay_cache::{CacheSettings, DiskChoice, DiskPart, Place};

use super::{Rule, Section, Wrong};
use crate::config::{
    raw::RawDisk,
    section::{Given, quoted},
    value::MIB,
};

/// The largest disk: 1 PiB, far beyond what one machine has.
const DISK_BYTES_MAX: u64 = 1 << 50;
/// A day's writing that is less than this keeps nothing worth having.
const WRITTEN_BYTES_MIN: u64 = 64 * MIB;

/// Judges where the pages of a cache with these settings lie on disk.
pub(super) fn check_disk(
    table: &mut Section<'_, '_>,
    raw: Option<RawDisk>,
    settings: &CacheSettings,
) -> Option<DiskChoice> {
    let Some(raw) = raw else {
        table.note("disk", "(not set)", Given::No);
        let on_disk = |rule: &forebay_cache::Rule| rule.policy.place == Place::Disk;
        if let Some(index) = settings.rules.iter().position(on_disk) {
            let wrong = Wrong {
                value: "\"disk\"".to_owned(),
                allowed: "\"everywhere\" or \"memory\", as the cache has no disk",
                remedy: "give the cache a disk = { path = \"…\", size = \"…\" }",
            };
            table.fault(&format!("rules[{index}].place"), wrong);
        }
        return None;
    };
    let RawDisk {
        path,
        size,
        written_per_day_max,
    } = raw;
    let mut table = table.inner("disk");
    let least = DiskPart::capacity_bytes_min(settings);
    let folder = table.text("path", path).filter(|path| !path.is_empty());
    if folder.is_none() {
        table.missing(
            "path",
            "name a folder of this cache alone: path = \"/var/cache/forebay\"",
        );
    }
    let size = if size.is_none() {
        table.missing(
            "size",
            "say how much of the disk it may take: size = \"200GiB\"",
        );
        None
    } else {
        let range = least..=DISK_BYTES_MAX;
        Some(table.size(
            "size",
            size,
            Rule {
                default: least,
                range,
            },
        ))
    };
    let written = match written_per_day_max {
        None => {
            table.text("written_per_day_max", None);
            None
        }
        Some(text) => {
            let range = WRITTEN_BYTES_MIN..=DISK_BYTES_MAX;
            let rule = Rule {
                default: DISK_BYTES_MAX,
                range,
            };
            Some(table.size("written_per_day_max", Some(text), rule))
        }
    };
    Some(DiskChoice {
        folder: folder?.into(),
        capacity_bytes: size?,
        written_bytes_per_day_max: written,
    })
}

/// Two caches can't share a folder.
pub(super) fn check_folders<'a>(
    table: &mut Section<'_, '_>,
    caches: impl Iterator<Item = (String, &'a CacheSettings)>,
) {
    let mut seen: Vec<(String, &DiskChoice)> = Vec::new();
    for (key, settings) in caches {
        let Some(disk) = &settings.disk else { continue };
        if let Some((earlier, _)) = seen.iter().find(|(_, other)| other.folder == disk.folder) {
            let wrong = Wrong {
                value: quoted(&disk.folder.display().to_string()),
                allowed: "a folder of its own for each cache",
                remedy: &format!("{earlier} has it already: name another"),
            };
            table.fault(&format!("{key}.path"), wrong);
        }
        seen.push((format!("{key}.path"), disk));
    }
}
