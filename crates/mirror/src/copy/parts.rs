//! Copies of objects that were uploaded in parts.

use std::fmt::Write as _;

use forebay_s3::{
    checksum::Kind,
    operation::{Operation, ReadObject, Upload, UploadPart},
    range::RangeHeader,
    uri, xml,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use super::{CopyError, One, object};
use crate::ask::{Trouble, text_of, whole};

/// S3: "5 MiB to 5 GiB. There is no minimum size limit on the last part."
const PART_BYTES_MIN: u64 = 5 << 20;
const PART_BYTES_MAX: u64 = 5 << 30;
/// S3: "Maximum number of parts per upload: 10,000".
const PARTS_MAX: u64 = 10_000;
/// Sizes in MiB that clients use, the likeliest first: what AWS's SDKs and tools, rclone, s5cmd,
/// `MinIO`'s client and Hadoop have as their defaults, and round numbers.
const USUAL_MIB: [u64; 12] = [8, 5, 16, 64, 50, 10, 32, 100, 128, 256, 512, 1024];
const MIB: u64 = 1 << 20;

/// How an object is written in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// As the source tells: so many parts.
    Told(u16),
    /// Parts of so many bytes, the last of what is left.
    Guessed(u64),
}

/// A part that the target has.
struct Written {
    number: u16,
    etag: String,
    /// Element and value of its checksum.
    checksum: Option<(&'static str, String)>,
}

impl One<'_> {
    /// How the object is to be written, if in parts.
    pub(super) async fn plan(&self) -> Result<Option<Plan>, CopyError> {
        let size_bytes = self.seen.size_bytes;
        let Some(count) = self.seen.part_count() else {
            let is_too_large = size_bytes > super::SINGLE_BYTES_MAX;
            return Ok(is_too_large.then(|| Plan::Guessed(of_any(size_bytes))));
        };
        let read = ReadObject {
            part_number: Some(1),
            ..whole(self.object.clone())
        };
        let mut request = self.copier.ask.head(read, "partNumber=1");
        self.pin(&mut request.headers);
        let told = match self.copier.ask.ask(self.ends.source, request).await {
            Ok((headers, _)) => text_of(&headers, "x-amz-mp-parts-count")
                .and_then(|text| text.trim().parse::<u16>().ok()),
            Err(trouble) if trouble.is_condition() => return Err(CopyError::Changed),
            // It does not know of part numbers.
            Err(Trouble::Refused(..)) => None,
            Err(trouble) => return Err(CopyError::Source(trouble)),
        };
        if told == Some(count) {
            return Ok(Some(Plan::Told(count)));
        }
        let guess = usual_part_bytes(size_bytes, u64::from(count));
        Ok(guess.map(Plan::Guessed))
    }

    /// Writes the object in parts; `None` when the target does not take parts of these sizes, so
    /// that it is to be written in one.
    pub(super) async fn write_parts(&self, plan: &Plan) -> Result<Option<()>, CopyError> {
        let upload = self.begin().await?;
        let written = self.all_parts(&upload, plan).await;
        let ended = match written {
            Ok(parts) => self.complete(&upload, &parts).await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => Ok(Some(())),
            Err(error) => {
                let is_too_small = matches!(
                    &error,
                    CopyError::Target(Trouble::Refused(_, code)) if code == "EntityTooSmall"
                );
                self.abort(upload).await;
                if is_too_small { Ok(None) } else { Err(error) }
            }
        }
    }

    async fn begin(&self) -> Result<Upload, CopyError> {
        let ask = &self.copier.ask;
        let operation = Operation::CreateMultipartUpload(self.object.clone());
        let mut request = ask.request(Method::POST, operation, "uploads");
        self.set_attributes(&mut request.headers);
        if let (Some(sum), Some(kind)) = (&self.seen.checksum, self.seen.checksum_kind) {
            for (name, value) in [
                ("x-amz-checksum-algorithm", sum.checksum.algorithm().name()),
                ("x-amz-checksum-type", kind.name()),
            ] {
                let name = HeaderName::from_static(name);
                request
                    .headers
                    .insert(name, HeaderValue::from_static(value));
            }
        }
        let (_, text) = ask
            .ask(self.ends.target, request)
            .await
            .map_err(CopyError::Target)?;
        let upload_id = xml::upload_id(&text).map_err(|_| CopyError::Target(Trouble::Unknown))?;
        Ok(Upload {
            object: self.object.clone(),
            upload_id,
        })
    }

