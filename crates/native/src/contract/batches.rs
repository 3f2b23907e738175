//! Batches: what they expect, that they happen as one, and their limits.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;

use super::of_index::{batch, done, get, names, put, route};
use crate::index::{
    Applied, Batch, CHANGES_MAX, Change, Expect, Index, NAME_BYTES_MAX, Payload, Route, Sequence,
    VALUE_BYTES_MAX,
};

pub(super) async fn check<F: AsyncFn() -> Arc<dyn Index>>(make: &F) {
    expectations_are_judged(&*make().await).await;
    the_first_expectation_that_fails_is_told_and_nothing_happens(&*make().await).await;
    an_entry_of_every_place_is_one_entry(&*make().await).await;
    every_place_refuses_what_one_place_has(&*make().await).await;
    a_batch_at_the_limits_happens_and_beyond_is_refused(&*make().await).await;
    a_batch_of_the_most_changes_happens(&*make().await).await;
    a_dropped_batch_is_done_or_not(&*make().await).await;
}

async fn expectations_are_judged(index: &dyn Index) {
    let route = route(2);
    let [there, gone, other] = ["expected/there", "expected/gone", "expected/x"].map(Bytes::from);
    let before = done(index, &route, batch([put(&there, "v", Payload::None)])).await;
    let at = done(index, &route, batch([put(&there, "w", Payload::None)])).await;
    let until = |end: &str| Expect::NoneBefore(format!("expected/{end}").into());
    for (name, expect, holds) in [
        (&there, Expect::Present, true),
        (&gone, Expect::Present, false),
        (&there, Expect::Absent, false),
        (&gone, Expect::Absent, true),
        (&there, Expect::At(at), true),
        (&there, Expect::At(before), false),
        (&there, Expect::At(Sequence(at.0 + 1)), false),
        (&gone, Expect::At(at), false),
        (&gone, until("h"), true),
        (&gone, until("there"), true),
        (&gone, until("there\0"), false),
        (&there, until("there"), true),
        (&there, until("there\0"), false),
        (&other, until("y"), true),
    ] {
        let told = format!("{name:?} {expect:?}");
        let asked = Batch {
            expects: vec![(name.clone(), expect)],
            changes: vec![Change::Count {
                counter: "expected/count".into(),
                by: 1,
            }],
        };
        let applied = index.apply(&route, asked).await.expect("an answer");
        assert_eq!(matches!(applied, Applied::Done(_)), holds, "{told}");
    }
}

async fn the_first_expectation_that_fails_is_told_and_nothing_happens(index: &dyn Index) {
    let route = route(3);
    let [a, b, c] = ["whole/a", "whole/b", "whole/c"].map(Bytes::from);
    let there = batch([put(&a, "old", Payload::Inline("p".into()))]);
    done(index, &route, there).await;
    let before = get(index, &route, &a).await;
    let expects = [
        (a.clone(), Expect::Present),
        (b.clone(), Expect::Absent),
        (b.clone(), Expect::Present),
        (a.clone(), Expect::Absent),
    ];
    let refused = Batch {
        expects: expects[..].into(),
        changes: [&a, &b].map(|name| put(name, "new", Payload::None)).into(),
    };
    let applied = index.apply(&route, refused).await.expect("an answer");
    assert_eq!(applied, Applied::Unexpected { expect_index: 2 });
    assert_eq!(get(index, &route, &a).await, before);
    assert_eq!(get(index, &route, &b).await, None);
    let all = Batch {
        expects: expects[..2].into(),
        changes: vec![
            Change::Delete { name: a.clone() },
            put(&b, "new", Payload::Inline("q".into())),
            put(&c, "new", Payload::None),
        ],
    };
    let sequence = done(index, &route, all).await;
    assert_eq!(get(index, &route, &a).await, None);
    for name in [&b, &c] {
        let entry = get(index, &route, name).await.expect("it was written");
        assert_eq!(entry.sequence, sequence, "one number for all of a batch");
    }
}

async fn an_entry_of_every_place_is_one_entry(index: &dyn Index) {
    let name = Bytes::from("every/a");
    let sequence = done(
        index,
        &Route::Every,
        batch([put(&name, "v", Payload::None)]),
    )
    .await;
    let there = get(index, &Route::Every, &name).await.expect("written");
    assert_eq!((there.sequence, &there.value[..]), (sequence, &b"v"[..]));
    let range = Bytes::from("every/")..Bytes::from("every0");
    assert_eq!(names(index, range, 10).await, std::slice::from_ref(&name));
    let expecting = |expect, number: usize| Batch {
        expects: vec![(name.clone(), expect)],
        changes: vec![put(
            &format!("every-object/{number}").into(),
            "v",
            Payload::None,
        )],
    };
    for number in 0..40 {
        done(index, &route(number), expecting(Expect::Present, number)).await;
    }
    let conditional = |sequence| Batch {
        expects: vec![(name.clone(), Expect::At(sequence))],
        changes: vec![put(&name, "w", Payload::None)],
    };
    let changed = done(index, &Route::Every, conditional(sequence)).await;
    let applied = index.apply(&Route::Every, conditional(sequence)).await;
    assert_eq!(
        applied.expect("an answer"),
        Applied::Unexpected { expect_index: 0 },
        "it was changed at {changed:?}"
    );
    let delete = batch([Change::Delete { name: name.clone() }]);
    done(index, &Route::Every, delete).await;
    assert_eq!(get(index, &Route::Every, &name).await, None);
    for number in 0..40 {
        done(index, &route(number), expecting(Expect::Absent, number)).await;
    }
}

