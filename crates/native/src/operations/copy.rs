//! Copies within the store: `CopyObject`, `UploadPartCopy`.

use forebay_s3::{
    code::Code,
    condition::Conditions,
    operation::{CopyObject, ObjectId, UploadPart},
    range::RangeHeader,
    time,
};
use forebay_store::{Error, Response};
use http::{HeaderMap, HeaderName, StatusCode, header};

use super::{Asked, Native, only_null_version};
use crate::{
    Engine, answer,
    attributes::{self, Directive},
    engine::{NewObject, Opened, PartPlace},
    gate::Gate,
    ingest::{self, Ingest},
    pieces::UPLOAD_BYTES_MAX,
    reading::{Extent, Payload, Reading},
    record::Attributes,
    refuse,
    xml::Document,
};

/// Conditions on the source, and what they are called on a read.
const SOURCE_CONDITIONS: [(&str, HeaderName); 4] = [
    ("x-amz-copy-source-if-match", header::IF_MATCH),
    ("x-amz-copy-source-if-none-match", header::IF_NONE_MATCH),
    (
        "x-amz-copy-source-if-modified-since",
        header::IF_MODIFIED_SINCE,
    ),
    (
        "x-amz-copy-source-if-unmodified-since",
        header::IF_UNMODIFIED_SINCE,
    ),
];

impl<E: Engine> Native<E> {
    pub(super) async fn copy(&self, copy: &CopyObject, asked: &Asked) -> Result<Response, Error> {
        let own = attributes::from_headers(&asked.headers)?;
        let metadata = attributes::directive(&asked.headers, "x-amz-metadata-directive")?;
        let tagging = attributes::directive(&asked.headers, "x-amz-tagging-directive")?;
        let gate = Gate::from_headers(&asked.headers)?;
        let onto_itself =
            copy.object.bucket == copy.source.bucket && copy.object.key == copy.source.key;
        if onto_itself && metadata == Directive::Copy && own.headers.is_empty() {
            return Err(refuse::invalid_request(
                "This copy request is illegal because it is trying to copy an object to itself \
                 without changing the object's metadata, storage class, website redirect \
                 location or encryption attributes.",
            ));
        }
        let source = self.open_source(&copy.source, asked, Extent::Whole).await?;
        if source.record.size_bytes > UPLOAD_BYTES_MAX {
            return Err(refuse::invalid_request(
                "The specified copy source is larger than the maximum allowable size for a copy \
                 source: 5368709120",
            ));
        }
        let algorithm = match ingest::named_algorithm(&asked.headers)? {
            Some(algorithm) => algorithm,
            None => source
                .record
                .checksum
                .map_or(forebay_s3::checksum::Algorithm::Crc64Nvme, |sum| {
                    sum.checksum.algorithm()
                }),
        };
        let attributes = merged(source.record.attributes, own, metadata, tagging);
        let new = NewObject {
            attributes,
            ingest: Ingest::computing(algorithm),
            gate,
        };
        let record = self.engine.write(&copy.object, new, source.body).await?;
        let mut document = Document::new("CopyObjectResult");
        let modified = time::rfc3339_millis(record.modified_ms);
        document
            .element("ETag", record.etag.to_string())
            .element("LastModified", modified.as_str());
        if let Some(sum) = &record.checksum {
            answer::checksum_elements(&mut document, sum);
        }
        Ok(answer::document(document))
    }

    pub(super) async fn upload_part_copy(
        &self,
        part: &UploadPart,
        source: &ObjectId,
        asked: &Asked,
    ) -> Result<Response, Error> {
        attributes::refuse_unsupported(&asked.headers)?;
        let (object, upload_id) = (&part.upload.object, part.upload.upload_id.as_str());
        let upload = self.engine.upload(object, upload_id).await?;
        let extent = match asked.header("x-amz-copy-source-range") {
            None => Extent::Whole,
            Some(text) => Extent::Range(source_range(text)?),
        };
        let source = self.open_source(source, asked, extent).await?;
        let place = PartPlace {
            object,
            upload_id,
            number: part.part_number,
            ingest: Ingest::computing(upload.checksum.algorithm),
        };
        let written = self.engine.write_part(place, source.body).await?;
        let mut document = Document::new("CopyPartResult");
        document
            .element("ETag", written.etag().to_string())
            .element(
                "LastModified",
                time::rfc3339_millis(written.modified_ms).as_str(),
            )
            .element(
                written.checksum.algorithm().xml_element(),
                written.checksum.to_base64(),
            );
        Ok(answer::document(document))
    }

    async fn open_source(
        &self,
        source: &ObjectId,
        asked: &Asked,
        extent: Extent,
    ) -> Result<Opened, Error> {
        only_null_version(source)?;
        let mut headers = HeaderMap::new();
        for (name, on_read) in SOURCE_CONDITIONS {
            if let Some(value) = asked.headers.get(name) {
                headers.insert(on_read, value.clone());
            }
        }
        let conditions = Conditions::from_headers(&headers);
        let ranged = matches!(extent, Extent::Range(_));
        let reading = Reading {
            conditions,
            extent,
            payload: Payload::Sent,
        };
        let opened = self.engine.read(source, reading).await?;
        if opened.plan.status == StatusCode::NOT_MODIFIED {
            return Err(Error::refused(Code::PreconditionFailed));
        }
        // A read is cut to what there is; a copy of a range must have all of it.
        let asked_to = asked.header("x-amz-copy-source-range").and_then(last_byte);
        if ranged && asked_to.is_some_and(|last| last >= opened.record.size_bytes) {
            return Err(invalid_source_range());
        }
        Ok(opened)
    }
}

fn merged(
    source: Attributes,
    own: Attributes,
    metadata: Directive,
    tagging: Directive,
) -> Attributes {
    let tags = match tagging {
        Directive::Copy => source.tags,
        Directive::Replace => own.tags,
    };
    let (mut headers, user) = match metadata {
        Directive::Copy => (source.headers, source.user),
        Directive::Replace => (own.headers.clone(), own.user),
    };
    // These are never copied: a copy has what its request says.
    for name in ["x-amz-storage-class", "x-amz-website-redirect-location"] {
        headers.remove(name);
        if let Some(value) = own.headers.get(name) {
            headers.insert(name.to_owned(), value.clone());
        }
    }
    Attributes {
        headers,
        user,
        tags,
    }
}

/// `bytes=first-last`, the only form that a copy takes.
fn source_range(text: &str) -> Result<RangeHeader, Error> {
    match RangeHeader::parse(text) {
        Some(range @ RangeHeader::FromTo { .. }) => Ok(range),
        _ => Err(refuse::invalid_argument(
            "x-amz-copy-source-range",
            text,
            "The x-amz-copy-source-range value must be of the form bytes=first-last where first \
             and last are the zero-based offsets of the first and last bytes to copy",
        )),
    }
}

fn last_byte(text: &str) -> Option<u64> {
    match RangeHeader::parse(text)? {
        RangeHeader::FromTo { last, .. } => Some(last),
        RangeHeader::From { .. } | RangeHeader::Suffix { .. } => None,
    }
}

fn invalid_source_range() -> Error {
    Error::refused_because(
        Code::InvalidArgument,
        "Range specified is not valid for source object",
    )
}
