//! Lets writes pass and makes what they may have changed unknown.
//!
//! Before the write and after it, and when its future or its answer's body is dropped before the
//! end: the origin may have carried it out all the same. The one after is what coherence rests on;
//! it comes before the client can learn that the write is done; so does telling other gateways
//! (`others`), after it, unless the write had no effect. What a fill read before it is not
//! stored, as the write moved the counters on that the fill began with (`epochs`).
//!
//! A write whose outcome stays unknown may come later than all of this; a cache that would keep
//! what it read meanwhile for good remembers it (`doubts`).
//!
//! A `DeleteObjects` names its keys in its body, which is read as it passes; when it can't be
//! understood, or is too large to hold, its whole bucket is invalidated.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_s3::{
    operation::{Effect, Operation, OperationName, Target},
    xml,
};
use forebay_store::{Body, CacheStatus, Error, Forward, Request, Reservation, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use crate::{index::Written, layer::Layer, others::Told};

/// Most bytes of a `DeleteObjects` body that are held: 1000 keys of 1 KiB and their tags.
const DELETE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What an operation may change of what is cached; `None` is nothing.
pub(crate) fn written(operation: &Operation) -> Option<Written> {
    match operation {
        // They change no object that can be read.
        Operation::CreateMultipartUpload(_)
        | Operation::UploadPart(_)
        | Operation::UploadPartCopy(..)
        | Operation::AbortMultipartUpload(_)
        | Operation::Other(OperationName::CreateSession, _) => None,
        operation if operation.name().effect() == Effect::Read => None,
        // The object that is renamed goes away, and only a header says which.
        Operation::Other(OperationName::RenameObject, Target::Object(bucket, _)) => {
            Some(Written::Bucket(bucket.clone()))
        }
        operation => Some(match (operation.bucket(), operation.key()) {
            (Some(bucket), Some(key)) => Written::Object(bucket.clone(), key.clone()),
            (Some(bucket), None) => Written::Bucket(bucket.clone()),
            (None, _) => Written::All,
        }),
    }
}

/// Sends a write to the store below.
pub(crate) async fn write(
    layer: Arc<Layer>,
    written: Written,
    mut request: Request,
) -> Result<Response, Error> {
    let changes = match &request.operation {
        Operation::DeleteObjects(_) => {
            let (body, seen) = Overheard::of(std::mem::take(&mut request.body), &layer);
            request.body = body;
            Changes::Heard(written, seen)
        }
        _ => Changes::Told(written),
    };
    let mut guard = Guard::new(Arc::clone(&layer), changes);
    let answer = layer.inner.call(request).await;
    let outcome = Outcome::of(&answer);
    let is_over = |response: &Response| response.body.length().is_some();
    if answer.as_ref().map_or(true, is_over) {
        guard.outcome = outcome;
        guard.end().send().await;
    }
    let mut response = answer?;
    // CompleteMultipartUpload and CopyObject may say 200 first and only do the work then.
    if !guard.is_over {
        guard.invalidate();
        let body = std::mem::take(&mut response.body);
        response.body = Body::stream(Guarded {
            body,
            guard,
            at_end: outcome,
            telling: None,
            held: None,
        });
    }
    let forward_status = Some(response.status.as_u16());
    response.cache = Some(CacheStatus {
        forward_status,
        ..CacheStatus::forward(Forward::Method)
    });
    Ok(response)
}

/// How it is known what a write changes.
enum Changes {
    Told(Written),
    /// By the body; the whole bucket while it has not passed.
    Heard(Written, Arc<Mutex<Seen>>),
}

/// Whether it is known what became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It happened.
    Done,
    /// It never will.
    Nothing,
    /// It may happen still.
    Unknown,
}

impl Outcome {
    fn of(answer: &Result<Response, Error>) -> Self {
        match answer {
            // A proxy before the origin may have given up on what the origin still does.
            Ok(response) if response.status.is_server_error() => Self::Unknown,
            Ok(response) if response.status.is_success() => Self::Done,
            Ok(_) | Err(Error::Refused(_) | Error::SlowDown { .. } | Error::Unavailable { .. }) => {
                Self::Nothing
            }
            // Of a body that broke off an origin may keep what it has.
            Err(
                Error::Indeterminate { .. }
                | Error::Cut { .. }
                | Error::ClientGone
                | Error::Internal { .. },
            ) => Self::Unknown,
        }
    }
}

/// Invalidates when it is made, when told, and when the write ends or it is dropped.
struct Guard {
    layer: Arc<Layer>,
    changes: Changes,
    outcome: Outcome,
    /// The write has ended, and all is done that has to be.
    is_over: bool,
}

impl Guard {
    fn new(layer: Arc<Layer>, changes: Changes) -> Self {
        let guard = Self {
            layer,
            changes,
            outcome: Outcome::Unknown,
            is_over: false,
        };
        // What a DeleteObjects names is not known yet; it is invalidated after it.
        if let Changes::Told(_) = &guard.changes {
            guard.invalidate();
        }
        guard
    }

