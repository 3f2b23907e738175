//! Values of entries: what is known of a bucket, an object, an upload, a part.
//!
//! Each is a frame: a byte for the version, 1; a byte for the state of what it tells; a text of up
//! to 255 bytes after a byte for its length; then JSON with the fields of [`crate::record`]. The
//! frame is a format (docs/formats.md).

use bytes::Bytes;
use forebay_s3::{
    checksum::{Algorithm, Checksum, ObjectChecksum},
    code::Code,
};
use forebay_store::Error;
use serde::{Deserialize, Serialize};

use crate::{
    blobs::BlobId,
    index::VALUE_BYTES_MAX,
    record::{Choice, ObjectRecord, PartRecord, UploadRecord},
};

const VERSION: u8 = 1;
/// What a record with usual attributes takes; a guess.
const VALUE_BYTES_USUAL: usize = 384;

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectEntry {
    pub(super) record: ObjectRecord,
    pub(super) kept: Kept,
}

/// Where the bytes of an object are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kept {
    /// In the payload of the entry.
    Beside,
    /// In a blob.
    Blob(BlobId),
    /// In the parts of the upload that made it, whose entries stay.
    Parts {
        upload_id: String,
        /// Whether the client asked for the parts' checksums.
        choice: Choice,
    },
}

/// A part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartEntry {
    pub(super) record: PartRecord,
    /// Its blob, unless its bytes are in the payload of the entry.
    pub(super) blob: Option<BlobId>,
}

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UploadEntry {
    pub(super) record: UploadRecord,
    /// The birth of its bucket, so that it is not taken for one of a later bucket of that name.
    pub(super) birth: String,
    pub(super) state: UploadState,
}

/// Whether an upload takes parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadState {
    Open,
    /// It is gone for clients, and its parts are being removed.
    Aborted,
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BucketEntry {
    #[serde(rename = "created")]
    pub(super) created_ms: i64,
    /// Of this bucket alone, of all that ever have its name.
    pub(super) birth: String,
    /// Names the mark that writes into it expect.
    pub(super) mark: String,
}

