//! Comparisons of members that differ at random, with and without writes beside them.

use std::collections::BTreeMap;

use forebay_store::{
    Store,
    contract::requests::{
        bucket_name, complete_upload, create_bucket, create_upload, get, get_tags, list_buckets,
        list_v2, put, put_tags, upload_part,
    },
    faulty::Fault,
};

use super::*;
use crate::{
    journal::Standing,
    rig::{Rig, members, subject},
};

/// What a member has: bytes and tags by bucket and key.
type World = BTreeMap<String, BTreeMap<String, (String, String)>>;

async fn world(store: &dyn Store) -> World {
    let mut world = World::new();
    for bucket in list_buckets().expect(200, store).await.elements("Name") {
        let mut keys = BTreeMap::new();
        for key in list_v2(&bucket).expect(200, store).await.elements("Key") {
            let read = get(&bucket, &key).expect(200, store).await;
            let tags = get_tags(&bucket, &key).expect(200, store).await.text();
            let told = format!("{}{}", read.header("etag"), read.header("x-amz-meta-m"));
            keys.insert(key, (told, tags));
        }
        world.insert(bucket, keys);
    }
    world
}

async fn assert_equal(rig: &Rig) -> World {
    let first = world(&*rig.members[0]).await;
    for member in &rig.members[1..] {
        assert_eq!(world(&**member).await, first);
    }
    first
}

fn order(remedy: Remedy, depth: Depth) -> CompareOrder {
    CompareOrder {
        scope: CompareScope::All,
        remedy,
        depth,
    }
}

async fn compare(rig: &Rig, order: CompareOrder) -> CompareCounts {
    let progress = Arc::new(CompareProgress::default());
    rig.mirror
        .operator()
        .compare(order, &progress)
        .await
        .unwrap();
    progress.counts()
}

/// Goal: a repair makes all members equal, and loses nothing that most of them have.
/// Method: each key has random states at the members, none of which the journal knows.
#[tokio::test]
async fn after_a_repair_all_are_equal_and_what_most_have_is_kept() {
    for case in 0..40 {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        println!("case {case} seed {seed}");
        let count = random.usize(2..5);
        let rig = Rig::new(count).await;
        let mut states: BTreeMap<String, Vec<Option<&str>>> = BTreeMap::new();
        for _ in 0..random.usize(0..25) {
            let key = format!(
                "{}{}",
                random.lowercase(),
                random.choice(["", "/x"]).unwrap()
            );
            let all = states
                .entry(key.clone())
                .or_insert_with(|| vec![None; count]);
            for (member, state) in all.iter_mut().enumerate() {
                *state = random
                    .choice([None, Some("one"), Some("two"), Some("two")])
                    .unwrap();
                rig.set(member, &key, *state).await;
            }
            rig.clock.advance(std::time::Duration::from_secs(1));
        }
        let told = compare(&rig, order(Remedy::Tell, Depth::Listed)).await;
        let differ = states
            .values()
            .filter(|all| all.iter().any(|state| *state != all[0]));
        assert_eq!(told.differ(), differ.count() as u64, "{seed} {told:?}");
        assert_eq!(
            (told.repaired, told.failed, told.pending),
            (0, 0, 0),
            "{seed}"
        );
        let repaired = compare(&rig, order(Remedy::Restore, Depth::Listed)).await;
        assert_eq!(repaired.repaired, told.differ(), "{seed} {repaired:?}");
        let all = assert_equal(&rig).await;
        for (key, states) in &states {
            let has = all["bucket"].get(key).map(|(tag, _)| tag.clone());
            let is_anywhere = states.iter().any(Option::is_some);
            assert_eq!(has.is_some(), is_anywhere, "{seed} {key} {states:?}");
            for content in ["one", "two"] {
                let votes = states
                    .iter()
                    .filter(|state| **state == Some(content))
                    .count();
                if votes * 2 > count {
                    let read = get("bucket", key).expect(200, &*rig.members[0]).await;
                    assert_eq!(read.text(), content, "{seed} {key} {states:?}");
                }
            }
        }
        let again = compare(&rig, order(Remedy::Restore, Depth::Full)).await;
        assert_eq!((again.differ(), again.repaired), (0, 0), "{seed} {again:?}");
    }
}

