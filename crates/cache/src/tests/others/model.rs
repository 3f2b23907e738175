//! Goal: whatever two gateways do in whatever order, and however they lose each other, a read at
//! either gives what its mode allows: in `exclusive` what is current, but for what the other could
//! not tell yet; in `bounded` that, and what was missed for its ttl.
//! Method: random operations, and an origin that fails now and then, against a map of what each key
//! was, and who may not know that it no longer is. Operations come one after the other.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_disk::memory::MemoryPages;
use forebay_store::{Error, Store, contract::requests, faulty::Fault};
use proptest::{collection::vec, prelude::*};

use super::{HERE, Pair, THERE, bounded};
use crate::{
    CacheLayer, Coherence,
    tests::{
        disk::part,
        origin::{KIB, Setup, soon},
    },
};

const TTL_MS: u64 = 60_000;

#[derive(Debug, Clone)]
enum Op {
    Put {
        at: usize,
        key: u8,
        size_bytes: u64,
    },
    Delete {
        at: usize,
        keys: Vec<u8>,
    },
    Get {
        at: usize,
        key: u8,
    },
    List {
        at: usize,
    },
    Cut {
        at: usize,
    },
    Join {
        at: usize,
    },
    Advance {
        ms: u64,
    },
    /// The origin fails at its next question, and has carried it out or not.
    Fail {
        late: bool,
    },
}

fn any_op() -> impl Strategy<Value = Op> {
    let (at, key) = (|| HERE..=THERE, || 0..3_u8);
    let size = prop_oneof![Just(0), 1..200_u64, 60 * KIB..200 * KIB];
    prop_oneof![
        4 => (at(), key(), size)
            .prop_map(|(at, key, size_bytes)| Op::Put { at, key, size_bytes }),
        2 => (at(), vec(key(), 1..3)).prop_map(|(at, keys)| Op::Delete { at, keys }),
        8 => (at(), key()).prop_map(|(at, key)| Op::Get { at, key }),
        2 => at().prop_map(|at| Op::List { at }),
        1 => at().prop_map(|at| Op::Cut { at }),
        2 => at().prop_map(|at| Op::Join { at }),
        1 => (0..2 * TTL_MS).prop_map(|ms| Op::Advance { ms }),
        1 => any::<bool>().prop_map(|late| Op::Fail { late }),
    ]
}

/// What a key was, until something else came.
#[derive(Debug)]
struct Past {
    bytes: Option<Bytes>,
    until_ms: u64,
    /// Why each gateway may not know that it ended.
    unknown: [Option<Why>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The other one could not tell it yet.
    Owed,
    /// It was told, and this one did not hear.
    Missed,
}

struct Model {
    coherence: Coherence,
    now_ms: u64,
    writes: u64,
    /// Whether each gateway hears and tells.
    joined: [bool; 2],
    keys: BTreeMap<u8, Vec<Past>>,
}

impl Model {
    fn wrote(&mut self, at: usize, key: u8, bytes: Option<Bytes>) {
        let (there, now_ms) = (1 - at, self.now_ms);
        let why = match (self.joined[at], self.joined[there]) {
            (false, _) => Some(Why::Owed),
            (true, false) => Some(Why::Missed),
            (true, true) => None,
        };
        let past = self.keys.entry(key).or_insert_with(|| {
            vec![Past {
                bytes: None,
                until_ms: 0,
                unknown: [None; 2],
            }]
        });
        if let Some(last) = past.last_mut() {
            (last.until_ms, last.unknown[there]) = (now_ms, why);
        }
        // Who knows of this write knows of what it ended, whoever wrote that.
        for version in past.iter_mut() {
            version.unknown[at] = None;
            version.unknown[there] = version.unknown[there].and(why);
        }
        past.push(Past {
            bytes,
            until_ms: u64::MAX,
            unknown: [None; 2],
        });
    }

    fn allows(&self, at: usize, version: &Past) -> bool {
        let is_current = version.until_ms == u64::MAX;
        let is_unknown = match self.coherence {
            // While it does not hear, it validates; and then what it missed.
            Coherence::Exclusive => version.unknown[at] == Some(Why::Owed) && self.joined[at],
            Coherence::Bounded { .. } => {
                version.unknown[at].is_some() && version.until_ms + TTL_MS > self.now_ms
            }
            Coherence::Strict | Coherence::Immutable => false,
        };
        is_current || is_unknown
    }

    fn allowed(&self, at: usize, key: u8) -> Vec<Option<&Bytes>> {
        let Some(past) = self.keys.get(&key) else {
            return vec![None];
        };
        let allowed = past.iter().filter(|version| self.allows(at, version));
        allowed.map(|version| version.bytes.as_ref()).collect()
    }

