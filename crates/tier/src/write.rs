//! Writes of one object: put, copy, tags, delete.

use std::sync::Arc;

use forebay_native::{
    gate::Gate,
    hot::{Held, Holding, HotBytes, HotKey, Want},
    refuse,
};
use forebay_s3::{
    operation::{CopyObject, ObjectId},
    xml,
};
use forebay_store::{Error, Request, Response, Store as _};
use forebay_telemetry::tier::Degradation;

use crate::{
    buckets::BucketKind,
    direct::{self, Telling},
    ledger::{self, DeleteWay, Look, PutWay},
    placement::{self, Placement},
    read::cold,
    request::{Whole, names_version},
    tier::{Level, Side, Tier},
    view::{Seen, View},
};

/// Where a write goes once all is known.
enum Way {
    Hot(Seen),
    Cold,
}

/// Decides where an object of `size_bytes` goes that belongs in the hot store.
///
/// # Errors
/// `NoSuchBucket`, what the gate refuses, and whatever keeps the stores from being asked.
async fn way(tier: &Tier, object: &ObjectId, gate: &Gate, size_bytes: u64) -> Result<Way, Error> {
    let now = tier.clock.now();
    match tier.buckets.kind(&object.bucket, &tier.cold, now).await? {
        BucketKind::Missing => return Err(refuse::no_such_bucket(&object.bucket)),
        BucketKind::NotForTier => {
            tier.metrics.degraded(Degradation::Bucket);
            return Ok(Way::Cold);
        }
        BucketKind::Plain => {}
    }
    if tier.is_draining() {
        tier.metrics.degraded(Degradation::Drain);
        return Ok(Way::Cold);
    }
    let full = tier.level(size_bytes) == Level::Full;
    if gate.is_open() && !full {
        return Ok(Way::Hot(Seen::Nothing));
    }
    let key = HotKey::from(object);
    let held = tier.held(&key, Want::Value).await?;
    let record = held.as_ref().map(|held| &held.record);
    if ledger::put(record, gate, &object.key)? == PutWay::Cold {
        return Ok(Way::Cold);
    }
    // What replaces a dirty object of its size or more adds nothing to what is dirty.
    let fits = matches!(
        ledger::look(record),
        Look::Object(object) if object.size_bytes >= size_bytes
    );
    if full && !fits {
        tier.metrics.degraded(Degradation::Budget);
        tier.wake.notify_one();
        return Ok(Way::Cold);
    }
    Ok(Way::Hot(Seen::key(key, held)))
}

/// `PutObject`.
pub(crate) async fn put(
    tier: &Arc<Tier>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    let size_bytes = placement::size_of(&request.headers, &request.body);
    let placed = placement::place(object, &request.headers, size_bytes, &tier.settings);
    let (Placement::Hot, Some(size_bytes)) = (placed, size_bytes) else {
        return direct::write(tier, request, object, Telling::Status).await;
    };
    let gate = Gate::from_headers(&request.headers)?;
    let seen = match way(tier, object, &gate, size_bytes).await? {
        Way::Cold => return direct::write(tier, request, object, Telling::Status).await,
        Way::Hot(seen) => seen,
    };
    let whole = Whole::read(request, size_bytes, &tier.budget).await?;
    let store = View::store(tier, seen);
    match store.call(whole.again()).await {
        Ok(response) => Ok(tier.tell(Side::Hot, response)),
        Err(error @ (Error::SlowDown { .. } | Error::Unavailable { .. })) => {
            if !store.engine().has_turned_cold() {
                give_way(tier, object, error).await?;
            }
            direct::write(tier, whole.again(), object, Telling::Status).await
        }
        Err(error) => Err(error),
    }
}

/// Lets a write go to the cold store that the hot store did not take, if it has nothing of the key
/// that the cold store lacks; else the two would be in disorder.
///
/// # Errors
/// The hot store's error, when it has, or can't say.
async fn give_way(tier: &Tier, object: &ObjectId, error: Error) -> Result<(), Error> {
    let held = tier.held(&HotKey::from(object), Want::Value).await?;
    match held.map(|held| held.record.holding) {
        None | Some(Holding::Settling(_)) => {
            tier.metrics.hot_errors.inc();
            tier.metrics.degraded(Degradation::HotStore);
            Ok(())
        }
        Some(
            Holding::Dirty(_) | Holding::Conflict { .. } | Holding::Tombstone | Holding::Buried(_),
        ) => Err(error),
    }
}

