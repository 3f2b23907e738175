//! Decides whether a failed attempt is repeated.
//!
//! | attempt | request | with another endpoint | with none |
//! |---|---|---|---|
//! | a pooled connection was closed, nothing written | any | there at once, once | again at once |
//! | a pooled connection closed before any answer | repeatable | the same | the same |
//! | connection refused | any | there at once | again after a pause |
//! | no connection in time, or no TLS | any | there at once | stop |
//! | a new connection closed before any answer | repeatable | there at once | after a pause |
//! | answer 503 | without payload | there at once | after a pause; stop if it asks for over 1 s |
//! | answer 500, 502 or 504 | repeatable | there at once | stop: it passes |
//! | no answer in time | repeatable | there at once | stop: the time is used up |
//! | anything else | any | stop | stop |
//!
//! *Repeatable* is a request without payload whose method is safe or idempotent (RFC 9110 §9.2)
//! and which has no condition: a conditional write that did succeed would fail when repeated.
//! A payload that was read even in part is gone, so such a request is never repeated; but one that
//! is kept, and whose connection closed before it was sent whole, had no effect: it is repeatable.
//!
//! Pauses are full-jitter: a random part of a bound that doubles (AWS Architecture Blog,
//! "Exponential Backoff And Jitter"). All but repeats of what reached nobody elsewhere, and those
//! at once, take from a [`Budget`], so that an origin in trouble sees at most a tenth more
//! requests, not three times as many. A client's deadline holds for all its attempts together.
//!
//! Pure but for the budget's counter: no clock, no random source, no I/O.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use forebay_s3::operation::{Effect, Operation};
use forebay_telemetry::origin::FloatGauge;
use http::{HeaderMap, HeaderName, Method, header};

use crate::settings::Retries;

/// No pause is longer, whatever the settings and the attempt.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Conditions on a write, in S3's and HTTP's words.
const CONDITIONS: [HeaderName; 7] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    HeaderName::from_static("x-amz-if-match-last-modified-time"),
    HeaderName::from_static("x-amz-if-match-size"),
    HeaderName::from_static("x-amz-rename-source"),
];

/// What a request may be done with again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeatable {
    /// Even if it was carried out before.
    Yes,
    /// Only if it certainly was not, and there is no payload to lose.
    WithoutEffect,
    /// Only if nothing was written: it has a payload.
    Unsent,
}

/// What went wrong with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A pooled connection was closed before anything was written.
    StaleUnsent,
    /// A pooled connection closed before any answer.
    StaleClosed,
    /// No connection, quickly.
    Unreachable,
    /// No connection, and it took its time, or would fail again.
    Unanswered,
    /// A new connection closed before any answer.
    Closed,
    /// 503, with the pause that it asks for.
    SlowDown(Option<Duration>),
    /// 500, 502 or 504.
    ServerError,
    /// No answer in time.
    Silent,
    /// Too late for another attempt, or of no use.
    Final,
}

/// What was done already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Attempts made, the failed one included.
    pub attempts: u32,
    /// Whether one of them was repeated at once.
    pub stale_repeat: StaleRepeat,
}

/// Whether a request was repeated because a pooled connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StaleRepeat {
    Unused,
    Used,
}

/// Whether an endpoint that was not tried yet would take the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    Some,
    None,
}

/// Whether a repeat is one request more for the origin as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Price {
    /// Nobody had it yet.
    Free,
    /// It takes from the budget.
    Paid,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Repeat at once on a new connection.
    AtOnce,
    /// Repeat at once at another endpoint.
    Elsewhere(Price),
    /// Repeat after a random part of `jitter` on top of `at_least`, if the budget allows.
    After {
        at_least: Duration,
        jitter: Duration,
    },
    /// Tell the client.
    Stop,
}

/// Says what may be done again with a request.
pub(crate) fn repeatable(
    operation: &Operation,
    method: &Method,
    headers: &HeaderMap,
    has_payload: bool,
) -> Repeatable {
    if has_payload {
        return Repeatable::Unsent;
    }
    let is_safe = match operation.name().effect() {
        Effect::Read => true,
        Effect::Write => method.is_safe(),
    };
    if is_safe || method.is_idempotent() && !is_conditional(headers) {
        Repeatable::Yes
    } else {
        Repeatable::WithoutEffect
    }
}

/// Whether a write has a condition: if it did succeed, it would fail when repeated.
pub(crate) fn is_conditional(headers: &HeaderMap) -> bool {
    CONDITIONS.iter().any(|name| headers.contains_key(name))
}

