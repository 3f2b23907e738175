//! The body of an object on its way from one member to another.
//!
//! A piece is passed on as it came, so a copy holds one piece. The length and the checksum that the
//! source declared are verified as they pass: a body that is not what it should be ends in an
//! error, and the target stores nothing of it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use forebay_s3::checksum::{Checksum, Declaration, Expected, Verifier};
use forebay_store::{Body, Error};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Sleep;

use super::pace::Pace;
use crate::ask::Progress;

/// See the module.
pub(super) struct Passing {
    inner: Body,
    left_bytes: u64,
    verifier: Option<Verifier>,
    pace: Arc<Pace>,
    wait: Option<Pin<Box<Sleep>>>,
    progress: Arc<Progress>,
}

impl Passing {
    /// A body of `size_bytes` bytes with this checksum, if any is known.
    pub(super) fn new(
        inner: Body,
        (size_bytes, checksum): (u64, Option<Checksum>),
        (pace, progress): (&Arc<Pace>, &Arc<Progress>),
    ) -> Self {
        let expected = Expected {
            length: Some(size_bytes),
            checksum: checksum.map(Declaration::Value),
            ..Expected::default()
        };
        Self {
            inner,
            left_bytes: size_bytes,
            verifier: Some(Verifier::new(expected)),
            pace: Arc::clone(pace),
            wait: None,
            progress: Arc::clone(progress),
        }
    }

    fn take(&mut self, data: &Bytes) -> Result<(), Error> {
        match &mut self.verifier {
            Some(verifier) => verifier.update(data).map_err(|error| cut(&error))?,
            None if data.is_empty() => {}
            None => {
                return Err(Error::Cut {
                    reason: "the source of the copy has more than it said".into(),
                });
            }
        }
        self.left_bytes = self.left_bytes.saturating_sub(data.len() as u64);
        if self.left_bytes == 0 {
            // Judged before the last piece is passed on: who has as many bytes as were announced
            // may look no further.
            self.end()?;
        }
        self.progress.goes_on();
        if let Some(until) = self.pace.book(data.len()) {
            self.progress.waits();
            self.wait = Some(Box::pin(tokio::time::sleep_until(until)));
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        match self.verifier.take() {
            Some(verifier) => match verifier.finish(&HeaderMap::new()) {
                Ok(_) => Ok(()),
                Err(error) => Err(cut(&error)),
            },
            None => Ok(()),
        }
    }
}

fn cut(error: &forebay_s3::checksum::PayloadError) -> Error {
    Error::Cut {
        reason: format!("not what the source of the copy declared: {error}").into(),
    }
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if let Some(wait) = &mut this.wait {
            ready!(wait.as_mut().poll(cx));
            this.wait = None;
            this.progress.goes_on();
        }
        loop {
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
                let ended = if this.left_bytes == 0 {
                    this.end()
                } else {
                    Err(Error::Cut {
                        reason: "the source of the copy ended early".into(),
                    })
                };
                return Poll::Ready(ended.err().map(Err));
            };
            // Trailers, if any, are about the connection that the bytes came by.
            if let Ok(data) = frame?.into_data() {
                let taken = this.take(&data).map(|()| Frame::data(data));
                return Poll::Ready(Some(taken));
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left_bytes)
    }
}

#[cfg(test)]
mod tests {
    use forebay_s3::checksum::Algorithm;

    use super::*;

    fn passing(bytes: &'static str, said: &str) -> Passing {
        let sum = Checksum::of(Algorithm::Crc32, said.as_bytes());
        let what = (said.len() as u64, Some(sum));
        let pace = Arc::new(Pace::new(None));
        Passing::new(bytes.into(), what, (&pace, &Arc::default()))
    }

    /// Who has as many bytes as were announced may look no further, and would take them for whole.
    #[tokio::test]
    async fn bytes_that_are_not_what_was_said_are_told_before_the_last_of_them() {
        let mut body = Body::stream(passing("abd", "abc"));
        assert!(matches!(body.frame().await, Some(Err(Error::Cut { .. }))));
        for (bytes, said) in [("ab", "abc"), ("abcd", "abc"), ("a", "")] {
            let read = Body::stream(passing(bytes, said)).collect(10).await;
            assert!(matches!(read, Err(Error::Cut { .. })), "{bytes} {said}");
        }
        for whole in ["abc", ""] {
            let read = Body::stream(passing(whole, whole)).collect(10).await;
            assert_eq!(read.unwrap().0, whole);
        }
    }
}
