//! Answers with what is stale, on purpose (RFC 5861), where the settings allow it.
//!
//! Only what is whole in memory: bytes that have to be fetched need the origin, which then may as
//! well say what is current. Only what answers the request: a refusal (412, 416) is never made of
//! something stale. And never to a client that asked for a validation.
//!
//! A stale answer is no use of the record: `tti` counts from the last answer that was fresh, or
//! readers could keep from being validated what they read often enough.

use std::sync::Arc;

use forebay_store::{CacheStatus, Forward, Response};

use super::{Reading, lacks_checksums};
use crate::{
    answer::{self, Answer},
    freshness::{Freshness, Stale},
    plan::Directive,
    revalidate::Begun,
    version::Version,
};

/// How something stale came to be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedStale {
    left_seconds: i64,
    why: Why,
}

#[derive(Debug, Clone, Copy)]
enum Why {
    WhileRevalidate,
    IfError,
}

impl UsedStale {
    /// How it is told: a hit where nobody was asked before the answer; else what became of the
    /// asking. RFC 9211 allows one of the two.
    pub(super) fn status(
        self,
        forward: Option<Forward>,
        forward_status: Option<u16>,
    ) -> CacheStatus {
        let (status, detail) = match self.why {
            Why::WhileRevalidate => (CacheStatus::hit(0), "stale-while-revalidate"),
            Why::IfError => {
                let status = CacheStatus::forward(forward.unwrap_or(Forward::Stale));
                (status, "stale-if-error")
            }
        };
        CacheStatus {
            forward_status: status.forward.and(forward_status),
            ttl_seconds: Some(self.left_seconds),
            detail: Some(detail),
            ..status
        }
    }
}

impl Reading {
    /// Answers with a stale version that is being validated from now on; `None` when it can't.
    pub(super) fn while_revalidate(
        &mut self,
        version: &Arc<Version>,
        stale: Stale,
    ) -> Option<Response> {
        let response = self.remembered(version)?;
        let layer = &self.layer;
        let begun = layer
            .revalidations
            .begin(layer, self.plan.part, &self.template, version);
        if begun == Begun::NoRoom {
            layer.metrics.revalidations_refused.inc();
            return None;
        }
        layer.metrics.stale_while_revalidate.inc();
        Some(self.stale_answer(version, response, stale, Why::WhileRevalidate))
    }

    /// Answers with a version in place of the origin, which has failed; `None` when it can't.
    pub(super) fn if_error(&mut self, version: &Arc<Version>) -> Option<Response> {
        // Judged now: it may have taken a while to fail.
        let Freshness::Stale(stale) = version.freshness(self.layer.moment()) else {
            return None;
        };
        let response = stale.if_error.then(|| self.remembered(version)).flatten()?;
        self.layer.metrics.stale_if_error.inc();
        Some(self.stale_answer(version, response, stale, Why::IfError))
    }

    fn stale_answer(
        &mut self,
        version: &Version,
        response: Response,
        stale: Stale,
        why: Why,
    ) -> Response {
        let metrics = &self.layer.metrics;
        let age_ms = version.ages(self.layer.moment()).validated_ms;
        let mode = version.policy.coherence.mode();
        metrics.staleness.observe(mode, age_ms);
        metrics
            .hit_bytes
            .inc_by(response.body.length().unwrap_or(0));
        self.used_stale = Some(UsedStale {
            left_seconds: stale.left_seconds,
            why,
        });
        response
    }

    /// The answer to this request as far as memory has all of it.
    fn remembered(&self, version: &Arc<Version>) -> Option<Response> {
        if self.plan.directive != Directive::None || lacks_checksums(&self.plan, version) {
            return None;
        }
        let layer = &self.layer;
        let moment = layer.moment();
        let now_ms = moment.now_ms;
        let age_seconds = version.ages(moment).validated_ms.max(0) / 1000;
        let (response, range) = match answer::answer(&self.plan, version, Some(age_seconds)) {
            Answer::Refused(_) => return None,
            Answer::Empty(response) => return Some(response),
            Answer::Body(response, range) => (response, range),
        };
        if let Some(body) = layer.body_from_pages(version, range.clone(), now_ms) {
            return Some(response.with_body(body));
        }
        let has_all = layer.has_pages(version, &range);
        has_all.then(|| response.with_body(self.stream(Arc::clone(version), range, None)))
    }
}
