//! Multipart uploads.
//!
//! Source: Amazon S3 User Guide, "Uploading and copying objects using multipart upload" and
//! "Checking object integrity for multipart uploads".

use forebay_s3::{
    checksum::Kind,
    code::Code,
    operation::{Listing, ObjectId, Upload, UploadPart},
    time,
};
use forebay_store::{Body, Error, Response};
use http::{HeaderName, StatusCode};

use super::{
    Asked, Native,
    completion::{NamedPart, check_declared, chosen, completed, is_of},
    lists::{Coding, Paging, entries_max},
};
use crate::{
    Engine, answer, attributes,
    engine::{Completion, PartPlace},
    gate::Gate,
    ingest::{self, Ingest},
    record::{Choice, ObjectRecord, PartRecord, UploadChecksum, UploadRecord},
    refuse,
    xml::{self, Document},
};

impl<E: Engine> Native<E> {
    pub(super) async fn create_upload(
        &self,
        object: &ObjectId,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let checksum = upload_checksum(asked)?;
        let now_ms = self.now_ms();
        let upload = UploadRecord {
            id: self.ids.next(now_ms),
            key: object.key.as_str().to_owned(),
            initiated_ms: now_ms,
            attributes: attributes::from_headers(&asked.headers)?,
            checksum,
        };
        let mut document = Document::new("InitiateMultipartUploadResult");
        document
            .element("Bucket", object.bucket.as_str())
            .element("Key", object.key.as_str())
            .element("UploadId", &upload.id);
        self.engine.create_upload(&object.bucket, upload).await?;
        let mut response = answer::document(document);
        if checksum.choice == Choice::Client {
            for (name, value) in [
                ("x-amz-checksum-algorithm", checksum.algorithm.name()),
                ("x-amz-checksum-type", checksum.kind.name()),
            ] {
                answer::set(
                    &mut response.headers,
                    Some(HeaderName::from_static(name)),
                    value,
                );
            }
        }
        Ok(response)
    }

    pub(super) async fn upload_part(
        &self,
        part: &UploadPart,
        asked: &Asked,
        body: Body,
    ) -> Result<Response, Error> {
        attributes::refuse_unsupported(&asked.headers)?;
        let (object, upload_id) = (&part.upload.object, part.upload.upload_id.as_str());
        let upload = self.engine.upload(object, upload_id).await?;
        let ingest = Ingest::of_part(&asked.headers, upload.checksum)?;
        let place = PartPlace {
            object,
            upload_id,
            number: part.part_number,
            ingest,
        };
        let written = self.engine.write_part(place, body).await?;
        let mut response = Response::new(StatusCode::OK);
        let headers = &mut response.headers;
        answer::set(
            headers,
            Some(http::header::ETAG),
            &written.etag().to_string(),
        );
        let name = HeaderName::from_static(written.checksum.algorithm().header());
        answer::set(headers, Some(name), &written.checksum.to_base64());
        Ok(response)
    }

    pub(super) async fn abort_upload(&self, upload: &Upload) -> Result<Response, Error> {
        self.engine
            .abort_upload(&upload.object, &upload.upload_id)
            .await?;
        Ok(Response::new(StatusCode::NO_CONTENT))
    }

    pub(super) async fn complete_upload(
        &self,
        upload: &Upload,
        asked: &Asked,
        body: Body,
    ) -> Result<Response, Error> {
        let object = &upload.object;
        let gate = Gate::from_headers(&asked.headers)?;
        let (document, _) = body.collect(xml::DOCUMENT_BYTES_MAX).await?;
        let named = NamedPart::read_all(&document)?;
        let record = match self.complete_first(upload, asked, &named, gate).await {
            Err(unknown) if is_no_such_upload(&unknown) => {
                self.completed_before(upload, &named).await.ok_or(unknown)?
            }
            outcome => outcome?,
        };
        let mut document = Document::new("CompleteMultipartUploadResult");
        document
            .element("Location", format!("/{}/{}", object.bucket, object.key))
            .element("Bucket", object.bucket.as_str())
            .element("Key", object.key.as_str())
            .element("ETag", record.etag.to_string());
        if let Some(sum) = &record.checksum {
            answer::checksum_elements(&mut document, sum);
        }
        Ok(answer::document(document))
    }

