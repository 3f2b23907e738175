//! Opens what an earlier life left, and begins a segment of this one.
//!
//! The tables of sealed segments are read, oldest first, and what they say is done. Segments
//! without a table are scanned: what follows the last whole record is cut, if it was never synced;
//! their last group is written once more, as a sync that failed may have left it in memory alone;
//! then they are sealed. All of that is durable before anyone reads: nobody sees what a crash
//! might still take back.

use std::{collections::BTreeMap, io, num::NonZeroU32, path::PathBuf, time::SystemTime};

use crate::{
    committer::Tail,
    format::{self, BadHead, SEGMENT_HEAD_BYTES, SegmentHead, SegmentNumber},
    keeper::{successor, write_table},
    log::Devices,
    map::{Map, State as SegmentState, Usage},
    scan::{self, Damage, Scan},
    settings::{LogSettings, OnUnnamedDamage},
    table::Table,
};

/// Why a log could not be opened, besides its folder.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(io::Error),
    Version(u32),
    /// Damage that hides names.
    Unnamed {
        segment: SegmentNumber,
        found: String,
    },
}

/// A log as it was found.
pub(crate) struct Recovered {
    pub(crate) map: Map,
    pub(crate) tail: Tail,
    /// Payloads that are known to be damaged.
    pub(crate) damaged: Vec<Box<[u8]>>,
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Work under way.
struct Recovery<'a> {
    devices: &'a Devices,
    settings: &'a LogSettings,
    now: SystemTime,
    /// Lengths of the segments that there are.
    lengths: BTreeMap<SegmentNumber, u64>,
    /// And of the tables.
    tables: BTreeMap<SegmentNumber, u64>,
    map: Map,
    damaged: Vec<Box<[u8]>>,
    /// Segments without a record, to be removed when the next is durable.
    empty: Vec<SegmentNumber>,
    last: Last,
}

/// Where the log goes on.
struct Last {
    segment: Option<SegmentNumber>,
    end: u64,
    chain: u64,
    sequence_next: u64,
}

/// Opens all that there is.
pub(crate) fn recover(
    devices: &Devices,
    settings: &LogSettings,
    now: SystemTime,
) -> Result<Recovered, Broken> {
    let segments = numbers(devices.segments.list()?);
    let tables = numbers(devices.tables.list()?);
    let highest = segments.keys().chain(tables.keys()).max().copied();
    let mut recovery = Recovery {
        devices,
        settings,
        now,
        lengths: segments,
        tables,
        map: Map::default(),
        damaged: Vec::new(),
        empty: Vec::new(),
        last: Last {
            segment: None,
            end: 0,
            chain: 0,
            sequence_next: 1,
        },
    };
    let oldest = recovery.lengths.keys().next().copied();
    for table in recovery.tables.keys().copied().collect::<Vec<_>>() {
        if recovery.lengths.contains_key(&table) {
            continue;
        }
        if oldest.is_some_and(|oldest| table < oldest) {
            // Its segment was compacted, and this was all that was left to remove.
            devices.tables.remove(table.get().into())?;
        } else if read_table(devices, table)?.is_some() {
            // Its segment is lost; the table tells what was in it.
            recovery.lengths.insert(table, 0);
        } else {
            recovery.unnamed(table, "it is missing, and its table is damaged".to_owned())?;
        }
    }
    let order: Vec<SegmentNumber> = recovery.lengths.keys().copied().collect();
    for segment in order {
        recovery.take(segment)?;
    }
    let first = highest.map_or(NonZeroU32::MIN, successor);
    recovery.begin(first)
}

/// Segments by number; other numbers are none of ours.
fn numbers(listed: Vec<(u64, u64)>) -> BTreeMap<SegmentNumber, u64> {
    listed
        .into_iter()
        .filter_map(|(number, length)| {
            let number = NonZeroU32::new(u32::try_from(number).ok()?)?;
            Some((number, length))
        })
        .collect()
}

/// The table of a segment; `None` when there is none that is whole.
pub(crate) fn read_table(devices: &Devices, segment: SegmentNumber) -> io::Result<Option<Table>> {
    let tables = numbers(devices.tables.list()?);
    match tables.get(&segment) {
        Some(&length) => table_of(devices, segment, length),
        None => Ok(None),
    }
}

