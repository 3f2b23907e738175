//! Single histories, each of which a mirror could get wrong.

use std::{
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_s3::{code::Code, operation::Effect};
use forebay_store::{
    Body, Error, Request, Response,
    contract::{
        bodies,
        requests::{
            bucket_name, copy, create_bucket, delete, delete_bucket, get, get_tags, head,
            head_bucket, put, put_tags,
        },
        sample_bytes,
    },
};
use forebay_telemetry::mirror::{Fallback, WriteResult};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Semaphore;

use super::*;
use crate::{
    MemberState,
    journal::{Entry, Intent, Standing, Subject, WriteKind},
    members::MemberId,
};

/// How a member behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    /// It can't be reached.
    Out,
    /// Writes wait until they may go on; those that are given up meanwhile do not happen.
    Waits,
    /// Writes are never answered.
    Hangs,
    /// The next write is done, and not said.
    LosesAnswer,
    /// It lets nobody in.
    Denies,
    /// The next write is not answered, and arrives after half a minute.
    IsLate,
}

/// A member whose behaviour is set.
struct Member {
    home: Arc<MemoryStore>,
    mood: Mutex<Mood>,
    may_go: Semaphore,
    calls: AtomicU64,
}

impl Member {
    fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for Member {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let writes = request.operation.name().effect() == Effect::Write;
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Out => Err(Error::Unavailable {
                reason: "injected".into(),
            }),
            Mood::Denies => Err(Error::refused(Code::AccessDenied)),
            Mood::Waits if writes => {
                self.may_go.acquire().await.unwrap().forget();
                self.home.call(request).await
            }
            Mood::Hangs if writes => std::future::pending().await,
            Mood::LosesAnswer if writes => {
                self.is(Mood::Well);
                self.home.call(request).await?;
                Err(Error::Indeterminate {
                    elapsed: Duration::ZERO,
                })
            }
            Mood::IsLate if writes => {
                self.is(Mood::Well);
                let home = Arc::clone(&self.home);
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    home.call(request).await
                });
                Err(Error::Indeterminate {
                    elapsed: Duration::ZERO,
                })
            }
            Mood::Well | Mood::Waits | Mood::Hangs | Mood::LosesAnswer | Mood::IsLate => {
                self.home.call(request).await
            }
        }
    }
}

/// A mirror of three, of which two must have a write.
struct Scene {
    world: World,
    members: Vec<Arc<Member>>,
    mirror: MirrorStore,
    _ticking: Ticking,
}

impl Scene {
    async fn new() -> Self {
        let world = World::with_bucket(3).await;
        let member = |home: &Arc<MemoryStore>| {
            Arc::new(Member {
                home: Arc::clone(home),
                mood: Mutex::new(Mood::Well),
                may_go: Semaphore::new(0),
                calls: AtomicU64::default(),
            })
        };
        let members: Vec<_> = world.homes.iter().map(member).collect();
        let mirror = Self::gateway(&world, &members);
        Self {
            _ticking: world.ticking(),
            world,
            members,
            mirror,
        }
    }

    fn gateway(world: &World, members: &[Arc<Member>]) -> MirrorStore {
        let stores = members
            .iter()
            .map(|member| Arc::clone(member) as Arc<dyn Store>);
        let who = (Gateways::One, "g1");
        world.gateway_before(stores.collect(), MirrorSettings::default(), who)
    }

    /// The gateway ends where it is, and begins anew.
    fn crash(&mut self) {
        self.mirror = Self::gateway(&self.world, &self.members);
    }

    async fn put(&self, key: &str, text: &'static str) {
        put("bucket", key)
            .body(text)
            .expect(200, &self.mirror)
            .await;
    }

