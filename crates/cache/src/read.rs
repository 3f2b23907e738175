//! Answers reads of objects.
//!
//! [`hit`] is the short way: record and pages are here and fresh. Everything else goes through
//! [`read`], which learns what version there is, if need be, and answers from pages, from fills
//! under way and from fills of its own. A client's request that finds nothing stored becomes one
//! origin request.

use std::sync::Arc;

use forebay_s3::operation::{ObjectId, Operation};
use forebay_store::{CacheStatus, Error, Forward, Request, Response};
use http::StatusCode;

use crate::{
    answer::{self, Answer},
    ask::{Ask, Template},
    fill::{Attachment, Fill, Head, Purpose, Role},
    fills::Joined,
    freshness::{self, Freshness},
    headers::{self, Behind},
    layer::Layer,
    plan::{ChecksumMode, Directive, Part, Plan},
    policy::Planned,
    version::{self, Checksums, Version},
};

mod body;
pub(crate) mod head;
mod stale;

use body::Found;
use stale::UsedStale;

/// Fills of others that a request waits for in vain before it asks for itself alone.
const JOINS_MAX: u32 = 2;
/// Times that an object may change under a request before anything of it was sent.
const RESTARTS_MAX: u32 = 1;

/// What `Cache-Status` says of a hit for which the disk was read.
const FROM_DISK: &str = "disk";

/// Answers from memory, or says `None`.
pub(crate) fn hit(
    layer: &Arc<Layer>,
    plan: &Plan,
    object: &ObjectId,
    request: &Request,
) -> Option<Result<Response, Error>> {
    let moment = layer.moment();
    let now_ms = moment.now_ms;
    let version = layer.index.version(object, now_ms)?;
    let ages = version.ages(moment);
    let coherence = version.policy.coherence;
    let Freshness::Fresh { left_seconds } = freshness::judge(coherence, ages) else {
        return None;
    };
    if plan.directive != Directive::None || lacks_checksums(plan, &version) {
        return None;
    }
    let age_seconds = ages.validated_ms.max(0) / 1000;
    let (mut response, range) = match answer::answer(plan, &version, Some(age_seconds)) {
        Answer::Refused(error) => return Some(Err(error)),
        Answer::Empty(response) => (response, 0..0),
        Answer::Body(response, range) => (response, range),
    };
    response.body = layer.body_from_pages(&version, range.clone(), now_ms)?;
    if version.page.is_none() && matches!(plan.part, Part::Range(_)) {
        let template = || Template::of(object, &request.headers, plan.directive, &request.caller);
        layer.read_ahead(&version, &range, template);
    }
    version.used(now_ms);
    layer.shadow_read(&version, &range, now_ms);
    let mode = coherence.mode();
    layer.metrics.staleness.observe(mode, ages.validated_ms);
    layer
        .metrics
        .hit_bytes
        .inc_by(response.body.length().unwrap_or(0));
    response.cache = Some(hit_status(left_seconds));
    Some(Ok(response))
}

fn hit_status(left_seconds: Option<i64>) -> CacheStatus {
    CacheStatus {
        ttl_seconds: left_seconds,
        ..CacheStatus::hit(0)
    }
}

/// Whether the client asked for checksums that the record does not know.
fn lacks_checksums(plan: &Plan, version: &Version) -> bool {
    plan.checksums == ChecksumMode::Enabled
        && matches!(plan.part, Part::Head | Part::Whole)
        && matches!(version.checksums, Checksums::Unknown)
}

/// One request on its way through [`read`].
struct Reading {
    layer: Arc<Layer>,
    plan: Plan,
    planned: Planned,
    template: Template,
    joins: u32,
    restarts: u32,
    /// Why it goes forward, once it is known.
    forward: Option<Forward>,
    forward_status: Option<u16>,
    collapsed: bool,
    /// The origin has vouched for what is stored on behalf of this request.
    validated: bool,
    /// Freshness left, where nothing had to be asked.
    left_seconds: Option<i64>,
    /// What `Cache-Status` says of a hit besides.
    hit_detail: Option<&'static str>,
    used_stale: Option<UsedStale>,
    /// `Cache-Status` of the caches behind this one, of what was asked last.
    behind: Behind,
}

