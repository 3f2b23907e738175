//! The filler: asks the origin, judges its answer, and stores what comes.
//!
//! A task of its own, so that no client's leaving ends it; it belongs to its fill, which the layer
//! aborts when it is dropped and nobody reads. Whatever way it ends, its readers are told
//! ([`EndOnDrop`]).
//!
//! Order of things: readers are woken with each piece before its page is copied into the cache,
//! and the record of a small object is stored with its page, in one entry, before the fill becomes
//! unknown: whoever comes finds the one or the other.

use std::{
    future::poll_fn,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};

use bytes::Bytes;
use forebay_store::{Body, Error, Request, Response};
use http_body::Body as HttpBody;
use tokio::task::JoinHandle;

use crate::{
    ask::Template,
    fill::{End, Fill, Flow, Head, PagePieces, Purpose, Source},
    headers::Behind,
    index::Stored,
    layer::Layer,
    plan::Method,
    policy::Keep,
    version::{self, Asked, Learned, Told, Version},
};

mod deposit;

use deposit::{Deposit, Shape, put_page};

/// How far a fill may be before its fastest reader (design: 4–8 MiB): what a 10 Gbit/s client
/// reads in 3 ms, so that a late wake-up of the filler costs it nothing.
pub(crate) const AHEAD_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The same for a fill that found no room in the budget: what a socket buffer holds.
const UNBUDGETED_AHEAD_BYTES_MAX: u64 = 256 * 1024;

/// Pages from this size on are copied aside, on a thread that serves nobody. At 1 MiB the copy
/// takes 30 µs of processor time in a backed slot, the usual one once the memory is full, and
/// handing it over and back 50 (example `miss` of this crate); in a hole it takes 0.3 ms.
const ASIDE_BYTES_MIN: u64 = 2 * 1024 * 1024;

enum Event {
    Bytes(Bytes),
    Ended,
    Failed(Error),
    Abandoned,
}

/// Tells the readers that no more will come, unless they have been told already.
struct EndOnDrop<'a> {
    layer: &'a Layer,
    fill: &'a Arc<Fill>,
}

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let object = &self.fill.object;
        let name_hash = self.layer.index.name_hash(&object.bucket, &object.key);
        self.layer.fills.remove(name_hash, self.fill);
        self.fill.end(End::Broken);
    }
}

/// Runs a fill that begins with a question to the origin.
pub(crate) async fn run(layer: Arc<Layer>, fill: Arc<Fill>, request: Request) {
    let _end = EndOnDrop {
        layer: &layer,
        fill: &fill,
    };
    ask(&layer, &fill, request).await;
}

/// Runs a fill of some bytes of a known version.
pub(crate) async fn run_extent(layer: Arc<Layer>, fill: Arc<Fill>, template: Template) {
    let _end = EndOnDrop {
        layer: &layer,
        fill: &fill,
    };
    let Purpose::Extent {
        version,
        range,
        source,
    } = &fill.purpose
    else {
        return;
    };
    if *source == Source::Disk
        && let Some(first) = layer.page_on_disk(version, range.start).await
    {
        match from_disk(&layer, &fill, (version, range.clone()), first, &template).await {
            Ok(()) => {}
            Err(why) => broke_off(&layer, &fill, why),
        }
        return;
    }
    let request = template.extent(version, range.clone(), layer.now());
    ask(&layer, &fill, request).await;
}

fn broke_off(layer: &Layer, fill: &Fill, why: &'static str) {
    layer.metrics.fills_failed.inc();
    tracing::debug!(key = %fill.object.key, why, "fill broke off");
}

/// What to note before the origin is asked. What is learned of a version's bytes is compared with
/// that version, so it is of the same generation.
fn asked(layer: &Layer, fill: &Fill) -> Asked {
    let asked = layer.asked(&fill.object, fill.stamp);
    match &fill.purpose {
        Purpose::Extent { version, .. }
        | Purpose::Learn {
            stale: Some(version),
            ..
        } => Asked {
            generation: version.generation,
            ..asked
        },
        Purpose::Learn { stale: None, .. } => asked,
    }
}

/// Asks the origin, and reads what it answers to the end.
async fn ask(layer: &Arc<Layer>, fill: &Arc<Fill>, request: Request) {
    layer.metrics.fills.inc();
    let asked = asked(layer, fill);
    fill.asks();
    let answer = layer.inner.call(request).await;
    fill.note_behind(Behind::of(&answer));
    let begun = match &fill.purpose {
        Purpose::Learn { stale, .. } => judge_learned(layer, fill, asked, stale.as_ref(), answer),
        Purpose::Extent { version, range, .. } => {
            judge_extent(layer, fill, asked, (version, range), answer)
        }
    };
    let Some((body, deposit)) = begun else { return };
    let covers = fill.covers();
    layer
        .metrics
        .extent_bytes
        .observe(covers.end - covers.start);
    if let Err(why) = pump(layer, fill, body, deposit.as_ref(), None).await {
        broke_off(layer, fill, why);
    }
}