#[tokio::test]
async fn what_the_journal_knows_is_pending_and_left_to_it() {
    let rig = Rig::new(3).await;
    rig.set(0, "k", Some("right")).await;
    rig.set(1, "k", Some("wrong")).await;
    rig.set(2, "k", Some("wrong")).await;
    rig.owe(&subject("k"), &[1, 2]).await;
    let counts = compare(&rig, order(Remedy::Restore, Depth::Listed)).await;
    assert_eq!((counts.pending, counts.differ(), counts.keys), (1, 0, 1));
    assert_eq!(
        get("bucket", "k")
            .expect(200, &*rig.members[1])
            .await
            .text(),
        "wrong"
    );
}

#[tokio::test]
async fn an_object_that_most_lack_is_restored_unless_deletes_are_ordered() {
    for (remedy, is_there) in [(Remedy::Restore, true), (Remedy::DeleteByMajority, false)] {
        let rig = Rig::new(3).await;
        rig.set(1, "k", Some("x")).await;
        let counts = compare(&rig, order(remedy, Depth::Listed)).await;
        assert_eq!((counts.missing, counts.repaired), (1, 1));
        assert_eq!(counts.deleted, u64::from(!is_there));
        let world = assert_equal(&rig).await;
        assert_eq!(world["bucket"].contains_key("k"), is_there);
        let difference = &counts.differences[0];
        assert_eq!(
            (difference.key.as_str(), difference.kind),
            ("k", DifferenceKind::Missing)
        );
        assert_eq!(difference.members[0], ("m0".to_owned(), None));
        assert_eq!(
            difference.members[1].1.as_ref().map(|(_, size)| *size),
            Some(1)
        );
    }
}

#[tokio::test]
async fn of_versions_without_a_majority_the_last_modified_stays_and_is_a_conflict() {
    let rig = Rig::new(2).await;
    rig.set(1, "k", Some("old")).await;
    rig.clock.advance(std::time::Duration::from_secs(5));
    rig.set(0, "k", Some("new")).await;
    let counts = compare(&rig, order(Remedy::Restore, Depth::Listed)).await;
    assert_eq!((counts.conflicts, counts.differing), (1, 1));
    assert_eq!(
        get("bucket", "k")
            .expect(200, &*rig.members[1])
            .await
            .text(),
        "new"
    );
}

#[tokio::test]
async fn a_scope_leaves_other_keys_alone_and_buckets_are_made() {
    let rig = Rig::new(2).await;
    for name in ["a/1", "b/1"] {
        rig.set(0, name, Some("x")).await;
    }
    let bucket = bucket_name("bucket");
    let scoped = |scope| CompareOrder {
        scope,
        ..order(Remedy::Restore, Depth::Listed)
    };
    let prefix = CompareScope::Prefix(bucket.clone(), "b/".into());
    let counts = compare(&rig, scoped(prefix)).await;
    assert_eq!((counts.keys, counts.repaired), (1, 1));
    assert_eq!(
        get("bucket", "a/1").refusal(&*rig.members[1]).await,
        "NoSuchKey"
    );
    create_bucket("other").expect(200, &*rig.members[0]).await;
    put("other", "k")
        .body("x")
        .expect(200, &*rig.members[0])
        .await;
    let counts = compare(&rig, scoped(CompareScope::Bucket(bucket))).await;
    assert_eq!((counts.buckets, counts.repaired), (1, 1));
    let counts = compare(&rig, scoped(CompareScope::All)).await;
    assert_eq!((counts.buckets, counts.missing, counts.repaired), (2, 2, 2));
    assert_equal(&rig).await;
}

/// Uploads `size` bytes in one request, or in two parts.
async fn upload(rig: &Rig, member: usize, parts: &[usize]) {
    let store = &*rig.members[member];
    let create = create_upload("bucket", "k").header("x-amz-checksum-algorithm", "CRC32");
    let create = create.header("x-amz-checksum-type", "COMPOSITE");
    let id = create.expect(200, store).await.element("UploadId");
    let mut tags = Vec::new();
    for (at, size) in parts.iter().enumerate() {
        let number = u16::try_from(at + 1).unwrap();
        let part = upload_part("bucket", "k", &id, number).body(vec![7; *size]);
        tags.push((
            number,
            part.expect(200, store).await.header("etag").to_owned(),
        ));
    }
    let tags: Vec<_> = tags.iter().map(|(n, tag)| (*n, tag.as_str())).collect();
    complete_upload("bucket", "k", &id, &tags)
        .expect(200, store)
        .await;
}