fn table_of(devices: &Devices, segment: SegmentNumber, length: u64) -> io::Result<Option<Table>> {
    let bytes = devices.tables.read(segment.get().into(), 0, length)?;
    Ok(Table::read(&bytes, segment))
}

impl Recovery<'_> {
    /// Does what a segment says.
    fn take(&mut self, segment: SegmentNumber) -> Result<(), Broken> {
        if let Some(&length) = self.tables.get(&segment)
            && let Some(table) = table_of(self.devices, segment, length)?
        {
            self.check_previous(table.previous)?;
            self.adopt(table);
            return Ok(());
        }
        let number = segment.get().into();
        let length = self.lengths[&segment];
        let bytes = self.devices.segments.read(number, 0, length)?;
        let end_known = self.end_known(segment)?;
        let (head, is_head_damaged) = match SegmentHead::read(&bytes, segment) {
            Ok(head) => (head, false),
            Err(BadHead::Version(version)) => return Err(Broken::Version(version)),
            Err(BadHead::Unbegun | BadHead::Damaged) => {
                let Some(head) = self.head_of(&bytes, segment, end_known) else {
                    self.empty.push(segment);
                    return Ok(());
                };
                (head, true)
            }
        };
        self.check_previous(head.previous)?;
        let scan = scan::scan(&bytes, &head, end_known);
        self.note(segment, &scan)?;
        if is_head_damaged {
            tracing::error!(%segment, "the head of a segment is damaged; its records are whole");
        }
        if scan.items.is_empty() {
            self.last.sequence_next = self.last.sequence_next.max(scan.sequence_next);
            self.empty.push(segment);
            return Ok(());
        }
        self.seal(&head, &bytes, scan)
    }

    /// A head for a segment whose own is damaged; `None` when nothing in it was ever durable.
    fn head_of(&self, bytes: &[u8], segment: SegmentNumber, end_known: u64) -> Option<SegmentHead> {
        let head = SegmentHead {
            segment,
            sequence: self.last.sequence_next,
            previous: self.last.segment,
            previous_end: self.last.end,
            chain: self.last.chain,
            salt: scan::first_salt(bytes, segment).unwrap_or_default(),
        };
        // The first group has the head in it, when the head was not durable before; then all of
        // it counts or nothing.
        let scan = scan::scan(bytes, &head, end_known);
        let is_durable = end_known > 0 || scan.group > 0 || !scan.damage.is_empty();
        is_durable.then_some(head)
    }

    /// Where the records of a segment end, if the next one knows.
    fn end_known(&self, segment: SegmentNumber) -> Result<u64, Broken> {
        let later = self.lengths.range(successor(segment)..);
        for (&next, &length) in later {
            if length < SEGMENT_HEAD_BYTES as u64 {
                continue;
            }
            let number = next.get().into();
            let bytes = self
                .devices
                .segments
                .read(number, 0, SEGMENT_HEAD_BYTES as u64)?;
            if let Ok(head) = SegmentHead::read(&bytes, next) {
                let is_next = head.previous == Some(segment);
                return Ok(if is_next { head.previous_end } else { 0 });
            }
        }
        Ok(0)
    }

    /// Refuses when a segment is missing between others.
    fn check_previous(&self, previous: Option<SegmentNumber>) -> Result<(), Broken> {
        let is_oldest = self.last.segment.is_none();
        match previous {
            Some(previous) if !is_oldest && !self.lengths.contains_key(&previous) => {
                self.unnamed(previous, "it is missing".to_owned())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Damage whose keys nobody knows.
    fn unnamed(&self, segment: SegmentNumber, found: String) -> Result<(), Broken> {
        match self.settings.on_unnamed_damage {
            OnUnnamedDamage::Refuse => Err(Broken::Unnamed { segment, found }),
            OnUnnamedDamage::Lose => {
                tracing::error!(%segment, %found, "what was written there is lost, as was chosen");
                Ok(())
            }
        }
    }

    fn note(&mut self, segment: SegmentNumber, scan: &Scan) -> Result<(), Broken> {
        for found in &scan.damage {
            match found {
                Damage::Payload { name } => self.damaged.push(name.clone()),
                Damage::Unnamed(place) => {
                    let what = format!("bytes {} to {} are damaged", place.start, place.end);
                    self.unnamed(segment, what)?;
                }
                Damage::Head { offset } => {
                    tracing::error!(%segment, offset, "the head of a record is damaged");
                }
            }
        }
        Ok(())
    }

    /// Makes a scanned segment durable, with a table.
    fn seal(&mut self, head: &SegmentHead, bytes: &[u8], scan: Scan) -> Result<(), Broken> {
        let segment = head.segment;
        let number = segment.get().into();
        let device = &self.devices.segments;
        let end = usize::try_from(scan.end).expect("32 bits fit any address");
        let group = usize::try_from(scan.group).expect("32 bits fit any address");
        let last_group = bytes.get(group..end.min(bytes.len())).unwrap_or_default();
        device.write(number, scan.group.into(), last_group)?;
        device.resize(number, scan.end.into())?;
        device.sync(number)?;
        let mut table = Table {
            segment,
            previous: head.previous,
            end: scan.end.into(),
            chain: scan.chain,
            sequence_next: scan.sequence_next,
            items: scan.items,
        };
        table.sort();
        write_table(self.devices.tables.as_ref(), segment, &table.write())?;
        self.adopt(table);
        Ok(())
    }

    /// Does what a table says.
    fn adopt(&mut self, table: Table) {
        let names: usize = table.items.iter().map(|item| item.name.len() + 40).sum();
        let usage = Usage {
            file_bytes: table.end + names as u64,
            state: SegmentState::Sealed,
            ..*self.map.usage(table.segment)
        };
        *self.map.usage(table.segment) = usage;
        for item in table.items {
            self.map.replay(table.segment, item);
        }
        self.last = Last {
            segment: Some(table.segment),
            end: table.end,
            chain: table.chain,
            sequence_next: self.last.sequence_next.max(table.sequence_next),
        };
    }

    /// Begins a segment of this life.
    fn begin(mut self, segment: SegmentNumber) -> Result<Recovered, Broken> {
        let head = SegmentHead {
            segment,
            sequence: self.last.sequence_next,
            previous: self.last.segment,
            previous_end: self.last.end,
            chain: self.last.chain,
            salt: format::salt(self.now, segment, self.last.chain),
        };
        let device = &self.devices.segments;
        let number = segment.get().into();
        device.make(number, self.settings.segment_bytes)?;
        device.write(number, 0, &head.write())?;
        device.sync(number)?;
        for empty in self.empty {
            device.remove(empty.get().into())?;
            self.devices.tables.remove(empty.get().into())?;
        }
        self.map.usage(segment).file_bytes = self.settings.segment_bytes;
        let tail = Tail {
            segment,
            end: u32::try_from(SEGMENT_HEAD_BYTES).expect("it is 72"),
            head: None,
            chain: head.chain,
            salt: head.salt,
            sequence: head.sequence,
        };
        Ok(Recovered {
            map: self.map,
            tail,
            damaged: self.damaged,
        })
    }
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder is not ours to use.
    #[error(transparent)]
    Folder(#[from] forebay_disk::folder::OpenError),
    /// The disk failed, or has no room.
    #[error("open the log in {path}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A segment of a newer version.
    #[error("{path} has segments of version {found}; use the program that wrote them")]
    UnknownVersion {
        /// The folder.
        path: PathBuf,
        /// The version.
        found: u32,
    },
    /// Acknowledged writes are damaged, and which keys they were of is not known.
    #[error(
        "{path}: segment {segment:016x} is damaged: {found}. Which keys were written there is not \
         known, so older versions of them might be served: bring the file back from a copy, or \
         open with on_unnamed_damage = \"lose\" and what was there is lost"
    )]
    Damaged {
        /// The folder.
        path: PathBuf,
        /// Number of the segment.
        segment: u32,
        /// What was found.
        found: String,
    },
}

impl Broken {
    pub(crate) fn told(self, path: PathBuf) -> OpenError {
        match self {
            Self::Io(source) => OpenError::Io { path, source },
            Self::Version(found) => OpenError::UnknownVersion { path, found },
            Self::Unnamed { segment, found } => OpenError::Damaged {
                path,
                segment: segment.get(),
                found,
            },
        }
    }
}
