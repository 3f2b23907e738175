//! Bounds of a request: how much head, how long.
//!
//! hyper bounds what it buffers (a bare 431); here the stated limit gets S3's own answer. Bodies
//! are bounded in [`super::upload`], connections in `server`.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Instant,
};

use forebay_s3::code::Code;
use forebay_store::{Clock, Error, Response};
use http::request::Parts;

use crate::settings::Limits;

/// Bytes of a header beside its name and value: `: ` and the line end.
const HEADER_OVERHEAD_BYTES: usize = 4;

/// Refuses a head that is longer than allowed.
pub(super) fn check(head: &Parts, limits: &Limits) -> Result<(), Error> {
    let line_bytes =
        head.uri.path().len() + head.uri.query().map_or(0, str::len) + head.method.as_str().len();
    let head_bytes = head.headers.iter().fold(line_bytes, |sum, (name, value)| {
        sum + name.as_str().len() + value.len() + HEADER_OVERHEAD_BYTES
    });
    if head_bytes > limits.header_bytes_max {
        let mut error = Error::refused(Code::RequestHeaderSectionTooLarge);
        if let Error::Refused(refusal) = &mut error {
            refusal
                .details
                .push(("MaxSizeAllowed", limits.header_bytes_max.to_string()));
        }
        return Err(error);
    }
    Ok(())
}

/// Waits for an answer until `deadline`. The timer is made only when there is something to wait
/// for: a hit never needs one.
pub(super) async fn until(
    deadline: Instant,
    clock: &Clock,
    answer: impl Future<Output = Result<Response, Error>>,
) -> Result<Response, Error> {
    let mut answer = pin!(answer);
    let mut timer: Option<Pin<Box<tokio::time::Sleep>>> = None;
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| {
            let left = deadline.saturating_duration_since(clock.now());
            Box::pin(tokio::time::sleep(left))
        });
        timer.as_mut().poll(cx).map(|()| {
            Err(Error::Unavailable {
                reason: "no answer within the request timeout".into(),
            })
        })
    })
    .await
}