/// Reads pages from the disk, `first` having been read already; what it turns out not to have, from
/// the origin.
async fn from_disk(
    layer: &Arc<Layer>,
    fill: &Arc<Fill>,
    (version, range): (&Arc<Version>, Range<u64>),
    first: Bytes,
    template: &Template,
) -> Result<(), &'static str> {
    let sizes = &layer.metrics.disk_extent_bytes;
    sizes.observe(range.end - range.start);
    let covers = range.clone();
    let (nothing, deposit) = begin(layer, fill, Arc::clone(version), covers, Body::empty());
    let (mut storing, mut position, mut page) = (None, range.start, Some(first));
    while let Some(bytes) = page {
        if !poll_fn(|cx| fill.poll_read_on(cx)).await {
            return Err("all readers left");
        }
        position += bytes.len() as u64;
        // The next page is read while this one is passed on.
        let next = async {
            let is_wanted = position < range.end;
            let page = is_wanted.then(|| layer.page_on_disk(version, position));
            match page {
                Some(page) => page.await,
                None => None,
            }
        };
        let arrived = arrived(layer, fill, deposit.as_ref(), bytes, storing);
        let (stored, next) = tokio::join!(arrived, next);
        (storing, page) = (stored?, next);
    }
    let rest = if position == range.end {
        nothing
    } else {
        layer.metrics.fills.inc();
        let asked = asked(layer, fill);
        let request = template.extent(version, position..range.end, layer.now());
        let answer = layer.inner.call(request).await;
        let learned = learned(layer, fill, asked, &answer);
        match (learned, answer) {
            (Some(found), Ok(response))
                if found.version.vid == version.vid && found.covers == (position..range.end) =>
            {
                response.body
            }
            (learned, answer) => {
                let found = learned.as_ref().map(|learned| &learned.version);
                if version::is_superseded(version, &answer, found) {
                    layer.forget(version);
                    fill.conclude(Head::Changed, None);
                }
                return Err("the disk broke off, and the origin has no more of it");
            }
        }
    };
    pump(layer, fill, rest, deposit.as_ref(), storing).await
}

/// What an answer tells of the object's version, if it is one that may be kept.
fn learned(
    layer: &Layer,
    fill: &Fill,
    asked: Asked,
    answer: &Result<Response, Error>,
) -> Option<Learned> {
    let response = answer.as_ref().ok()?;
    version::learn(Method::Get, &fill.object, asked, response, &layer.policies)
}

/// Judges the answer to a fill that wants to know the version.
fn judge_learned(
    layer: &Layer,
    fill: &Fill,
    asked: Asked,
    stale: Option<&Arc<Version>>,
    answer: Result<Response, Error>,
) -> Option<(Body, Option<Arc<Deposit>>)> {
    let learned = learned(layer, fill, asked, &answer);
    if let Some(stale) = stale {
        let found = learned.as_ref().map(|learned| &learned.version);
        if layer.validate(stale, asked, &answer, found) == Told::Unchanged {
            fill.conclude(Head::Unchanged(Arc::clone(stale)), None);
            return None;
        }
    }
    let Some(Learned { version, covers }) = learned else {
        let head = if version::is_failure(&answer) {
            Head::Failed
        } else {
            Head::Declined
        };
        fill.conclude(head, Some(answer));
        return None;
    };
    let body = answer.map_or_else(|_| Body::empty(), |response| response.body);
    Some(begin(layer, fill, Arc::new(version), covers, body))
}

/// Judges the answer to a fill that wants bytes of a known version.
fn judge_extent(
    layer: &Layer,
    fill: &Fill,
    asked: Asked,
    (version, range): (&Arc<Version>, &Range<u64>),
    answer: Result<Response, Error>,
) -> Option<(Body, Option<Arc<Deposit>>)> {
    let learned = learned(layer, fill, asked, &answer);
    if let Some(Learned {
        version: found,
        covers,
    }) = &learned
        && found.vid == version.vid
        && covers.start <= range.start
        && covers.end >= range.end
    {
        let body = answer.map_or_else(|_| Body::empty(), |response| response.body);
        return Some(begin(
            layer,
            fill,
            Arc::clone(version),
            covers.clone(),
            body,
        ));
    }
    layer.metrics.fills_failed.inc();
    if version::is_superseded(version, &answer, learned.as_ref().map(|l| &l.version)) {
        layer.forget(version);
        fill.conclude(Head::Changed, None);
    } else {
        fill.conclude(Head::Declined, Some(answer));
    }
    None
}

