//! Two gateways before one origin, which tell each other what they write.

pub(super) mod hub;
mod model;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_disk::memory::MemoryPages;
use forebay_store::{
    Body, Error, Request, Response, Store,
    changes::{Changed, Changes},
    contract::requests::{self, Answer, Builder, bucket_name},
    faulty::Fault,
};
use forebay_telemetry::cache::{Heard, Telling as Told, Untold};
use http::StatusCode;
use http_body::{Body as HttpBody, Frame};
use tokio::{
    sync::mpsc::{self, Receiver},
    task::JoinHandle,
};

use super::{
    disk::part,
    origin::{Fixture, KIB, Setup, soon},
};
use crate::{CacheLayer, Coherence, Matching, Place, Policy, Rule};
use hub::{EVENTS_MAX, Hub, Telling};

/// Places at the hub.
const HERE: usize = 0;
const THERE: usize = 1;

/// A gateway, another one, and what they hear each other by.
struct Pair {
    here: Fixture,
    there: Arc<CacheLayer>,
    hub: Arc<Hub>,
    place: Arc<hub::Place>,
}

impl Pair {
    /// Both of them hear each other.
    async fn new(coherence: Coherence) -> Self {
        Self::of(Setup::with(coherence), Setup::with(coherence)).await
    }

    async fn of(here: Setup, there: Setup) -> Self {
        let hub = Arc::new(Hub::default());
        let place = hub.place();
        let changes = Arc::clone(&place) as Arc<dyn Changes>;
        let here = Setup {
            changes: Some(changes),
            ..here
        };
        let here = here.build().await;
        let there = Setup {
            changes: Some(hub.place()),
            clock: here.clock.clone(),
            ..there
        };
        let there = Arc::new(there.over(Arc::clone(&here.origin) as Arc<dyn Store>));
        let pair = Self {
            here,
            there,
            hub,
            place,
        };
        pair.join(HERE).await;
        pair.join(THERE).await;
        pair
    }

    /// A gateway hears and tells again; time passes by a little, as moments are told apart by it.
    async fn join(&self, index: usize) {
        self.hub.join(index);
        soon(self.hub.heard()).await;
        self.here.clock.advance(Duration::from_millis(1));
    }

    async fn cut(&self, index: usize) {
        self.hub.cut(index);
        soon(self.hub.heard()).await;
    }

    async fn put(&self, key: &str, body: &'static str) {
        let put = requests::put("bucket", key).body(body);
        put.expect(200, &*self.here.cache).await;
    }

    /// Reads at the other gateway; what it brings is stored when this returns.
    async fn read(&self, key: &str) -> Answer {
        let answer = requests::get("bucket", key).expect(200, &*self.there).await;
        self.settle().await;
        answer
    }

    /// Begins to read at the other gateway.
    fn read_aside(&self, key: &'static str) -> JoinHandle<Answer> {
        let cache = Arc::clone(&self.there);
        tokio::spawn(async move { requests::get("bucket", key).expect(200, &*cache).await })
    }

