//! Random histories of two gateways against a register per key.
//!
//! A few cases by default, always the same; `FOREBAY_TIER_MODEL_CASES` random ones. A seed that
//! fails is printed; `FOREBAY_TIER_MODEL_SEED` runs that one alone.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_store::{
    Error,
    contract::requests::{Answer, Builder, copy, delete, delete_many, get, list_v2, put},
    history::{Act, Event, is_linearizable},
};
use md5::{Digest as _, Md5};

use super::*;
use fault::Unreliable;

mod fault;

/// Keys that are written; each has a history of its own.
const KEYS: [&str; 2] = ["a", "b/c"];
/// Objects that are only copied from: one hot, one cold.
const SOURCES: [(&str, u32); 2] = [("source-hot", 1), ("source-cold", 2)];
const CLIENTS: u64 = 4;
const ACTS_EACH: u64 = 10;
/// Cases of a quick run.
const CASES: u64 = 60;

/// What all clients of a case share.
struct World {
    gateways: Vec<TierLayer>,
    histories: Mutex<BTreeMap<&'static str, Vec<Event>>>,
    /// Values by their tags, for listings.
    tags: Mutex<BTreeMap<String, u32>>,
    values: AtomicU64,
    time: AtomicU64,
}

fn text_of(value: u32) -> String {
    format!("value {value}")
}

fn tag_of(value: u32) -> String {
    format!(
        "\"{}\"",
        hex::encode(Md5::digest(text_of(value).as_bytes()))
    )
}

fn value_of(text: &str) -> Option<u32> {
    text.strip_prefix("value ")?.parse().ok()
}

/// What became of a request.
enum Came {
    Answer(Answer),
    Refused(String),
    /// It had no effect.
    Nothing,
    Unknown,
}