/// `CopyObject`: within the hot store where the source is there and the target belongs there, else
/// by the cold store, to which the source is brought first.
pub(crate) async fn copy(
    tier: &Arc<Tier>,
    request: Request,
    copy: &CopyObject,
) -> Result<Response, Error> {
    let source_key = HotKey::from(&copy.source);
    let source = if names_version(&copy.source) {
        None
    } else {
        tier.held(&source_key, Want::Payload).await?
    };
    match ledger::look(source.as_ref().map(|held| &held.record)) {
        Look::Cold => return direct::write(tier, request, &copy.object, Telling::Body).await,
        Look::Gone => return Err(refuse::no_such_key(&copy.source.key)),
        Look::Object(record) => {
            let (headers, size) = (&request.headers, Some(record.size_bytes));
            let placed = placement::place(&copy.object, headers, size, &tier.settings);
            let gate = Gate::from_headers(headers)?;
            let goes_hot = placed == Placement::Hot
                && matches!(
                    way(tier, &copy.object, &gate, record.size_bytes).await?,
                    Way::Hot(_)
                );
            if !goes_hot {
                direct::flush(tier, &source_key).await?;
                return direct::write(tier, request, &copy.object, Telling::Body).await;
            }
        }
    }
    let again = crate::request::copy_of(&request);
    let store = View::store(tier, Seen::key(source_key, source));
    match store.call(request).await {
        Err(Error::SlowDown { .. }) if store.engine().has_turned_cold() => {
            direct::write(tier, again, &copy.object, Telling::Body).await
        }
        answer => Ok(tier.tell(Side::Hot, answer?)),
    }
}

/// `PutObjectTagging`, `DeleteObjectTagging`.
pub(crate) async fn retag(
    tier: &Arc<Tier>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    let key = HotKey::from(object);
    if names_version(object) {
        return cold(tier, request).await;
    }
    let held = tier.held(&key, Want::Value).await?;
    match ledger::look(held.as_ref().map(|held| &held.record)) {
        Look::Cold => cold(tier, request).await,
        Look::Gone => Err(refuse::no_such_key(&object.key)),
        Look::Object(_) => {
            let bytes_max = xml::DOCUMENT_BYTES_MAX as u64;
            let whole = Whole::read(request, bytes_max, &tier.budget).await?;
            let store = View::store(tier, Seen::key(key, held));
            match store.call(whole.again()).await {
                Err(Error::SlowDown { .. }) if store.engine().has_turned_cold() => {
                    cold(tier, whole.again()).await
                }
                answer => Ok(tier.tell(Side::Hot, answer?)),
            }
        }
    }
}

/// `DeleteObject`.
pub(crate) async fn delete(
    tier: &Arc<Tier>,
    request: Request,
    object: &ObjectId,
) -> Result<Response, Error> {
    if names_version(object) {
        return direct::write(tier, request, object, Telling::Status).await;
    }
    let key = HotKey::from(object);
    let gate = Gate::from_headers(&request.headers)?;
    let held = tier.held(&key, Want::Value).await?;
    let record = held.as_ref().map(|held| &held.record);
    match ledger::delete(record, &gate, &object.key)? {
        DeleteWay::Cold => cold(tier, request).await,
        DeleteWay::ColdThenBury => delete_then_bury(tier, request, (&key, held)).await,
        DeleteWay::Entomb => {
            let again = crate::request::copy_of(&request);
            let store = View::store(tier, Seen::key(key, held));
            match store.call(request).await {
                Err(Error::SlowDown { .. }) if store.engine().has_turned_cold() => {
                    cold(tier, again).await
                }
                answer => Ok(tier.tell(Side::Hot, answer?)),
            }
        }
    }
}

/// Lets the cold store judge a delete, and then keeps what comes late from undoing it.
async fn delete_then_bury(
    tier: &Arc<Tier>,
    request: Request,
    (key, held): (&HotKey, Option<Held>),
) -> Result<Response, Error> {
    let response = cold(tier, request).await?;
    if response.status.is_success() {
        let at_ms = tier.cold.now_ms();
        let buried = Holding::Buried(at_ms + tier.settle_ms());
        let record = held.as_ref().map(|held| &held.record);
        let next = ledger::after(record, tier.next_write(), at_ms, buried);
        let to = Some((next, HotBytes::None));
        // Where the record has changed, somebody has written since, and the key is not gone.
        tier.swap(key, held.as_ref(), to).await?;
    }
    Ok(response)
}
