//! Entries, payloads, ranges, counters, and what is there after a restart.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use bytes::Bytes;

use crate::index::{Applied, Batch, Change, Entry, Expect, Index, Payload, Route, Sequence, Want};

pub(super) async fn check<F: AsyncFn() -> Arc<dyn Index>>(make: &F) {
    an_entry_comes_back_as_it_was_written(&*make().await).await;
    a_later_change_has_a_larger_number(&*make().await).await;
    a_payload_is_kept_replaced_or_dropped(&*make().await).await;
    ranges_give_names_in_order_and_once(&*make().await).await;
    ranges_end_before_their_end(&*make().await).await;
    counters_add_up_over_all_routes(&*make().await).await;
}

/// A route of its own for each number.
pub(super) fn route(number: usize) -> Route {
    Route::One(format!("contract-route-{number}").into())
}

/// Writes an entry with a payload.
pub(super) fn put(name: &Bytes, value: &str, payload: Payload) -> Change {
    Change::Put {
        name: name.clone(),
        value: value.to_owned().into(),
        payload,
    }
}

/// A batch that expects nothing.
pub(super) fn batch(changes: impl Into<Vec<Change>>) -> Batch {
    Batch {
        expects: Vec::new(),
        changes: changes.into(),
    }
}

/// Applies a batch that must happen.
pub(super) async fn done(index: &dyn Index, route: &Route, batch: Batch) -> Sequence {
    match index.apply(route, batch).await {
        Ok(Applied::Done(sequence)) => sequence,
        other => panic!("not applied: {other:?}"),
    }
}

/// The entry with its payload.
pub(super) async fn get(index: &dyn Index, route: &Route, name: &Bytes) -> Option<Entry> {
    index.get(route, name, Want::Payload).await.expect("a get")
}

/// All names of a range, read in pages of `entries_max`.
pub(super) async fn names(
    index: &dyn Index,
    range: Range<Bytes>,
    entries_max: usize,
) -> Vec<Bytes> {
    let (mut found, mut from) = (Vec::new(), range.start);
    loop {
        let page = index
            .range(from.clone()..range.end.clone(), entries_max)
            .await
            .expect("a range");
        assert!(page.len() <= entries_max, "more entries than asked for");
        let Some(last) = page.last() else {
            return found;
        };
        from = [&last.name[..], &[0]].concat().into();
        assert!(
            page.iter().all(|entry| entry.payload.is_none()),
            "a range gives no payloads"
        );
        found.extend(page.into_iter().map(|entry| entry.name));
    }
}

async fn an_entry_comes_back_as_it_was_written(index: &dyn Index) {
    let (name, route) = (Bytes::from("written/\0\u{ff}"), route(0));
    assert_eq!(get(index, &route, &name).await, None);
    let payload = Payload::Inline("bytes".into());
    let sequence = done(index, &route, batch([put(&name, "value", payload)])).await;
    let entry = Entry {
        name: name.clone(),
        sequence,
        value: "value".into(),
        payload: Some("bytes".into()),
    };
    assert_eq!(get(index, &route, &name).await, Some(entry.clone()));
    let without = index.get(&route, &name, Want::Value).await.expect("a get");
    let payload = None;
    assert_eq!(without, Some(Entry { payload, ..entry }));
    let delete = || batch([Change::Delete { name: name.clone() }]);
    done(index, &route, delete()).await;
    assert_eq!(get(index, &route, &name).await, None);
    // What is not there is deleted already.
    done(index, &route, delete()).await;
}

async fn a_later_change_has_a_larger_number(index: &dyn Index) {
    let (name, route) = (Bytes::from("numbered/a"), route(0));
    let mut last = Sequence(0);
    for round in 0..4 {
        let sequence = done(index, &route, batch([put(&name, "v", Payload::None)])).await;
        assert!(
            sequence > last,
            "round {round}: {sequence:?} after {last:?}"
        );
        let there = get(index, &route, &name).await.expect("it was written");
        assert_eq!(there.sequence, sequence, "told and read alike");
        last = sequence;
        if round % 2 == 1 {
            let name = name.clone();
            let deleted = done(index, &route, batch([Change::Delete { name }])).await;
            assert!(deleted > last, "a delete is a change as well");
            last = deleted;
        }
    }
}

async fn a_payload_is_kept_replaced_or_dropped(index: &dyn Index) {
    let (name, route) = (Bytes::from("payload/a"), route(1));
    for (payload, expected) in [
        (Payload::Keep, None),
        (Payload::Inline("one".into()), Some("one")),
        (Payload::Keep, Some("one")),
        (Payload::Inline("two".into()), Some("two")),
        (Payload::None, None),
        (Payload::Keep, None),
        (Payload::Inline(Bytes::new()), Some("")),
    ] {
        let told = format!("{payload:?}");
        done(index, &route, batch([put(&name, &told, payload)])).await;
        let there = get(index, &route, &name).await.expect("it was written");
        assert_eq!(there.value, told);
        assert_eq!(there.payload, expected.map(Bytes::from), "after {told}");
    }
    let deleted = batch([Change::Delete { name: name.clone() }]);
    done(index, &route, deleted).await;
    done(index, &route, batch([put(&name, "v", Payload::Keep)])).await;
    let there = get(index, &route, &name).await.expect("it was written");
    assert_eq!(there.payload, None, "a deleted payload does not come back");
}