/// Lets the readers go, and says where the bytes go.
fn begin(
    layer: &Layer,
    fill: &Fill,
    version: Arc<Version>,
    covers: Range<u64>,
    body: Body,
) -> (Body, Option<Arc<Deposit>>) {
    let page_bytes = version.policy.page_bytes;
    let shape = if version.size_bytes <= page_bytes.get() {
        Shape::OnePage
    } else {
        Shape::ManyPages
    };
    let in_flight_bytes = (covers.end - covers.start).min(AHEAD_BYTES_MAX + 2 * page_bytes.get());
    let may_keep = version.policy.keep != Keep::No;
    let room = may_keep
        .then(|| layer.budget.try_reserve(in_flight_bytes))
        .flatten();
    let flow = if room.is_some() {
        Flow {
            ahead_bytes_max: AHEAD_BYTES_MAX,
            page_bytes: Some(page_bytes),
        }
    } else {
        if may_keep {
            layer.metrics.fills_unbudgeted.inc();
        }
        Flow {
            ahead_bytes_max: UNBUDGETED_AHEAD_BYTES_MAX,
            page_bytes: None,
        }
    };
    let learns = matches!(fill.purpose, Purpose::Learn { .. });
    if room.is_some() && learns && shape == Shape::ManyPages {
        layer.keep_record(&version);
    }
    let deposit = room.map(|room| {
        Arc::new(Deposit {
            version: Arc::clone(&version),
            shape,
            _room: room,
        })
    });
    fill.begin(version, covers, flow);
    (body, deposit)
}

/// Reads the body to its end, for the readers and for the cache.
async fn pump(
    layer: &Arc<Layer>,
    fill: &Arc<Fill>,
    mut body: Body,
    deposit: Option<&Arc<Deposit>>,
    mut storing: Option<JoinHandle<()>>,
) -> Result<(), &'static str> {
    loop {
        match next_event(fill, &mut body).await {
            Event::Bytes(bytes) => {
                layer.metrics.fill_bytes.inc_by(bytes.len() as u64);
                storing = arrived(layer, fill, deposit, bytes, storing).await?;
            }
            Event::Ended => {
                let page = fill.last_page().map_err(|_| "fewer bytes than announced")?;
                if let Some(page) = page {
                    storing = store(layer, fill, deposit, page, storing).await;
                } else if let Some(deposit) = deposit.filter(|d| d.version.size_bytes == 0) {
                    let version = Arc::new(deposit.version.with_page(Bytes::new()));
                    layer.keep_record(&version);
                }
                finished(storing).await;
                fill.end(End::Whole);
                return Ok(());
            }
            Event::Failed(error) => {
                tracing::debug!(%error, "fill's body broke off");
                return Err("the origin's body broke off");
            }
            Event::Abandoned => return Err("all readers left"),
        }
    }
}

/// Bytes have arrived: for the readers first, then for the cache.
async fn arrived(
    layer: &Arc<Layer>,
    fill: &Arc<Fill>,
    deposit: Option<&Arc<Deposit>>,
    bytes: Bytes,
    mut storing: Option<JoinHandle<()>>,
) -> Result<Option<JoinHandle<()>>, &'static str> {
    let pages = fill.push(bytes).map_err(|_| "more bytes than announced")?;
    readers_first().await;
    for page in pages {
        storing = store(layer, fill, deposit, page, storing).await;
    }
    Ok(storing)
}

async fn next_event(fill: &Fill, body: &mut Body) -> Event {
    poll_fn(|cx| {
        if !ready!(fill.poll_read_on(cx)) {
            return Poll::Ready(Event::Abandoned);
        }
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => Event::Ended,
                Some(Err(error)) => Event::Failed(error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => Event::Bytes(bytes),
                    // Trailers of a GET say nothing that S3 defines.
                    Err(_) => continue,
                },
            });
        }
    })
    .await
}

/// Lets the readers that were woken run before this goes on, if they are of the same thread: so the
/// first byte leaves at once, bytes are sent while they are still in the processor's cache, and
/// nobody waits while a page is copied.
async fn readers_first() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        // Not `yield_now`: that also looks at the sockets, which costs a system call.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Copies a page into the cache, a large one on a thread that serves nobody: one at a time, while
/// the next page arrives.
async fn store(
    layer: &Arc<Layer>,
    fill: &Arc<Fill>,
    deposit: Option<&Arc<Deposit>>,
    page: PagePieces,
    storing: Option<JoinHandle<()>>,
) -> Option<JoinHandle<()>> {
    let deposit = deposit?;
    finished(storing).await;
    if page.end - page.start < ASIDE_BYTES_MIN {
        store_now(layer, fill, deposit, &page);
        return None;
    }
    let (layer, fill, deposit) = (Arc::clone(layer), Arc::clone(fill), Arc::clone(deposit));
    Some(tokio::task::spawn_blocking(move || {
        store_now(&layer, &fill, &deposit, &page);
    }))
}

/// Waits for the page that is being stored. That it could not be is no fault of the fill.
async fn finished(storing: Option<JoinHandle<()>>) {
    let Some(storing) = storing else { return };
    if let Err(error) = storing.await {
        tracing::warn!(%error, "storing a page broke off");
    }
}

fn store_now(layer: &Layer, fill: &Fill, deposit: &Deposit, page: &PagePieces) {
    match put_page(layer, deposit, page) {
        Stored::Yes => {
            layer.metrics.page_bytes.observe(page.end - page.start);
            layer.metrics.stored.inc()
        }
        Stored::Outdated | Stored::NoRoom => layer.metrics.not_stored.inc(),
    };
    fill.settle(page.end);
}
