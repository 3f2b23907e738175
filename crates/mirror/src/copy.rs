//! Brings one key of one member to the state of another.
//!
//! The source is asked what it has; nothing there means that the target's is deleted. Else the
//! bytes stream from a GET of the source into a PUT of the target, a piece at a time, pinned to the
//! version that was seen (`If-Match`), with headers, user metadata, tags and checksum; and what
//! came of it is compared with what was to come.
//!
//! An object of parts is written in parts of the same sizes, so that its tag (`…-N`) comes out
//! equal: a GET of part *n* tells the size of the part and brings it. Where the source does not
//! tell parts, a size that would give as many is tried; when the tag differs then, the bytes are
//! the same and the result says so ([`Likeness::OtherTag`]).
//!
//! Called by the repair loop and by `verify`, who know which member is right. Not here: which one
//! that is, and the lock of the key. Source: Amazon S3 API Reference, `GetObject` (`partNumber`).

use std::sync::Arc;

use forebay_native::hot::HotKey;
use forebay_s3::{
    operation::{ObjectId, Operation, ReadObject},
    uri, xml,
};
use forebay_store::{Clock, Store};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::{
    MirrorSettings,
    ask::{Asker, Progress, Trouble, text_of, whole},
};

mod content;
mod object;
mod pace;
mod parts;
mod passing;
#[cfg(test)]
mod tests;

pub(crate) use object::Described;
use object::set_checksum;
use pace::Pace;
use passing::Passing;

/// Largest object that S3 takes in one request.
const SINGLE_BYTES_MAX: u64 = 5 << 30;

/// Copies keys between members, all under one rate limit.
#[derive(Debug)]
pub(crate) struct Copier {
    ask: Asker,
    pace: Arc<Pace>,
}

/// Two members, and which is right.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) source: &'a dyn Store,
    pub(crate) target: &'a dyn Store,
}

/// What was done so that the target is as the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    /// Nothing: it was like it.
    Nothing,
    /// The object was written, of so many bytes.
    Written(u64, Likeness),
    /// What the target had was deleted.
    Deleted,
}

/// How like its source a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// All of it, the tag included.
    Same,
    /// The bytes, metadata and tags; but a tag of its own, as the source does not tell its parts
    /// or one of the two makes tags that are not of the bytes.
    OtherTag,
}

/// Why a copy did not come about; nothing of it is half done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CopyError {
    /// The source has something else by now: look again.
    #[error("the source changed meanwhile")]
    Changed,
    /// The source did not give it.
    #[error("source: {0}")]
    Source(Trouble),
    /// The target did not take it; after [`Trouble::Unknown`] it may have, or still may.
    #[error("target: {0}")]
    Target(Trouble),
    /// What the target has after it is not what was written: bytes that no one vouched for, or a
    /// write of somebody else.
    #[error("the target has something else after the copy")]
    NotLike,
}

impl CopyError {
    fn source(trouble: Trouble) -> Self {
        if trouble.is_condition() {
            Self::Changed
        } else {
            Self::Source(trouble)
        }
    }
}

/// One copy under way.
struct One<'a> {
    copier: &'a Copier,
    ends: Ends<'a>,
    object: ObjectId,
    seen: Described,
    /// As `x-amz-tagging` has them; empty for none.
    tagging: String,
}

impl Copier {
    pub(crate) fn new(clock: Clock, settings: &MirrorSettings) -> Self {
        Self {
            ask: Asker::new(clock, settings.attempt_timeout),
            pace: Arc::new(Pace::new(settings.repair_bytes_per_second_max)),
        }
    }

    /// What asks members.
    pub(crate) fn asker(&self) -> &Asker {
        &self.ask
    }

    /// Makes the target have under `key` what the source has, or has not.
    ///
    /// # Errors
    /// [`CopyError`]; the target has what it had, or after an unknown outcome what the source has.
    ///
    /// # Cancel safety
    /// A dropped future leaves the target's old object or the new one; parts of an upload under way
    /// may stay behind, until the target expires uploads.
    pub(crate) async fn copy(&self, key: &HotKey, ends: Ends<'_>) -> Result<Copied, CopyError> {
        let object = key.object();
        let Some(seen) = self
            .look(ends.source, &object)
            .await
            .map_err(CopyError::source)?
        else {
            return self.delete(key, ends.target).await;
        };
        let there = self
            .look(ends.target, &object)
            .await
            .map_err(CopyError::Target)?;
        let tagging = self.tagging(ends.source, &object, seen.tag_count).await;
        let tagging = tagging.map_err(CopyError::source)?;
        if let Some(there) = there.filter(|there| there.is_like(&seen)) {
            let other = self.tagging(ends.target, &object, there.tag_count).await;
            if other.map_err(CopyError::Target)? == tagging {
                return Ok(Copied::Nothing);
            }
        }
        let one = One {
            copier: self,
            ends,
            object,
            seen,
            tagging,
        };
        one.write().await
    }

    /// Makes the target have nothing under `key`.
    ///
    /// # Errors
    /// [`CopyError::Target`].
    pub(crate) async fn delete(
        &self,
        key: &HotKey,
        target: &dyn Store,
    ) -> Result<Copied, CopyError> {
        let operation = Operation::DeleteObject(key.object());
        let request = self.ask.request(Method::DELETE, operation, "");
        match self.ask.ask(target, request).await {
            Ok(_) => Ok(Copied::Deleted),
            Err(trouble) if trouble.is_absent() => Ok(Copied::Deleted),
            Err(trouble) => Err(CopyError::Target(trouble)),
        }
    }

