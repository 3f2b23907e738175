//! Goal: on many threads at once nothing hangs, nothing is mixed, and the account stays right.
//! Method: readers, writers and clients that leave early, on few keys and a cache too small for
//! them, on four threads; each body tells by its first byte what all of it must be.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_store::{Error, contract::requests};

use super::origin::{Fixture, KIB, MIB, Setup, settings};
use crate::CacheSettings;

const TASKS: u64 = 16;
const ROUNDS: u64 = 60;

/// Versions differ in length and in every byte.
fn version(seed: u8) -> Bytes {
    let length = u64::from(seed) * 20 * KIB + 1;
    (0..length)
        .map(|at| seed ^ (at % 251).to_le_bytes()[0])
        .collect::<Vec<_>>()
        .into()
}

/// Checks that `body` is the bytes of one version from `start` on.
fn check(body: &Bytes, start: usize, total: usize) {
    let seed = u8::try_from((total as u64 - 1) / (20 * KIB)).unwrap();
    let expected = version(seed);
    assert_eq!(expected.len(), total);
    assert!(
        *body == expected[start..start + body.len()],
        "version {seed} from {start}"
    );
}

async fn work(fixture: Arc<Fixture>, task: u64) {
    let mut random = task.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = format!("key{}", random % 5);
        match random >> 8 & 7 {
            0 => {
                let bytes = version((random >> 16 & 15).to_le_bytes()[0]);
                requests::put("bucket", &key)
                    .body(bytes)
                    .expect(200, &*fixture.cache)
                    .await;
            }
            1 => {
                if let Ok(mut left) = requests::get("bucket", &key).call(&*fixture.cache).await {
                    drop(left.body.frame().await);
                }
            }
            2..=4 => {
                let start = usize::try_from(random >> 16 & 0x3_FFFF).unwrap();
                let range = format!("bytes={start}-{}", start + 100_000);
                let request = requests::get("bucket", &key).range(&range);
                match request.send(&*fixture.cache).await {
                    Ok(answer) => {
                        let total = answer.header("content-range").rsplit_once('/').unwrap().1;
                        check(&answer.body, start, total.parse().unwrap());
                    }
                    Err(Error::Refused(_) | Error::Cut { .. } | Error::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            _ => match requests::get("bucket", &key).send(&*fixture.cache).await {
                Ok(answer) => check(&answer.body, 0, answer.body.len()),
                Err(Error::Cut { .. } | Error::Unavailable { .. }) => {}
                Err(other) => panic!("{other}"),
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_share_a_cache() {
    for capacity_bytes in [500 * KIB, 16 * MIB] {
        let settings = CacheSettings {
            capacity_bytes,
            ..settings()
        };
        let fixture = Arc::new(
            Setup {
                settings,
                ..Setup::default()
            }
            .build()
            .await,
        );
        for key in 0..5 {
            fixture
                .put_bytes(&format!("key{key}"), version(7).to_vec())
                .await;
        }
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| tokio::spawn(work(Arc::clone(&fixture), task)))
            .collect();
        for task in tasks {
            let finished = tokio::time::timeout(Duration::from_mins(1), task).await;
            finished.expect("nothing hangs").unwrap();
        }
        fixture.settle().await;
        fixture.audit();
        assert_eq!(fixture.cache.layer.budget.used_bytes(), 0);
    }
}
