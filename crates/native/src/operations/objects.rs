//! Operations on single objects: read, write, delete, attributes.

use forebay_s3::{
    bucket::BucketName,
    code::Code,
    condition::Conditions,
    etag::ETagList,
    key::{ObjectKey, VersionId},
    operation::{ObjectId, ReadObject},
};
use forebay_store::{Body, Error, Response};
use futures_util::{StreamExt as _, stream};
use http::StatusCode;

use super::{Asked, Native, lists::Paging, only_null_version};
use crate::{
    Engine, answer, attributes,
    engine::{NewObject, Opened},
    gate::{Absent, Gate},
    ingest::Ingest,
    reading::{Extent, Payload, Reading},
    record::{ObjectRecord, PartOfObject},
    refuse,
    xml::{self, Document, Element},
};

/// S3: "up to 1,000 keys".
const DELETES_MAX: usize = 1000;
/// Deletes of one request that are under way at once; a guess.
const DELETES_AT_ONCE: usize = 16;
/// Looks at an object that changes between the look at its parts and the read.
const ATTEMPTS_MAX: usize = 3;

impl<E: Engine> Native<E> {
    pub(super) async fn read(
        &self,
        read: &ReadObject,
        asked: &Asked,
        payload: Payload,
    ) -> Result<Response, Error> {
        only_null_version(&read.object)?;
        attributes::refuse_unsupported(&asked.headers)?;
        if read.range.is_some() && read.part_number.is_some() {
            return Err(refuse::invalid_request(
                "Cannot specify both Range header and partNumber query parameter",
            ));
        }
        let conditions = Conditions::from_headers(&asked.headers);
        let mut attempts_left = ATTEMPTS_MAX;
        let (extent, opened) = loop {
            let extent = match (read.range, read.part_number) {
                (Some(range), _) => Extent::Range(range),
                (None, Some(number)) => self.part_extent(&read.object, number).await?,
                (None, None) => Extent::Whole,
            };
            let reading = Reading {
                conditions: conditions.clone(),
                extent: extent.clone(),
                payload,
            };
            match self.engine.read(&read.object, reading).await {
                // Only a part of a version that is gone is refused so.
                Err(Error::SlowDown { .. }) if attempts_left > 1 => attempts_left -= 1,
                other => break (extent, other?),
            }
        };
        let mode = answer::ChecksumMode::from_headers(&asked.headers);
        Ok(answer::object(opened, &extent, mode, &asked.query))
    }

    async fn part_extent(&self, object: &ObjectId, number: u16) -> Result<Extent, Error> {
        let (record, parts) = self.engine.parts(object).await?;
        let etag = record.etag;
        if parts.is_empty() {
            return if number == 1 {
                Ok(Extent::Part {
                    etag,
                    span: 0..record.size_bytes,
                    checksum: None,
                })
            } else {
                Err(Error::refused(Code::InvalidPartNumber))
            };
        }
        // Clients count the parts 1, 2, 3, whatever numbers the upload used.
        let index = usize::from(number) - 1;
        let part = parts
            .get(index)
            .ok_or_else(|| Error::refused(Code::InvalidPartNumber))?;
        let start: u64 = parts[..index].iter().map(|part| part.size_bytes).sum();
        let span = start..start + part.size_bytes;
        Ok(Extent::Part {
            etag,
            span,
            checksum: part.checksum,
        })
    }

    /// The record of an object, as HEAD finds it.
    pub(super) async fn head_record(&self, object: &ObjectId) -> Result<ObjectRecord, Error> {
        only_null_version(object)?;
        let reading = Reading {
            payload: Payload::Withheld,
            ..Reading::default()
        };
        let Opened { record, .. } = self.engine.read(object, reading).await?;
        Ok(record)
    }

    pub(super) async fn put(
        &self,
        object: &ObjectId,
        asked: &Asked,
        body: Body,
    ) -> Result<Response, Error> {
        let new = NewObject {
            attributes: attributes::from_headers(&asked.headers)?,
            ingest: Ingest::of_request(&asked.headers)?,
            gate: Gate::from_headers(&asked.headers)?,
        };
        let record = self.engine.write(object, new, body).await?;
        Ok(answer::written(&record))
    }

    pub(super) async fn delete(&self, object: &ObjectId, asked: &Asked) -> Result<Response, Error> {
        let gate = Gate::from_headers(&asked.headers)?;
        self.delete_version(object, gate).await?;
        Ok(Response::new(StatusCode::NO_CONTENT))
    }

    /// Deletes; a version that never was is deleted already.
    async fn delete_version(&self, object: &ObjectId, gate: Gate) -> Result<(), Error> {
        if only_null_version(object).is_err() {
            self.engine.bucket(&object.bucket).await?;
            return Ok(());
        }
        self.engine.delete(object, gate).await
    }

    pub(super) async fn delete_many(
        &self,
        bucket: &BucketName,
        body: Body,
    ) -> Result<Response, Error> {
        let (document, _) = body.collect(xml::DOCUMENT_BYTES_MAX).await?;
        let root = xml::read(&document, "Delete")?;
        let quiet = root
            .text_of("Quiet")
            .is_some_and(|text| text.trim() == "true");
        let objects: Vec<&Element> = root.all("Object").collect();
        if !(1..=DELETES_MAX).contains(&objects.len()) {
            return Err(xml::malformed());
        }
        let deletes: Vec<Deletion> = objects
            .into_iter()
            .map(|element| Deletion::read(bucket, element))
            .collect::<Result<_, _>>()?;
        self.engine.bucket(bucket).await?;
        let pending: Vec<_> = deletes
            .iter()
            .map(|deletion| self.delete_one(deletion))
            .collect();
        let outcomes: Vec<_> = stream::iter(pending)
            .buffered(DELETES_AT_ONCE)
            .collect()
            .await;
        let mut answer = Document::new("DeleteResult");
        for (deletion, outcome) in deletes.iter().zip(outcomes) {
            deletion.report(&mut answer, outcome.as_ref().err(), quiet);
        }
        Ok(answer::document(answer))
    }

