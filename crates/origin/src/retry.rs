//! Decides whether a failed attempt is repeated.
//!
//! | attempt | request | verdict |
//! |---|---|---|
//! | a pooled connection was closed, nothing written | any | again at once, on a new one, once |
//! | a pooled connection closed before any answer | repeatable | the same |
//! | connection refused, or none to be had | any | again after a pause |
//! | a new connection closed before any answer | repeatable | again after a pause |
//! | answer 503 | without payload | again after a pause, unless it asks for a longer one |
//! | connect or answer timed out | any | stop: the time is used up, and the origin is not helped |
//! | anything else | any | stop |
//!
//! *Repeatable* is a request without payload whose method is safe or idempotent (RFC 9110 §9.2)
//! and which has no condition: a conditional write that did succeed would fail when repeated.
//! A payload that was read even in part is gone, so such a request is never repeated.
//!
//! Pauses are full-jitter: a random part of a bound that doubles (AWS Architecture Blog,
//! "Exponential Backoff And Jitter"). Paused repeats take from a [`Budget`], so that an origin in
//! trouble sees at most a tenth more requests, not three times as many.
//!
//! Pure but for the budget's counter: no clock, no random source, no I/O.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use forebay_s3::operation::{Effect, Operation};
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
    /// A new connection closed before any answer.
    Closed,
    /// 503, with the pause that it asks for.
    SlowDown(Option<Duration>),
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

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Repeat at once on a new connection.
    AtOnce,
    /// Repeat after a random part of this time, if the budget allows.
    After(Duration),
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
    let is_conditional = CONDITIONS.iter().any(|name| headers.contains_key(name));
    if is_safe || method.is_idempotent() && !is_conditional {
        Repeatable::Yes
    } else {
        Repeatable::WithoutEffect
    }
}

/// Decides what to do after a failed attempt.
pub(crate) fn verdict(
    trouble: Trouble,
    repeatable: Repeatable,
    tries: Tries,
    settings: &Retries,
) -> Verdict {
    let at_once = match tries.stale_repeat {
        StaleRepeat::Unused => Verdict::AtOnce,
        StaleRepeat::Used => Verdict::Stop,
    };
    let paused = if tries.attempts < settings.attempts_max {
        Verdict::After(pause_max(tries.attempts, settings.backoff))
    } else {
        Verdict::Stop
    };
    match (trouble, repeatable) {
        (Trouble::StaleUnsent, _) | (Trouble::StaleClosed, Repeatable::Yes) => at_once,
        (Trouble::Unreachable, _) | (Trouble::Closed, Repeatable::Yes) => paused,
        (Trouble::SlowDown(asked), Repeatable::Yes | Repeatable::WithoutEffect) => {
            if asked.is_some_and(|asked| asked > PAUSE_MAX) {
                Verdict::Stop
            } else {
                paused
            }
        }
        (Trouble::StaleClosed | Trouble::Closed | Trouble::Final, _)
        | (Trouble::SlowDown(_), Repeatable::Unsent) => Verdict::Stop,
    }
}

/// Bound of the pause after this many attempts.
fn pause_max(attempts: u32, backoff: Duration) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    backoff.saturating_mul(1 << doublings).min(PAUSE_MAX)
}

/// Bounds paused repeats to a tenth of all requests, after a first burst.
#[derive(Debug)]
pub(crate) struct Budget {
    /// In tenths of a repeat.
    tenths: AtomicU32,
}

/// Repeats that may be made at once after a quiet time.
const BURST_TENTHS: u32 = 100;
const REPEAT_TENTHS: u32 = 10;

impl Budget {
    pub(crate) fn new() -> Self {
        Self {
            tenths: AtomicU32::new(BURST_TENTHS),
        }
    }

    /// Earns a tenth of a repeat, for a request that was answered.
    pub(crate) fn earn(&self) {
        // Reads first: a full budget, the usual case, costs no write to a shared cache line.
        if self.tenths.load(Ordering::Relaxed) < BURST_TENTHS {
            self.tenths.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pays for a repeat, if there is enough.
    pub(crate) fn pay(&self) -> bool {
        self.tenths
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |tenths| {
                tenths.checked_sub(REPEAT_TENTHS)
            })
            .is_ok()
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

    #[test]
    fn only_what_had_no_effect_or_may_have_it_twice_is_repeated() {
        use Repeatable::{Unsent, WithoutEffect, Yes};
        let pause = Verdict::After(Duration::from_millis(50));
        let (once, stop) = (Verdict::AtOnce, Verdict::Stop);
        let slow = Trouble::SlowDown(None);
        let patient = Trouble::SlowDown(Some(Duration::from_secs(2)));
        let rows = [
            (
                Trouble::StaleUnsent,
                [(Yes, once), (WithoutEffect, once), (Unsent, once)],
            ),
            (
                Trouble::StaleClosed,
                [(Yes, once), (WithoutEffect, stop), (Unsent, stop)],
            ),
            (
                Trouble::Unreachable,
                [(Yes, pause), (WithoutEffect, pause), (Unsent, pause)],
            ),
            (
                Trouble::Closed,
                [(Yes, pause), (WithoutEffect, stop), (Unsent, stop)],
            ),
            (slow, [(Yes, pause), (WithoutEffect, pause), (Unsent, stop)]),
            (
                patient,
                [(Yes, stop), (WithoutEffect, stop), (Unsent, stop)],
            ),
            (
                Trouble::Final,
                [(Yes, stop), (WithoutEffect, stop), (Unsent, stop)],
            ),
        ];
        for (trouble, verdicts) in rows {
            for (repeatable, expected) in verdicts {
                let got = verdict(trouble, repeatable, FIRST, &Retries::default());
                assert_eq!(got, expected, "{trouble:?} {repeatable:?}");
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
        assert_eq!(
            verdict(Trouble::Unreachable, Repeatable::Yes, third, &settings),
            Verdict::Stop
        );
        let second = Tries {
            attempts: 2,
            stale_repeat: StaleRepeat::Used,
        };
        let again = verdict(Trouble::StaleUnsent, Repeatable::Yes, second, &settings);
        assert_eq!(again, Verdict::Stop);
        let closed = verdict(Trouble::Closed, Repeatable::Yes, second, &settings);
        assert_eq!(closed, Verdict::After(Duration::from_millis(100)));
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
        let budget = Budget::new();
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 10);
        (0..25).for_each(|_| budget.earn());
        assert_eq!((0..20).filter(|_| budget.pay()).count(), 2);
    }
}