    async fn all_parts(&self, upload: &Upload, plan: &Plan) -> Result<Vec<Written>, CopyError> {
        let size_bytes = self.seen.size_bytes;
        let mut written = Vec::new();
        let mut from = 0;
        while from < size_bytes || written.is_empty() {
            let number = u16::try_from(written.len() + 1).unwrap_or(u16::MAX);
            let (read, query, span) = match plan {
                Plan::Told(_) => {
                    let read = ReadObject {
                        part_number: Some(number),
                        ..whole(self.object.clone())
                    };
                    (read, format!("partNumber={number}"), None)
                }
                Plan::Guessed(part_bytes) => {
                    let until = (from + part_bytes).min(size_bytes);
                    let span = Some(from..until).filter(|span| !span.is_empty());
                    (whole(self.object.clone()), String::new(), span)
                }
            };
            let (part, bytes) = self.part(upload, number, (read, &query, span)).await?;
            from += bytes;
            written.push(part);
            let is_last = matches!(plan, Plan::Told(count) if *count == number);
            if is_last && from != size_bytes {
                return Err(CopyError::NotLike);
            }
        }
        Ok(written)
    }

    /// Copies a part; what the target says of it, and its size.
    async fn part(
        &self,
        upload: &Upload,
        number: u16,
        (mut read, query, span): (ReadObject, &str, Option<std::ops::Range<u64>>),
    ) -> Result<(Written, u64), CopyError> {
        let ranged =
            span.map(|span| format!("bytes={}-{}", span.start, span.end.saturating_sub(1)));
        read.range = ranged.as_deref().and_then(RangeHeader::parse);
        let response = match &ranged {
            Some(range) => self.open_range(read, range).await?,
            None => self.open_source(read, query).await?,
        };
        let headers = &response.headers;
        let size_bytes = text_of(headers, "content-length").and_then(|text| text.parse().ok());
        let size_bytes: u64 = size_bytes
            .or(response.body.length())
            .ok_or(CopyError::Source(Trouble::Unknown))?;
        let sum = object::checksum_in(headers)
            .filter(|sum| sum.part_count.is_none() && ranged.is_none())
            .map(|sum| sum.checksum);
        let (body, progress) = self.passing(response.body, (size_bytes, sum));
        let ask = &self.copier.ask;
        let id = uri::encode_query(&upload.upload_id);
        let query = format!("partNumber={number}&uploadId={id}");
        let operation = Operation::UploadPart(UploadPart {
            upload: upload.clone(),
            part_number: number,
        });
        let mut request = ask.request_with(Method::PUT, (operation, &query), (body, size_bytes));
        if let Some(sum) = &sum {
            object::set_checksum(&mut request.headers, sum);
        }
        let answer = ask.patiently(self.ends.target, request, &progress).await;
        let (headers, _) = answer.map_err(CopyError::Target)?;
        let checksum = object::checksum_in(&headers)
            .map(|sum| sum.checksum)
            .or(sum);
        let written = Written {
            number,
            etag: text_of(&headers, "etag").unwrap_or_default().to_owned(),
            checksum: checksum.map(|sum| (sum.algorithm().xml_element(), sum.to_base64())),
        };
        Ok((written, size_bytes))
    }

    async fn open_range(
        &self,
        read: ReadObject,
        range: &str,
    ) -> Result<forebay_store::Response, CopyError> {
        let ask = &self.copier.ask;
        let mut request = ask.request(Method::GET, Operation::GetObject(read), "");
        self.pin(&mut request.headers);
        if let Ok(range) = HeaderValue::try_from(range) {
            request.headers.insert(header::RANGE, range);
        }
        let answer = ask.open(self.ends.source, request).await;
        let response = answer.map_err(CopyError::source)?;
        let is_other = text_of(&response.headers, "etag").unwrap_or_default() != self.seen.etag;
        let is_part = response.status == StatusCode::PARTIAL_CONTENT;
        if is_other || !is_part {
            return Err(CopyError::Changed);
        }
        Ok(response)
    }

