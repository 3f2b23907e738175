//! A request from its head to its answer, and what strikes it on the way.
//!
//! Called by `relay`, which owns a queue of [`Exchange`] and the [`Marks`] of the body that is on
//! its way.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Shared,
    counts::add,
    faults::{Ending, Plan},
    framing::Method,
    lane::{Item, Lane},
};

/// What strikes within a body, at which byte of its payload.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) passed_bytes: u64,
    stall: Option<(u64, Duration)>,
    reset: Option<u64>,
}

/// What becomes of a request's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Forward,
    Swallow,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) method: Method,
    pub(super) plan: Plan,
    pub(super) answerer: Answerer,
}

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answerer {
    Server,
    /// The tap, once the request's body is there.
    Tap,
    /// The tap, at this moment.
    TapAt(Instant, After),
}

/// What follows an answer of the tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    NextRequest,
    Close,
}

impl Marks {
    /// Where the plan strikes in a body of `length` bytes: anywhere before its last byte, or after
    /// the first one where the length is not known.
    pub(super) fn of(plan: &Plan, length: Option<u64>) -> Self {
        let at = length.map_or(1, |length| plan.place % length);
        Self {
            passed_bytes: 0,
            stall: plan.stall.map(|time| (at, time)),
            reset: (plan.end == Ending::ResetBody).then_some(at),
        }
    }

    /// Strikes where the body has come to a mark; then the payload bytes up to the next one, or
    /// `None` when the connection was cut.
    pub(super) fn strike(&mut self, down: &mut Lane, shared: &Shared) -> Option<usize> {
        let faults = &shared.counters.faults;
        if let Some((at, time)) = self.stall
            && at <= self.passed_bytes
        {
            add(&faults.stall, 1);
            down.push(Item::For(time));
            self.stall = None;
        }
        let next = match (self.stall, self.reset) {
            (_, Some(at)) if at <= self.passed_bytes => {
                add(&faults.reset_body, 1);
                down.push(Item::Cut);
                return None;
            }
            (Some((at, _)), _) | (None, Some(at)) => at - self.passed_bytes,
            (None, None) => return Some(usize::MAX),
        };
        Some(usize::try_from(next).unwrap_or(usize::MAX))
    }
}

/// S3's answer when it wants fewer requests.
pub(super) fn busy_answer(method: Method, after: After) -> (Bytes, Bytes) {
    const BODY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SlowDown</Code>\
        <Message>Please reduce your request rate.</Message><RequestId>TAP</RequestId>\
        <HostId>forebay-tap</HostId></Error>";
    let close = match after {
        After::NextRequest => "",
        After::Close => "Connection: close\r\n",
    };
    let head = format!(
        "HTTP/1.1 503 Slow Down\r\nServer: forebay-tap\r\nx-amz-request-id: TAP\r\n\
         Content-Type: application/xml\r\nContent-Length: {}\r\n{close}\r\n",
        BODY.len()
    );
    let body = match method {
        Method::Head => Bytes::new(),
        _ => Bytes::from_static(BODY.as_bytes()),
    };
    (Bytes::from(head), body)
}