    fn invalidate(&self) {
        self.for_each_written(|written| self.layer.invalidate(written));
    }

    /// Notes the end of the write, of which others are to be told.
    ///
    /// The doubt first: who asks the origin after the invalidation knows of it.
    fn end(&mut self) -> Told {
        self.is_over = true;
        let layer = &self.layer;
        if self.outcome == Outcome::Unknown {
            let now_ms = layer.now_ms();
            let keeps_for_good = layer.policies.has_exclusive();
            self.for_each_written(|written| {
                if keeps_for_good {
                    layer.doubts.note(written, now_ms);
                }
                if !layer.others.are_none() {
                    layer.others.later.doubt(layer, written.clone());
                }
            });
        }
        self.invalidate();
        self.told()
    }

    /// What others are to be told of as it stands.
    fn told(&self) -> Told {
        let mut all = Vec::new();
        match self.outcome {
            Outcome::Done | Outcome::Unknown if !self.layer.others.are_none() => {
                self.for_each_written(|written| all.push(written.clone()));
            }
            Outcome::Done | Outcome::Unknown | Outcome::Nothing => {}
        }
        Told::new(&self.layer, all)
    }

    fn for_each_written(&self, mut act: impl FnMut(&Written)) {
        match &self.changes {
            Changes::Told(written) => act(written),
            Changes::Heard(bucket, seen) => {
                let Written::Bucket(name) = bucket else {
                    return act(bucket);
                };
                match xml::delete_keys(&seen.lock().bytes) {
                    Ok(entries) => entries.into_iter().for_each(|entry| {
                        act(&Written::Object(name.clone(), entry.key));
                    }),
                    Err(_) => act(bucket),
                }
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_over {
            // Others are told in the background.
            drop(self.end());
        }
    }
}

/// The body of an answer to a write: invalidates before it lets anything of it out, and tells
/// others before it lets out what may say that the write is done: all but white space, and the end.
struct Guarded {
    body: Body,
    guard: Guard,
    /// What is known once all of it has come.
    at_end: Outcome,
    telling: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// What has come and waits for others to be told.
    held: Option<Arrived>,
}

/// What has come of a body; `None` is its end.
type Arrived = Option<Result<Frame<Bytes>, Error>>;

impl Guarded {
    fn take(&mut self, arrived: &Arrived) {
        let is_end = match arrived {
            None => true,
            Some(Ok(_)) => self.body.is_end_stream(),
            Some(Err(_)) => false,
        };
        if self.guard.is_over {
            return;
        }
        if is_end {
            self.guard.outcome = self.at_end;
        }
        let told = match arrived {
            _ if is_end => self.guard.end(),
            Some(Ok(frame)) => {
                self.guard.invalidate();
                let says_nothing = |bytes: &Bytes| bytes.iter().all(u8::is_ascii_whitespace);
                if self.at_end == Outcome::Nothing || frame.data_ref().is_some_and(says_nothing) {
                    return;
                }
                self.guard.told()
            }
            Some(Err(_)) | None => self.guard.end(),
        };
        self.telling = Some(Box::pin(told.send()));
    }
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let arrived = if let Some(arrived) = self.held.take() {
            arrived
        } else {
            let arrived = ready!(Pin::new(&mut self.body).poll_frame(cx));
            self.take(&arrived);
            arrived
        };
        if let Some(telling) = &mut self.telling {
            if telling.as_mut().poll(cx).is_pending() {
                self.held = Some(arrived);
                return Poll::Pending;
            }
            self.telling = None;
        }
        Poll::Ready(arrived)
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}

/// What has passed of a body.
struct Seen {
    bytes: Vec<u8>,
    /// Room for them; without it nothing is kept.
    room: Option<Reservation>,
}

impl Seen {
    fn take(&mut self, bytes: &Bytes) {
        if self.room.is_none() {
            return;
        }
        if self.bytes.len() + bytes.len() > DELETE_BYTES_MAX {
            (self.bytes, self.room) = (Vec::new(), None);
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }
}

/// A body that is overheard on its way.
struct Overheard {
    body: Body,
    seen: Arc<Mutex<Seen>>,
}

impl Overheard {
    fn of(body: Body, layer: &Layer) -> (Body, Arc<Mutex<Seen>>) {
        let room_bytes = body.length().unwrap_or(DELETE_BYTES_MAX as u64);
        let room = layer
            .budget
            .try_reserve(room_bytes.min(DELETE_BYTES_MAX as u64));
        let seen = Arc::new(Mutex::new(Seen {
            bytes: Vec::new(),
            room,
        }));
        (
            Body::stream(Self {
                body,
                seen: Arc::clone(&seen),
            }),
            seen,
        )
    }
}

impl HttpBody for Overheard {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.seen.lock().take(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        HttpBody::size_hint(&self.body)
    }
}
