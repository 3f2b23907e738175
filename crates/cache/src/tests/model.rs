//! Goal: whatever is done in whatever order, a read gives a version that the coherence mode
//! allows, whole and unmixed, and the account is right.
//! Method: random operations through the cache and past it, and an origin that fails now and then,
//! against a map of all versions that each key ever had and when it stopped being current.
//! Operations come one after the other, so `strict` allows the current version and no other;
//! what is allowed of questions and writes at the same time is in `strict` and `schedules`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_disk::memory::MemoryPages;
use forebay_store::{
    Error,
    contract::requests::{self, Answer},
    faulty::Fault,
};
use proptest::{collection::vec, prelude::*};

use super::{
    disk::{FlakyPages, part},
    origin::{Fixture, KIB, MIB, Setup, settings},
};
use crate::{CacheSettings, Coherence, StaleUse};

const TTL_MS: u64 = 60_000;
const WHILE_REVALIDATE_MS: u64 = 20_000;
const IF_ERROR_MS: u64 = 50_000;

const BOUNDED: Coherence = Coherence::Bounded {
    ttl: Duration::from_millis(TTL_MS),
    tti: None,
    stale: StaleUse {
        while_revalidate: Duration::ZERO,
        if_error: Duration::ZERO,
    },
};
const STALE: Coherence = Coherence::Bounded {
    ttl: Duration::from_millis(TTL_MS),
    tti: Some(Duration::from_millis(TTL_MS / 2)),
    stale: StaleUse {
        while_revalidate: Duration::from_millis(WHILE_REVALIDATE_MS),
        if_error: Duration::from_millis(IF_ERROR_MS),
    },
};

#[derive(Debug, Clone)]
enum Op {
    Put {
        key: u8,
        size_bytes: u64,
        through: bool,
    },
    Delete {
        key: u8,
        through: bool,
    },
    Get {
        key: u8,
    },
    Range {
        key: u8,
        start: u64,
        length: u64,
    },
    Head {
        key: u8,
    },
    LeaveEarly {
        key: u8,
    },
    Advance {
        ms: u64,
    },
    Cut {
        after: u64,
    },
    /// The origin fails at its next question, and has carried it out or not.
    Fail {
        late: bool,
    },
    Settle,
    /// The gateway stops, in order or not, and another run begins on the same disk.
    Restart {
        closed: bool,
    },
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = || 0..4_u8;
    let size = prop_oneof![
        Just(0),
        1..200_u64,
        60 * KIB..70 * KIB,
        100 * KIB..400 * KIB
    ];
    prop_oneof![
        3 => (key(), size, any::<bool>())
            .prop_map(|(key, size_bytes, through)| Op::Put { key, size_bytes, through }),
        1 => (key(), any::<bool>()).prop_map(|(key, through)| Op::Delete { key, through }),
        6 => key().prop_map(|key| Op::Get { key }),
        6 => (key(), 0..400 * KIB, 1..200 * KIB)
            .prop_map(|(key, start, length)| Op::Range { key, start, length }),
        2 => key().prop_map(|key| Op::Head { key }),
        2 => key().prop_map(|key| Op::LeaveEarly { key }),
        2 => (0..2 * TTL_MS).prop_map(|ms| Op::Advance { ms }),
        1 => (0..300 * KIB).prop_map(|after| Op::Cut { after }),
        1 => any::<bool>().prop_map(|late| Op::Fail { late }),
        2 => Just(Op::Settle),
        1 => any::<bool>().prop_map(|closed| Op::Restart { closed }),
    ]
}

/// What a key was, and when it stopped to be that; `None` in `bytes` is absence.
#[derive(Debug)]
struct Past {
    bytes: Option<Bytes>,
    until_ms: u64,
    /// It ended by a write through the cache: not one answer may show it after that.
    ended_through: bool,
}

struct Model {
    coherence: Coherence,
    now_ms: u64,
    writes: u64,
    keys: BTreeMap<u8, Vec<Past>>,
}

/// How an answer says it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Regularly,
    StaleWhileRevalidate,
    StaleIfError,
}

impl Made {
    fn of(cache_status: Option<&str>) -> Self {
        let has = |detail| cache_status.is_some_and(|status| status.ends_with(detail));
        if has("; detail=stale-while-revalidate") {
            Self::StaleWhileRevalidate
        } else if has("; detail=stale-if-error") {
            Self::StaleIfError
        } else {
            Self::Regularly
        }
    }
}

impl Model {
    fn write(&mut self, key: u8, bytes: Option<Bytes>, through: bool) {
        let now_ms = self.now_ms;
        let past = self.keys.entry(key).or_default();
        if let Some(last) = past.last_mut() {
            last.until_ms = now_ms;
        }
        // A write through the cache ends all that came before it.
        for version in past.iter_mut() {
            version.ended_through |= through;
        }
        past.push(Past {
            bytes,
            until_ms: u64::MAX,
            ended_through: false,
        });
    }

