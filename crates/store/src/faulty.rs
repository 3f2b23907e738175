//! A store that injects faults into another, for tests: latency, errors, short and flipped bodies.
//!
//! Faults come from a script, one entry a call, or from a seed; either way a run can be repeated.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::{Body, Error, Request, Response, Store};

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The answer comes this much later.
    Delay(Duration),
    /// Never reaches the store.
    Unavailable,
    /// Refused with `SlowDown` before any effect.
    SlowDown,
    /// Carried out, but the answer is lost.
    AnswerLost,
    /// The answer never comes.
    Hang,
    /// The response body breaks with an error after this many bytes.
    CutAfter(u64),
    /// The response body stops for good after this many bytes, with no error.
    StallAfter(u64),
    /// The byte at this offset of the response body is flipped.
    FlipAt(u64),
}

/// Injects faults into the calls of `inner`, in the order of its script.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    script: Mutex<VecDeque<Fault>>,
    calls: Mutex<u64>,
}

impl<S> Faulty<S> {
    /// Wraps `inner`; no fault until some are scripted.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            script: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    /// Appends to the script: each call takes the next fault, and none when the script is done.
    pub fn script(&self, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.script).extend(faults);
    }

    /// Calls seen so far.
    pub fn calls(&self) -> u64 {
        *lock(&self.calls)
    }

    /// The store within.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl<S: Store> Store for Faulty<S> {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        *lock(&self.calls) += 1;
        let fault = lock(&self.script).pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::None => self.inner.call(request).await,
            Fault::Delay(delay) => {
                tokio::time::sleep(delay).await;
                self.inner.call(request).await
            }
            Fault::Unavailable => Err(Error::Unavailable {
                reason: "injected".into(),
            }),
            Fault::SlowDown => Err(Error::SlowDown { retry_after: None }),
            Fault::AnswerLost => {
                self.inner.call(request).await?;
                Err(Error::Indeterminate {
                    elapsed: Duration::ZERO,
                })
            }
            Fault::Hang => std::future::pending().await,
            Fault::CutAfter(at) | Fault::StallAfter(at) | Fault::FlipAt(at) => {
                let mut response = self.inner.call(request).await?;
                let inner = std::mem::take(&mut response.body);
                response.body = Body::stream(FaultyBody {
                    inner,
                    fault,
                    at,
                    seen: 0,
                });
                Ok(response)
            }
        }
    }
}

struct FaultyBody {
    inner: Body,
    fault: Fault,
    at: u64,
    seen: u64,
}

impl FaultyBody {
    fn damage(&mut self, data: Bytes) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let until_fault = self.at.saturating_sub(self.seen);
        let left = usize::try_from(until_fault)
            .unwrap_or(usize::MAX)
            .min(data.len());
        self.seen += data.len() as u64;
        if left == data.len() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Fault::FlipAt(_) = self.fault {
            let mut flipped = BytesMut::from(&data[..]);
            flipped[left] ^= 1;
            self.at = u64::MAX;
            return Poll::Ready(Some(Ok(Frame::data(flipped.freeze()))));
        }
        self.at = self.at.min(self.seen);
        Poll::Ready(Some(Ok(Frame::data(data.slice(..left)))))
    }
}

impl HttpBody for FaultyBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let reached = self.seen >= self.at;
        match (reached, self.fault) {
            (true, Fault::CutAfter(_)) => {
                return Poll::Ready(Some(Err(Error::Cut {
                    reason: "injected".into(),
                })));
            }
            (true, Fault::StallAfter(_)) => return Poll::Pending,
            _ => {}
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.damage(data),
                Err(trailers) => Poll::Ready(Some(Ok(trailers))),
            },
            other => other,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