#[tokio::test]
async fn parts_of_other_sizes_are_undecided_until_the_bytes_are_read() {
    const MIB: usize = 1 << 20;
    let rig = Rig::new(2).await;
    upload(&rig, 0, &[5 * MIB, 3 * MIB]).await;
    upload(&rig, 1, &[6 * MIB, 2 * MIB]).await;
    let counts = compare(&rig, order(Remedy::Restore, Depth::Listed)).await;
    assert_eq!((counts.undecided, counts.repaired), (1, 0));
    let counts = compare(&rig, order(Remedy::Restore, Depth::Full)).await;
    assert_eq!((counts.differ(), counts.repaired), (0, 0));
    let other = put("bucket", "k").body(vec![8; 8 * MIB]);
    other.expect(200, &*rig.members[1]).await;
    let counts = compare(&rig, order(Remedy::Restore, Depth::Full)).await;
    assert_eq!((counts.differing, counts.repaired), (1, 1));
    assert_equal(&rig).await;
}

#[tokio::test]
async fn tags_alone_differ_at_full_depth() {
    let rig = Rig::new(3).await;
    rig.set_all("k", Some("x")).await;
    for member in [0, 2] {
        put_tags("bucket", "k", &[("a", "1")])
            .expect(200, &*rig.members[member])
            .await;
    }
    put_tags("bucket", "k", &[("a", "2")])
        .expect(200, &*rig.members[1])
        .await;
    let counts = compare(&rig, order(Remedy::Restore, Depth::Listed)).await;
    assert_eq!(counts.differ(), 0);
    let counts = compare(&rig, order(Remedy::Restore, Depth::Full)).await;
    assert_eq!((counts.differing, counts.repaired), (1, 1));
    assert_equal(&rig).await;
}

/// Marks a member as one that is to be compared as a whole.
async fn mark(rig: &Rig, member: u8) {
    // The journal meets all of them first: whom it meets later is new, and has nothing.
    rig.mirror.repairer().turn().await.unwrap();
    let (id, standing) = (MemberId(member), Standing::Whole(rig.shared.now_ms()));
    rig.shared.journal.set_standing(id, standing).await.unwrap();
    rig.shared.stands(id, standing);
}

