//! Goal: whatever is done in whatever order, a read gives a version that the coherence mode
//! allows, whole and unmixed, and the account is right.
//! Method: random operations through the cache and past it, against a map of all versions that
//! each key ever had and when it stopped being current.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use forebay_store::{Error, contract::requests, faulty::Fault};
use proptest::{collection::vec, prelude::*};

use super::origin::{Fixture, KIB, MIB, Setup, settings};
use crate::{CacheSettings, Coherence};

const TTL_MS: u64 = 60_000;

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
    Settle,
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
        2 => Just(Op::Settle),
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

#[derive(Default)]
struct Model {
    now_ms: u64,
    writes: u64,
    keys: BTreeMap<u8, Vec<Past>>,
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

    /// Versions that an answer may show now.
    fn allowed(&self, key: u8) -> Vec<Option<&Bytes>> {
        let Some(past) = self.keys.get(&key) else {
            return vec![None];
        };
        let allowed = |version: &&Past| {
            let recent = version.until_ms.saturating_add(TTL_MS) > self.now_ms;
            recent && !version.ended_through
        };
        past.iter()
            .filter(allowed)
            .map(|version| version.bytes.as_ref())
            .collect()
    }
}

async fn run(ops: Vec<Op>, capacity_bytes: u64) {
    let coherence = Coherence::Bounded {
        ttl: Duration::from_millis(TTL_MS),
        tti: None,
    };
    let settings = CacheSettings {
        capacity_bytes,
        coherence,
        ..settings()
    };
    let fixture = Setup {
        settings,
        ..Setup::default()
    }
    .build()
    .await;
    let mut model = Model::default();
    for op in ops {
        apply(&fixture, &mut model, &op).await;
    }
    fixture.settle().await;
    fixture.audit();
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
            if through {
                put.expect(200, &*fixture.cache).await;
            } else {
                put.expect(200, fixture.origin.store.inner()).await;
            }
            model.write(key, Some(bytes), through);
        }
        Op::Delete { key, through } => {
            let delete = requests::delete("bucket", &name(key));
            if through {
                delete.expect(204, &*fixture.cache).await;
            } else {
                delete.expect(204, fixture.origin.store.inner()).await;
            }
            model.write(key, None, through);
        }
        Op::Get { key } => {
            let answer = requests::get("bucket", &name(key))
                .send(&*fixture.cache)
                .await;
            check(model, key, answer.map(|answer| Ok(answer.body)), |bytes| {
                Some(bytes.clone())
            });
        }
        Op::Range { key, start, length } => {
            let range = format!("bytes={start}-{}", start + length - 1);
            let request = requests::get("bucket", &name(key)).range(&range);
            let answer = request.send(&*fixture.cache).await;
            check(model, key, answer.map(|answer| Ok(answer.body)), |bytes| {
                let from = usize::try_from(start).unwrap();
                let to = usize::try_from(start + length).unwrap().min(bytes.len());
                (from < to).then(|| bytes.slice(from..to))
            });
        }
        Op::Head { key } => {
            let answer = requests::head("bucket", &name(key))
                .send(&*fixture.cache)
                .await;
            let length = answer.map(|answer| Err(answer.header("content-length").to_owned()));
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
        Op::Settle => {
            fixture.settle().await;
            fixture.audit();
        }
    }
}

fn name(key: u8) -> String {
    format!("key{key}")
}

/// Checks a body, or a length, against all versions that it may be of.
fn check(
    model: &Model,
    key: u8,
    answer: Result<Result<Bytes, String>, Error>,
    part: impl Fn(&Bytes) -> Option<Bytes>,
) {
    let allowed = model.allowed(key);
    let sizes: Vec<_> = allowed
        .iter()
        .map(|version| version.map(Bytes::len))
        .collect();
    match answer {
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
        // Cut by a fault, or because the object changed under way.
        Err(Error::Cut { .. }) => {}
        Err(Error::Refused(refusal)) => match refusal.code.as_str() {
            "NoSuchKey" => assert!(allowed.contains(&None), "key{key} is one of {sizes:?}"),
            "InvalidRange" => assert!(allowed.iter().flatten().any(|v| part(v).is_none())),
            other => panic!("{other}"),
        },
        Err(other) => panic!("{other}"),
    }
}

fn run_to_end(ops: Vec<Op>, capacity_bytes: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(ops, capacity_bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_is_older_than_allowed_or_of_two_versions(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, 64 * MIB);
    }

    #[test]
    fn nor_when_the_cache_is_too_small(ops in vec(any_op(), 1..150)) {
        run_to_end(ops, 300 * KIB);
    }
}
