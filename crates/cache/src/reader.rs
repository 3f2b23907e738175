//! The body of an answer whose bytes are not all here: pages, fills under way, and fills of its
//! own, whichever has the next byte.
//!
//! All bytes are of one version. When a fill breaks off the reader begins another from where it
//! is, twice at most; when the version is gone the body ends in an error, which cuts the
//! connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_store::Error;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    ask::Template,
    fill::{Attachment, Step},
    fills::Joined,
    layer::Layer,
    version::Version,
};

/// Fills that may break off under one reader before it gives up.
const BREAKS_MAX: u32 = 2;

/// Reads the bytes `position..end` of a version.
pub(crate) struct Reader {
    pub layer: Arc<Layer>,
    pub version: Arc<Version>,
    pub template: Template,
    pub position: u64,
    pub end: u64,
    /// The fill that brings the bytes at `position`.
    pub attachment: Option<Attachment>,
    /// The fill that brings the bytes after those, begun early so that no round trip is waited
    /// for in between.
    pub ahead: Option<Attachment>,
    pub breaks: u32,
}

impl Reader {
    fn took(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.position += bytes.len() as u64;
        self.read_ahead();
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Begins the next extent when half of this one is read.
    fn read_ahead(&mut self) {
        let Some(attachment) = self.attachment.as_ref().filter(|_| self.ahead.is_none()) else {
            return;
        };
        let covers = attachment.covers();
        let half = covers.start + (covers.end - covers.start) / 2;
        if covers.end >= self.end || self.position < half {
            return;
        }
        let page_index = self.version.policy.page_bytes.index_of(covers.end);
        if !self.layer.index.has_page(self.version.vid, page_index) {
            self.ahead = Some(self.fill_from(covers.end));
        }
    }

    /// The bytes of the page at `position`, if it is here.
    fn page(&self) -> Option<Bytes> {
        let now_ms = self.layer.now_ms();
        self.layer
            .page_from(&self.version, self.position, self.end, now_ms)
    }

    fn fill_from(&self, position: u64) -> Attachment {
        match self
            .layer
            .extent(&self.version, &self.template, position, self.end)
        {
            Joined::Leader(attachment) | Joined::Follower(attachment) => attachment,
        }
    }

    fn cut(&mut self, reason: &'static str) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.position = self.end;
        Poll::Ready(Some(Err(Error::Cut {
            reason: reason.into(),
        })))
    }
}

impl HttpBody for Reader {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        while this.position < this.end {
            if let Some(attachment) = &this.attachment {
                match ready!(attachment.poll(this.position, this.end, cx)) {
                    Step::Bytes(bytes) => return this.took(bytes),
                    Step::Changed => return this.cut("the object changed while it was read"),
                    Step::Broken => {
                        this.attachment = None;
                        this.breaks += 1;
                        if this.breaks > BREAKS_MAX {
                            return this.cut("the origin broke off again and again");
                        }
                    }
                    Step::Past => this.attachment = this.ahead.take(),
                    Step::Behind => {
                        if let Some(bytes) = this.page() {
                            return this.took(bytes);
                        }
                        this.attachment = None;
                    }
                }
                continue;
            }
            if let Some(bytes) = this.page() {
                return this.took(bytes);
            }
            this.attachment = Some(this.fill_from(this.position));
        }
        // Fills that nobody else reads need not go on.
        (this.attachment, this.ahead) = (None, None);
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.position >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.position)
    }
}