    /// What a gateway owed it has told, and what it missed it validates where that counts.
    fn joined(&mut self, at: usize) {
        self.joined[at] = true;
        let there = 1 - at;
        for version in self.keys.values_mut().flatten() {
            if version.unknown[there] == Some(Why::Owed) {
                version.unknown[there] = (!self.joined[there]).then_some(Why::Missed);
            }
            if self.coherence == Coherence::Exclusive {
                version.unknown[at] = None;
            }
        }
    }
}

fn name(key: u8) -> String {
    format!("key{key}")
}

/// Whether a write was carried out.
fn happened<T>(answer: &Result<T, Error>) -> bool {
    match answer {
        Ok(_) | Err(Error::Indeterminate { .. }) => true,
        Err(Error::Unavailable { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

async fn run(ops: Vec<Op>, coherence: Coherence) {
    // What has no room in memory lies on disk.
    let mut there = Setup::with(coherence);
    there.settings.capacity_bytes = 400 * KIB;
    there.disk = Some(part(Arc::new(MemoryPages::new())));
    let pair = Pair::of(Setup::with(coherence), there).await;
    let mut model = Model {
        coherence,
        now_ms: 0,
        writes: 0,
        joined: [true; 2],
        keys: BTreeMap::new(),
    };
    for op in ops {
        apply(&pair, &mut model, op).await;
        for cache in [&pair.here.cache, &pair.there] {
            while cache.layer.fills.count() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn apply(pair: &Pair, model: &mut Model, op: Op) {
    let caches = [&pair.here.cache, &pair.there];
    match op {
        Op::Put {
            at,
            key,
            size_bytes,
        } => {
            model.writes += 1;
            let seed = model.writes.to_le_bytes()[0];
            let length = usize::try_from(size_bytes).unwrap();
            let bytes = Bytes::from(vec![seed; length]);
            let put = requests::put("bucket", &name(key)).body(bytes.clone());
            if happened(&put.send(&**caches[at]).await) {
                model.wrote(at, key, Some(bytes));
            }
        }
        Op::Delete { at, keys } => {
            let names: Vec<_> = keys.iter().map(|key| name(*key)).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let delete = requests::delete_many("bucket", &names);
            if happened(&delete.send(&**caches[at]).await) {
                for key in keys {
                    model.wrote(at, key, None);
                }
            }
        }
        Op::Get { at, key } => check_get(model, (at, key), caches[at]).await,
        Op::List { at } => check_list(model, at, caches[at]).await,
        Op::Cut { at } => {
            pair.cut(at).await;
            model.joined[at] = false;
        }
        Op::Join { at } => {
            // Twice in a row says nothing new.
            pair.join(at).await;
            model.now_ms += 1;
            told_late(pair, at).await;
            model.joined(at);
        }
        Op::Advance { ms } => {
            pair.here.clock.advance(Duration::from_millis(ms));
            model.now_ms += ms;
        }
        Op::Fail { late: true } => pair.here.origin.store.script([Fault::AnswerLost]),
        Op::Fail { late: false } => pair.here.origin.store.script([Fault::Unavailable]),
    }
}

/// Waits until a gateway that was cut off has told what it owed.
async fn told_late(pair: &Pair, at: usize) {
    let layer = &[&pair.here.cache, &pair.there][at].layer;
    soon(async {
        while layer.others.later.owes() || pair.hub.is_telling() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn check_get(model: &Model, (at, key): (usize, u8), cache: &CacheLayer) {
    let answer = requests::get("bucket", &name(key))
        .send(cache as &dyn Store)
        .await;
    let allowed = model.allowed(at, key);
    let sizes: Vec<_> = allowed.iter().map(|bytes| bytes.map(Bytes::len)).collect();
    match answer {
        Ok(answer) => assert!(
            allowed.contains(&Some(&answer.body)),
            "{} bytes of key{key} at {at} are of none of {sizes:?}",
            answer.body.len()
        ),
        Err(Error::Refused(refusal)) => {
            assert_eq!(refusal.code.as_str(), "NoSuchKey");
            assert!(
                allowed.contains(&None),
                "key{key} at {at} is one of {sizes:?}"
            );
        }
        Err(Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
        // A part of it made room, and is not there to be fetched any more.
        Err(Error::Cut { .. }) => assert!(allowed.len() > 1, "key{key} at {at}"),
        Err(other) => panic!("{other}"),
    }
}

async fn check_list(model: &Model, at: usize, cache: &CacheLayer) {
    let answer = requests::list_v2("bucket").send(cache as &dyn Store).await;
    let Ok(answer) = answer else { return };
    let text = answer.text();
    for key in model.keys.keys() {
        let allowed = model.allowed(at, *key);
        let is_listed = text.contains(&format!("<Key>{}</Key>", name(*key)));
        let fits = allowed.iter().any(|bytes| bytes.is_some() == is_listed);
        assert!(fits, "key{key} at {at}: {is_listed}");
    }
}

fn run_to_end(ops: Vec<Op>, coherence: Coherence) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(ops, coherence));
}

/// Sequences of each test: 32 unless the environment asks for more.
fn cases() -> u32 {
    let text = std::env::var("FOREBAY_MODEL_CASES").ok();
    text.map_or(32, |text| text.parse().expect("a number of sequences"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn exclusive_over_two_gateways_shows_nothing_that_the_other_told_was_replaced(
        ops in vec(any_op(), 1..120),
    ) {
        run_to_end(ops, Coherence::Exclusive);
    }

    #[test]
    fn bounded_over_two_gateways_shows_for_its_ttl_what_was_missed_and_no_more(
        ops in vec(any_op(), 1..120),
    ) {
        run_to_end(ops, bounded());
    }
}