/// What a reader's place at a fill is worth to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// The origin is asked after the reader came: what it answers may be passed on.
    Answer,
    /// The origin was asked before. It is a version to ask for, and bytes if that still holds.
    Hint,
}

/// What became of one try.
enum Try {
    Done(Response),
    /// Something changed: look again.
    Again,
    /// The answer can't be kept and is not what the client asked for: ask in its own words.
    AskAsIs,
}

/// Answers a read that is no hit.
pub(crate) async fn read(
    layer: Arc<Layer>,
    plan: Plan,
    request: Request,
) -> Result<Response, Error> {
    let (Operation::GetObject(read) | Operation::HeadObject(read)) = &request.operation else {
        return layer.inner.call(request).await;
    };
    if plan.directive == Directive::NoStore {
        return as_is(&layer, request, Forward::Request).await;
    }
    let planned = layer.policies.planned(&read.object);
    if !planned.may_keep {
        return as_is(&layer, request, Forward::Bypass).await;
    }
    let template = Template::of(
        &read.object,
        &request.headers,
        plan.directive,
        &request.caller,
    );
    let mut reading = Reading {
        layer: Arc::clone(&layer),
        plan,
        planned,
        template,
        joins: 0,
        restarts: 0,
        forward: None,
        forward_status: None,
        collapsed: false,
        validated: false,
        left_seconds: None,
        hit_detail: None,
        used_stale: None,
        behind: Behind::default(),
    };
    loop {
        match reading.attempt().await? {
            Try::Done(mut response) => {
                reading.mark(&mut response);
                return Ok(response);
            }
            Try::Again => {}
            Try::AskAsIs => {
                let forward = reading.forward.unwrap_or(Forward::Miss);
                return as_is(&layer, request, forward).await;
            }
        }
    }
}

/// Sends a request to the store below, past the cache.
pub(crate) async fn as_is(
    layer: &Layer,
    request: Request,
    forward: Forward,
) -> Result<Response, Error> {
    let mut response = layer.inner.call(request).await?;
    let forward_status = Some(response.status.as_u16());
    response.cache = Some(CacheStatus {
        forward_status,
        ..CacheStatus::forward(forward)
    });
    Ok(response)
}

impl Reading {
    async fn attempt(&mut self) -> Result<Try, Error> {
        let layer = Arc::clone(&self.layer);
        let moment = layer.moment();
        let stored = layer.index.version(self.template.object(), moment.now_ms);
        let stored = match stored {
            Some(version) => Some(version),
            None => self.load().await,
        };
        let Some(version) = stored else {
            self.forward.get_or_insert(Forward::UriMiss);
            return self.ask(None).await;
        };
        match version.freshness(moment) {
            Freshness::Fresh { left_seconds } => self.left_seconds = left_seconds,
            Freshness::Stale(_) if self.validated => {}
            Freshness::Stale(stale) => {
                if stale.while_revalidate
                    && let Some(response) = self.while_revalidate(&version, stale)
                {
                    return Ok(Try::Done(response));
                }
                self.forward.get_or_insert(Forward::Stale);
                return self.ask(Some(version)).await;
            }
        }
        if self.plan.directive == Directive::Validate && !self.validated {
            self.forward.get_or_insert(Forward::Request);
            return self.ask(Some(version)).await;
        }
        if lacks_checksums(&self.plan, &version) {
            self.forward.get_or_insert(Forward::Partial);
            return self.complete(&version).await;
        }
        self.answer(version, None).await
    }

    /// The record from the disk.
    async fn load(&mut self) -> Option<Arc<Version>> {
        let version = self.layer.load(self.template.object()).await?;
        self.hit_detail = Some(FROM_DISK);
        Some(version)
    }