impl ObjectEntry {
    pub(super) fn encode(record: &ObjectRecord, kept: &Kept) -> Result<Bytes, Error> {
        let (state, text) = match kept {
            Kept::Beside => (0, ""),
            Kept::Blob(blob) => (1, blob.0.as_str()),
            Kept::Parts { upload_id, choice } => match choice {
                Choice::Client => (2, upload_id.as_str()),
                Choice::Default => (3, upload_id.as_str()),
            },
        };
        framed(state, text, record)
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, Error> {
        let (state, text, record) = unframed(value)?;
        let parts = |choice| Kept::Parts {
            upload_id: text.to_owned(),
            choice,
        };
        let kept = match state {
            0 => Kept::Beside,
            1 => Kept::Blob(BlobId(text.to_owned())),
            2 => parts(Choice::Client),
            3 => parts(Choice::Default),
            _ => return Err(unreadable("its state is unknown")),
        };
        Ok(Self { record, kept })
    }
}

/// What JSON tells of a part.
#[derive(Debug, Serialize, Deserialize)]
struct PartText {
    number: u16,
    size: u64,
    md5: String,
    checksum: String,
    modified: i64,
}

impl PartEntry {
    pub(super) fn encode(&self) -> Result<Bytes, Error> {
        let PartRecord {
            number,
            size_bytes,
            md5,
            checksum,
            modified_ms,
        } = self.record;
        let record = PartText {
            number,
            size: size_bytes,
            md5: hex::encode(md5),
            checksum: format!("{checksum:?}"),
            modified: modified_ms,
        };
        match &self.blob {
            None => framed(0, "", &record),
            Some(blob) => framed(1, &blob.0, &record),
        }
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, Error> {
        let (state, text, record) = unframed::<PartText>(value)?;
        let md5 = hex::decode(&record.md5).ok();
        let md5 = md5.and_then(|md5| md5.try_into().ok());
        Ok(Self {
            record: PartRecord {
                number: record.number,
                size_bytes: record.size,
                md5: md5.ok_or_else(|| unreadable("its MD5 is none"))?,
                checksum: checksum(&record.checksum)
                    .ok_or_else(|| unreadable("its checksum is none"))?,
                modified_ms: record.modified,
            },
            blob: match state {
                0 => None,
                1 => Some(BlobId(text.to_owned())),
                _ => return Err(unreadable("its state is unknown")),
            },
        })
    }
}

fn checksum(text: &str) -> Option<Checksum> {
    let (name, value) = text.split_once(':')?;
    let sum = ObjectChecksum::parse(Algorithm::from_name(name)?, value)?;
    sum.part_count.is_none().then_some(sum.checksum)
}

impl UploadEntry {
    pub(super) fn encode(&self) -> Result<Bytes, Error> {
        let state = match self.state {
            UploadState::Open => 0,
            UploadState::Aborted => 1,
        };
        framed(state, &self.birth, &self.record)
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, Error> {
        let (state, birth, record) = unframed(value)?;
        Ok(Self {
            record,
            birth: birth.to_owned(),
            state: match state {
                0 => UploadState::Open,
                1 => UploadState::Aborted,
                _ => return Err(unreadable("its state is unknown")),
            },
        })
    }
}

impl BucketEntry {
    pub(super) fn encode(&self) -> Result<Bytes, Error> {
        framed(0, "", self)
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, Error> {
        let (_, _, entry) = unframed(value)?;
        Ok(entry)
    }
}

fn framed(state: u8, text: &str, record: &impl Serialize) -> Result<Bytes, Error> {
    let length =
        u8::try_from(text.len()).map_err(|error| Error::internal("write an entry", error))?;
    let mut value = Vec::with_capacity(VALUE_BYTES_USUAL);
    value.extend_from_slice(&[VERSION, state, length]);
    value.extend_from_slice(text.as_bytes());
    serde_json::to_writer(&mut value, record)
        .map_err(|error| Error::internal("write an entry", error))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::refused(Code::MetadataTooLarge));
    }
    Ok(value.into())
}

fn unframed<'v, T: Deserialize<'v>>(value: &'v [u8]) -> Result<(u8, &'v str, T), Error> {
    let (state, length, rest) = match value {
        [VERSION, state, length, rest @ ..] => (*state, usize::from(*length), rest),
        [VERSION, ..] | [] => return Err(unreadable("it is cut")),
        [_, ..] => return Err(unreadable("its version is unknown")),
    };
    let (text, json) = rest
        .split_at_checked(length)
        .ok_or_else(|| unreadable("it is cut"))?;
    let text = std::str::from_utf8(text).map_err(|_| unreadable("its text is none"))?;
    let record =
        serde_json::from_slice(json).map_err(|error| Error::internal("read an entry", error))?;
    Ok((state, text, record))
}

fn unreadable(reason: &'static str) -> Error {
    Error::internal("read an entry", reason)
}

/// Panics unless these bytes, read as each kind of entry, are none or print and read the same.
///
/// # Panics
/// When they do not.
#[cfg(any(test, feature = "testing"))]
pub fn check_entry(value: &[u8]) {
    const WHY: &str = "what was read can be written";
    if let Ok(read) = ObjectEntry::decode(value) {
        let again = ObjectEntry::encode(&read.record, &read.kept).expect(WHY);
        assert_eq!(ObjectEntry::decode(&again).expect(WHY), read);
    }
    if let Ok(read) = PartEntry::decode(value) {
        let again = read.encode().expect(WHY);
        assert_eq!(PartEntry::decode(&again).expect(WHY), read);
    }
    if let Ok(read) = UploadEntry::decode(value) {
        let again = read.encode().expect(WHY);
        assert_eq!(UploadEntry::decode(&again).expect(WHY), read);
    }
    if let Ok(read) = BucketEntry::decode(value) {
        let again = read.encode().expect(WHY);
        assert_eq!(BucketEntry::decode(&again).expect(WHY), read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Attributes, UploadChecksum};
    use forebay_s3::etag::ETag;
    use proptest::{collection::vec, prelude::*};

    fn object(kept: Kept) -> ObjectEntry {
        let attributes = Attributes {
            user: [("a".into(), "b".into())].into(),
            ..Attributes::default()
        };
        let record = ObjectRecord {
            etag: ETag::strong("x").unwrap(),
            size_bytes: 3,
            modified_ms: 4,
            attributes,
            checksum: None,
            part_count: None,
            upload_id: None,
        };
        ObjectEntry { record, kept }
    }

    fn part(blob: Option<BlobId>) -> PartEntry {
        let record = PartRecord {
            number: 7,
            size_bytes: 3,
            md5: [0xab; 16],
            checksum: Checksum::of(Algorithm::Crc32, b"abc"),
            modified_ms: 4,
        };
        PartEntry { record, blob }
    }

    fn upload(state: UploadState) -> UploadEntry {
        let record = UploadRecord {
            id: "i".into(),
            key: "k".into(),
            initiated_ms: 4,
            attributes: Attributes::default(),
            checksum: UploadChecksum::DEFAULT,
        };
        UploadEntry {
            record,
            birth: "one".into(),
            state,
        }
    }

    /// The bytes of docs/formats.md, version 1: what was written once is read for ever.
    #[test]
    fn values_are_the_bytes_that_they_were() {
        let blob = || BlobId("id".into());
        let parts = |choice| Kept::Parts {
            upload_id: "up".into(),
            choice,
        };
        let json = r#"{"etag":"x","size":3,"modified":4,"meta":{"a":"b"}}"#;
        for (kept, frame) in [
            (Kept::Beside, "\u{1}\0\0"),
            (Kept::Blob(blob()), "\u{1}\u{1}\u{2}id"),
            (parts(Choice::Client), "\u{1}\u{2}\u{2}up"),
            (parts(Choice::Default), "\u{1}\u{3}\u{2}up"),
        ] {
            let entry = object(kept);
            let value = ObjectEntry::encode(&entry.record, &entry.kept).unwrap();
            assert_eq!(value, format!("{frame}{json}"));
            assert_eq!(ObjectEntry::decode(&value).unwrap(), entry);
        }
        let json = concat!(
            r#"{"number":7,"size":3,"md5":"abababababababababababababababab","#,
            r#""checksum":"CRC32:NSRBwg==","modified":4}"#
        );
        for (blob, frame) in [(None, "\u{1}\0\0"), (Some(blob()), "\u{1}\u{1}\u{2}id")] {
            let value = part(blob.clone()).encode().unwrap();
            assert_eq!(value, format!("{frame}{json}"));
            assert_eq!(PartEntry::decode(&value).unwrap(), part(blob));
        }
        let json = concat!(
            r#"{"id":"i","key":"k","initiated":4,"#,
            r#""checksum":"CRC64NVME FULL_OBJECT default"}"#
        );
        for (state, frame) in [
            (UploadState::Open, "\u{1}\0\u{3}one"),
            (UploadState::Aborted, "\u{1}\u{1}\u{3}one"),
        ] {
            let value = upload(state).encode().unwrap();
            assert_eq!(value, format!("{frame}{json}"));
            assert_eq!(UploadEntry::decode(&value).unwrap(), upload(state));
        }
        let entry = BucketEntry {
            created_ms: 4,
            birth: "one".into(),
            mark: "two".into(),
        };
        let value = entry.encode().unwrap();
        let json = r#"{"created":4,"birth":"one","mark":"two"}"#;
        assert_eq!(value, format!("\u{1}\0\0{json}"));
        assert_eq!(BucketEntry::decode(&value).unwrap(), entry);
    }

    #[test]
    fn attributes_beyond_a_value_are_refused() {
        let mut entry = object(Kept::Beside);
        let long = "x".repeat(VALUE_BYTES_MAX);
        entry
            .record
            .attributes
            .headers
            .insert("expires".into(), long);
        let refused = ObjectEntry::encode(&entry.record, &entry.kept);
        let code = refused.err().and_then(|error| match error {
            Error::Refused(refusal) => Some(refusal.code),
            _ => None,
        });
        assert_eq!(code, Some(Code::MetadataTooLarge));
    }

    proptest! {
        /// Goal: bytes of anybody are an entry or an error, never a panic, and what is read prints
        /// and reads the same.
        #[test]
        fn any_bytes_are_an_entry_or_an_error(
            noise in vec(any::<u8>(), 0..40),
            at in 0_usize..200,
            change in any::<u8>(),
        ) {
            let entry = object(Kept::Blob(BlobId("id".into())));
            let mut values = vec![noise];
            let written = [
                ObjectEntry::encode(&entry.record, &entry.kept),
                part(None).encode(),
                upload(UploadState::Open).encode(),
            ];
            for value in written {
                let mut value = value.unwrap().to_vec();
                let cut = at % value.len();
                values.push(value[..cut].to_vec());
                value[cut] = change;
                values.push(value);
            }
            for value in values {
                check_entry(&value);
            }
        }
    }
}