    /// How long a version may be shown after it has stopped being current.
    fn allowed_ms(&self, made: Made) -> u64 {
        match self.coherence {
            Coherence::Strict => 0,
            Coherence::Exclusive | Coherence::Immutable => u64::MAX,
            Coherence::Bounded { .. } => match made {
                Made::Regularly => TTL_MS,
                Made::StaleWhileRevalidate => TTL_MS + WHILE_REVALIDATE_MS,
                Made::StaleIfError => TTL_MS + IF_ERROR_MS,
            },
        }
    }

    /// Versions that an answer may show now.
    fn allowed(&self, key: u8, made: Made) -> Vec<Option<&Bytes>> {
        assert!(
            made == Made::Regularly || self.coherence == STALE,
            "{made:?}"
        );
        let Some(past) = self.keys.get(&key) else {
            return vec![None];
        };
        let allowed = |version: &&Past| {
            let shown_until_ms = version.until_ms.saturating_add(self.allowed_ms(made));
            shown_until_ms > self.now_ms && !version.ended_through
        };
        past.iter()
            .filter(allowed)
            .map(|version| version.bytes.as_ref())
            .collect()
    }
}

async fn run(ops: Vec<Op>, coherence: Coherence, room: Room) {
    let settings = CacheSettings {
        capacity_bytes: room.memory_bytes,
        coherence,
        ..settings()
    };
    let disk = match room.disk {
        OnDisk::Nothing => None,
        OnDisk::Pages => Some(part(Arc::new(MemoryPages::new()))),
        OnDisk::Flaky => Some(part(Arc::new(FlakyPages::default()))),
    };
    let mut fixture = Setup {
        settings,
        disk,
        ..Setup::default()
    }
    .build()
    .await;
    let mut model = Model {
        coherence,
        now_ms: 0,
        writes: 0,
        keys: BTreeMap::new(),
    };
    for op in ops {
        if let Op::Restart { closed } = op {
            restart(&mut fixture, closed).await;
        } else {
            apply(&fixture, &mut model, &op).await;
        }
    }
    fixture.settle().await;
}

async fn restart(fixture: &mut Fixture, closed: bool) {
    if closed {
        fixture.settle().await;
        for version in fixture.cache.layer.used_versions() {
            fixture.cache.layer.keep_on_disk(&version).await;
        }
    }
    fixture.restart();
}

async fn apply(fixture: &Fixture, model: &mut Model, op: &Op) {
    match *op {
        Op::Put {
            key,
            size_bytes,
            through,
        } => {
            model.writes += 1;
            // Each version is recognised by any of its bytes, and by its neighbours' order.
            let seed = model.writes.to_le_bytes()[0];
            let bytes: Bytes = (0..size_bytes)
                .map(|at| seed.wrapping_add((at % 251).to_le_bytes()[0]))
                .collect::<Vec<_>>()
                .into();
            let put = requests::put("bucket", &name(key)).body(bytes.clone());
            let happened = if through {
                happened(put.send(&*fixture.cache).await)
            } else {
                put.expect(200, fixture.origin.store.inner()).await;
                true
            };
            if happened {
                model.write(key, Some(bytes), through);
            }
        }
        Op::Delete { key, through } => {
            let delete = requests::delete("bucket", &name(key));
            let happened = if through {
                happened(delete.send(&*fixture.cache).await)
            } else {
                delete.expect(204, fixture.origin.store.inner()).await;
                true
            };
            if happened {
                model.write(key, None, through);
            }
        }
        Op::Get { key } => {
            let answer = requests::get("bucket", &name(key))
                .send(&*fixture.cache)
                .await;
            check(model, key, answer.map(body), |bytes| Some(bytes.clone()));
        }
        Op::Range { key, start, length } => {
            let range = format!("bytes={start}-{}", start + length - 1);
            let request = requests::get("bucket", &name(key)).range(&range);
            let answer = request.send(&*fixture.cache).await;
            check(model, key, answer.map(body), |bytes| {
                let from = usize::try_from(start).unwrap();
                let to = usize::try_from(start + length).unwrap().min(bytes.len());
                (from < to).then(|| bytes.slice(from..to))
            });
        }
        Op::Head { key } => {
            let answer = requests::head("bucket", &name(key))
                .send(&*fixture.cache)
                .await;
            let length = answer.map(|answer| {
                let length = answer.header("content-length").to_owned();
                (Made::of(answer.cache.as_deref()), Err(length))
            });
            check(model, key, length, |bytes| Some(bytes.clone()));
        }
        Op::LeaveEarly { key } => {
            let request = requests::get("bucket", &name(key));
            if let Ok(mut response) = request.call(&*fixture.cache).await {
                drop(response.body.frame().await);
            }
        }
        Op::Advance { ms } => {
            fixture.clock.advance(Duration::from_millis(ms));
            model.now_ms += ms;
        }
        Op::Cut { after } => fixture.origin.store.script([Fault::CutAfter(after)]),
        Op::Fail { late: true } => fixture.origin.store.script([Fault::AnswerLost]),
        Op::Fail { late: false } => fixture.origin.store.script([Fault::Unavailable]),
        Op::Restart { .. } => unreachable!("done by the caller"),
        Op::Settle => {
            fixture.settle().await;
        }
    }
}

