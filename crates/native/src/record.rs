//! What is kept beside the bytes: records of objects, parts and uploads.
//!
//! Engines that write to disk keep them as JSON, so the field names here are a disk format
//! (docs/formats.md). A field that is added needs a default.

use std::collections::BTreeMap;

use forebay_s3::{
    checksum::{Algorithm, Checksum, Kind, ObjectChecksum},
    etag::ETag,
};
use serde::{Deserialize, Serialize};

/// What is known of an object besides its key and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Entity tag: MD5 of the bytes in hex, or `<md5 of part md5s>-<parts>`.
    #[serde(with = "etag_text")]
    pub etag: ETag,
    /// Bytes in the object.
    #[serde(rename = "size")]
    pub size_bytes: u64,
    /// Time of the write, Unix milliseconds.
    #[serde(rename = "modified")]
    pub modified_ms: i64,
    /// Headers, user metadata and tags.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// Checksum of the bytes or of the parts' checksums.
    #[serde(
        with = "checksum_text",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub checksum: Option<ObjectChecksum>,
    /// Parts it was uploaded in; absent when it was not a multipart upload.
    #[serde(rename = "parts", default, skip_serializing_if = "Option::is_none")]
    pub part_count: Option<u32>,
    /// The upload that made it, so that completing it again is answered as the first time.
    #[serde(rename = "upload", default, skip_serializing_if = "Option::is_none")]
    pub upload_id: Option<String>,
}

/// What the writer of an object said about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// System headers that come back with each read, by lower-case name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// User metadata by lower-case name without `x-amz-meta-`.
    #[serde(rename = "meta", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
    /// Tags in the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<(String, String)>,
}

impl Attributes {
    /// The storage class, where it is not the usual one.
    pub fn storage_class(&self) -> Option<&str> {
        self.headers.get("x-amz-storage-class").map(String::as_str)
    }
}

/// One part of a completed multipart object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartOfObject {
    /// Its number in the upload, `1..=10000`.
    pub number: u16,
    /// Bytes in it.
    #[serde(rename = "size")]
    pub size_bytes: u64,
    /// Its checksum, where the upload has one of its parts.
    #[serde(
        with = "checksum_of_part_text",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub checksum: Option<Checksum>,
}

/// One part of an upload under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartRecord {
    /// Its number, `1..=10000`.
    pub number: u16,
    /// Bytes in it.
    pub size_bytes: u64,
    /// MD5 of its bytes, which is its tag.
    pub md5: [u8; 16],
    /// Its checksum in the upload's algorithm.
    pub checksum: Checksum,
    /// Time of the write, Unix milliseconds.
    pub modified_ms: i64,
}

impl PartRecord {
    /// What stays known of it once it is a part of an object.
    /// `choice` is who chose the upload's checksum.
    pub fn of_object(&self, choice: Choice) -> PartOfObject {
        // S3 tells the checksums of parts only where the client asked for checksums.
        let checksum = match choice {
            Choice::Client => Some(self.checksum),
            Choice::Default => None,
        };
        PartOfObject {
            number: self.number,
            size_bytes: self.size_bytes,
            checksum,
        }
    }

    /// Its tag.
    ///
    /// # Panics
    /// Never: hex digits are a tag.
    pub fn etag(&self) -> ETag {
        ETag::strong(&hex::encode(self.md5)).expect("hex digits are a tag")
    }
}

/// A multipart upload under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadRecord {
    /// Its id, as the client knows it.
    pub id: String,
    /// The key it will write.
    pub key: String,
    /// When it began, Unix milliseconds.
    #[serde(rename = "initiated")]
    pub initiated_ms: i64,
    /// What the object will carry.
    #[serde(flatten)]
    pub attributes: Attributes,
    /// The checksum it will have.
    #[serde(with = "upload_checksum_text")]
    pub checksum: UploadChecksum,
}

/// How the checksum of a multipart object is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadChecksum {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Over what.
    pub kind: Kind,
    /// Whether the client chose it.
    pub choice: Choice,
}

/// Who chose something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The request named it.
    Client,
    /// Nobody did, so it is S3's default.
    Default,
}

impl UploadChecksum {
    /// What S3 does when the client names nothing: CRC64NVME of the full object.
    pub const DEFAULT: Self = Self {
        algorithm: Algorithm::Crc64Nvme,
        kind: Kind::FullObject,
        choice: Choice::Default,
    };
}