    async fn settle(&self) {
        while self.there.layer.fills.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// What the origin is asked when the other gateway reads, and the bytes.
    async fn asked_by(&self, key: &str) -> (Vec<String>, Bytes) {
        self.here.asked();
        let body = self.read(key).await.body;
        (self.here.asked(), body)
    }
}

fn object(key: &str) -> Changed {
    Changed::Object {
        bucket: bucket_name("bucket"),
        key: key.to_owned(),
    }
}

fn bounded() -> Coherence {
    super::origin::settings().coherence
}

#[tokio::test]
async fn what_one_gateway_writes_another_shows_in_every_mode_at_once() {
    type Write = fn() -> Builder;
    let writes: [(&str, Write); 5] = [
        ("put", || requests::put("bucket", "key").body("new")),
        ("copy", || {
            requests::copy(("bucket", "other"), ("bucket", "key"))
        }),
        ("delete", || requests::delete("bucket", "key")),
        ("delete many", || {
            requests::delete_many("bucket", &["gone", "key"])
        }),
        ("tags", || {
            requests::put_tags("bucket", "key", &[("a", "b")])
        }),
    ];
    for coherence in [bounded(), Coherence::Exclusive, Coherence::Immutable] {
        for (name, write) in writes {
            let pair = Pair::new(coherence).await;
            for key in ["key", "other"] {
                pair.here.put(key, 100 * KIB).await;
                pair.read(key).await;
            }
            pair.here.asked();
            write().send(&*pair.here.cache).await.unwrap();
            pair.here.asked();
            drop(requests::head("bucket", "key").send(&*pair.there).await);
            assert!(!pair.here.asked().is_empty(), "{name} {coherence:?}");
            let (asked, _) = pair.asked_by("other").await;
            assert_eq!(asked, [""; 0], "{name} {coherence:?}");
        }
    }
}

#[tokio::test]
async fn listings_are_dropped_by_what_others_write() {
    let pair = Pair::new(Coherence::Exclusive).await;
    let listed = async || {
        let answer = requests::list_v2("bucket").expect(200, &*pair.there).await;
        answer.text().matches("<Key>").count()
    };
    assert_eq!(listed().await, 0);
    pair.here.asked();
    assert_eq!(listed().await, 0);
    assert_eq!(pair.here.asked(), [""; 0], "it is kept");
    pair.put("key", "new").await;
    assert_eq!(listed().await, 1);
    assert_eq!(
        pair.there.layer.metrics.changes.heard_total(Heard::Object),
        1
    );
    requests::delete("bucket", "key")
        .expect(204, &*pair.here.cache)
        .await;
    requests::delete_bucket("bucket")
        .expect(204, &*pair.here.cache)
        .await;
    let gone = requests::list_v2("bucket");
    assert_eq!(gone.refusal(&*pair.there).await, "NoSuchBucket");
    assert_eq!(
        pair.there.layer.metrics.changes.heard_total(Heard::Prefix),
        1
    );
}

#[tokio::test]
async fn a_fill_begun_before_a_write_elsewhere_is_not_stored_after_it() {
    for size_bytes in [1000, 300 * KIB] {
        let pair = Pair::new(Coherence::Exclusive).await;
        let old = pair.here.put("key", size_bytes).await;
        pair.here.origin.gate.close_at(500);
        let begun = requests::get("bucket", "key").call(&*pair.there).await;
        pair.put("key", "new").await;
        // Who comes after the write does not join the fill from before it.
        let after = soon(requests::get("bucket", "key").expect(200, &*pair.there));
        assert_eq!(after.await.body, "new");
        pair.here.origin.gate.open();
        let (body, _) = begun.unwrap().body.collect(usize::MAX).await.unwrap();
        assert!(body == old, "it began before");
        pair.settle().await;
        let (asked, body) = pair.asked_by("key").await;
        assert_eq!((asked.len(), &*body), (0, &b"new"[..]));
    }
}

#[tokio::test]
async fn what_lies_on_disk_is_removed_when_another_gateway_writes() {
    let memory = Setup::with(Coherence::Exclusive);
    let mut there = memory.clone();
    let policy = Policy {
        place: Place::Disk,
        ..there.settings.policy()
    };
    let matching = Matching::default();
    there.settings.rules = vec![Rule { matching, policy }];
    there.disk = Some(part(Arc::new(MemoryPages::new())));
    let pair = Pair::of(memory, there).await;
    pair.put("key", "old").await;
    pair.read("key").await;
    let (asked, body) = pair.asked_by("key").await;
    assert_eq!((asked.len(), &*body), (0, &b"old"[..]));
    pair.put("key", "new").await;
    assert_eq!(pair.read("key").await.body, "new");
    assert_eq!(pair.asked_by("key").await.0, [""; 0]);
    pair.cut(THERE).await;
    let (asked, _) = pair.asked_by("key").await;
    assert_eq!(asked, ["GET key if-none-match"], "as in memory");
}

#[tokio::test]
async fn while_others_are_not_heard_each_hit_is_validated() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.read("key").await;
    assert_eq!(pair.asked_by("key").await.0, [""; 0]);
    pair.cut(THERE).await;
    for _ in 0..2 {
        let (asked, _) = pair.asked_by("key").await;
        assert_eq!(asked, ["GET key if-none-match"]);
    }
    pair.put("key", "new").await;
    assert_eq!(pair.read("key").await.body, "new", "it did not hear of it");
    let (asked, _) = pair.asked_by("key").await;
    assert_eq!(asked, ["GET key if-none-match"], "nor is that trusted");
    // What has no validator is asked for each time.
    for _ in 0..2 {
        requests::list_v2("bucket").expect(200, &*pair.there).await;
    }
    assert_eq!(pair.here.asked().len(), 2);
    pair.here.clock.advance(Duration::from_secs(9));
    pair.join(THERE).await;
    let time = pair.there.layer.metrics.changes.unheard_total();
    assert!(time >= Duration::from_secs(9), "{time:?}");
    let (asked, _) = pair.asked_by("key").await;
    assert_eq!(asked, ["GET key if-none-match"], "once more");
    assert_eq!(pair.asked_by("key").await.0, [""; 0], "then trusted again");
}

