//! Many tasks at once: nothing is lost, nothing is seen by halves.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::of_index::{batch, done, get, names, put, route};
use crate::index::{Applied, Batch, Change, Expect, Index, Payload, Route};

/// Tasks at once.
const TASKS: usize = 16;
/// Rounds of each.
const ROUNDS: usize = 20;

pub(super) async fn check<F: AsyncFn() -> Arc<dyn Index>>(make: &F) {
    no_increment_is_lost(&make().await).await;
    of_many_who_expect_nothing_one_writes(&make().await).await;
    readers_see_a_batch_whole(&make().await).await;
    nothing_is_left_in_what_was_found_empty(&make().await).await;
}

async fn no_increment_is_lost(index: &Arc<dyn Index>) {
    let (name, counter) = (Bytes::from("storm/sum"), Bytes::from("storm/count"));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (index, name, counter) = (Arc::clone(index), name.clone(), counter.clone());
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                while !incremented(&*index, &name, &counter).await {}
            }
        });
    }
    tasks.join_all().await;
    let there = get(&**index, &route(0), &name).await.expect("written");
    assert_eq!(there.value, (TASKS * ROUNDS).to_string());
    let sum = index.counter(&counter).await.expect("a counter");
    assert_eq!(usize::try_from(sum), Ok(TASKS * ROUNDS));
}

/// Adds one to the number that an entry tells, unless somebody else comes first.
async fn incremented(index: &dyn Index, name: &Bytes, counter: &Bytes) -> bool {
    let there = get(index, &route(0), name).await;
    let (sum, expect) = match &there {
        None => (0, Expect::Absent),
        Some(entry) => {
            let text = std::str::from_utf8(&entry.value).expect("a number");
            let sum: usize = text.parse().expect("a number");
            (sum, Expect::At(entry.sequence))
        }
    };
    let asked = Batch {
        expects: vec![(name.clone(), expect)],
        changes: vec![
            put(name, &(sum + 1).to_string(), Payload::None),
            Change::Count {
                counter: counter.clone(),
                by: 1,
            },
        ],
    };
    let applied = index.apply(&route(0), asked).await.expect("an answer");
    matches!(applied, Applied::Done(_))
}

async fn of_many_who_expect_nothing_one_writes(index: &Arc<dyn Index>) {
    for round in 0..ROUNDS {
        let name = Bytes::from(format!("storm/once/{round}"));
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let (index, name) = (Arc::clone(index), name.clone());
            tasks.spawn(async move {
                let asked = Batch {
                    expects: vec![(name.clone(), Expect::Absent)],
                    changes: vec![put(&name, &task.to_string(), Payload::None)],
                };
                let applied = index.apply(&route(round), asked).await;
                matches!(applied.expect("an answer"), Applied::Done(_)).then_some(task)
            });
        }
        let wrote: Vec<usize> = tasks.join_all().await.into_iter().flatten().collect();
        let there = get(&**index, &route(round), &name).await.expect("written");
        assert_eq!(wrote.len(), 1, "round {round}: {wrote:?} wrote");
        assert_eq!(there.value, wrote[0].to_string());
    }
}

async fn readers_see_a_batch_whole(index: &Arc<dyn Index>) {
    let pair = ["storm/whole/a", "storm/whole/b"].map(Bytes::from);
    let write = |number: usize| {
        let text = format!("{number:06}");
        let payload = Payload::Inline(text.clone().into());
        batch(pair.clone().map(|name| put(&name, &text, payload.clone())))
    };
    done(&**index, &route(8), write(0)).await;
    let mut readers = JoinSet::new();
    for task in 0..4 {
        let (index, pair) = (Arc::clone(index), pair.clone());
        readers.spawn(async move {
            let (first, second) = (task % 2, 1 - task % 2);
            for _ in 0..ROUNDS * 5 {
                let earlier = get(&*index, &route(8), &pair[first]).await.expect("there");
                let later = get(&*index, &route(8), &pair[second]).await.expect("there");
                assert!(later.value >= earlier.value, "{earlier:?}, then {later:?}");
                assert_eq!(Some(&later.value), later.payload.as_ref(), "of one version");
            }
        });
    }
    for number in 1..ROUNDS * 5 {
        done(&**index, &route(8), write(number)).await;
    }
    readers.join_all().await;
}

/// Goal: a batch for every place that expects a range to be empty, and batches that expect the
/// entry it deletes, exclude one another.
/// Method: writers put objects into a bucket that a task deletes when it is empty; a writer whose
/// object went in deletes it. Once the bucket is gone, nothing may be left.
async fn nothing_is_left_in_what_was_found_empty(index: &Arc<dyn Index>) {
    for round in 0..ROUNDS {
        let bucket = Bytes::from(format!("storm/bucket/{round:02}"));
        let objects = Bytes::from(format!("storm/objects/{round:02}/"));
        let end = Bytes::from(format!("storm/objects/{round:02}0"));
        let there = || batch([put(&bucket, "v", Payload::None)]);
        done(&**index, &Route::Every, there()).await;
        let mut writers = JoinSet::new();
        for task in 0..TASKS {
            let (index, bucket) = (Arc::clone(index), bucket.clone());
            let name = Bytes::from([&objects[..], task.to_string().as_bytes()].concat());
            writers.spawn(async move {
                let asked = Batch {
                    expects: vec![(bucket, Expect::Present)],
                    changes: vec![put(&name, "v", Payload::None)],
                };
                let applied = index.apply(&route(task), asked).await;
                if matches!(applied.expect("an answer"), Applied::Done(_)) {
                    tokio::task::yield_now().await;
                    done(&*index, &route(task), batch([Change::Delete { name }])).await;
                }
            });
        }
        let range = objects.clone()..end.clone();
        loop {
            let delete = Batch {
                expects: vec![(objects.clone(), Expect::NoneBefore(end.clone()))],
                changes: vec![Change::Delete {
                    name: bucket.clone(),
                }],
            };
            match index.apply(&Route::Every, delete).await.expect("an answer") {
                Applied::Done(_) => break,
                Applied::Unexpected { .. } => done(&**index, &Route::Every, there()).await,
            };
        }
        let left = names(&**index, range, 10).await;
        assert_eq!(
            left,
            [] as [Bytes; 0],
            "left in bucket {round}, which is gone"
        );
        writers.join_all().await;
    }
}