    async fn delete_one(&self, deletion: &Deletion) -> Result<(), Error> {
        let key =
            ObjectKey::parse(&deletion.key).map_err(|_| Error::refused(Code::KeyTooLongError))?;
        let object = ObjectId {
            bucket: deletion.bucket.clone(),
            key,
            version: deletion.version.clone(),
        };
        self.delete_version(&object, deletion.gate.clone()).await
    }

    pub(super) async fn attributes(
        &self,
        object: &ObjectId,
        asked: &Asked,
    ) -> Result<Response, Error> {
        only_null_version(object)?;
        let wanted = wanted_attributes(asked)?;
        let (record, parts) = self.engine.parts(object).await?;
        let mut document = Document::new("GetObjectAttributesResponse");
        if wanted.contains(&"ETag") {
            document.element("ETag", record.etag.value());
        }
        if let (true, Some(sum)) = (wanted.contains(&"Checksum"), &record.checksum) {
            document.open("Checksum");
            answer::checksum_elements(&mut document, sum);
            document.close("Checksum");
        }
        if wanted.contains(&"ObjectParts") && !parts.is_empty() {
            let paging = Paging::of_headers(&asked.headers)?;
            parts_element(&mut document, &parts, &paging);
        }
        if wanted.contains(&"StorageClass") {
            document.element(
                "StorageClass",
                record.attributes.storage_class().unwrap_or("STANDARD"),
            );
        }
        if wanted.contains(&"ObjectSize") {
            document.number("ObjectSize", record.size_bytes);
        }
        let mut response = answer::document(document);
        answer::last_modified(&mut response.headers, &record);
        Ok(response)
    }
}

fn wanted_attributes(asked: &Asked) -> Result<Vec<&str>, Error> {
    const KNOWN: [&str; 5] = [
        "ETag",
        "Checksum",
        "ObjectParts",
        "StorageClass",
        "ObjectSize",
    ];
    let mut wanted = Vec::new();
    for value in asked.headers.get_all("x-amz-object-attributes") {
        wanted.extend(value.to_str().unwrap_or_default().split(',').map(str::trim));
    }
    if wanted.is_empty() || wanted.iter().any(|name| !KNOWN.contains(name)) {
        let message = "Invalid attribute name specified";
        let value = wanted.join(",");
        return Err(refuse::invalid_argument(
            "x-amz-object-attributes",
            &value,
            message,
        ));
    }
    Ok(wanted)
}

fn parts_element(document: &mut Document, parts: &[PartOfObject], paging: &Paging) {
    let listed = |part: &&PartOfObject| part.number > paging.after;
    let page: Vec<_> = parts
        .iter()
        .filter(listed)
        .take(paging.entries_max)
        .collect();
    let truncated = parts.iter().filter(listed).count() > page.len();
    document
        .open("ObjectParts")
        .number("PartsCount", parts.len());
    // S3 lists parts only where they have checksums.
    if parts.iter().all(|part| part.checksum.is_some()) {
        document
            .number("PartNumberMarker", paging.after)
            .number(
                "NextPartNumberMarker",
                page.last().map_or(0, |part| part.number),
            )
            .number("MaxParts", paging.entries_max)
            .element("IsTruncated", if truncated { "true" } else { "false" });
        for part in page {
            document
                .open("Part")
                .number("PartNumber", part.number)
                .number("Size", part.size_bytes);
            if let Some(sum) = &part.checksum {
                document.element(sum.algorithm().xml_element(), sum.to_base64());
            }
            document.close("Part");
        }
    }
    document.close("ObjectParts");
}

/// One object of a `DeleteObjects`.
#[derive(Debug)]
struct Deletion {
    bucket: BucketName,
    key: String,
    version: Option<VersionId>,
    gate: Gate,
}

impl Deletion {
    fn read(bucket: &BucketName, element: &Element) -> Result<Self, Error> {
        let key = element.text_of("Key").filter(|key| !key.is_empty());
        let version = match element.text_of("VersionId") {
            None | Some("") => None,
            Some(text) => Some(VersionId::parse(text).map_err(|_| xml::malformed())?),
        };
        let if_match = match element.text_of("ETag") {
            None => None,
            Some(text) => Some(ETagList::parse(text).map_err(|_| xml::malformed())?),
        };
        Ok(Self {
            bucket: bucket.clone(),
            key: key.ok_or_else(xml::malformed)?.to_owned(),
            version,
            gate: Gate {
                if_match,
                absent: Absent::NotRequired,
            },
        })
    }

    fn report(&self, answer: &mut Document, error: Option<&Error>, quiet: bool) {
        let name = if error.is_some() { "Error" } else { "Deleted" };
        if error.is_none() && quiet {
            return;
        }
        answer.open(name).element("Key", &self.key);
        if let Some(version) = &self.version {
            answer.element("VersionId", version.as_str());
        }
        match error {
            None => {}
            Some(Error::Refused(refusal)) => {
                answer
                    .element("Code", refusal.code.as_str())
                    .element("Message", &refusal.message);
            }
            Some(_) => {
                let code = Code::InternalError;
                answer
                    .element("Code", code.as_str())
                    .element("Message", code.message());
            }
        }
        answer.close(name);
    }
}