#[tokio::test]
async fn what_was_written_unheard_is_seen_afterwards() {
    let pair = Pair::new(Coherence::Exclusive).await;
    for key in ["kept", "filled"] {
        pair.put(key, "old").await;
    }
    pair.read("kept").await;
    requests::list_v2("bucket").expect(200, &*pair.there).await;
    pair.cut(THERE).await;
    pair.here.origin.hold();
    pair.here.asked();
    let before = pair.read_aside("filled");
    pair.here.origin.was_asked(1).await;
    for key in ["kept", "filled", "third"] {
        pair.here.put_bytes(key, b"new".to_vec()).await;
    }
    pair.join(THERE).await;
    let after = pair.read_aside("filled");
    pair.here.origin.was_asked(2).await;
    pair.here.origin.let_go();
    assert_eq!(before.await.unwrap().body, "old");
    assert_eq!(
        after.await.unwrap().body,
        "new",
        "it joins no question from before"
    );
    pair.settle().await;
    for key in ["kept", "filled"] {
        assert_eq!(pair.read(key).await.body, "new");
        assert_eq!(pair.read(key).await.body, "new");
    }
    let listing = requests::list_v2("bucket").expect(200, &*pair.there).await;
    assert_eq!(listing.text().matches("<Key>").count(), 3);
}

#[tokio::test]
async fn a_reader_who_comes_while_others_are_not_heard_joins_no_question_from_before() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.cut(THERE).await;
    pair.here.origin.hold();
    pair.here.asked();
    let before = pair.read_aside("key");
    pair.here.origin.was_asked(1).await;
    pair.here.put_bytes("key", b"new".to_vec()).await;
    let after = pair.read_aside("key");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    pair.here.origin.let_go();
    assert_eq!(before.await.unwrap().body, "old");
    assert_eq!(after.await.unwrap().body, "new");
    pair.settle().await;
}

#[tokio::test]
async fn bounded_goes_on_by_its_ttl_while_others_are_not_heard() {
    let pair = Pair::new(bounded()).await;
    pair.put("key", "old").await;
    pair.read("key").await;
    pair.cut(THERE).await;
    pair.put("key", "new").await;
    assert_eq!(pair.asked_by("key").await, (vec![], "old".into()));
    pair.here.clock.advance(Duration::from_mins(1));
    assert_eq!(pair.read("key").await.body, "new");
}

#[tokio::test]
async fn changes_for_which_there_was_no_room_are_as_if_unheard() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.read("key").await;
    pair.here.put_bytes("key", b"new".to_vec()).await;
    for index in 0..EVENTS_MAX {
        pair.hub.pass_on(HERE, &object(&format!("other{index}")));
    }
    pair.hub.pass_on(HERE, &object("key"));
    soon(pair.hub.heard()).await;
    let heard = pair.there.layer.metrics.changes.heard_total(Heard::Object);
    assert_eq!(heard, 1 + EVENTS_MAX as u64, "the last one was lost");
    assert_eq!(pair.read("key").await.body, "new");
    pair.join(THERE).await;
    pair.read("key").await;
    assert_eq!(pair.asked_by("key").await.0, [""; 0]);
}