async fn every_place_refuses_what_one_place_has(index: &dyn Index) {
    let bucket = Bytes::from("emptied/bucket");
    let create = || batch([put(&bucket, "v", Payload::None)]);
    let object = |number: usize| Bytes::from(format!("emptied/object/{number}"));
    let delete = || Batch {
        expects: vec![
            (bucket.clone(), Expect::Present),
            (
                "emptied/object/".into(),
                Expect::NoneBefore("emptied/object0".into()),
            ),
        ],
        changes: vec![Change::Delete {
            name: bucket.clone(),
        }],
    };
    done(index, &Route::Every, create()).await;
    for number in 0..20 {
        let entry = batch([put(&object(number), "v", Payload::None)]);
        done(index, &route(number), entry).await;
        let applied = index.apply(&Route::Every, delete()).await;
        let refused = Applied::Unexpected { expect_index: 1 };
        assert_eq!(applied.expect("an answer"), refused, "object {number}");
        assert!(get(index, &Route::Every, &bucket).await.is_some());
        // Some places have lost their copy, and putting it again mends that.
        done(index, &Route::Every, create()).await;
        let expecting = Batch {
            expects: vec![(bucket.clone(), Expect::Present)],
            changes: vec![Change::Delete {
                name: object(number),
            }],
        };
        done(index, &route(number), expecting).await;
    }
    done(index, &Route::Every, delete()).await;
    assert_eq!(get(index, &Route::Every, &bucket).await, None);
}

async fn a_batch_at_the_limits_happens_and_beyond_is_refused(index: &dyn Index) {
    let name = |length: usize| {
        let mut name = b"limits/".to_vec();
        name.resize(length, b'n');
        Bytes::from(name)
    };
    let (name_max, value_max) = (NAME_BYTES_MAX, VALUE_BYTES_MAX);
    let payload_max = index.payload_bytes_max();
    let entry = |name_bytes: usize, value_bytes: usize, payload_bytes: usize| Change::Put {
        name: name(name_bytes),
        value: vec![b'v'; value_bytes].into(),
        payload: Payload::Inline(vec![b'p'; payload_bytes].into()),
    };
    for (over, refused) in [
        ("name", entry(name_max + 1, 1, 1)),
        ("value", entry(20, value_max + 1, 1)),
        ("payload", entry(20, 1, payload_max + 1)),
    ] {
        let first = put(&name(10), "v", Payload::None);
        let asked = batch([first, refused]);
        assert!(index.apply(&route(4), asked).await.is_err(), "{over}");
        assert_eq!(get(index, &route(4), &name(10)).await, None, "{over}");
    }
    let many = (0..=CHANGES_MAX).map(|_| Change::Delete { name: name(30) });
    let many = batch(many.collect::<Vec<_>>());
    assert!(index.apply(&route(4), many).await.is_err(), "changes");
    let largest = batch([entry(name_max, value_max, payload_max)]);
    done(index, &route(4), largest).await;
    let there = get(index, &route(4), &name(name_max)).await.expect("there");
    let payload_bytes = there.payload.map(|payload| payload.len());
    assert_eq!(
        (there.value.len(), payload_bytes),
        (value_max, Some(payload_max))
    );
}

async fn a_batch_of_the_most_changes_happens(index: &dyn Index) {
    let name = |number: usize| Bytes::from(format!("most/{number:05}"));
    let puts = (0..CHANGES_MAX).map(|number| put(&name(number), "v", Payload::None));
    done(index, &route(5), batch(puts.collect::<Vec<_>>())).await;
    let range = || Bytes::from("most/")..Bytes::from("most0");
    assert_eq!(names(index, range(), 1000).await.len(), CHANGES_MAX);
    let deletes = Batch {
        expects: (0..CHANGES_MAX)
            .map(|number| (name(number), Expect::Present))
            .collect(),
        changes: (0..CHANGES_MAX)
            .map(|number| Change::Delete { name: name(number) })
            .collect(),
    };
    done(index, &route(5), deletes).await;
    assert_eq!(names(index, range(), 1000).await, [] as [Bytes; 0]);
}

async fn a_dropped_batch_is_done_or_not(index: &dyn Index) {
    let route = route(6);
    for round in 0..20 {
        let pair = ["a", "b"].map(|end| Bytes::from(format!("dropped/{round:02}{end}")));
        let both = batch(pair.clone().map(|name| put(&name, "v", Payload::None)));
        // Polled once, then dropped where it waits.
        let _ = index.apply(&route, both).now_or_never();
        let expecting = |expect: &Expect| Batch {
            expects: pair.clone().map(|name| (name, expect.clone())).into(),
            changes: Vec::new(),
        };
        // It may still happen, but never by halves: both or none at any one time.
        let mut whole = false;
        for _ in 0..100 {
            for expect in [Expect::Present, Expect::Absent] {
                let applied = index.apply(&route, expecting(&expect)).await;
                whole |= matches!(applied, Ok(Applied::Done(_)));
            }
            if whole {
                break;
            }
        }
        assert!(whole, "round {round} was seen by halves a hundred times");
    }
}