    /// Asks the origin what there is.
    async fn ask(&mut self, stored: Option<Arc<Version>>) -> Result<Try, Error> {
        if self.plan.part == Part::Head {
            return self.ask_head(stored).await;
        }
        let (mut stale, mut hint) = (stored.clone(), None);
        loop {
            let (attachment, worth) = self.enter(stale.as_ref());
            self.validated = true;
            let head = attachment.head().await;
            self.behind = attachment.fill().behind();
            match head {
                Head::Version(version) if worth == Worth::Hint => {
                    (stale, hint) = (Some(version), Some(attachment));
                }
                Head::Unchanged(version) if worth == Worth::Hint => stale = Some(version),
                Head::Version(version) => {
                    let whole = attachment.covers() == (0..version.size_bytes);
                    let status = if whole {
                        StatusCode::OK
                    } else {
                        StatusCode::PARTIAL_CONTENT
                    };
                    self.forward_status = Some(status.as_u16());
                    if lacks_checksums(&self.plan, &version) {
                        return self.complete(&version).await;
                    }
                    return self.answer(version, Some(attachment)).await;
                }
                Head::Unchanged(version) => {
                    self.forward_status = Some(StatusCode::NOT_MODIFIED.as_u16());
                    if lacks_checksums(&self.plan, &version) {
                        return self.complete(&version).await;
                    }
                    return self.answer(version, hint).await;
                }
                Head::Failed => {
                    let stored = stored.as_ref();
                    return match stored.and_then(|stored| self.if_error(stored)) {
                        Some(response) => {
                            let own_answer = attachment.take_own_answer();
                            let status = own_answer.as_ref().and_then(version::status);
                            self.forward_status = status.map(|status| status.as_u16());
                            Ok(Try::Done(response))
                        }
                        None => self.declined(&attachment),
                    };
                }
                Head::Declined | Head::Changed | Head::Awaited => {
                    return self.declined(&attachment);
                }
            }
        }
    }

    /// Takes a place at a fill that tells what there is, and begins it if there is none.
    fn enter(&mut self, stale: Option<&Arc<Version>>) -> (Attachment, Worth) {
        let (joined, worth) = self.join(stale);
        match joined {
            Joined::Follower(attachment) => {
                self.layer.metrics.collapsed.inc();
                self.collapsed = true;
                (attachment, worth)
            }
            Joined::Leader(attachment) => {
                let ask = stale.map_or(Ask::AsTheClient, |stale| Ask::Unless(stale));
                let page_bytes = self.planned.page_bytes;
                let now = self.layer.now();
                let request = self.template.learn(self.plan.part, ask, page_bytes, now);
                self.layer.start(&attachment, request);
                (attachment, Worth::Answer)
            }
        }
    }