    async fn complete_first(
        &self,
        upload: &Upload,
        asked: &Asked,
        named: &[NamedPart],
        gate: Gate,
    ) -> Result<ObjectRecord, Error> {
        let (object, id) = (&upload.object, upload.upload_id.as_str());
        let begun = self.engine.upload(object, id).await?;
        let there = self.engine.upload_parts(object, id).await?;
        let parts = chosen(named, &there)?;
        let record = completed(&begun, &parts)?;
        check_declared(asked, &record)?;
        let completion = Completion {
            record,
            parts,
            gate,
        };
        self.engine.complete_upload(object, id, completion).await
    }

    /// The object that this upload has become, as long as no other has taken its place.
    async fn completed_before(&self, upload: &Upload, named: &[NamedPart]) -> Option<ObjectRecord> {
        let (record, _) = self.engine.parts(&upload.object).await.ok()?;
        is_of(&record, &upload.upload_id, named).then_some(record)
    }

    pub(super) async fn list_parts(
        &self,
        upload: &Upload,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let (object, id) = (&upload.object, upload.upload_id.as_str());
        let paging = Paging::of_query(&asked.query)?;
        let coding = Coding::from_query(&asked.query)?;
        let begun = self.engine.upload(object, id).await?;
        let parts = self.engine.upload_parts(object, id).await?;
        let mut listed = parts.iter().filter(|part| part.number > paging.after);
        let page: Vec<&PartRecord> = listed.by_ref().take(paging.entries_max).collect();
        let truncated = !page.is_empty() && listed.next().is_some();
        let mut document = Document::new("ListPartsResult");
        document
            .element("Bucket", object.bucket.as_str())
            .element("Key", coding.apply(object.key.as_str()))
            .element("UploadId", id)
            .number("PartNumberMarker", paging.after)
            .number(
                "NextPartNumberMarker",
                page.last().map_or(0, |part| part.number),
            )
            .number("MaxParts", paging.entries_max)
            .element("IsTruncated", if truncated { "true" } else { "false" });
        coding.element(&mut document);
        if begun.checksum.choice == Choice::Client {
            document
                .element("ChecksumAlgorithm", begun.checksum.algorithm.name())
                .element("ChecksumType", begun.checksum.kind.name());
        }
        for part in page {
            document
                .open("Part")
                .number("PartNumber", part.number)
                .element(
                    "LastModified",
                    time::rfc3339_millis(part.modified_ms).as_str(),
                )
                .element("ETag", part.etag().to_string())
                .number("Size", part.size_bytes);
            if begun.checksum.choice == Choice::Client {
                let name = part.checksum.algorithm().xml_element();
                document.element(name, part.checksum.to_base64());
            }
            document.close("Part");
        }
        self.owner_element(&mut document, "Initiator");
        self.owner_element(&mut document, "Owner");
        document.element(
            "StorageClass",
            begun.attributes.storage_class().unwrap_or("STANDARD"),
        );
        Ok(answer::document(document))
    }

    pub(super) async fn list_uploads(
        &self,
        listing: &Listing,
        asked: &Asked,
    ) -> Result<Response, Error> {
        let query = &asked.query;
        let coding = Coding::from_query(query)?;
        let count = entries_max("max-uploads", query.get("max-uploads").as_deref())?;
        let delimiter = query.get("delimiter").unwrap_or_default();
        let key_marker = query.get("key-marker").unwrap_or_default();
        let id_marker = query.get("upload-id-marker").unwrap_or_default();
        let mut uploads = self.engine.uploads(&listing.bucket).await?;
        uploads.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        let wanted = uploads.iter().filter(|upload| {
            let after = upload.key.as_str() > &*key_marker
                || (upload.key == key_marker && !id_marker.is_empty() && *upload.id > *id_marker);
            upload.key.starts_with(&listing.prefix) && (key_marker.is_empty() || after)
        });
        let page = UploadsPage::roll_up(wanted, &listing.prefix, &delimiter, &key_marker, count);
        let mut document = Document::new("ListMultipartUploadsResult");
        document
            .element("Bucket", listing.bucket.as_str())
            .element("KeyMarker", coding.apply(&key_marker))
            .element("UploadIdMarker", &id_marker);
        if page.truncated {
            document
                .element("NextKeyMarker", coding.apply(&page.last_key))
                .element("NextUploadIdMarker", &page.last_id);
        }
        document.element("Prefix", coding.apply(&listing.prefix));
        if !delimiter.is_empty() {
            document.element("Delimiter", coding.apply(&delimiter));
        }
        document
            .number("MaxUploads", count)
            .element("IsTruncated", if page.truncated { "true" } else { "false" });
        coding.element(&mut document);
        for upload in page.uploads {
            self.upload_element(&mut document, upload, coding);
        }
        for prefix in page.prefixes {
            document
                .open("CommonPrefixes")
                .element("Prefix", coding.apply(prefix))
                .close("CommonPrefixes");
        }
        Ok(answer::document(document))
    }