    /// What the mirror answers; nothing for an object that is not there.
    async fn read(&self, key: &str) -> Option<String> {
        let answer = get("bucket", key).send(&self.mirror).await;
        match answer {
            Ok(answer) => Some(answer.text()),
            Err(Error::Refused(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// What each member holds.
    async fn homes(&self, key: &str) -> Vec<Option<String>> {
        let mut found = Vec::new();
        for home in &self.world.homes {
            let answer = get("bucket", key).send(&**home).await;
            found.push(answer.ok().map(|answer| answer.text()));
        }
        found
    }

    /// Waits until each member holds this, and nobody owes anything.
    async fn all_hold(&self, key: &str, text: Option<&str>) {
        let repairer = self.mirror.repairer();
        for _ in 0..400 {
            repairer.turn().await.unwrap();
            let places = self.mirror.operator().shared.journal.queue(None, 1).await;
            if places.unwrap().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let expected = vec![text.map(str::to_owned); 3];
        assert_eq!(self.homes(key).await, expected, "{key}");
        let status = self.mirror.operator().status().await.unwrap();
        assert_eq!(status.journal_keys, 0);
    }

    /// Waits until all that was acknowledged early is done.
    async fn rest(&self) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn entry(&self, key_name: &str) -> Option<Entry> {
        let subject = Subject::Object(key(key_name));
        let held = self.mirror.operator().shared.held(&subject).await;
        held.unwrap().map(|held| held.entry)
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what is read")]
fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_a_member_missed_while_it_was_out_is_brought_to_it_in_the_end() {
    let scene = Scene::new().await;
    scene.put("k", "old").await;
    scene.put("gone", "old").await;
    scene.members[2].is(Mood::Out);
    scene.put("k", "new").await;
    delete("bucket", "gone").expect(204, &scene.mirror).await;
    put_tags("bucket", "k", &[("a", "1")])
        .expect(200, &scene.mirror)
        .await;
    scene.rest().await;
    let status = scene.mirror.operator().status().await.unwrap();
    assert_eq!(
        (status.journal_keys, status.members[2].pending_keys),
        (2, 2)
    );
    scene.members[2].is(Mood::Well);
    // It is asked for other keys at once, and for these not before it has them.
    assert_eq!(scene.read("k").await, some("new"));
    assert_eq!(scene.read("gone").await, None);
    assert_eq!(scene.homes("gone").await[2], some("old"));
    scene.all_hold("k", Some("new")).await;
    scene.all_hold("gone", None).await;
    let tags = get_tags("bucket", "k")
        .expect(200, &*scene.world.homes[2])
        .await;
    assert_eq!(tags.elements("Key"), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn with_too_few_members_nothing_is_sent() {
    let scene = Scene::new().await;
    for out in [0, 1] {
        scene.members[out].is(Mood::Out);
    }
    // They are known to be out after some failures.
    for _ in 0..3 {
        let repairer = scene.mirror.repairer();
        repairer.turn().await.unwrap();
        drop(put("bucket", "other").body("x").send(&scene.mirror).await);
        scene.rest().await;
    }
    let refused = put("bucket", "k").body("new").send(&scene.mirror).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.homes("k").await, [None, None, None]);
    assert_eq!(scene.entry("k").await, None);
    let status = scene.mirror.operator().status().await.unwrap();
    assert_eq!(status.members[0].state, MemberState::Down);
    let calls = scene.members[0].calls();
    assert_eq!(scene.read("k").await, None);
    assert_eq!(
        scene.members[0].calls(),
        calls,
        "one that is down is left alone"
    );
    scene
        .members
        .iter()
        .for_each(|member| member.is(Mood::Well));
    scene.mirror.repairer().turn().await.unwrap();
    scene.put("k", "new").await;
    let metrics = &scene.mirror.operator().shared.metrics;
    assert_eq!(metrics.writes(WriteResult::Acknowledged), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_too_few_took_is_not_acknowledged_and_ends_alike_everywhere() {
    let scene = Scene::new().await;
    scene.put("k", "old").await;
    scene.rest().await;
    scene.members[0].is(Mood::Out);
    scene.members[1].is(Mood::Out);
    let unknown = put("bucket", "k").body("new").send(&scene.mirror).await;
    assert!(
        matches!(unknown, Err(Error::Indeterminate { .. })),
        "{unknown:?}"
    );
    scene
        .members
        .iter()
        .for_each(|member| member.is(Mood::Well));
    assert_eq!(scene.read("k").await, some("new"), "one certainly has it");
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_leaves_no_write_half_done() {
    let scene = Scene::new().await;
    scene
        .members
        .iter()
        .for_each(|member| member.is(Mood::Waits));
    let write = put("bucket", "k").body("new").send(&scene.mirror);
    let gone = tokio::time::timeout(Duration::from_millis(100), write).await;
    assert!(gone.is_err(), "it waits for its members");
    for member in &scene.members {
        member.may_go.add_permits(1);
    }
    scene.rest().await;
    assert_eq!(
        scene.homes("k").await,
        [some("new"), some("new"), some("new")]
    );
    assert_eq!(scene.entry("k").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_changes_nothing_anywhere() {
    let scene = Scene::new().await;
    scene.put("k", "old").await;
    scene.rest().await;
    for (size, cut_bytes) in [(1000, 700), (5 << 20, 3 << 20)] {
        let body = breaks_off(size, cut_bytes);
        let broken = put("bucket", "k").body(body).send(&scene.mirror).await;
        assert!(broken.is_err());
        scene.rest().await;
        assert_eq!(
            scene.homes("k").await,
            [some("old"), some("old"), some("old")]
        );
        assert_eq!(scene.entry("k").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stands_still_does_not_hold_up_a_long_body() {
    let scene = Scene::new().await;
    scene.members[1].is(Mood::Hangs);
    let bytes = contract_bytes(5 << 20);
    let body = bodies::in_pieces(&bytes, 100_000);
    put("bucket", "k")
        .body(body)
        .expect(200, &scene.mirror)
        .await;
    assert!(scene.entry("k").await.is_some());
    let answer = get("bucket", "k").expect(200, &scene.mirror).await;
    assert!(answer.body == bytes);
    scene.members[1].is(Mood::Well);
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.mirror.repairer().turn().await.unwrap();
    let answer = get("bucket", "k").expect(200, &*scene.world.homes[1]).await;
    assert!(answer.body == bytes);
}

/// A body of known length that ends too early.
fn breaks_off(size: usize, cut_bytes: u64) -> Body {
    struct Cut(Body, u64);
    impl HttpBody for Cut {
        type Data = Bytes;
        type Error = Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
            if self.1 == 0 {
                return Poll::Ready(Some(Err(Error::ClientGone)));
            }
            let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
            let bytes = frame.iter().flatten().filter_map(Frame::data_ref);
            let bytes: u64 = bytes.map(|data| data.len() as u64).sum();
            self.1 = self.1.saturating_sub(bytes);
            Poll::Ready(frame)
        }

        fn size_hint(&self) -> SizeHint {
            self.0.size_hint()
        }
    }
    let bytes = contract_bytes(size);
    Body::stream(Cut(bodies::in_pieces(&bytes, 100), cut_bytes))
}

fn contract_bytes(length: usize) -> Vec<u8> {
    sample_bytes(length)
}

/// Goal: an acknowledged write is there although its gateway ended before the journal said so, and
/// the member that led it is lost after that.
/// Method: the lead has it and one more; the third waits; then the gateway ends.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_write_survives_its_gateway_and_then_its_lead() {
    let mut scene = Scene::new().await;
    scene.put("k", "old").await;
    scene.rest().await;
    scene.members[2].is(Mood::Waits);
    scene.put("k", "new").await;
    let lead = scene.entry("k").await.unwrap().intent.unwrap().lead;
    scene.crash();
    scene.members[2].is(Mood::Well);
    scene.members[usize::from(lead.0)].is(Mood::Out);
    let waits = get("bucket", "k").send(&scene.mirror).await;
    assert!(
        matches!(waits, Err(Error::Unavailable { .. })),
        "the lead may come back: {waits:?}"
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
    // By the time of their writes; both are of the same second but for the wait above.
    assert_eq!(scene.read("k").await, some("new"));
    scene.members[usize::from(lead.0)].is(Mood::Well);
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_gateway_ended_is_as_its_lead_has_it() {
    for lead_has_it in [true, false] {
        let mut scene = Scene::new().await;
        scene.put("k", "old").await;
        scene.rest().await;
        // As it is between the intent and the answers.
        let shared = Arc::clone(&scene.mirror.operator().shared);
        let entry = Entry {
            at_ms: shared.now_ms(),
            intent: Some(Intent {
                lead: MemberId(1),
                kind: WriteKind::Put,
                sent_ms: shared.now_ms(),
            }),
            owed: Vec::new(),
        };
        let subject = Subject::Object(key("k"));
        shared.change(&subject, None, Some(entry)).await.unwrap();
        let has_it = usize::from(lead_has_it);
        let home = &scene.world.homes[has_it];
        put("bucket", "k").body("new").expect(200, &**home).await;
        scene.crash();
        let right = if lead_has_it { "new" } else { "old" };
        assert_eq!(scene.read("k").await, some(right));
        scene.put("other", "x").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        scene.all_hold("k", Some(right)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_compared_before_the_member_is_read_again() {
    let scene = Scene::new().await;
    scene.members[0].is(Mood::LosesAnswer);
    scene.put("k", "new").await;
    scene.rest().await;
    let entry = scene.entry("k").await.unwrap();
    assert!(entry.doubt_ms(MemberId(0)) > 0, "{entry:?}");
    scene.mirror.repairer().turn().await.unwrap();
    assert_eq!(
        scene.entry("k").await.unwrap(),
        entry,
        "it is in doubt still"
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_404_of_one_member_is_not_believed_and_is_repaired() {
    let scene = Scene::new().await;
    scene.put("k", "x").await;
    scene.rest().await;
    // Somebody has deleted it past the mirror, at the member that is asked first.
    delete("bucket", "k")
        .expect(204, &*scene.world.homes[0])
        .await;
    assert_eq!(scene.read("k").await, some("x"));
    let metrics = &scene.mirror.operator().shared.metrics;
    assert_eq!(metrics.fallbacks(Fallback::NotFound), 1);
    let entry = scene.entry("k").await.unwrap();
    assert_eq!(entry.owing().iter().collect::<Vec<_>>(), [MemberId(0)]);
    scene.all_hold("k", Some("x")).await;
    assert_eq!(scene.read("none").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_made_where_its_source_is_current() {
    let scene = Scene::new().await;
    scene.put("source", "old").await;
    scene.rest().await;
    scene.members[1].is(Mood::Out);
    scene.put("source", "new").await;
    scene.rest().await;
    scene.members[1].is(Mood::Well);
    copy(("bucket", "source"), ("bucket", "k"))
        .expect(200, &scene.mirror)
        .await;
    scene.rest().await;
    assert_eq!(scene.homes("k").await, [some("new"), None, some("new")]);
    assert_eq!(scene.read("k").await, some("new"));
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn conditions_are_judged_once_and_hold_for_all() {
    let scene = Scene::new().await;
    let create = || put("bucket", "k").header("if-none-match", "*");
    create().body("a").expect(200, &scene.mirror).await;
    scene.rest().await;
    let refused = create().body("b").refusal(&scene.mirror).await;
    assert_eq!(refused, "PreconditionFailed");
    // A member that lacks the object does not judge.
    scene.members[0].is(Mood::Out);
    delete("bucket", "k").expect(204, &scene.mirror).await;
    scene.rest().await;
    scene.members[0].is(Mood::Well);
    create().body("c").expect(200, &scene.mirror).await;
    let etag = head("bucket", "k")
        .expect(200, &scene.mirror)
        .await
        .etag()
        .to_owned();
    let replace = |etag: &str| put("bucket", "k").header("if-match", etag).body("d");
    assert_eq!(
        replace("\"x\"").refusal(&scene.mirror).await,
        "PreconditionFailed"
    );
    replace(&etag).expect(200, &scene.mirror).await;
    scene.all_hold("k", Some("d")).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_are_made_and_deleted_at_members_that_were_out() {
    let scene = Scene::new().await;
    scene.members[2].is(Mood::Out);
    create_bucket("made").expect(200, &scene.mirror).await;
    delete_bucket("bucket").expect(204, &scene.mirror).await;
    assert_eq!(
        create_bucket("made").refusal(&scene.mirror).await,
        "BucketAlreadyOwnedByYou"
    );
    scene.members[2].is(Mood::Well);
    let subject = Subject::Bucket(bucket_name("made"));
    let held = scene.mirror.operator().shared.held(&subject).await.unwrap();
    assert_eq!(
        held.unwrap().entry.owing().iter().collect::<Vec<_>>(),
        [MemberId(2)]
    );
    head_bucket("made").expect(200, &scene.mirror).await;
    assert!(head_bucket("bucket").send(&scene.mirror).await.is_err());
    scene.mirror.repairer().turn().await.unwrap();
    head_bucket("made")
        .expect(200, &*scene.world.homes[2])
        .await;
    assert!(
        head_bucket("bucket")
            .send(&*scene.world.homes[2])
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn a_bucket_with_an_object_that_some_member_lacks_is_not_deleted() {
    let scene = Scene::new().await;
    scene.members[0].is(Mood::Out);
    scene.put("k", "x").await;
    scene.rest().await;
    scene.members[0].is(Mood::Well);
    let refused = delete_bucket("bucket").refusal(&scene.mirror).await;
    assert_eq!(refused, "BucketNotEmpty");
    scene.all_hold("k", Some("x")).await;
}

#[tokio::test(start_paused = true)]
async fn versions_are_refused() {
    let scene = Scene::new().await;
    scene.put("k", "x").await;
    let versioned = delete("bucket", "k").query("versionId", "abc");
    assert_eq!(versioned.refusal(&scene.mirror).await, "NotImplemented");
    let read = get("bucket", "k").query("versionId", "abc");
    assert_eq!(read.refusal(&scene.mirror).await, "NoSuchVersion");
    assert_eq!(scene.read("k").await, some("x"));
}

/// Goal: a repair of a large object does not hold up a client that writes its key.
/// Method: the repair waits in the member; the write comes, and the repair gives way.
#[tokio::test(start_paused = true)]
async fn a_repair_gives_way_to_a_write_of_its_key() {
    let scene = Scene::new().await;
    scene.members[2].is(Mood::Out);
    scene.put("k", "old").await;
    scene.rest().await;
    scene.members[2].is(Mood::Waits);
    let (repairer, is_done) = (scene.mirror.repairer(), Arc::new(AtomicBool::new(false)));
    let repairing = tokio::spawn({
        let is_done = Arc::clone(&is_done);
        async move {
            repairer.turn().await.unwrap();
            is_done.store(true, Ordering::SeqCst);
        }
    });
    scene.rest().await;
    assert!(!is_done.load(Ordering::SeqCst), "the repair is under way");
    let write = scene.put("k", "new");
    let written = tokio::time::timeout(Duration::from_secs(5), write).await;
    written.expect("it is not held up");
    repairing.await.unwrap();
    scene.members[2].is(Mood::Well);
    tokio::time::sleep(Duration::from_mins(2)).await;
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_too_far_behind_is_read_no_more_until_it_was_compared() {
    let scene = Scene::new().await;
    let stores = scene
        .members
        .iter()
        .map(|member| Arc::clone(member) as Arc<dyn Store>);
    let settings = MirrorSettings {
        behind_max: 2,
        ..MirrorSettings::default()
    };
    let who = (Gateways::One, "g2");
    let mirror = scene.world.gateway_before(stores.collect(), settings, who);
    scene.members[0].is(Mood::Out);
    for key in ["a", "b", "c"] {
        put("bucket", key).body("x").expect(200, &mirror).await;
        scene.rest().await;
    }
    mirror.repairer().turn().await.unwrap();
    let status = mirror.operator().status().await.unwrap();
    assert_eq!(status.members[0].state, MemberState::Down);
    scene.members[0].is(Mood::Well);
    mirror.repairer().turn().await.unwrap();
    let status = mirror.operator().status().await.unwrap();
    assert_eq!(status.members[0].state, MemberState::Comparing);
    // A gateway that has just begun knows it from its first request on.
    let stores = scene
        .members
        .iter()
        .map(|member| Arc::clone(member) as Arc<dyn Store>);
    let who = (Gateways::One, "g3");
    let settings = MirrorSettings::default();
    let mirror = scene.world.gateway_before(stores.collect(), settings, who);
    let calls = scene.members[0].calls();
    for _ in 0..8 {
        get("bucket", "a").expect(200, &mirror).await;
        assert!(get("bucket", "none").send(&mirror).await.is_err());
    }
    assert_eq!(scene.members[0].calls(), calls, "it is not read");
    // What the journal knows of it is forgotten when all gateways know how it stands.
    tokio::time::sleep(Duration::from_secs(20)).await;
    mirror.repairer().turn().await.unwrap();
    let status = mirror.operator().status().await.unwrap();
    assert_eq!(status.journal_keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_new_is_compared_before_it_is_read() {
    let world = World::with_bucket(3).await;
    let store = |at: usize| Arc::clone(&world.homes[at]) as Arc<dyn Store>;
    let settings = MirrorSettings::default;
    let who = (Gateways::One, "g1");
    let two = world.gateway_before(vec![store(0), store(1)], settings(), who);
    two.repairer().turn().await.unwrap();
    drop(two);
    let three = world.gateway(settings());
    three.repairer().turn().await.unwrap();
    let status = three.operator().status().await.unwrap();
    let members = status.members.iter().map(|member| member.state);
    assert_eq!(
        members.collect::<Vec<_>>(),
        [MemberState::Up, MemberState::Up, MemberState::Comparing]
    );
}

/// Goal: a bucket that is written while it is deleted keeps what was acknowledged.
/// Method: the lead deletes it; the others have an object that the lead has not had.
#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_written_while_it_is_deleted_stays() {
    let scene = Scene::new().await;
    scene.rest().await;
    for home in &scene.world.homes[1..] {
        put("bucket", "k").body("x").expect(200, &**home).await;
    }
    let refused = delete_bucket("bucket").refusal(&scene.mirror).await;
    assert_eq!(refused, "BucketNotEmpty");
    for home in &scene.world.homes {
        head_bucket("bucket").expect(200, &**home).await;
    }
    let subject = Subject::Bucket(bucket_name("bucket"));
    let held = scene.mirror.operator().shared.held(&subject).await;
    assert_eq!(held.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_hangs_is_not_waited_for_by_more_writes_than_may_be_late() {
    let scene = Scene::new().await;
    scene.members[2].is(Mood::Hangs);
    let writes = (0..300).map(|at| {
        let mirror = &scene.mirror;
        async move {
            let key = format!("k{at}");
            put("bucket", &key).body("x").expect(200, mirror).await;
        }
    });
    futures_util::future::join_all(writes).await;
    scene.rest().await;
    let status = scene.mirror.operator().status().await.unwrap();
    assert_eq!(status.members[2].state, MemberState::Down);
    assert_eq!(status.journal_keys, 300);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_the_next_write_is_never_read() {
    let scene = Scene::new().await;
    scene.members[0].is(Mood::IsLate);
    scene.put("k", "late").await;
    scene.rest().await;
    scene.put("k", "new").await;
    scene.rest().await;
    assert_eq!(
        scene.homes("k").await,
        [some("new"), some("new"), some("new")]
    );
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(scene.homes("k").await[0], some("late"));
    scene.mirror.repairer().turn().await.unwrap();
    for _ in 0..4 {
        assert_eq!(scene.read("k").await, some("new"));
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    scene.all_hold("k", Some("new")).await;
}

/// Goal: two members of which each lacks something of the other come together.
/// Method: one owes a key that the other alone has; that one is to be compared as a whole.
#[tokio::test(start_paused = true)]
async fn a_member_that_is_compared_gives_what_it_alone_has() {
    let scene = Scene::new().await;
    scene.put("old", "x").await;
    scene.rest().await;
    scene.members[0].is(Mood::Out);
    scene.put("k", "new").await;
    scene.rest().await;
    let shared = Arc::clone(&scene.mirror.operator().shared);
    for member in [MemberId(1), MemberId(2)] {
        let whole = Standing::Whole(shared.now_ms());
        shared.journal.set_standing(member, whole).await.unwrap();
    }
    scene.members[0].is(Mood::Well);
    let repairer = scene.mirror.repairer();
    let repairing = tokio::spawn(async move { repairer.run().await });
    tokio::time::sleep(Duration::from_mins(5)).await;
    repairing.abort();
    let status = scene.mirror.operator().status().await.unwrap();
    let is_up = |member: &crate::MemberStatus| member.state == MemberState::Up;
    assert!(status.members.iter().all(is_up), "{status:?}");
    scene.all_hold("k", Some("new")).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_refused_holds_up_no_other_gateway() {
    let world = World::with_bucket(2).await;
    let gateway = |holder| {
        let members = world
            .homes
            .iter()
            .map(|home| Arc::clone(home) as Arc<dyn Store>);
        let settings = MirrorSettings::default();
        world.gateway_before(members.collect(), settings, (Gateways::Many, holder))
    };
    let (one, other) = (gateway("g1"), gateway("g2"));
    put("bucket", "k").body("old").expect(200, &one).await;
    let refused = put("bucket", "k").header("if-none-match", "*").body("x");
    assert_eq!(refused.refusal(&one).await, "PreconditionFailed");
    let write = put("bucket", "k").body("new").expect(200, &other);
    let written = tokio::time::timeout(Duration::from_secs(1), write).await;
    written.expect("the lease is given back");
    let answer = get("bucket", "k").expect(200, &one).await;
    assert_eq!(answer.text(), "new");
}

#[tokio::test(start_paused = true)]
async fn a_member_that_lets_nobody_in_is_passed_over_and_all_of_them_are_believed() {
    let scene = Scene::new().await;
    scene.members[0].is(Mood::Denies);
    scene.put("k", "x").await;
    assert_eq!(scene.read("k").await, some("x"));
    scene.rest().await;
    scene
        .members
        .iter()
        .for_each(|member| member.is(Mood::Denies));
    assert_eq!(
        get("bucket", "k").refusal(&scene.mirror).await,
        "AccessDenied"
    );
    scene
        .members
        .iter()
        .for_each(|member| member.is(Mood::Well));
    scene.all_hold("k", Some("x")).await;
}