/// Goal: a member that lost track becomes like the others, whatever it has, without a vote.
#[tokio::test(start_paused = true)]
async fn a_member_is_brought_back_as_the_others_are() {
    for case in 0..20 {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        println!("case {case} seed {seed}");
        let rig = Rig::new(3).await;
        for at in 0..random.usize(0..20) {
            let key = format!("k{at}");
            let right = random.choice([None, Some("one"), Some("two")]).unwrap();
            for member in [0, 1] {
                rig.set(member, &key, right).await;
            }
            let has = random.choice([None, Some("one"), Some("two")]).unwrap();
            rig.set(2, &key, has).await;
        }
        // Something that no other has, in a bucket that no other has.
        create_bucket("extra").expect(200, &*rig.members[2]).await;
        put("extra", "k")
            .body("x")
            .expect(200, &*rig.members[2])
            .await;
        create_bucket("lacked").expect(200, &*rig.members[0]).await;
        create_bucket("lacked").expect(200, &*rig.members[1]).await;
        let expected = world(&*rig.members[0]).await;
        mark(&rig, 2).await;
        let progress = Arc::new(CompareProgress::default());
        rig.mirror.operator().resync("m2", &progress).await.unwrap();
        assert_eq!(assert_equal(&rig).await, expected, "{seed}");
        assert_eq!(rig.shared.standing(MemberId(2)), Standing::Known);
        assert_eq!(progress.counts().failed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_of_what_was_written_lately_is_compared_when_a_member_comes_back() {
    let rig = Rig::new(2).await;
    rig.set(1, "k", Some("x")).await;
    mark(&rig, 1).await;
    rig.clock.advance(std::time::Duration::from_hours(1));
    let same = put("bucket", "k").header("x-amz-meta-m", "new").body("x");
    same.expect(200, &*rig.members[0]).await;
    let progress = Arc::new(CompareProgress::default());
    rig.mirror.operator().resync("m1", &progress).await.unwrap();
    assert_equal(&rig).await;
}

/// Goal: writes go on while a member is brought back, and it has all of them at the end.
/// Method: clients write and delete all the time, and the member fails one request in ten: what it
/// misses from the beginning on is in the journal, and what it missed before is found.
#[tokio::test(start_paused = true)]
async fn a_member_is_brought_back_while_clients_write() {
    for case in 0..4 {
        let seed = fastrand::u64(..);
        println!("case {case} seed {seed}");
        while_clients_write(seed).await;
    }
}

async fn while_clients_write(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let rig = Rig::new(3).await;
    for at in 0..50 {
        let bytes = format!("{at}");
        rig.set(0, &format!("k{at}"), Some(&bytes)).await;
        rig.set(1, &format!("k{at}"), Some(&bytes)).await;
    }
    mark(&rig, 2).await;
    let fault = |random: &mut fastrand::Rng| match random.u8(0..10) {
        0 => Fault::Unavailable,
        _ => Fault::None,
    };
    let faults: Vec<_> = (0..2000).map(|_| fault(&mut random)).collect();
    rig.members[2].script(faults);
    let writing = async {
        for at in 0..100 {
            let key = format!("k{}", random.usize(0..70));
            if random.u8(0..5) == 0 {
                let delete = forebay_store::contract::requests::delete("bucket", &key);
                delete.expect(204, &rig.mirror).await;
            } else {
                put("bucket", &key)
                    .body(format!("w{at}"))
                    .expect(200, &rig.mirror)
                    .await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let operator = rig.mirror.operator();
    let coming_back = async {
        let progress = Arc::new(CompareProgress::default());
        while operator.resync("m2", &progress).await.is_err() {
            rig.mirror.repairer().turn().await.unwrap();
        }
    };
    tokio::join!(coming_back, writing);
    rig.settle().await;
    for _ in 0..1000 {
        if rig.shared.journal.keys().await.unwrap() == 0 {
            break;
        }
        rig.clock.advance(std::time::Duration::from_mins(1));
        rig.mirror.repairer().turn().await.unwrap();
    }
    assert_equal(&rig).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_member_misses_while_it_is_compared_is_in_the_journal() {
    let rig = Rig::new(3).await;
    mark(&rig, 2).await;
    // So long ago that no gateway writes down what it misses.
    rig.clock.advance(std::time::Duration::from_mins(1));
    let progress = Arc::new(CompareProgress::default());
    let operator = rig.mirror.operator();
    let writing = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        rig.members[2].script([Fault::Unavailable]);
        put("bucket", "k").body("x").expect(200, &rig.mirror).await;
        rig.settle().await;
        let held = rig.shared.held(&subject("k")).await.unwrap().unwrap();
        assert_eq!(held.entry.owing(), members(&[2]));
    };
    let (back, ()) = tokio::join!(operator.resync("m2", &progress), writing);
    back.unwrap();
    rig.mirror.repairer().turn().await.unwrap();
    assert_equal(&rig).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_being_written_is_compared_when_that_has_ended() {
    let rig = Rig::new(2).await;
    rig.set(0, "k", Some("first")).await;
    let lock = rig.shared.locks.lock(&subject("k")).await.unwrap();
    let writing = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(
            get("bucket", "k").refusal(&*rig.members[1]).await,
            "NoSuchKey"
        );
        rig.set_all("k", Some("second")).await;
        lock.release().await;
    };
    let ordered = order(Remedy::Restore, Depth::Listed);
    let (counts, ()) = tokio::join!(compare(&rig, ordered), writing);
    assert_eq!((counts.keys, counts.differ(), counts.repaired), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_can_not_be_compared_stays_out_of_reads() {
    let rig = Rig::new(2).await;
    rig.set(0, "k", Some("x")).await;
    mark(&rig, 1).await;
    rig.members[1].script(vec![Fault::Unavailable; 50]);
    let progress = Arc::new(CompareProgress::default());
    let back = rig.mirror.operator().resync("m1", &progress).await;
    assert!(back.is_err(), "{back:?}");
    assert!(matches!(
        rig.shared.standing(MemberId(1)),
        Standing::Comparing(_)
    ));
    let read = get("bucket", "k").expect(200, &rig.mirror).await;
    assert_eq!(read.text(), "x");
    assert!(
        rig.mirror
            .operator()
            .resync("none", &progress)
            .await
            .is_err()
    );
}

/// Goal: a mirror that is left to itself brings a member back.
#[tokio::test(start_paused = true)]
async fn the_repair_loop_brings_a_member_back_by_itself() {
    let rig = Rig::new(3).await;
    for at in 0..5 {
        rig.set(0, &format!("k{at}"), Some("x")).await;
        rig.set(1, &format!("k{at}"), Some("x")).await;
    }
    rig.set(2, "old", Some("x")).await;
    mark(&rig, 2).await;
    let repairer = rig.mirror.repairer();
    let back = async {
        while rig.shared.standing(MemberId(2)) != Standing::Known {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = repairer.run() => {}
        () = back => {}
    }
    let all = assert_equal(&rig).await;
    assert_eq!(all["bucket"].len(), 5);
}

#[tokio::test]
async fn a_member_that_is_left_out_is_told() {
    let rig = Rig::new(3).await;
    mark(&rig, 2).await;
    let counts = compare(&rig, order(Remedy::Tell, Depth::Listed)).await;
    assert_eq!(counts.failed, 1);
    assert!(counts.errors[0].starts_with("m2"), "{:?}", counts.errors);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_brought_back_gets_what_another_lacks_as_well() {
    let rig = Rig::new(3).await;
    mark(&rig, 2).await;
    rig.set(1, "k", Some("right")).await;
    rig.set(0, "k", Some("wrong")).await;
    rig.set(2, "k", Some("wrong")).await;
    rig.owe(&subject("k"), &[0]).await;
    rig.set(1, "l", Some("x")).await;
    rig.owe(&subject("l"), &[0]).await;
    // Lost by one without a trace.
    rig.set(1, "m", Some("x")).await;
    rig.set(2, "m", Some("x")).await;
    let progress = Arc::new(CompareProgress::default());
    rig.mirror.operator().resync("m2", &progress).await.unwrap();
    let has = world(&*rig.members[2]).await;
    assert_eq!(has, world(&*rig.members[1]).await);
}

/// Goal: no client waits for the copy of a large object.
/// Method: the target's answer hangs; a client writes the key meanwhile.
#[tokio::test(start_paused = true)]
async fn a_repair_gives_way_to_a_client_that_writes_the_key() {
    let rig = Rig::new(2).await;
    rig.set(0, "k", Some("old")).await;
    // Its listing and a look pass, and the copy's look hangs.
    rig.members[1].script([Fault::None, Fault::None, Fault::None, Fault::Hang]);
    let writing = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        put("bucket", "k")
            .body("new")
            .expect(200, &rig.mirror)
            .await;
    };
    let begun = tokio::time::Instant::now();
    let ordered = order(Remedy::Restore, Depth::Listed);
    let (counts, ()) = tokio::join!(compare(&rig, ordered), writing);
    assert_eq!((counts.pending, counts.repaired), (1, 0));
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    rig.settle().await;
    for _ in 0..3 {
        rig.clock.advance(std::time::Duration::from_mins(2));
        rig.mirror.repairer().turn().await.unwrap();
    }
    let all = assert_equal(&rig).await;
    assert_eq!(
        get("bucket", "k")
            .expect(200, &*rig.members[1])
            .await
            .text(),
        "new"
    );
    assert_eq!(all["bucket"].len(), 1);
}

/// Goal: a key that is locked does not wait for a member that is slow to list.
/// Method: the second batch of a member's listing hangs; a key of the first is to be repaired.
#[tokio::test(start_paused = true)]
async fn keys_under_way_go_on_while_more_is_listed() {
    let rig = Rig::new(2).await;
    for at in 0..510 {
        rig.set_all(&format!("k{at:03}"), Some("x")).await;
    }
    rig.set(0, "a", Some("x")).await;
    rig.members[1].script([Fault::None, Fault::Hang]);
    let watching = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        get("bucket", "a").expect(200, &*rig.members[1]).await;
    };
    let scope = CompareScope::Prefix(bucket_name("bucket"), String::new());
    let ordered = CompareOrder {
        scope,
        ..order(Remedy::Restore, Depth::Listed)
    };
    let (counts, ()) = tokio::join!(compare(&rig, ordered), watching);
    assert_eq!((counts.keys, counts.repaired), (511, 1));
}