    fn upload_element(&self, document: &mut Document, upload: &UploadRecord, coding: Coding) {
        document
            .open("Upload")
            .element("Key", coding.apply(&upload.key))
            .element("UploadId", &upload.id);
        self.owner_element(document, "Initiator");
        self.owner_element(document, "Owner");
        document
            .element(
                "StorageClass",
                upload.attributes.storage_class().unwrap_or("STANDARD"),
            )
            .element(
                "Initiated",
                time::rfc3339_millis(upload.initiated_ms).as_str(),
            );
        if upload.checksum.choice == Choice::Client {
            document
                .element("ChecksumAlgorithm", upload.checksum.algorithm.name())
                .element("ChecksumType", upload.checksum.kind.name());
        }
        document.close("Upload");
    }
}

/// A page of uploads, keys rolled up.
#[derive(Debug, Default)]
struct UploadsPage<'a> {
    uploads: Vec<&'a UploadRecord>,
    prefixes: Vec<&'a str>,
    last_key: String,
    last_id: String,
    truncated: bool,
}

impl<'a> UploadsPage<'a> {
    fn roll_up(
        uploads: impl Iterator<Item = &'a UploadRecord>,
        prefix: &str,
        delimiter: &str,
        key_marker: &str,
        entries_max: usize,
    ) -> Self {
        let mut page = Self::default();
        for upload in uploads {
            let rest = &upload.key[prefix.len()..];
            let end = rest.find(delimiter).filter(|_| !delimiter.is_empty());
            let common = end.map(|at| &upload.key[..prefix.len() + at + delimiter.len()]);
            if common.is_some_and(|c| c == key_marker || page.prefixes.last() == Some(&c)) {
                continue;
            }
            if page.uploads.len() + page.prefixes.len() == entries_max {
                page.truncated = entries_max > 0;
                break;
            }
            if let Some(common) = common {
                page.prefixes.push(common);
                (page.last_key, page.last_id) = (common.to_owned(), String::new());
            } else {
                page.uploads.push(upload);
                (page.last_key, page.last_id) = (upload.key.clone(), upload.id.clone());
            }
        }
        page
    }
}

fn is_no_such_upload(error: &Error) -> bool {
    matches!(error, Error::Refused(refusal) if refusal.code == Code::NoSuchUpload)
}

fn upload_checksum(asked: &Asked) -> Result<UploadChecksum, Error> {
    let kind = match asked.header("x-amz-checksum-type") {
        None => None,
        Some(text) => Some(Kind::from_name(text).ok_or_else(|| {
            refuse::invalid_request("Value for x-amz-checksum-type header is invalid.")
        })?),
    };
    let Some(algorithm) = ingest::named_algorithm(&asked.headers)? else {
        return match kind {
            None => Ok(UploadChecksum::DEFAULT),
            Some(_) => Err(refuse::invalid_request(
                "The x-amz-checksum-type header can only be used with the \
                 x-amz-checksum-algorithm header.",
            )),
        };
    };
    let kind = kind.unwrap_or(algorithm.default_kind());
    if !algorithm.allows(kind) {
        return Err(refuse::invalid_request(
            "The checksum type cannot be used with the checksum algorithm.",
        ));
    }
    Ok(UploadChecksum {
        algorithm,
        kind,
        choice: Choice::Client,
    })
}
