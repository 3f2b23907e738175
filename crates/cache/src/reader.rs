//! The body of an answer whose bytes are not all here: pages, fills under way, and fills of its
//! own, whichever has the next byte.
//!
//! The next extent is begun when half of the one before is read; where one connection is what the
//! reader waits for (`pace`), several are fetched side by side, also of what a fill of the whole
//! object would bring later: when the reader gets there it leaves that fill.
//!
//! All bytes are of one version. When a fill breaks off the reader begins another from where it
//! is, twice at most; when the version is gone the body ends in an error, which cuts the
//! connection.

use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use forebay_store::Error;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{
    ask::Template,
    fill::{Attachment, Step},
    fills::{Joined, Wanted},
    layer::Layer,
    version::Version,
};

mod pace;

use pace::Pace;

/// Fills that may break off under one reader before it gives up.
const BREAKS_MAX: u32 = 2;
/// Extents fetched side by side are so long: what a fill reads before its first reader comes, so
/// that each goes on while the reader is still at the one before.
const BESIDE_BYTES: u64 = crate::pump::AHEAD_BYTES_MAX;

/// Reads the bytes `position..end` of a version.
pub(crate) struct Reader {
    layer: Arc<Layer>,
    version: Arc<Version>,
    template: Template,
    position: u64,
    end: u64,
    /// The fill that brings the bytes at `position`.
    attachment: Option<Attachment>,
    /// Fills of bytes further on, in their order, begun early so that no round trip is waited for
    /// in between.
    ahead: VecDeque<Ahead>,
    breaks: u32,
    pace: Pace,
}

/// A place at a fill of bytes further on.
struct Ahead {
    start: u64,
    attachment: Attachment,
}

impl Reader {
    /// A reader of the bytes `range`; `attachment` is to a fill that brings the first of them.
    pub(crate) fn new(
        layer: &Arc<Layer>,
        version: Arc<Version>,
        template: Template,
        range: Range<u64>,
        attachment: Option<Attachment>,
    ) -> Self {
        Self {
            layer: Arc::clone(layer),
            version,
            template,
            position: range.start,
            end: range.end,
            attachment,
            ahead: VecDeque::new(),
            breaks: 0,
            pace: Pace::new(layer.now()),
        }
    }

    fn took(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.position += bytes.len() as u64;
        self.pace.took(bytes.len() as u64, || self.layer.now());
        self.read_ahead();
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    /// Begins extents further on: the next one when half of this one is read, or as many as are
    /// worth it at this pace.
    fn read_ahead(&mut self) {
        let Some(attachment) = &self.attachment else {
            return;
        };
        let covers = attachment.covers();
        // A fill that others read goes on to its end all the same.
        let width = if attachment.is_alone() {
            self.pace.width()
        } else {
            1
        };
        if width == 1 {
            let half = covers.start + (covers.end - covers.start) / 2;
            if self.ahead.is_empty() && self.position >= half {
                self.begin_ahead(Wanted::next(covers.end, self.end));
            }
            return;
        }
        while self.ahead.len() + 1 < width {
            let start = match self.ahead.back() {
                Some(last) => last.attachment.covers().end,
                // The fill under way goes on while the others begin.
                None => covers.end.min(self.page_ceil(self.position + BESIDE_BYTES)),
            };
            let before = self.ahead.len();
            self.begin_ahead(Wanted::beside(start, start.saturating_add(BESIDE_BYTES)));
            if self.ahead.len() == before {
                return;
            }
        }
    }

    fn page_ceil(&self, offset: u64) -> u64 {
        self.version.policy.page_bytes.ceil(offset)
    }

    /// Begins an extent, if it is wanted and not here.
    fn begin_ahead(&mut self, wanted: Wanted) {
        let start = wanted.position;
        if start >= self.end || self.layer.has_page_at(&self.version, start) {
            return;
        }
        let attachment = self.fill(Wanted {
            end: wanted.end.min(self.end),
            ..wanted
        });
        if let Some(before) = self
            .ahead
            .back()
            .map_or(self.attachment.as_ref(), |last| Some(&last.attachment))
        {
            before.leave_at(start);
        }
        self.ahead.push_back(Ahead { start, attachment });
    }

    /// Where the fills further on begin, or the end.
    fn ahead_start(&self) -> u64 {
        self.ahead.front().map_or(self.end, |ahead| ahead.start)
    }

    /// The bytes of the page at `position`, if it is here.
    fn page(&self) -> Option<Bytes> {
        let now_ms = self.layer.now_ms();
        self.layer
            .page_from(&self.version, self.position, self.end, now_ms)
    }

    fn fill(&self, wanted: Wanted) -> Attachment {
        match self.layer.extent(&self.version, &self.template, wanted) {
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
            if this.position >= this.ahead_start() {
                // The fill before it may go on for others.
                this.attachment = this.ahead.pop_front().map(|ahead| ahead.attachment);
                continue;
            }
            if let Some(attachment) = &this.attachment {
                let Poll::Ready(step) = attachment.poll(this.position, this.ahead_start(), cx)
                else {
                    this.pace.waits(|| this.layer.now());
                    return Poll::Pending;
                };
                match step {
                    Step::Bytes(bytes) => return this.took(bytes),
                    Step::Changed => return this.cut("the object changed while it was read"),
                    Step::Broken => {
                        this.attachment = None;
                        this.breaks += 1;
                        if this.breaks > BREAKS_MAX {
                            return this.cut("the origin broke off again and again");
                        }
                    }
                    Step::Past => this.attachment = None,
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
            let end = this.ahead_start();
            this.attachment = Some(this.fill(Wanted::next(this.position, end)));
        }
        // Fills that nobody else reads need not go on.
        this.attachment = None;
        this.ahead.clear();
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.position >= self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.position)
    }
}