/// Decides what to do after a failed attempt.
pub(crate) fn verdict(
    trouble: Trouble,
    repeatable: Repeatable,
    (tries, elsewhere): (Tries, Elsewhere),
    settings: &Retries,
) -> Verdict {
    let at_once = match tries.stale_repeat {
        StaleRepeat::Unused => Verdict::AtOnce,
        StaleRepeat::Used => Verdict::Stop,
    };
    let has_more = tries.attempts < settings.attempts_max;
    let or_else = |price, alone| match elsewhere {
        _ if !has_more => Verdict::Stop,
        Elsewhere::Some => Verdict::Elsewhere(price),
        Elsewhere::None => alone,
    };
    let paused = |at_least| Verdict::After {
        at_least,
        jitter: pause_max(tries.attempts, settings.backoff),
    };
    match (trouble, repeatable) {
        (Trouble::StaleUnsent, _) | (Trouble::StaleClosed, Repeatable::Yes) => at_once,
        (Trouble::Unreachable, _) => or_else(Price::Free, paused(Duration::ZERO)),
        (Trouble::Unanswered, _) => or_else(Price::Free, Verdict::Stop),
        (Trouble::Closed, Repeatable::Yes) => or_else(Price::Paid, paused(Duration::ZERO)),
        (Trouble::ServerError | Trouble::Silent, Repeatable::Yes) => {
            or_else(Price::Paid, Verdict::Stop)
        }
        (Trouble::SlowDown(asked), Repeatable::Yes | Repeatable::WithoutEffect) => {
            let asked = asked.unwrap_or_default();
            let alone = if asked > PAUSE_MAX {
                Verdict::Stop
            } else {
                paused(asked)
            };
            or_else(Price::Paid, alone)
        }
        (
            Trouble::StaleClosed
            | Trouble::Closed
            | Trouble::ServerError
            | Trouble::Silent
            | Trouble::Final,
            _,
        )
        | (Trouble::SlowDown(_), Repeatable::Unsent) => Verdict::Stop,
    }
}

/// Bound of the pause after this many attempts.
pub(crate) fn pause_max(attempts: u32, backoff: Duration) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    backoff.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

/// Bounds repeats to a tenth of all requests, after a first burst.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In tenths of a repeat.
    tenths: AtomicU32,
    /// Shows what is left, in repeats.
    left: FloatGauge,
}

/// Repeats that may be made at once after a quiet time.
const BURST_TENTHS: u32 = 100;
const REPEAT_TENTHS: u32 = 10;

impl Budget {
    pub(crate) fn new(left: FloatGauge) -> Self {
        let budget = Self {
            tenths: AtomicU32::new(BURST_TENTHS),
            left,
        };
        budget.show(BURST_TENTHS);
        budget
    }

    /// Earns a tenth of a repeat, for a request that was answered.
    pub(crate) fn earn(&self) {
        // Reads first: a full budget, the usual case, costs no write to a shared cache line.
        if self.tenths.load(Ordering::Relaxed) < BURST_TENTHS {
            let before = self.tenths.fetch_add(1, Ordering::Relaxed);
            self.show(before + 1);
        }
    }

    /// Pays for a repeat, if there is enough.
    pub(crate) fn pay(&self) -> bool {
        let paid = self
            .tenths
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tenths| {
                tenths.checked_sub(REPEAT_TENTHS)
            });
        if let Ok(before) = paid {
            self.show(before - REPEAT_TENTHS);
        }
        paid.is_ok()
    }

    fn show(&self, tenths: u32) {
        self.left.set(f64::from(tenths) / f64::from(REPEAT_TENTHS));
    }
}

#[cfg(test)]
mod tests {
    use forebay_s3::{
        bucket::BucketName,
        key::ObjectKey,
        operation::{ObjectId, ReadObject},
    };
    use http::HeaderValue;

    use super::*;

    const FIRST: Tries = Tries {
        attempts: 1,
        stale_repeat: StaleRepeat::Unused,
    };

    fn paused(at_least: u64, jitter: u64) -> Verdict {
        Verdict::After {
            at_least: Duration::from_millis(at_least),
            jitter: Duration::from_millis(jitter),
        }
    }

