//! The bytes of an object that was an upload: those of its parts, one after another.

use std::{
    collections::VecDeque,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_store::{Body, Error};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{Indexed, Keeping, objects::slice, parts::FoundPart};
use crate::{
    blobs::{BlobId, Blobs},
    index::{Index, Route, Sequence, Want},
};

/// A body that opens each part when its turn comes; one that was replaced meanwhile cuts it.
struct Joined<I, B> {
    kept: Arc<Keeping<I, B>>,
    route: Route,
    sections: VecDeque<Section>,
    left_bytes: u64,
    turn: Turn,
}

/// Some bytes of a part.
struct Section {
    name: Bytes,
    sequence: Sequence,
    blob: Option<BlobId>,
    span: Range<u64>,
}

enum Turn {
    /// The next section's.
    Next,
    Opening(Pin<Box<dyn Future<Output = Result<Body, Error>> + Send>>),
    Sending(Body),
}

impl<I: Index, B: Blobs> Indexed<I, B> {
    /// Bytes `span` of these parts together.
    pub(super) fn join(&self, route: &Route, parts: Vec<FoundPart>, span: Range<u64>) -> Body {
        let mut sections = VecDeque::new();
        let mut start = 0;
        for part in parts {
            let end = start + part.entry.record.size_bytes;
            let within = span.start.max(start)..span.end.min(end);
            if within.start < within.end {
                sections.push_back(Section {
                    name: part.name,
                    sequence: part.sequence,
                    blob: part.entry.blob,
                    span: within.start - start..within.end - start,
                });
            }
            start = end;
        }
        Body::stream(Joined {
            kept: Arc::clone(&self.kept),
            route: route.clone(),
            sections,
            left_bytes: span.end - span.start,
            turn: Turn::Next,
        })
    }
}

async fn open<I: Index, B: Blobs>(
    kept: Arc<Keeping<I, B>>,
    route: Route,
    section: Section,
) -> Result<Body, Error> {
    let Section {
        name,
        sequence,
        blob,
        span,
    } = section;
    if let Some(blob) = blob {
        return kept.blobs.read(&route, &blob, span).await;
    }
    let found = kept.index.get(&route, &name, Want::Payload).await?;
    match found.filter(|found| found.sequence == sequence) {
        Some(found) => slice(found.payload.as_ref(), span).map(Body::from),
        None => Err(Error::Cut {
            reason: "the object was replaced".into(),
        }),
    }
}

impl<I: Index, B: Blobs> HttpBody for Joined<I, B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            match &mut self.turn {
                Turn::Next => {
                    let Some(section) = self.sections.pop_front() else {
                        return Poll::Ready(None);
                    };
                    let (kept, route) = (Arc::clone(&self.kept), self.route.clone());
                    self.turn = Turn::Opening(Box::pin(open(kept, route, section)));
                }
                Turn::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(body) => self.turn = Turn::Sending(body),
                    Err(error) => return Poll::Ready(Some(Err(self.cut(error)))),
                },
                Turn::Sending(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    None => self.turn = Turn::Next,
                    Some(Err(error)) => return Poll::Ready(Some(Err(self.cut(error)))),
                    Some(Ok(frame)) => {
                        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                        self.left_bytes = self.left_bytes.saturating_sub(length);
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

impl<I, B> Joined<I, B> {
    /// Nothing comes after an error.
    fn cut(&mut self, error: Error) -> Error {
        self.sections.clear();
        self.turn = Turn::Next;
        error
    }
}