impl World {
    fn tick(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn next_value(&self) -> u32 {
        let value = u32::try_from(self.values.fetch_add(1, Ordering::SeqCst)).unwrap();
        self.tags.lock().unwrap().insert(tag_of(value), value);
        value
    }

    fn record(&self, key: &'static str, act: Act, called: u64, answered: Option<u64>) {
        let event = Event {
            act,
            called,
            answered,
        };
        let mut histories = self.histories.lock().unwrap();
        histories.entry(key).or_default().push(event);
    }

    async fn send(&self, gateway: usize, request: Builder) -> Came {
        // A client gives up after a while, and its request is dropped.
        let sent = request.send(&self.gateways[gateway]);
        let answer = tokio::time::timeout(Duration::from_secs(40), sent).await;
        match answer {
            Ok(Ok(answer)) if answer.status.is_success() => Came::Answer(answer),
            Ok(Ok(answer)) if answer.status.is_client_error() => {
                Came::Refused(answer.element("Code"))
            }
            Ok(Err(Error::Refused(refusal))) => Came::Refused(refusal.code.as_str().to_owned()),
            Ok(Err(Error::SlowDown { .. } | Error::Unavailable { .. })) => Came::Nothing,
            Err(_) | Ok(Ok(_) | Err(_)) => Came::Unknown,
        }
    }

    /// Writes down a write of `value`, which is done when it was answered.
    async fn write(&self, gateway: usize, key: &'static str, value: Option<u32>, what: Builder) {
        let called = self.tick();
        match self.send(gateway, what).await {
            Came::Answer(_) => {
                self.record(key, Act::Write(value), called, Some(self.tick()));
            }
            Came::Unknown => self.record(key, Act::Write(value), called, None),
            Came::Refused(_) | Came::Nothing => {}
        }
    }

    async fn create(&self, gateway: usize, key: &'static str) {
        let (called, value) = (self.tick(), self.next_value());
        let request = put("bucket", key)
            .header("if-none-match", "*")
            .body(text_of(value));
        match self.send(gateway, request).await {
            Came::Answer(_) => self.record(key, Act::Create(value), called, Some(self.tick())),
            Came::Refused(code) if code == "PreconditionFailed" => {
                self.record(key, Act::NotCreated, called, Some(self.tick()));
            }
            Came::Unknown => self.record(key, Act::Create(value), called, None),
            Came::Refused(_) | Came::Nothing => {}
        }
    }

    async fn read(&self, gateway: usize, key: &'static str) {
        let called = self.tick();
        let found = match self.send(gateway, get("bucket", key)).await {
            Came::Answer(answer) => Some(value_of(&answer.text()).expect("a value of ours")),
            Came::Refused(code) if code == "NoSuchKey" => None,
            Came::Refused(_) | Came::Nothing | Came::Unknown => return,
        };
        self.record(key, Act::Read(found), called, Some(self.tick()));
    }

    /// A listing is a read of each key, all between its call and its answer.
    async fn list(&self, gateway: usize) {
        let called = self.tick();
        let Came::Answer(answer) = self.send(gateway, list_v2("bucket")).await else {
            return;
        };
        let answered = self.tick();
        let (keys, tags) = (answer.elements("Key"), answer.elements("ETag"));
        for key in KEYS {
            let at = keys.iter().position(|listed| listed == key);
            let found = at.map(|at| {
                let tag = tags[at].replace("&quot;", "\"");
                self.tags.lock().unwrap()[&tag]
            });
            self.record(key, Act::Read(found), called, Some(answered));
        }
    }

    async fn act(&self, rng: &mut fastrand::Rng) {
        let (gateway, key) = (rng.usize(..2), KEYS[rng.usize(..KEYS.len())]);
        match rng.u32(..20) {
            0..5 => {
                let value = self.next_value();
                let request = put("bucket", key).body(text_of(value));
                self.write(gateway, key, Some(value), request).await;
            }
            5..8 => {
                let value = self.next_value();
                let request = put("bucket", key)
                    .header("x-forebay-tier", "cold")
                    .body(text_of(value));
                self.write(gateway, key, Some(value), request).await;
            }
            8..10 => self.write(gateway, key, None, delete("bucket", key)).await,
            10 => {
                let request = delete_many("bucket", &[key]);
                self.write(gateway, key, None, request).await;
            }
            11 => {
                let (source, value) = SOURCES[rng.usize(..2)];
                let request = copy(("bucket", source), ("bucket", key));
                self.write(gateway, key, Some(value), request).await;
            }
            12 => self.create(gateway, key).await,
            13 => self.list(gateway).await,
            _ => self.read(gateway, key).await,
        }
    }
}

/// Drops the mover now and then, wherever it is, and goes on with it.
async fn move_and_stumble(mover: Arc<crate::Mover>, mut rng: fastrand::Rng) {
    loop {
        let time = Duration::from_millis(rng.u64(..30_000));
        let _ = tokio::time::timeout(time, mover.run()).await;
    }
}

async fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let rig = Rig::new();
    create_bucket("bucket").expect(200, &*rig.cold).await;
    let clock = rig.clock.clone();
    let ticking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            clock.advance(Duration::from_millis(20));
        }
    });
    let cold = Unreliable::new(rig.cold.clone(), rng.u64(..));
    let settings = TierSettings {
        demote_after: Duration::from_millis(rng.u64(..3000)),
        attempt_timeout: Duration::from_secs(20),
        ..TierSettings::default()
    };
    let gateway = |name| rig.gateway_before(name, settings.clone(), cold.clone());
    let world = Arc::new(World {
        gateways: vec![gateway("g1"), gateway("g2")],
        histories: Mutex::default(),
        tags: Mutex::default(),
        values: AtomicU64::new(100),
        time: AtomicU64::new(1),
    });
    for (name, value) in SOURCES {
        world.tags.lock().unwrap().insert(tag_of(value), value);
        put("bucket", name)
            .body(text_of(value))
            .expect(200, &*rig.cold)
            .await;
    }
    let hot = rig.gateway("maker", settings.clone());
    let (name, value) = SOURCES[0];
    put("bucket", name)
        .body(text_of(value))
        .expect(200, &hot)
        .await;
    let mut tasks = Vec::new();
    let mut movers = Vec::new();
    for gateway in &world.gateways {
        let rng = fastrand::Rng::with_seed(rng.u64(..));
        movers.push(tokio::spawn(move_and_stumble(gateway.mover(), rng)));
    }
    for _ in 0..CLIENTS {
        let (world, mut rng) = (Arc::clone(&world), fastrand::Rng::with_seed(rng.u64(..)));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ACTS_EACH {
                tokio::time::sleep(Duration::from_millis(rng.u64(..2000))).await;
                world.act(&mut rng).await;
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    cold.heal();
    // Latecomers arrive, and movers that slept wake up.
    tokio::time::sleep(Duration::from_mins(1)).await;
    movers.iter().for_each(tokio::task::JoinHandle::abort);
    let operator = world.gateways[1].operator();
    for conflict in operator.conflicts(10).await.unwrap() {
        operator.retry(&conflict.key).await.unwrap();
    }
    let flushed = operator.flush_and_wait(Duration::from_mins(5)).await;
    assert!(
        flushed.unwrap(),
        "something stays dirty: {:?}",
        operator.status().await
    );
    // What is buried may be brought back by a latecomer, and is looked at when none can come.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(61)).await;
        operator.flush().await.unwrap();
    }
    for key in KEYS {
        for gateway in 0..2 {
            world.read(gateway, key).await;
        }
        let read = get("bucket", key).send(&world.gateways[0]).await;
        let home = get("bucket", key).send(&*rig.cold).await;
        let text = |answer: Result<Answer, Error>| answer.ok().map(|answer| answer.text());
        assert_eq!(
            text(home),
            text(read),
            "the cold store is not what clients see: {key}"
        );
    }
    ticking.abort();
    let mut histories = std::mem::take(&mut *world.histories.lock().unwrap());
    for (key, events) in &mut histories {
        events.sort_by_key(|event| event.called);
        let told = || {
            let lines = events.iter().map(|event| format!("{event:?}\n"));
            lines.collect::<String>()
        };
        assert!(is_linearizable(events), "{key}:\n{}", told());
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Goal: whatever two gateways, their movers and the cold store do, each key is a register, and at
/// the end the cold store holds what clients read.
/// Method: random clients in virtual time over a cold store with faults; each history is judged.
#[test]
fn every_key_is_a_register_whatever_fails() {
    let cases = number_from("FOREBAY_TIER_MODEL_CASES");
    let seeds: Vec<u64> = match (number_from("FOREBAY_TIER_MODEL_SEED"), cases) {
        (Some(seed), _) => vec![seed],
        (None, Some(cases)) => (0..cases).map(|_| fastrand::u64(..)).collect(),
        (None, None) => (0..CASES).collect(),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let case = std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed)));
        if let Err(panic) = std::panic::catch_unwind(case) {
            println!("FOREBAY_TIER_MODEL_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