async fn ranges_give_names_in_order_and_once(index: &dyn Index) {
    let mut expected = BTreeSet::new();
    for number in 0..97_usize {
        // Names in an order of their own, over routes that have nothing to do with it.
        let name = Bytes::from(format!("ordered/{:03}", number * 37 % 97));
        let entry = batch([put(&name, "v", Payload::Inline("p".into()))]);
        done(index, &route(number % 13), entry).await;
        expected.insert(name);
    }
    for tail in [&b"\0"[..], b"\0\0", b"\xff", b"\xff\xff", b"~", b"\n"] {
        let name = Bytes::from([b"ordered/", tail].concat());
        let entry = batch([put(&name, "v", Payload::None)]);
        done(index, &route(tail.len()), entry).await;
        expected.insert(name);
    }
    let expected: Vec<Bytes> = expected.into_iter().collect();
    for entries_max in [1, 2, 7, 50, 1000] {
        let range = Bytes::from("ordered/")..Bytes::from("ordered0");
        let found = names(index, range, entries_max).await;
        assert_eq!(found, expected, "in pages of {entries_max}");
    }
}

async fn ranges_end_before_their_end(index: &dyn Index) {
    for (number, name) in ["ends/a", "ends/b", "ends/b\0", "ends/c"]
        .iter()
        .enumerate()
    {
        let name = Bytes::from(*name);
        done(
            index,
            &route(number),
            batch([put(&name, "v", Payload::None)]),
        )
        .await;
    }
    for (start, end, expected) in [
        ("ends/a", "ends/c", &["ends/a", "ends/b", "ends/b\0"][..]),
        ("ends/a\0", "ends/b\0", &["ends/b"]),
        ("ends/b\0", "ends/d", &["ends/b\0", "ends/c"]),
        ("ends/b", "ends/b", &[]),
        ("ends/c", "ends/a", &[]),
        ("ends/d", "ends/e", &[]),
    ] {
        let found = names(index, start.into()..end.into(), 10).await;
        assert_eq!(found, expected, "{start:?}..{end:?}");
    }
}

async fn counters_add_up_over_all_routes(index: &dyn Index) {
    let counter = Bytes::from("counted/a");
    let value = async |counter: &Bytes| index.counter(counter).await.expect("a counter");
    assert_eq!(value(&counter).await, 0);
    let mut sum = 0;
    for (number, by) in [5, -7, 1 << 40, 0, -3].into_iter().enumerate() {
        let counter = counter.clone();
        done(
            index,
            &route(number),
            batch([Change::Count { counter, by }]),
        )
        .await;
        sum += by;
    }
    assert_eq!(value(&counter).await, sum);
    assert_eq!(value(&Bytes::from("counted/b")).await, 0);
    let none = Batch {
        expects: vec![("counted/absent".into(), Expect::Present)],
        changes: vec![Change::Count {
            counter: counter.clone(),
            by: 1,
        }],
    };
    let applied = index.apply(&route(0), none).await.expect("an answer");
    assert_eq!(applied, Applied::Unexpected { expect_index: 0 });
    assert_eq!(
        value(&counter).await,
        sum,
        "what did not happen is not counted"
    );
}

pub(super) async fn reopened<F: AsyncFn() -> Arc<dyn Index>>(open: &F) {
    let name = |text: &'static str| Bytes::from(text);
    let first = open().await;
    let index = &*first;
    let kept = [
        put(&name("reopened/a"), "one", Payload::Inline("p".into())),
        put(&name("reopened/b"), "two", Payload::None),
        Change::Count {
            counter: name("reopened/count"),
            by: 3,
        },
    ];
    done(index, &route(0), batch(kept)).await;
    let gone = batch([put(&name("reopened/c"), "three", Payload::None)]);
    done(index, &route(1), gone).await;
    let delete = Change::Delete {
        name: name("reopened/c"),
    };
    let deleted = done(index, &route(1), batch([delete])).await;
    let everywhere = batch([put(&name("reopened/every"), "four", Payload::None)]);
    done(index, &Route::Every, everywhere).await;
    let before = get(index, &route(0), &name("reopened/a")).await;
    drop(first);

    let second = open().await;
    let index = &*second;
    assert_eq!(get(index, &route(0), &name("reopened/a")).await, before);
    let range = || name("reopened/")..name("reopened0");
    let found = names(index, range(), 2).await;
    assert_eq!(found, ["reopened/a", "reopened/b", "reopened/every"]);
    let counted = index.counter(b"reopened/count").await.expect("a counter");
    assert_eq!(counted, 3);
    let again = put(&name("reopened/c"), "five", Payload::None);
    let later = done(index, &route(1), batch([again])).await;
    assert!(later > deleted, "numbers go on after a restart");
    let expecting = Batch {
        expects: vec![(name("reopened/every"), Expect::Present)],
        changes: vec![put(&name("reopened/d"), "six", Payload::None)],
    };
    done(index, &route(7), expecting).await;
}