    /// Joins a fill that learns the version, or begins one. A request with conditions of its own
    /// begins one for itself, as the origin's answer to it may be of no use to others.
    ///
    /// Where each read is promised what the origin has when it comes, what a fill under way brings
    /// may be older than the question: such a reader joins one whose request is not sent yet, so
    /// that those who come together ask once. Without any version to ask for it waits for that of
    /// a fill under way, and then asks for that: the body is fetched once, however many come.
    fn join(&self, stale: Option<&Arc<Version>>) -> (Joined, Worth) {
        let layer = &self.layer;
        let object = self.template.object();
        let begin = || {
            let purpose = Purpose::Learn {
                stale: stale.cloned(),
                directive: self.plan.directive,
            };
            Fill::new(object.clone(), purpose, layer.index.stamp(object))
        };
        let alone = stale.is_none() && self.plan.conditions.is_some();
        if alone || self.joins >= JOINS_MAX {
            return (
                Joined::Leader(begin().attach(0, Role::Leader)),
                Worth::Answer,
            );
        }
        let name_hash = layer.index.name_hash(&object.bucket, &object.key);
        // Not what was learned so long ago, by a fill with slow readers, that it is stale.
        let moment = layer.moment();
        let is_fresh =
            |version: &Version| matches!(version.freshness(moment), Freshness::Fresh { .. });
        let is_unheard = self.planned.is_exclusive && layer.others.is_unheard();
        let asks_anew =
            self.plan.directive == Directive::Validate || self.planned.asks_anew || is_unheard;
        let mut worth = Worth::Answer;
        // Nor what was read before a write to a reader that comes after it.
        let is_current = |fill: &Fill| {
            let may_be_older = fill.has_asked() || !fill.gets_past(self.plan.directive);
            let worth_of_fill = if asks_anew && may_be_older {
                Worth::Hint
            } else {
                Worth::Answer
            };
            let may_join = layer.index.is_current(&fill.stamp)
                && if asks_anew {
                    worth_of_fill == Worth::Answer || stale.is_none()
                } else {
                    fill.version().is_none_or(|version| is_fresh(&version))
                };
            if may_join {
                worth = worth_of_fill;
            }
            may_join
        };
        let joined = layer.fills.learn(name_hash, object, 0, is_current, begin);
        (joined, worth)
    }

    /// The answer can't be shared: the request that asked takes it, any other asks again.
    fn declined(&mut self, attachment: &Attachment) -> Result<Try, Error> {
        let Some(own_answer) = attachment.take_own_answer() else {
            self.joins += 1;
            self.validated = false;
            self.behind = Behind::default();
            return Ok(Try::Again);
        };
        let response = own_answer?;
        self.forward_status = Some(response.status.as_u16());
        if response.status.is_success() && matches!(self.plan.part, Part::Range(_)) {
            return Ok(Try::AskAsIs);
        }
        Ok(Try::Done(answer::adapt(&self.plan, response)))
    }

    /// Answers with a version that may answer.
    async fn answer(
        &mut self,
        version: Arc<Version>,
        attachment: Option<Attachment>,
    ) -> Result<Try, Error> {
        let moment = self.layer.moment();
        let now_ms = moment.now_ms;
        let age_ms = version.ages(moment).validated_ms;
        let age_seconds = age_ms / 1000;
        version.used(now_ms);
        let mode = version.policy.coherence.mode();
        self.layer.metrics.staleness.observe(mode, age_ms);
        let from_store = self.validated && age_seconds <= 0;
        let age_seconds = (!from_store).then_some(age_seconds.max(0));
        match answer::answer(&self.plan, &version, age_seconds) {
            Answer::Refused(error) => Err(error),
            Answer::Empty(response) => Ok(Try::Done(response)),
            Answer::Body(response, range) => {
                let asked = (Arc::clone(&version), range.clone());
                Ok(match self.body(version, range, attachment).await? {
                    Found::Body(body) => {
                        self.layer.shadow_read(&asked.0, &asked.1, now_ms);
                        Try::Done(response.with_body(body))
                    }
                    Found::Response(other) => Try::Done(answer::adapt(&self.plan, other)),
                    Found::Changed => Try::Again,
                })
            }
        }
    }

    /// Says in the answer what the cache did.
    fn mark(&self, response: &mut Response) {
        // What a record makes has none yet; an answer that passes has its own.
        if !response.headers.contains_key(headers::CACHE_STATUS) {
            self.behind.add_to(&mut response.headers);
        }
        response.cache = Some(match (self.used_stale, self.forward) {
            (Some(used), forward) => used.status(forward, self.forward_status),
            (None, None) => CacheStatus {
                detail: self.hit_detail,
                ..hit_status(self.left_seconds)
            },
            (None, Some(reason)) => CacheStatus {
                forward_status: self.forward_status,
                stored: response.status.is_success(),
                collapsed: self.collapsed,
                ..CacheStatus::forward(reason)
            },
        });
    }
}
