//! From the list of parts that a client names to the object they make.
//!
//! Source: Amazon S3 API Reference, `CompleteMultipartUpload`; Amazon S3 User Guide, "Checking
//! object integrity for multipart uploads".

use forebay_s3::{
    checksum::{self, Algorithm, Checksum, Kind, ObjectChecksum},
    code::Code,
    etag::ETag,
};
use forebay_store::Error;
use md5::{Digest as _, Md5};

use super::Asked;
use crate::{
    record::{ObjectRecord, PartRecord, UploadChecksum, UploadRecord},
    refuse,
    xml::{self, Element},
};

/// S3: "5 MiB to 5 GiB. There is no minimum size limit on the last part."
const PART_BYTES_MIN: u64 = 5 << 20;
/// S3: "Maximum number of parts per upload: 10,000".
const PARTS_MAX: usize = 10_000;
/// S3: "Maximum object size: 50 TB", raised from 5 TB in December 2025.
const OBJECT_BYTES_MAX: u64 = 50 << 40;

/// A part as `CompleteMultipartUpload` names it.
#[derive(Debug)]
pub(super) struct NamedPart {
    number: u16,
    etag: ETag,
    checksum: Option<Checksum>,
}

impl NamedPart {
    pub(super) fn read_all(document: &[u8]) -> Result<Vec<Self>, Error> {
        let root = xml::read(document, "CompleteMultipartUpload")?;
        let parts: Vec<Self> = root.all("Part").map(Self::read).collect::<Result<_, _>>()?;
        if !(1..=PARTS_MAX).contains(&parts.len()) {
            return Err(xml::malformed());
        }
        if parts
            .windows(2)
            .any(|pair| pair[0].number >= pair[1].number)
        {
            return Err(Error::refused(Code::InvalidPartOrder));
        }
        Ok(parts)
    }

    fn read(element: &Element) -> Result<Self, Error> {
        let number = element
            .text_of("PartNumber")
            .and_then(|text| text.trim().parse().ok());
        let etag = element
            .text_of("ETag")
            .and_then(|text| ETag::parse(text).ok());
        let checksum = Algorithm::ALL
            .into_iter()
            .find_map(|algorithm| Some((algorithm, element.text_of(algorithm.xml_element())?)));
        let checksum = match checksum {
            None => None,
            Some((algorithm, text)) => {
                Some(Checksum::from_base64(algorithm, text.trim()).ok_or_else(xml::malformed)?)
            }
        };
        match (number, etag) {
            (Some(number), Some(etag)) => Ok(Self {
                number,
                etag,
                checksum,
            }),
            _ => Err(xml::malformed()),
        }
    }
}

/// The parts named, each as it was uploaded.
pub(super) fn chosen(named: &[NamedPart], there: &[PartRecord]) -> Result<Vec<PartRecord>, Error> {
    let mut parts = Vec::with_capacity(named.len());
    for name in named {
        let part = there
            .binary_search_by_key(&name.number, |part| part.number)
            .map(|index| there[index])
            .ok()
            .filter(|part| part.etag() == name.etag)
            .filter(|part| {
                // A checksum of another algorithm was verified with the part and not kept.
                name.checksum.is_none_or(|sum| {
                    sum.algorithm() != part.checksum.algorithm() || sum == part.checksum
                })
            });
        parts.push(part.ok_or_else(|| invalid_part(name))?);
    }
    if let Some(small) = parts[..parts.len() - 1]
        .iter()
        .find(|p| p.size_bytes < PART_BYTES_MIN)
    {
        return Err(too_small(small));
    }
    Ok(parts)
}

fn invalid_part(name: &NamedPart) -> Error {
    let mut error = Error::refused(Code::InvalidPart);
    if let Error::Refused(refusal) = &mut error {
        refusal
            .details
            .push(("PartNumber", name.number.to_string()));
        refusal.details.push(("ETag", name.etag.value().to_owned()));
    }
    error
}

