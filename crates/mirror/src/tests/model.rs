//! Random histories of a mirror against a register per key.
//!
//! Members fail, go out and come back; the journal can't be asked now and then; one gateway, or two
//! that share it, end anywhere and begin anew. A few cases by default, always the same;
//! `FOREBAY_MIRROR_MODEL_CASES` random ones. A seed that fails is printed;
//! `FOREBAY_MIRROR_MODEL_SEED` runs that one alone.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_store::{
    Error,
    contract::requests::{Answer, Builder, copy, delete, delete_many, get, head, put},
    history::{Act, Event, is_linearizable},
};
use tokio::sync::watch;

use super::*;
use members::Unreliable;

mod journal;
mod members;

/// Keys that are written; each has a history of its own.
const KEYS: [&str; 2] = ["a", "b/c"];
/// An object that is only copied from.
const SOURCE: (&str, u32) = ("source", 1);
const CLIENTS: u64 = 3;
const ACTS_EACH: u64 = 12;
/// Cases of a quick run.
const CASES: u64 = 60;

/// One life of a gateway.
struct Life {
    store: MirrorStore,
    repairing: tokio::task::JoinHandle<()>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.repairing.abort();
    }
}

/// A gateway, which ends and begins anew.
struct Gateway {
    life: Mutex<Arc<Life>>,
    /// Counts its lives; what is under way when it changes is given up.
    lives: watch::Sender<u64>,
}

/// What all clients of a case share.
struct Case {
    world: World,
    members: Vec<Arc<Unreliable>>,
    settings: MirrorSettings,
    gateways: Vec<Gateway>,
    histories: Mutex<BTreeMap<&'static str, Vec<Event>>>,
    values: AtomicU64,
    time: AtomicU64,
}

fn text_of(value: u32) -> String {
    format!("value {value}")
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

impl Case {
    fn begin(
        world: &World,
        members: &[Arc<Unreliable>],
        settings: &MirrorSettings,
        who: (Gateways, &str),
    ) -> Arc<Life> {
        let stores = members
            .iter()
            .map(|member| Arc::clone(member) as Arc<dyn Store>);
        let store = world.gateway_before(stores.collect(), settings.clone(), who);
        let repairer = store.repairer();
        let repairing = tokio::spawn(async move { repairer.run().await });
        Arc::new(Life { store, repairing })
    }

    /// A gateway ends where it is, and begins anew.
    fn crash(&self, at: usize) {
        let gateway = &self.gateways[at];
        let life = *gateway.lives.borrow() + 1;
        let holder = format!("g{at}-{life}");
        let who = (sharing(self.gateways.len()), &holder[..]);
        let next = Self::begin(&self.world, &self.members, &self.settings, who);
        let last = std::mem::replace(&mut *gateway.life.lock().unwrap(), next);
        last.repairing.abort();
        last.store.operator().shared.tasks.abort();
        gateway.lives.send_modify(|lives| *lives += 1);
    }

    fn tick(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn next_value(&self) -> u32 {
        u32::try_from(self.values.fetch_add(1, Ordering::SeqCst)).unwrap()
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

    async fn send(&self, request: Builder) -> Came {
        let at = usize::try_from(self.tick()).unwrap() % self.gateways.len();
        let gateway = &self.gateways[at];
        let mut lives = gateway.lives.subscribe();
        lives.mark_unchanged();
        let life = Arc::clone(&gateway.life.lock().unwrap());
        let answer = tokio::select! {
            answer = request.send(&life.store) => answer,
            _ = lives.changed() => return Came::Unknown,
        };
        match answer {
            Ok(answer) if answer.status.is_success() => Came::Answer(answer),
            Ok(answer) if answer.status.is_client_error() => Came::Refused(answer.element("Code")),
            Err(Error::Refused(refusal)) => Came::Refused(refusal.code.as_str().to_owned()),
            Err(Error::SlowDown { .. } | Error::Unavailable { .. }) => Came::Nothing,
            Ok(_) | Err(_) => Came::Unknown,
        }
    }

    /// Writes down a write of `value`, which is done when it was answered.
    async fn write(&self, key: &'static str, value: Option<u32>, what: Builder) {
        let called = self.tick();
        match self.send(what).await {
            Came::Answer(_) => self.record(key, Act::Write(value), called, Some(self.tick())),
            Came::Unknown => self.record(key, Act::Write(value), called, None),
            Came::Refused(_) | Came::Nothing => {}
        }
    }

    /// A delete of many tells by key whether it was done.
    async fn delete_many(&self, key: &'static str) {
        let called = self.tick();
        match self.send(delete_many("bucket", &[key])).await {
            Came::Answer(answer) if answer.text().contains("<Error>") => {
                self.record(key, Act::Write(None), called, None);
            }
            Came::Answer(_) => self.record(key, Act::Write(None), called, Some(self.tick())),
            Came::Unknown => self.record(key, Act::Write(None), called, None),
            Came::Refused(_) | Came::Nothing => {}
        }
    }

    async fn create(&self, key: &'static str) {
        let (called, value) = (self.tick(), self.next_value());
        let request = put("bucket", key)
            .header("if-none-match", "*")
            .body(text_of(value));
        match self.send(request).await {
            Came::Answer(_) => self.record(key, Act::Create(value), called, Some(self.tick())),
            Came::Refused(code) if code == "PreconditionFailed" => {
                self.record(key, Act::NotCreated, called, Some(self.tick()));
            }
            Came::Unknown => self.record(key, Act::Create(value), called, None),
            Came::Refused(_) | Came::Nothing => {}
        }
    }

    async fn read(&self, key: &'static str) {
        let called = self.tick();
        let found = match self.send(get("bucket", key)).await {
            Came::Answer(answer) => Some(value_of(&answer.text()).expect("a value of ours")),
            Came::Refused(code) if code == "NoSuchKey" => None,
            Came::Refused(_) | Came::Nothing | Came::Unknown => return,
        };
        self.record(key, Act::Read(found), called, Some(self.tick()));
    }

    async fn act(&self, rng: &mut fastrand::Rng) {
        let key = KEYS[rng.usize(..KEYS.len())];
        match rng.u32(..20) {
            0..7 => {
                let value = self.next_value();
                let request = put("bucket", key).body(text_of(value));
                self.write(key, Some(value), request).await;
            }
            7..9 => self.write(key, None, delete("bucket", key)).await,
            9 => self.delete_many(key).await,
            10 => {
                let request = copy(("bucket", SOURCE.0), ("bucket", key));
                self.write(key, Some(SOURCE.1), request).await;
            }
            11 | 12 => self.create(key).await,
            _ => self.read(key).await,
        }
    }
}

/// Members go out and come back, and now and then the gateway ends.
///
/// None is out for longer than the lead of a write is waited for: past that time a state that a
/// read has seen while its write was under way may be given up (docs/semantics.md).
async fn disturb(case: Arc<Case>, mut rng: fastrand::Rng) {
    const STEPS_OUT_MAX: u32 = 6;
    let mut steps_out = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(..4000))).await;
        let member = &case.members[rng.usize(..case.members.len())];
        steps_out += 1;
        match rng.u32(..6) {
            2 => case.crash(rng.usize(..case.gateways.len())),
            0 | 1 if steps_out < STEPS_OUT_MAX => member.set_out(true),
            _ => {
                case.members.iter().for_each(|member| member.set_out(false));
                steps_out = 0;
            }
        }
    }
}