    #[test]
    fn only_what_had_no_effect_or_may_have_it_twice_is_repeated() {
        use Repeatable::{Unsent, WithoutEffect, Yes};
        let (once, stop, pause) = (Verdict::AtOnce, Verdict::Stop, paused(0, 50));
        let (free, paid) = (
            Verdict::Elsewhere(Price::Free),
            Verdict::Elsewhere(Price::Paid),
        );
        let asking = |millis| Trouble::SlowDown(Some(Duration::from_millis(millis)));
        // For each kind of request: with no other endpoint, and with one.
        let rows = [
            (
                Trouble::StaleUnsent,
                [(once, once), (once, once), (once, once)],
            ),
            (
                Trouble::StaleClosed,
                [(once, once), (stop, stop), (stop, stop)],
            ),
            (
                Trouble::Unreachable,
                [(pause, free), (pause, free), (pause, free)],
            ),
            (
                Trouble::Unanswered,
                [(stop, free), (stop, free), (stop, free)],
            ),
            (Trouble::Closed, [(pause, paid), (stop, stop), (stop, stop)]),
            (
                Trouble::SlowDown(None),
                [(pause, paid), (pause, paid), (stop, stop)],
            ),
            (
                asking(1000),
                [
                    (paused(1000, 50), paid),
                    (paused(1000, 50), paid),
                    (stop, stop),
                ],
            ),
            (asking(2000), [(stop, paid), (stop, paid), (stop, stop)]),
            (
                Trouble::ServerError,
                [(stop, paid), (stop, stop), (stop, stop)],
            ),
            (Trouble::Silent, [(stop, paid), (stop, stop), (stop, stop)]),
            (Trouble::Final, [(stop, stop), (stop, stop), (stop, stop)]),
        ];
        for (trouble, verdicts) in rows {
            for (repeatable, (alone, with_another)) in
                [Yes, WithoutEffect, Unsent].into_iter().zip(verdicts)
            {
                for (elsewhere, expected) in
                    [(Elsewhere::None, alone), (Elsewhere::Some, with_another)]
                {
                    let tries = (FIRST, elsewhere);
                    let got = verdict(trouble, repeatable, tries, &Retries::default());
                    assert_eq!(got, expected, "{trouble:?} {repeatable:?} {elsewhere:?}");
                }
            }
        }
    }

    #[test]
    fn attempts_end_and_a_stale_connection_counts_once() {
        let settings = Retries::default();
        let third = Tries {
            attempts: 3,
            ..FIRST
        };
        for elsewhere in [Elsewhere::None, Elsewhere::Some] {
            let tries = (third, elsewhere);
            assert_eq!(
                verdict(Trouble::Unreachable, Repeatable::Yes, tries, &settings),
                Verdict::Stop
            );
        }
        let second = Tries {
            attempts: 2,
            stale_repeat: StaleRepeat::Used,
        };
        let tries = (second, Elsewhere::None);
        let again = verdict(Trouble::StaleUnsent, Repeatable::Yes, tries, &settings);
        assert_eq!(again, Verdict::Stop);
        let closed = verdict(Trouble::Closed, Repeatable::Yes, tries, &settings);
        assert_eq!(closed, paused(0, 100));
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let pauses: Vec<u64> = (1..8)
            .map(|attempts| pause_max(attempts, Duration::from_millis(50)))
            .map(|pause| u64::try_from(pause.as_millis()).unwrap())
            .collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn a_conditional_write_or_a_post_is_not_repeatable() {
        let object = || ObjectId {
            bucket: BucketName::parse("bucket").unwrap(),
            key: ObjectKey::parse("key").unwrap(),
            version: None,
        };
        let read = ReadObject {
            object: object(),
            range: None,
            part_number: None,
        };
        let none = HeaderMap::new();
        let mut conditional = HeaderMap::new();
        conditional.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        let delete = Operation::DeleteObject(object());
        let put = Operation::PutObject(object());
        let create = Operation::CreateMultipartUpload(object());
        let get = Operation::GetObject(read);
        let rows = [
            (&get, Method::GET, &conditional, false, Repeatable::Yes),
            (&delete, Method::DELETE, &none, false, Repeatable::Yes),
            (
                &delete,
                Method::DELETE,
                &conditional,
                false,
                Repeatable::WithoutEffect,
            ),
            (&put, Method::PUT, &none, false, Repeatable::Yes),
            (
                &put,
                Method::PUT,
                &conditional,
                false,
                Repeatable::WithoutEffect,
            ),
            (&put, Method::PUT, &none, true, Repeatable::Unsent),
            (
                &create,
                Method::POST,
                &none,
                false,
                Repeatable::WithoutEffect,
            ),
        ];
        for (operation, method, headers, has_payload, expected) in rows {
            assert_eq!(
                repeatable(operation, &method, headers, has_payload),
                expected
            );
        }
    }

    #[test]
    fn the_budget_allows_a_burst_then_a_tenth() {
        let budget = Budget::new(FloatGauge::default());
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 10);
        (0..25).for_each(|_| budget.earn());
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 2);
    }
}
