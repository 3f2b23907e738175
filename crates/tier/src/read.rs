//! Reads of one object: bytes, head, attributes, tags.

use std::sync::Arc;

use forebay_native::{
    hot::{Held, HotKey, Want},
    refuse,
};
use forebay_s3::operation::{ObjectId, Operation};
use forebay_store::{Error, Request, Response, Store as _};
use forebay_telemetry::tier::Saved;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::{
    ledger::{self, Look},
    request::{copy_of, names_version},
    tier::{Side, Tier},
    view::{Seen, View},
};

/// With this header a client says that it follows a redirect to the cold store.
const REDIRECT_HEADER: HeaderName = HeaderName::from_static("x-forebay-redirect");

/// Looks again at a key that others write while the cold store answers.
const LOOKS_MAX: usize = 8;

/// Answers a read: hot, then cold. An object only ever goes from hot to cold, so looking in that
/// order misses none. When the record has changed by the time the cold store has answered, the
/// answer may be one that a later write has hidden already, so all is asked again.
pub(crate) async fn read(
    tier: &Arc<Tier>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    if names_version(object) {
        return cold(tier, request).await;
    }
    let want = if let Operation::GetObject(_) = &request.operation {
        Want::Payload
    } else {
        Want::Value
    };
    let key = HotKey::from(object);
    let mut held = tier.held(&key, want).await?;
    for _ in 0..LOOKS_MAX {
        match ledger::look(held.as_ref().map(|held| &held.record)) {
            Look::Cold => {}
            Look::Gone => {
                tier.saved(Saved::Read);
                return Err(refuse::no_such_key(&object.key));
            }
            Look::Object(_) => return hot(tier, request, (key, held)).await,
        }
        if let Some(response) = redirect(tier, copy_of(&request), object).await {
            return Ok(response);
        }
        let answer = cold(tier, copy_of(&request)).await;
        let now = tier.held(&key, want).await?;
        if now.as_ref().map(|now| now.sequence) == held.as_ref().map(|held| held.sequence) {
            return answer;
        }
        held = now;
    }
    Err(Error::SlowDown { retry_after: None })
}

/// Answers from the hot store, or from the cold one when the object has gone there meanwhile.
pub(crate) async fn hot(
    tier: &Arc<Tier>,
    request: Request,
    (key, held): (HotKey, Option<Held>),
) -> Result<Response, Error> {
    // Bytes that are here can't go away, so there is no second try to prepare for.
    let is_whole = held.as_ref().is_some_and(|held| held.payload.is_some());
    let again = (!is_whole).then(|| copy_of(&request));
    let store = View::store(tier, Seen::key(key, held));
    match store.call(request).await {
        Err(Error::SlowDown { .. }) if store.engine().has_turned_cold() => match again {
            Some(again) => cold(tier, again).await,
            None => Err(Error::SlowDown { retry_after: None }),
        },
        answer => {
            tier.saved(Saved::Read);
            Ok(tier.tell(Side::Hot, answer?))
        }
    }
}

/// Sends a request to the cold store as it is.
pub(crate) async fn cold(tier: &Tier, request: Request) -> Result<Response, Error> {
    let response = tier.cold.store.call(request).await?;
    Ok(tier.tell(Side::Cold, response))
}

/// Sends a client that says it can to the cold store itself, where the object is large.
async fn redirect(tier: &Tier, mut head: Request, object: &ObjectId) -> Option<Response> {
    let bytes_min = tier.settings.redirect_bytes_min?;
    let presigner = tier.presigner.as_ref()?;
    if head.headers.get(REDIRECT_HEADER)? != "allow" {
        return None;
    }
    let Operation::GetObject(read) = &mut head.operation else {
        return None;
    };
    read.range = None;
    head.operation = Operation::HeadObject(read.clone());
    head.method = Method::HEAD;
    head.headers.remove(header::RANGE);
    let query = head.query.clone();
    let answer = tier.cold.store.call(head).await.ok()?;
    let length = answer.headers.get(header::CONTENT_LENGTH)?;
    let length: u64 = length.to_str().ok()?.parse().ok()?;
    if answer.status != StatusCode::OK || length < bytes_min {
        return None;
    }
    let address = presigner.presign(object, &query).await?;
    tier.metrics.redirects.inc();
    let mut response = Response::new(StatusCode::TEMPORARY_REDIRECT);
    let location = HeaderValue::try_from(address).ok()?;
    response.headers.insert(header::LOCATION, location);
    // The address is good for this client and for a while only.
    let private = HeaderValue::from_static("no-store");
    response.headers.insert(header::CACHE_CONTROL, private);
    Some(tier.tell(Side::Cold, response))
}