fn too_small(part: &PartRecord) -> Error {
    let mut error = Error::refused(Code::EntityTooSmall);
    if let Error::Refused(refusal) = &mut error {
        refusal
            .details
            .push(("ProposedSize", part.size_bytes.to_string()));
        refusal
            .details
            .push(("MinSizeAllowed", PART_BYTES_MIN.to_string()));
        refusal
            .details
            .push(("PartNumber", part.number.to_string()));
        refusal
            .details
            .push(("ETag", part.etag().value().to_owned()));
    }
    error
}

/// Whether an object is what completing this upload with these parts has made earlier.
///
/// S3 answers a repeated completion as it did the first, which a client that lost the answer relies
/// on; its reference says only that an upload may be unknown because it was completed.
pub(super) fn is_of(record: &ObjectRecord, upload_id: &str, named: &[NamedPart]) -> bool {
    let mut md5 = Md5::new();
    for part in named {
        let Ok(digest) = hex::decode(part.etag.value()) else {
            return false;
        };
        md5.update(digest);
    }
    record.upload_id.as_deref() == Some(upload_id)
        && record.etag.value() == multipart_etag(md5, named.len())
}

/// The tag of an object of so many parts, from the digest of their digests.
fn multipart_etag(of_parts: Md5, part_count: usize) -> String {
    format!("{}-{part_count}", hex::encode(of_parts.finalize()))
}

/// The record of the object that these parts make.
pub(super) fn completed(
    upload: &UploadRecord,
    parts: &[PartRecord],
) -> Result<ObjectRecord, Error> {
    let size_bytes: u64 = parts.iter().map(|part| part.size_bytes).sum();
    if size_bytes > OBJECT_BYTES_MAX {
        return Err(Error::refused(Code::EntityTooLarge));
    }
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part.md5);
    }
    let etag = multipart_etag(md5, parts.len());
    Ok(ObjectRecord {
        etag: ETag::strong(&etag).expect("hex digits and a dash are a tag"),
        size_bytes,
        modified_ms: 0,
        attributes: upload.attributes.clone(),
        checksum: object_checksum(upload.checksum, parts),
        part_count: u32::try_from(parts.len()).ok(),
        upload_id: Some(upload.id.clone()),
    })
}

fn object_checksum(upload: UploadChecksum, parts: &[PartRecord]) -> Option<ObjectChecksum> {
    match upload.kind {
        Kind::Composite => {
            let sums: Vec<Checksum> = parts.iter().map(|part| part.checksum).collect();
            checksum::composite(upload.algorithm, &sums)
        }
        Kind::FullObject => {
            let mut rest = parts.iter();
            let first = rest.next()?.checksum;
            let whole = rest.try_fold(first, |sum, part| {
                checksum::combine(&sum, &part.checksum, part.size_bytes)
            });
            Some(ObjectChecksum {
                checksum: whole?,
                part_count: None,
            })
        }
    }
}

/// Compares what the completing request says of the object with what it is.
pub(super) fn check_declared(asked: &Asked, record: &ObjectRecord) -> Result<(), Error> {
    if let Some(text) = asked.header("x-amz-mp-object-size")
        && text.parse() != Ok(record.size_bytes)
    {
        return Err(refuse::invalid_request(
            "The provided 'x-amz-mp-object-size' header value does not match the size of the \
             object",
        ));
    }
    let Some(sum) = record.checksum else {
        return Ok(());
    };
    let declared = asked.header(sum.checksum.algorithm().header());
    let same = |text| {
        // SDKs send a composite checksum with and without its count.
        ObjectChecksum::parse(sum.checksum.algorithm(), text)
            .is_some_and(|declared| declared.checksum == sum.checksum)
    };
    if declared.is_some_and(|text| !same(text)) {
        return Err(Error::refused(Code::BadDigest));
    }
    Ok(())
}