    /// What a member has under a key; `None` for nothing, also where the bucket is not there.
    pub(crate) async fn look(
        &self,
        store: &dyn Store,
        object: &ObjectId,
    ) -> Result<Option<Described>, Trouble> {
        let request = self.ask.head(whole(object.clone()), "");
        match self.ask.ask(store, request).await {
            Ok((headers, _)) => Described::read(&headers).map(Some).ok_or(Trouble::Unknown),
            Err(trouble) if trouble.is_absent() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// The tags of an object, as `x-amz-tagging` has them.
    pub(crate) async fn tagging(
        &self,
        store: &dyn Store,
        object: &ObjectId,
        tag_count: u32,
    ) -> Result<String, Trouble> {
        if tag_count == 0 {
            return Ok(String::new());
        }
        let operation = Operation::GetObjectTagging(object.clone());
        let request = self.ask.request(Method::GET, operation, "tagging");
        let (_, text) = self.ask.ask(store, request).await?;
        let tags = xml::tags(&text, xml::OBJECT_TAGS_MAX).map_err(|_| Trouble::Unknown)?;
        let mut pairs: Vec<_> = tags
            .iter()
            .map(|tag| {
                let (key, value) = (uri::encode_query(&tag.key), uri::encode_query(&tag.value));
                format!("{key}={value}")
            })
            .collect();
        pairs.sort();
        Ok(pairs.join("&"))
    }
}

impl One<'_> {
    async fn write(&self) -> Result<Copied, CopyError> {
        let by_parts = match self.plan().await? {
            None => None,
            Some(plan) => self.write_parts(&plan).await?,
        };
        let is_written = by_parts.is_some();
        if !is_written && self.seen.size_bytes > SINGLE_BYTES_MAX {
            return Err(CopyError::NotLike);
        }
        if !is_written {
            self.write_single().await?;
        }
        self.compare().await
    }

    async fn write_single(&self) -> Result<(), CopyError> {
        let response = self.open_source(whole(self.object.clone()), "").await?;
        let sum = self.seen.whole_checksum();
        let (body, progress) = self.passing(response.body, (self.seen.size_bytes, sum));
        let operation = Operation::PutObject(self.object.clone());
        let payload = (body, self.seen.size_bytes);
        let ask = &self.copier.ask;
        let mut request = ask.request_with(Method::PUT, (operation, ""), payload);
        self.set_attributes(&mut request.headers);
        if let Some(sum) = sum {
            set_checksum(&mut request.headers, &sum);
        }
        let answer = ask.patiently(self.ends.target, request, &progress).await;
        answer.map(drop).map_err(CopyError::Target)
    }

    /// A GET of the source, pinned to what was seen.
    async fn open_source(
        &self,
        read: ReadObject,
        query: &str,
    ) -> Result<forebay_store::Response, CopyError> {
        let ask = &self.copier.ask;
        let mut request = ask.request(Method::GET, Operation::GetObject(read), query);
        self.pin(&mut request.headers);
        let enabled = HeaderValue::from_static("ENABLED");
        request.headers.insert("x-amz-checksum-mode", enabled);
        let answer = ask.open(self.ends.source, request).await;
        let response = answer.map_err(|trouble| {
            if trouble.is_absent() {
                CopyError::Changed
            } else {
                CopyError::source(trouble)
            }
        })?;
        // A store that knows no conditions answers all the same.
        let is_other = text_of(&response.headers, "etag").unwrap_or_default() != self.seen.etag;
        if is_other {
            return Err(CopyError::Changed);
        }
        Ok(response)
    }

    fn pin(&self, headers: &mut HeaderMap) {
        if let Ok(etag) = HeaderValue::try_from(self.seen.etag.as_str())
            && !self.seen.etag.is_empty()
        {
            headers.insert(header::IF_MATCH, etag);
        }
    }

    fn passing(
        &self,
        body: forebay_store::Body,
        what: (u64, Option<forebay_s3::checksum::Checksum>),
    ) -> (forebay_store::Body, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        let passing = Passing::new(body, what, (&self.copier.pace, &progress));
        (forebay_store::Body::stream(passing), progress)
    }

    /// What a write says of the object, besides its bytes.
    fn set_attributes(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.seen.carried {
            headers.append(name.clone(), value.clone());
        }
        if let Ok(tagging) = HeaderValue::try_from(self.tagging.as_str())
            && !self.tagging.is_empty()
        {
            headers.insert(HeaderName::from_static("x-amz-tagging"), tagging);
        }
    }

    /// Compares what the target has now with what the source had.
    async fn compare(&self) -> Result<Copied, CopyError> {
        let there = self.copier.look(self.ends.target, &self.object).await;
        let there = there
            .map_err(CopyError::Target)?
            .ok_or(CopyError::NotLike)?;
        let is_single = !there.etag.contains('-') && !self.seen.etag.contains('-');
        let likeness = if there.etag == self.seen.etag {
            Likeness::Same
        } else if there.checksum.is_some() && there.checksum == self.seen.checksum {
            Likeness::OtherTag
        } else if is_single && is_md5(&there.etag) && is_md5(&self.seen.etag) {
            // Both are of the bytes, and they differ.
            return Err(CopyError::NotLike);
        } else {
            Likeness::OtherTag
        };
        let is_whole =
            there.size_bytes == self.seen.size_bytes && there.tag_count == self.seen.tag_count;
        if is_whole {
            Ok(Copied::Written(self.seen.size_bytes, likeness))
        } else {
            Err(CopyError::NotLike)
        }
    }
}

/// Whether a tag has the form of an MD5. One of an encrypted object has it too and is none, but
/// then a checksum is kept beside it.
fn is_md5(etag: &str) -> bool {
    let digest = etag.trim_matches('"');
    digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}