/// What each member has under a key.
async fn homes(case: &Case, key: &str) -> Vec<Option<String>> {
    let mut found = Vec::new();
    for home in &case.world.homes {
        let there = head("bucket", key).send(&**home).await.is_ok();
        found.push(if there {
            let answer = get("bucket", key).expect(200, &**home).await;
            Some(answer.text())
        } else {
            None
        });
    }
    found
}

async fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let count = rng.usize(2..=4);
    let mut world = World::with_bucket(count).await;
    let journal = journal::Unreliable::new(rng.u64(..));
    world.journal.index = Arc::clone(&journal) as _;
    let _ticking = world.ticking();
    let members: Vec<_> = world
        .homes
        .iter()
        .map(|home| Unreliable::new(Arc::clone(home), rng.u64(..)))
        .collect();
    for home in &world.homes {
        put("bucket", SOURCE.0)
            .body(text_of(SOURCE.1))
            .expect(200, &**home)
            .await;
    }
    let settings = MirrorSettings {
        writes_min: Some(rng.usize(1..=count)),
        attempt_timeout: Duration::from_secs(15),
        ..MirrorSettings::default()
    };
    let gateways_count = rng.usize(1..=2);
    let gateway = |at: usize| {
        let holder = format!("g{at}-0");
        let who = (sharing(gateways_count), &holder[..]);
        Gateway {
            life: Mutex::new(Case::begin(&world, &members, &settings, who)),
            lives: watch::Sender::new(0),
        }
    };
    let case = Arc::new(Case {
        gateways: (0..gateways_count).map(gateway).collect(),
        world,
        members,
        settings,
        histories: Mutex::default(),
        values: AtomicU64::new(100),
        time: AtomicU64::new(1),
    });
    let disturbing = tokio::spawn(disturb(Arc::clone(&case), rng.fork()));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let (case, mut rng) = (Arc::clone(&case), rng.fork());
        clients.push(tokio::spawn(async move {
            for _ in 0..ACTS_EACH {
                tokio::time::sleep(Duration::from_millis(rng.u64(..1000))).await;
                case.act(&mut rng).await;
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    disturbing.abort();
    case.members.iter().for_each(|member| member.heal());
    journal.heal();
    settle(&case).await;
    for key in KEYS {
        case.read(key).await;
        let homes = homes(&case, key).await;
        let is_same = homes.iter().all(|home| *home == homes[0]);
        assert!(is_same, "members differ in {key}: {homes:?}");
    }
    let mut histories = std::mem::take(&mut *case.histories.lock().unwrap());
    for (key, events) in &mut histories {
        events.sort_by_key(|event| event.called);
        let lines = events.iter().map(|event| format!("{event:?}\n"));
        let told = lines.collect::<String>();
        assert!(is_linearizable(events), "{key}:\n{told}");
    }
}

/// Waits until nobody owes anything.
async fn settle(case: &Case) {
    let life = Arc::clone(&case.gateways[0].life.lock().unwrap());
    let operator = life.store.operator();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let queue = operator.shared.journal.queue(None, 10).await.unwrap();
        let status = operator.status().await.unwrap();
        let is_up = |member: &crate::MemberStatus| member.state == crate::MemberState::Up;
        if queue.is_empty() && status.members.iter().all(is_up) {
            return;
        }
    }
    panic!("repair does not end: {:?}", operator.status().await);
}

fn sharing(gateways_count: usize) -> Gateways {
    if gateways_count > 1 {
        Gateways::Many
    } else {
        Gateways::One
    }
}

fn number_from(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Goal: whatever members and the gateway do, each key is a register, and at the end all members
/// hold the same.
/// Method: random clients in virtual time over members with faults; each history is judged.
#[test]
fn every_key_is_a_register_whatever_fails_and_members_are_equal_after_repair() {
    let cases = number_from("FOREBAY_MIRROR_MODEL_CASES");
    let seeds: Vec<u64> = match (number_from("FOREBAY_MIRROR_MODEL_SEED"), cases) {
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
            println!("FOREBAY_MIRROR_MODEL_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