#[tokio::test]
async fn what_could_not_be_told_is_told_once_that_is_possible() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.read("key").await;
    pair.cut(HERE).await;
    pair.put("key", "new").await;
    pair.put("other", "new").await;
    let metrics = &pair.here.metrics().changes;
    let untold = [Untold::Error, Untold::NotTried].map(|untold| metrics.untold_total(untold));
    assert_eq!(untold, [1, 1], "after a failure there is no use in trying");
    assert_eq!(pair.read("key").await.body, "old", "it has not heard of it");
    pair.join(HERE).await;
    soon(async {
        while metrics.told_total(Told::Late) < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(pair.read("key").await.body, "new");
    pair.put("key", "newer").await;
    assert_eq!(metrics.told_total(Told::Written), 2, "as before");
    assert_eq!(pair.read("key").await.body, "newer");
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_for_others_to_be_told_but_not_for_long() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.hub.telling(HERE, Telling::Hangs);
    let begun = tokio::time::Instant::now();
    pair.put("key", "new").await;
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(2));
    let metrics = &pair.here.metrics().changes;
    assert_eq!(metrics.untold_total(Untold::Timeout), 1);
    // Tried again by itself.
    pair.hub.telling(HERE, Telling::Works);
    pair.here.clock.advance(Duration::from_secs(1));
    while metrics.told_total(Told::Late) == 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(pair.hub.take_told(), [object("key")]);
}

#[tokio::test]
async fn others_are_told_of_a_write_whose_client_has_left() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.hub.take_told();
    pair.read("key").await;
    {
        let mut put = Box::pin(
            requests::put("bucket", "key")
                .body("new")
                .call(&*pair.here.cache),
        );
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(put.as_mut().poll(cx)));
        assert!(
            polled.await.is_pending(),
            "the client leaves before the answer"
        );
    }
    pair.here.put_bytes("key", b"new".to_vec()).await;
    soon(async {
        while pair.hub.take_told() != [object("key")] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(pair.read("key").await.body, "new");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_unknown_outcome_is_told_again_while_it_may_come() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.here.origin.store.script([Fault::AnswerLost]);
    drop(
        requests::put("bucket", "key")
            .body("lost")
            .send(&*pair.here.cache)
            .await,
    );
    assert_eq!(pair.hub.take_told(), [object("key")], "at once");
    assert_eq!(pair.read("key").await.body, "lost");
    // It comes again, as writes do that a proxy repeats.
    pair.here.put_bytes("key", b"late".to_vec()).await;
    assert_eq!(pair.read("key").await.body, "lost");
    let mut told_at_s = Vec::new();
    for second in 0..1000 {
        pair.here.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        if !pair.hub.take_told().is_empty() {
            told_at_s.push(second + 1);
        }
    }
    assert_eq!(told_at_s, [1, 3, 7, 15, 31, 63, 127, 255, 511, 900]);
    assert_eq!(pair.read("key").await.body, "late");
}

#[tokio::test]
async fn a_write_without_effect_is_not_told() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("key", "old").await;
    pair.hub.take_told();
    let refused = requests::put("bucket", "key").header("if-none-match", "*");
    assert_eq!(
        refused.refusal(&*pair.here.cache).await,
        "PreconditionFailed"
    );
    pair.here.origin.store.script([Fault::Unavailable]);
    drop(requests::put("bucket", "key").send(&*pair.here.cache).await);
    let upload = requests::create_upload("bucket", "key")
        .expect(200, &*pair.here.cache)
        .await;
    let upload_id = upload.element("UploadId");
    let part = requests::upload_part("bucket", "key", &upload_id, 1).body("part");
    let part = part.expect(200, &*pair.here.cache).await;
    assert_eq!(pair.hub.take_told(), []);
    let parts = [(1, part.etag())];
    let complete = requests::complete_upload("bucket", "key", &upload_id, &parts);
    complete.expect(200, &*pair.here.cache).await;
    assert_eq!(pair.hub.take_told(), [object("key")]);
}