mod etag_text {
    use super::ETag;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(etag: &ETag, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(etag.value())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<ETag, D::Error> {
        ETag::strong(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// `CRC32:<base64>` or `CRC32:<base64>-<parts>`.
mod checksum_text {
    use super::{Algorithm, ObjectChecksum};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        checksum: &Option<ObjectChecksum>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match checksum {
            None => serializer.serialize_none(),
            Some(sum) => {
                serializer.collect_str(&format_args!("{}:{sum}", sum.checksum.algorithm()))
            }
        }
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<ObjectChecksum>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        parse(&text)
            .map(Some)
            .ok_or_else(|| D::Error::custom("no checksum"))
    }

    pub(super) fn parse(text: &str) -> Option<ObjectChecksum> {
        let (name, value) = text.split_once(':')?;
        ObjectChecksum::parse(Algorithm::from_name(name)?, value)
    }
}

/// `CRC32:<base64>`.
mod checksum_of_part_text {
    use super::{Checksum, checksum_text};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        checksum: &Option<Checksum>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match checksum {
            None => serializer.serialize_none(),
            Some(sum) => serializer.collect_str(&format_args!("{sum:?}")),
        }
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<Option<Checksum>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        let sum = checksum_text::parse(&text).ok_or_else(|| D::Error::custom("no checksum"))?;
        Ok(Some(sum.checksum))
    }
}

/// `CRC32 COMPOSITE`, with `default` behind it when the client named none.
mod upload_checksum_text {
    use super::{Algorithm, Choice, Kind, UploadChecksum};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde calls"
    )]
    pub(super) fn serialize<S: Serializer>(
        checksum: &UploadChecksum,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let chosen = match checksum.choice {
            Choice::Client => "",
            Choice::Default => " default",
        };
        let (algorithm, kind) = (checksum.algorithm, checksum.kind.name());
        serializer.collect_str(&format_args!("{algorithm} {kind}{chosen}"))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(
        deserializer: D,
    ) -> Result<UploadChecksum, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut words = text.split(' ');
        let algorithm = words.next().and_then(Algorithm::from_name);
        let kind = words.next().and_then(Kind::from_name);
        let choice = if words.next().is_some() {
            Choice::Default
        } else {
            Choice::Client
        };
        match (algorithm, kind) {
            (Some(algorithm), Some(kind)) => Ok(UploadChecksum {
                algorithm,
                kind,
                choice,
            }),
            _ => Err(D::Error::custom("no checksum of an upload")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_json_as_they_were() {
        let checksum = Checksum::of(Algorithm::Crc32, b"abc");
        let attributes = Attributes {
            headers: [("content-type".into(), "text/plain".into())].into(),
            user: [("name".into(), "värde".into())].into(),
            tags: vec![("b".into(), "1".into()), ("a".into(), String::new())],
        };
        let record = ObjectRecord {
            etag: ETag::strong("abc-2").unwrap(),
            size_bytes: 3,
            modified_ms: -1,
            attributes: attributes.clone(),
            checksum: Some(ObjectChecksum {
                checksum,
                part_count: Some(2),
            }),
            part_count: Some(2),
            upload_id: Some("i".into()),
        };
        let json = serde_json::to_string(&record).unwrap();
        assert_eq!(
            serde_json::from_str::<ObjectRecord>(&json).unwrap(),
            record,
            "{json}"
        );
        let part = PartOfObject {
            number: 1,
            size_bytes: 3,
            checksum: Some(checksum),
        };
        let json = serde_json::to_string(&part).unwrap();
        assert_eq!(json, r#"{"number":1,"size":3,"checksum":"CRC32:NSRBwg=="}"#);
        assert_eq!(serde_json::from_str::<PartOfObject>(&json).unwrap(), part);
        let upload = UploadRecord {
            id: "i".into(),
            key: "k".into(),
            initiated_ms: 1,
            attributes,
            checksum: UploadChecksum::DEFAULT,
        };
        let json = serde_json::to_string(&upload).unwrap();
        assert_eq!(
            serde_json::from_str::<UploadRecord>(&json).unwrap(),
            upload,
            "{json}"
        );
    }

    #[test]
    fn a_record_without_the_optional_fields_is_read() {
        let json = r#"{"etag":"x","size":1,"modified":2}"#;
        let record = serde_json::from_str::<ObjectRecord>(json).unwrap();
        assert_eq!((record.checksum, record.part_count), (None, None));
        assert_eq!(record.upload_id, None);
        assert_eq!(record.attributes, Attributes::default());
        let bad = r#"{"etag":"x","size":1,"modified":2,"checksum":"MD5:abc"}"#;
        assert!(serde_json::from_str::<ObjectRecord>(bad).is_err());
    }
}
