//! Answers that are kept whole: listings and what is said of buckets.
//!
//! | module | step |
//! |---|---|
//! | `name` | what an answer is to; or that the cache is not for it (pure) |
//! | `settings` | whether and for how long it is kept (pure) |
//! | `table` | what is kept and under way; eviction, invalidation |
//! | `flight` | one request to the origin, for all who wait for its answer |
//!
//! Such an answer has no validator, so one that may not be used is asked for anew. What is promised
//! to clients is in docs/semantics.md.

use std::{iter, sync::Arc};

use forebay_s3::operation::Operation;
use forebay_store::{Body, CacheStatus, Error, Forward, Request, Response};
use forebay_telemetry::cache::KeptEvent;
use http::{HeaderValue, StatusCode, header};

use crate::{
    answer,
    layer::Layer,
    plan::Directive,
    read,
    settings::{CacheSettings, Coherence, Directives},
};

pub(crate) mod flight;
pub(crate) mod name;
pub(crate) mod settings;
pub(crate) mod table;

use flight::Outcome;
use name::{Kind, Name};
use settings::Lifetime;
use table::{Before, Found, Kept, Take, Want};

/// Requests of others that one waits for in vain before it asks for itself alone.
const JOINS_MAX: u32 = 2;

/// The share of the cache's capacity that kept answers may take, as a divisor, if any are kept.
const SHARE_DIVISOR: u64 = 16;
/// And no more than this: some 200 listings of 1000 keys. A guess.
const SHARE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of a cache's capacity that are for kept answers.
pub(crate) fn share_bytes(settings: &CacheSettings) -> u64 {
    let kinds = [
        Kind::ListBuckets,
        Kind::HeadBucket,
        Kind::ListObjects,
        Kind::ListObjectsV2,
        Kind::ListObjectVersions,
    ];
    let modes = || {
        let rules = settings.rules.iter().map(|rule| rule.policy.coherence);
        rules.chain([settings.coherence])
    };
    let is_kept = |kind, mode| settings.kept.lifetime(kind, iter::once(mode)).is_some();
    if kinds
        .into_iter()
        .any(|kind| modes().any(|mode| is_kept(kind, mode)))
    {
        (settings.capacity_bytes / SHARE_DIVISOR).min(SHARE_BYTES_MAX)
    } else {
        0
    }
}

/// A request whose answer may be kept.
pub(crate) struct Asked {
    name: Arc<Name>,
    lifetime: Lifetime,
    directive: Directive,
}

impl Asked {
    /// What a request asks of the cache; `None` when it goes past.
    pub(crate) fn of(layer: &Layer, request: &Request) -> Option<Self> {
        let kind = Kind::of(&request.operation)?;
        let settings = &layer.settings;
        let modes = layer.policies.modes_of(request.operation.bucket());
        let lifetime = settings.kept.lifetime(kind, modes)?;
        let name = Name::of(kind, request).ok()?;
        if lifetime.ttl_ms.is_none() && !name.is_still()
            || is_in_doubt(layer, &request.operation)
            || is_unheard(layer, &request.operation)
        {
            return None;
        }
        let directive = match settings.client_directives {
            Directives::Honour => Directive::of(&request.headers),
            Directives::Ignore => Directive::None,
        };
        Some(Self {
            name: Arc::new(name),
            lifetime,
            directive,
        })
    }
}

/// Whether a write of unknown outcome may still change the answer.
fn is_in_doubt(layer: &Layer, operation: &Operation) -> bool {
    let bucket = operation.bucket();
    bucket.is_some_and(|bucket| layer.doubts.of_bucket_until_ms(bucket) > layer.now_ms())
}

/// Whether other gateways may have changed the answer unheard, where that counts.
fn is_unheard(layer: &Layer, operation: &Operation) -> bool {
    let mut modes = layer.policies.modes_of(operation.bucket());
    layer.others.is_unheard() && modes.any(|mode| mode == Coherence::Exclusive)
}

/// Answers with what is kept, with what others have asked for, or with what the origin says.
pub(crate) async fn answer(
    layer: Arc<Layer>,
    asked: Asked,
    mut request: Request,
) -> Result<Response, Error> {
    let Asked {
        name,
        lifetime,
        directive,
    } = asked;
    if directive == Directive::NoStore {
        return read::as_is(&layer, request, Forward::Request).await;
    }
    let take = match directive {
        Directive::None => Take::Any,
        Directive::Validate | Directive::NoStore => Take::New,
    };
    let count = |event| layer.metrics.kept.count(event, name.kind.as_str());
    for _ in 0..=JOINS_MAX {
        let want = Want {
            now_ms: layer.now_ms(),
            lifetime,
            take,
        };
        let (seat, before) = match layer.kept.find(&name, want) {
            Found::Answer(kept, left_ms) => {
                count(KeptEvent::Hit);
                let left_seconds = lifetime.ttl_ms.map(|_| left_ms / 1000);
                let status = CacheStatus {
                    ttl_seconds: left_seconds,
                    ..CacheStatus::hit(0)
                };
                return Ok(response(&kept, want.now_ms, status));
            }
            Found::Follower(seat) => {
                layer.metrics.collapsed.inc();
                let Outcome::Whole(kept) = seat.outcome().await else {
                    continue;
                };
                count(KeptEvent::Miss);
                let status = CacheStatus {
                    collapsed: true,
                    ..stored(Forward::UriMiss)
                };
                return Ok(response(&kept, layer.now_ms(), status));
            }
            Found::Leader(seat, before) => (seat, before),
        };
        count(KeptEvent::Miss);
        let forward = match (take, before) {
            (Take::New, _) => Forward::Request,
            (Take::Any, Before::Stale) => Forward::Stale,
            (Take::Any, Before::Nothing) => Forward::UriMiss,
        };
        // The answer is for others as well.
        for header in [
            header::ACCEPT_ENCODING,
            header::CACHE_CONTROL,
            header::PRAGMA,
        ] {
            request.headers.remove(header);
        }
        if take == Take::New {
            // Caches behind this one are to ask as well.
            let no_cache = HeaderValue::from_static("no-cache");
            request.headers.insert(header::CACHE_CONTROL, no_cache);
        }
        seat.start(&layer, request);
        let mut response = seat.answer().await?;
        response.cache = Some(CacheStatus {
            forward_status: Some(response.status.as_u16()),
            stored: flight::may_be_kept(&response, &layer.settings),
            ..CacheStatus::forward(forward)
        });
        return Ok(response);
    }
    count(KeptEvent::Miss);
    read::as_is(&layer, request, Forward::Miss).await
}

fn stored(forward: Forward) -> CacheStatus {
    CacheStatus {
        forward_status: Some(StatusCode::OK.as_u16()),
        stored: true,
        ..CacheStatus::forward(forward)
    }
}

/// A kept answer, for one client.
fn response(kept: &Kept, now_ms: i64, status: CacheStatus) -> Response {
    let mut response = Response::new(StatusCode::OK);
    response.headers = kept.headers.clone();
    let age_seconds = now_ms.saturating_sub(kept.asked_ms).max(0) / 1000;
    let is_new = status.collapsed && age_seconds == 0;
    answer::set_age(&mut response.headers, (!is_new).then_some(age_seconds));
    response.cache = Some(status);
    response.with_body(Body::from(kept.body.clone()))
}