#[tokio::test]
async fn a_delete_of_many_is_told_many_at_a_time() {
    let pair = Pair::new(Coherence::Exclusive).await;
    let keys: Vec<_> = (0..1000).map(|index| format!("key{index}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let delete = requests::delete_many("bucket", &keys);
    delete.expect(200, &*pair.here.cache).await;
    assert_eq!(pair.hub.take_told().len(), 1000);
    assert_eq!(pair.hub.most_at_once(), 64);
}

/// An origin that says 200 at once, and the rest as the test has it.
struct Slow(parking_lot::Mutex<Option<Receiver<&'static str>>>);

struct Pieces(Receiver<&'static str>);

#[async_trait::async_trait]
impl Store for Slow {
    async fn call(&self, _: Request) -> Result<Response, Error> {
        let pieces = self.0.lock().take().unwrap();
        Ok(Response::new(StatusCode::OK).with_body(Body::stream(Pieces(pieces))))
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = |piece: &'static str| Ok(Frame::data(Bytes::from(piece)));
        self.0.poll_recv(cx).map(|piece| piece.map(frame))
    }
}

/// Goal: the client can't learn that a write is done before others are told, also when the answer
/// began long before.
#[tokio::test(start_paused = true)]
async fn what_an_answer_says_after_white_space_waits_for_others_to_be_told() {
    let hub = Arc::new(Hub::default());
    let setup = Setup {
        changes: Some(hub.place()),
        ..Setup::with(Coherence::Exclusive)
    };
    let (pieces, receiver) = mpsc::channel(8);
    let cache = setup.over(Arc::new(Slow(Some(receiver).into())));
    hub.join(HERE);
    soon(hub.heard()).await;
    let complete = requests::complete_upload("bucket", "key", "id", &[(1, "\"a\"")]);
    let mut body = complete.call(&cache).await.unwrap().body;
    for space in [" ", "\n"] {
        pieces.try_send(space).unwrap();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((frame, hub.take_told()), (space.into(), vec![]));
    }
    hub.telling(HERE, Telling::Hangs);
    pieces.try_send("<Done/>").unwrap();
    {
        let mut frame = Box::pin(body.frame());
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(frame.as_mut().poll(cx)));
        assert!(polled.await.is_pending(), "others are being told");
        let frame = frame.await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, "<Done/>", "for a second at most");
    }
    drop(pieces);
    assert!(body.frame().await.is_none());
    drop(cache);
}

#[tokio::test]
async fn a_prefix_told_by_others_counts_for_its_bucket() {
    let pair = Pair::new(Coherence::Exclusive).await;
    pair.put("a/key", "old").await;
    pair.read("a/key").await;
    let changed = Changed::Prefix {
        bucket: bucket_name("bucket"),
        prefix: "a/".to_owned(),
    };
    pair.place.tell(changed).await.unwrap();
    assert_eq!(pair.asked_by("a/key").await.0, ["GET a/key"]);
}

#[tokio::test]
async fn without_others_nothing_is_told_and_nothing_waits() {
    let fixture = Setup::with(Coherence::Exclusive).build().await;
    fixture.origin.store.script([Fault::AnswerLost]);
    drop(
        requests::put("bucket", "key")
            .body("x")
            .send(&*fixture.cache)
            .await,
    );
    let metrics = &fixture.metrics().changes;
    let counts = [
        Untold::Error,
        Untold::Timeout,
        Untold::NotTried,
        Untold::Unnamed,
    ];
    assert_eq!(counts.map(|untold| metrics.untold_total(untold)), [0; 4]);
    assert!(!fixture.cache.layer.others.is_unheard());
}

#[tokio::test]
async fn the_tasks_end_with_the_layer() {
    let pair = Pair::new(Coherence::Exclusive).await;
    let layer = Arc::downgrade(&pair.there.layer);
    drop(pair.there);
    soon(async {
        while layer.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
