//! Finds the bytes of a version that may answer: pages, fills under way, fills of its own.

use std::{ops::Range, sync::Arc};

use forebay_store::{Body, Error, Forward, Response};
use http::StatusCode;

use super::{FROM_DISK, JOINS_MAX, RESTARTS_MAX, Reading};
use crate::{
    ask::EXTENT_BYTES_MAX,
    fill::{Attachment, Head, Source},
    fills::{Joined, Wanted},
    reader::Reader,
    version::Version,
};

/// What the search for bytes came to.
pub(super) enum Found {
    Body(Body),
    /// An answer of the origin instead.
    Response(Response),
    /// The version is gone.
    Changed,
}

impl Reading {
    /// The bytes of a version, from wherever they are.
    pub(super) async fn body(
        &mut self,
        version: Arc<Version>,
        range: Range<u64>,
        attachment: Option<Attachment>,
    ) -> Result<Found, Error> {
        let layer = Arc::clone(&self.layer);
        let attachment = attachment.filter(|attachment| {
            attachment
                .fill()
                .may_serve(version.vid, range.start, EXTENT_BYTES_MAX)
        });
        if attachment.is_none() {
            let now_ms = layer.now_ms();
            if let Some(body) = layer.body_from_pages(&version, range.clone(), now_ms) {
                layer.metrics.hit_bytes.inc_by(range.end - range.start);
                layer.read_ahead(&version, &range, || self.template.clone());
                return Ok(Found::Body(body));
            }
            if layer.has_pages(&version, &range) {
                layer.metrics.hit_bytes.inc_by(range.end - range.start);
            } else {
                self.forward.get_or_insert(Forward::Partial);
            }
        }
        let attachment = match attachment {
            Some(attachment) => Some(attachment),
            None if layer.has_page_at(&version, range.start) => None,
            None => match self.first_extent(&version, &range).await? {
                Ok(attachment) => Some(attachment),
                Err(found) => return Ok(found),
            },
        };
        layer.read_ahead(&version, &range, || self.template.clone());
        Ok(Found::Body(self.stream(version, range, attachment)))
    }

    pub(super) fn stream(
        &self,
        version: Arc<Version>,
        range: Range<u64>,
        attachment: Option<Attachment>,
    ) -> Body {
        let template = self.template.clone();
        Body::stream(Reader::new(
            &self.layer,
            version,
            template,
            range,
            attachment,
        ))
    }

    /// Begins to fetch what is missing, and waits until it is known that the version is still
    /// there: after the first byte it would be too late to begin anew.
    async fn first_extent(
        &mut self,
        version: &Arc<Version>,
        range: &Range<u64>,
    ) -> Result<Result<Attachment, Found>, Error> {
        loop {
            let joined = self.layer.extent(
                version,
                &self.template,
                Wanted::next(range.start, range.end),
            );
            let (Joined::Leader(attachment) | Joined::Follower(attachment)) = joined;
            let head = attachment.head().await;
            self.behind = attachment.fill().behind();
            match head {
                Head::Version(_) => {
                    if attachment.fill().source() == Some(Source::Disk) {
                        self.hit_detail = Some(FROM_DISK);
                    }
                    self.forward_status
                        .get_or_insert(StatusCode::PARTIAL_CONTENT.as_u16());
                    return Ok(Ok(attachment));
                }
                Head::Changed if self.restarts >= RESTARTS_MAX => {
                    return Err(Error::Unavailable {
                        reason: "the object keeps changing".into(),
                    });
                }
                Head::Changed => {
                    self.restarts += 1;
                    self.validated = false;
                    return Ok(Err(Found::Changed));
                }
                Head::Declined | Head::Failed | Head::Unchanged(_) | Head::Awaited => {
                    if let Some(own_answer) = attachment.take_own_answer() {
                        return Ok(Err(Found::Response(own_answer?)));
                    }
                    self.joins += 1;
                    if self.joins > JOINS_MAX {
                        let reason = "the origin failed others that asked for the same".into();
                        return Err(Error::Unavailable { reason });
                    }
                }
            }
        }
    }
}