    async fn complete(&self, upload: &Upload, parts: &[Written]) -> Result<(), CopyError> {
        let mut document = String::from("<CompleteMultipartUpload>");
        for part in parts {
            let number = part.number;
            let _ = write!(document, "<Part><PartNumber>{number}</PartNumber><ETag>");
            xml::push_escaped(&mut document, &part.etag);
            document.push_str("</ETag>");
            // Parts of an upload whose checksum is of them have to be named with theirs.
            let is_composite = self.seen.checksum_kind == Some(Kind::Composite);
            if let (true, Some((element, value))) = (is_composite, &part.checksum) {
                let _ = write!(document, "<{element}>{value}</{element}>");
            }
            document.push_str("</Part>");
        }
        document.push_str("</CompleteMultipartUpload>");
        let ask = &self.copier.ask;
        let operation = Operation::CompleteMultipartUpload(upload.clone());
        let query = format!("uploadId={}", uri::encode_query(&upload.upload_id));
        let payload = (document.len() as u64, forebay_store::Body::from(document));
        let payload = (payload.1, payload.0);
        let request = ask.request_with(Method::POST, (operation, &query), payload);
        let answer = ask.ask(self.ends.target, request).await;
        let (_, text) = answer.map_err(CopyError::Target)?;
        match xml::error_in(&text) {
            None => Ok(()),
            Some(error) => {
                let trouble = Trouble::Refused(StatusCode::OK, error.code);
                Err(CopyError::Target(trouble))
            }
        }
    }

    /// Gives an upload up; one that can't be is left to the target's own rule for old uploads.
    async fn abort(&self, upload: Upload) {
        let ask = &self.copier.ask;
        let query = format!("uploadId={}", uri::encode_query(&upload.upload_id));
        let operation = Operation::AbortMultipartUpload(upload);
        let request = ask.request(Method::DELETE, operation, &query);
        if let Err(trouble) = ask.ask(self.ends.target, request).await {
            tracing::debug!(%trouble, "an upload of a copy was not aborted");
        }
    }
}

/// The size of parts of which there would be `count`, as clients choose them.
fn usual_part_bytes(size_bytes: u64, count: u64) -> Option<u64> {
    let fits = |part_bytes: &u64| {
        (PART_BYTES_MIN..=PART_BYTES_MAX).contains(part_bytes)
            && size_bytes.div_ceil(*part_bytes) == count
    };
    if count == 1 {
        return Some(size_bytes.max(PART_BYTES_MIN)).filter(|bytes| *bytes <= PART_BYTES_MAX);
    }
    let usual = USUAL_MIB.into_iter().map(|mib| mib * MIB).find(fits);
    let even = size_bytes.div_ceil(count).next_multiple_of(MIB);
    usual.or(Some(even).filter(fits))
}

/// A size of parts for an object that is too large for one request.
fn of_any(size_bytes: u64) -> u64 {
    let fewest = size_bytes.div_ceil(PARTS_MAX).next_multiple_of(MIB);
    fewest.max(64 * MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_size_gives_as_many_parts_as_there_were() {
        for (size_bytes, count, part_bytes) in [
            (20 * MIB, 3, Some(8 * MIB)),
            (20 * MIB, 4, Some(5 * MIB)),
            (20 * MIB, 2, Some(16 * MIB)),
            (70 * MIB, 6, Some(12 * MIB)),
            (MIB, 1, Some(5 * MIB)),
            (7 * MIB, 1, Some(7 * MIB)),
            (20 * MIB, 5, None),
        ] {
            let usual = usual_part_bytes(size_bytes, count);
            assert_eq!(usual, part_bytes, "{size_bytes} {count}");
        }
        assert!((50 << 40) / of_any(50 << 40) < PARTS_MAX);
    }
}