fn name(key: u8) -> String {
    format!("key{key}")
}

/// A body, or a length, and how the answer was made.
type Shown = (Made, Result<Bytes, String>);

fn body(answer: Answer) -> Shown {
    (Made::of(answer.cache.as_deref()), Ok(answer.body))
}

/// Whether a write was carried out.
fn happened(answer: Result<Answer, Error>) -> bool {
    match answer {
        Ok(_) | Err(Error::Indeterminate { .. } | Error::Cut { .. }) => true,
        Err(Error::Unavailable { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Checks an answer against all versions that it may be of.
fn check(
    model: &Model,
    key: u8,
    answer: Result<Shown, Error>,
    part: impl Fn(&Bytes) -> Option<Bytes>,
) {
    let made = answer.as_ref().map_or(Made::Regularly, |(made, _)| *made);
    let allowed = model.allowed(key, made);
    let sizes: Vec<_> = allowed
        .iter()
        .map(|version| version.map(Bytes::len))
        .collect();
    match answer.map(|(_, shown)| shown) {
        Ok(Ok(body)) => {
            let found = allowed
                .iter()
                .flatten()
                .any(|version| part(version).as_ref() == Some(&body));
            assert!(
                found,
                "{} bytes of key{key} are of none of {sizes:?}",
                body.len()
            );
        }
        Ok(Err(length)) => {
            let found = allowed
                .iter()
                .flatten()
                .any(|version| version.len().to_string() == length);
            assert!(found, "length {length} of key{key} is of none of {sizes:?}");
        }
        // Cut by a fault, or because the object changed under way; or the origin was to fail.
        Err(Error::Cut { .. } | Error::Unavailable { .. } | Error::Indeterminate { .. }) => {}
        Err(Error::Refused(refusal)) => match refusal.code.as_str() {
            "NoSuchKey" => assert!(allowed.contains(&None), "key{key} is one of {sizes:?}"),
            "InvalidRange" => assert!(allowed.iter().flatten().any(|v| part(v).is_none())),
            other => panic!("{other}"),
        },
        Err(other) => panic!("{other}"),
    }
}

/// Where the cache may keep what.
#[derive(Debug, Clone, Copy)]
struct Room {
    memory_bytes: u64,
    disk: OnDisk,
}

#[derive(Debug, Clone, Copy)]
enum OnDisk {
    Nothing,
    Pages,
    /// Pages that are gone, late or refused now and then.
    Flaky,
}

const PLENTY: Room = Room {
    memory_bytes: 64 * MIB,
    disk: OnDisk::Nothing,
};
const LITTLE: Room = Room {
    memory_bytes: 300 * KIB,
    disk: OnDisk::Nothing,
};
const DISK: Room = Room {
    memory_bytes: 500 * KIB,
    disk: OnDisk::Pages,
};
const FLAKY_DISK: Room = Room {
    memory_bytes: 500 * KIB,
    disk: OnDisk::Flaky,
};

fn run_to_end(ops: Vec<Op>, coherence: Coherence, room: Room) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(ops, coherence, room));
}

/// Sequences of each test: 64 unless the environment asks for more.
fn cases() -> u32 {
    let text = std::env::var("FOREBAY_MODEL_CASES").ok();
    text.map_or(64, |text| text.parse().expect("a number of sequences"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn no_answer_is_older_than_allowed_or_of_two_versions(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, BOUNDED, PLENTY);
    }

    #[test]
    fn stale_answers_are_within_their_bounds_and_say_so(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, STALE, PLENTY);
    }

    #[test]
    fn strict_shows_the_current_version_and_no_other(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, Coherence::Strict, PLENTY);
    }

    #[test]
    fn exclusive_shows_nothing_from_before_a_write_that_passed(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, Coherence::Exclusive, PLENTY);
    }

    #[test]
    fn nor_when_the_cache_is_too_small(ops in vec(any_op(), 1..150)) {
        for coherence in [BOUNDED, STALE, Coherence::Strict, Coherence::Exclusive] {
            run_to_end(ops.clone(), coherence, LITTLE);
        }
    }

    #[test]
    fn nor_with_a_disk_over_restarts(ops in vec(any_op(), 1..150)) {
        for coherence in [BOUNDED, STALE, Coherence::Strict, Coherence::Exclusive] {
            run_to_end(ops.clone(), coherence, DISK);
        }
    }

    #[test]
    fn nor_with_a_disk_that_forgets_and_refuses(ops in vec(any_op(), 1..150)) {
        for coherence in [BOUNDED, STALE, Coherence::Strict, Coherence::Exclusive] {
            run_to_end(ops.clone(), coherence, FLAKY_DISK);
        }
    }
}
