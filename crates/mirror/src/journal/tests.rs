//! What the journal promises, over the index in memory.

use std::time::SystemTime;

use forebay_native::{
    hot::HotDurability,
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_s3::key::ObjectKey;
use forebay_store::{Clock, null::NullStore};

use super::*;

fn members() -> Arc<Members> {
    let member = |name: &str| (name.to_owned(), Arc::new(NullStore::default()) as _);
    let clock = Clock::manual(SystemTime::UNIX_EPOCH);
    Arc::new(Members::new(["a", "b", "c"].map(member).into(), clock))
}

fn parts() -> Parts {
    Parts {
        index: Arc::new(MemoryIndex::new()),
        blobs: Arc::new(MemoryBlobs::new()),
        leases: Arc::new(MemoryLeases::new(Clock::manual(SystemTime::UNIX_EPOCH))),
        durability: HotDurability::Local,
    }
}

fn journal(parts: &Parts, gateways: Gateways) -> Journal {
    let space = Space::parse("m").unwrap();
    Journal::new(parts.clone(), space, members(), gateways)
}

fn object(key: &str) -> Subject {
    Subject::Object(HotKey {
        bucket: bucket(),
        key: ObjectKey::parse(key).unwrap(),
    })
}

fn bucket() -> BucketName {
    BucketName::parse("bucket").unwrap()
}

fn intent(at_ms: i64, lead: u8) -> Entry {
    Entry {
        at_ms,
        intent: Some(Intent {
            lead: MemberId(lead),
            kind: WriteKind::Put,
            sent_ms: at_ms,
        }),
        owed: Vec::new(),
    }
}

fn owing(at_ms: i64, members: &[u8]) -> Entry {
    let owed = members.iter().map(|member| Owed {
        member: MemberId(*member),
        doubt_ms: 0,
    });
    Entry {
        at_ms,
        intent: None,
        owed: owed.collect(),
    }
}

async fn swap(journal: &Journal, subject: &Subject, to: Option<Entry>) {
    let from = journal.get(subject).await.unwrap();
    let swapped = journal.swap(subject, from.as_ref(), to).await.unwrap();
    assert!(matches!(swapped, Swapped::Done(_)));
}

#[tokio::test]
async fn entry_queue_and_counts_change_together() {
    for gateways in [Gateways::One, Gateways::Many] {
        let parts = parts();
        let journal = journal(&parts, gateways);
        let (k, l) = (object("k\0\u{ff}"), object("l"));
        assert_eq!(journal.get(&k).await.unwrap(), None);
        swap(&journal, &k, Some(intent(2000, 0))).await;
        swap(&journal, &l, Some(owing(1000, &[1, 2]))).await;
        let places = journal.queue(None, 10).await.unwrap();
        let due = |at_ms, subject: &Subject| Due {
            at_ms,
            subject: subject.clone(),
        };
        assert_eq!(places, [due(1000, &l), due(2000, &k)]);
        assert_eq!(
            journal.queue(Some(&places[0]), 10).await.unwrap(),
            places[1..]
        );
        assert_eq!(journal.keys().await.unwrap(), 1, "an intent is not behind");
        assert_eq!(journal.pending(MemberId(2)).await.unwrap(), 1);
        swap(&journal, &l, Some(owing(1000, &[1]))).await;
        assert_eq!(journal.pending(MemberId(2)).await.unwrap(), 0);
        assert_eq!(journal.pending(MemberId(1)).await.unwrap(), 1);
        swap(&journal, &l, None).await;
        swap(&journal, &k, None).await;
        assert_eq!(journal.queue(None, 10).await.unwrap(), []);
        assert_eq!(journal.keys().await.unwrap(), 0);
        assert_eq!(journal.get(&k).await.unwrap(), None);
    }
}

#[tokio::test]
async fn who_saw_an_older_entry_changes_nothing() {
    let parts = parts();
    let journal = journal(&parts, Gateways::One);
    let k = object("k");
    swap(&journal, &k, Some(intent(1, 0))).await;
    let first = journal.get(&k).await.unwrap().unwrap();
    let blind = journal.swap(&k, None, Some(intent(2, 1))).await.unwrap();
    assert_eq!(blind, Swapped::Changed);
    swap(&journal, &k, Some(intent(1, 1))).await;
    let late = journal.swap(&k, Some(&first), None).await.unwrap();
    assert_eq!(late, Swapped::Changed);
    let now = journal.get(&k).await.unwrap().unwrap();
    assert!(now.sequence > first.sequence);
    assert_eq!(now.entry, intent(1, 1));
}

#[tokio::test]
async fn a_new_life_knows_what_the_last_one_left() {
    let parts = parts();
    let old = journal(&parts, Gateways::One);
    let k = object("k");
    let entry = owing(7, &[1]);
    swap(&old, &k, Some(entry.clone())).await;
    swap(&old, &Subject::Bucket(bucket()), Some(intent(8, 2))).await;
    let new = journal(&parts, Gateways::One);
    assert_eq!(new.get(&k).await.unwrap().unwrap().entry, entry);
    let found = new
        .range(&bucket(), Vec::new()..vec![0xff], 10)
        .await
        .unwrap();
    let subjects: Vec<_> = found.into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(subjects, [Subject::Bucket(bucket()), k.clone()]);
    new.set_standing(MemberId(1), Standing::Whole(5))
        .await
        .unwrap();
    let standings = new.standings().await.unwrap();
    assert_eq!(
        standings,
        [
            (MemberId(0), None),
            (MemberId(1), Some(Standing::Whole(5))),
            (MemberId(2), None)
        ]
    );
}

/// The bytes that docs/formats.md shows; a change of them is a change of the format.
#[tokio::test]
async fn entries_are_written_as_the_page_of_formats_says() {
    let parts = parts();
    let journal = journal(&parts, Gateways::One);
    let mut entry = owing(1_700_000_000_123, &[1, 2]);
    entry.owed[1].doubt_ms = 1_700_000_060_000;
    entry.intent = Some(Intent {
        lead: MemberId(0),
        kind: WriteKind::Delete,
        sent_ms: 1_700_000_000_456,
    });
    swap(&journal, &object("dir/k"), Some(entry.clone())).await;
    journal
        .set_standing(MemberId(1), Standing::Whole(5))
        .await
        .unwrap();
    let all = Bytes::from_static(b"mirror/")..Bytes::from_static(b"mirror0");
    let written = parts.index.range(all, 10).await.unwrap();
    let written: Vec<(&[u8], &[u8])> = written
        .iter()
        .map(|entry| (&entry.name[..], &entry.value[..]))
        .collect();
    let text = concat!(
        r#"{"at":1700000000123,"intent":{"lead":"a","kind":"delete","sent":1700000000456},"#,
        r#""owed":[{"member":"b"},{"member":"c","doubt":1700000060000}]}"#
    );
    let place = b"mirror/m\0q\0\0\x01\x8b\xcf\xe5\x68\x7bbucket\0dir/k";
    let expected: [(&[u8], &[u8]); 3] = [
        (b"mirror/m\0ebucket\0dir/k", text.as_bytes()),
        (b"mirror/m\0mb", br#"{"whole":5}"#),
        (place, b""),
    ];
    assert_eq!(written, expected);
    let known = serde_json::to_string(&Standing::Known).unwrap();
    assert_eq!(known, "\"known\"");
    let read = Entry::from_bytes(text.as_bytes(), &members()).unwrap();
    assert_eq!(read, entry);
}

#[test]
fn a_member_that_is_configured_no_longer_owes_nothing() {
    let text =
        br#"{"at":1,"intent":{"lead":"z","kind":"put","sent":1},"owed":[{"member":"y"},{"member":"a"}]}"#;
    let entry = Entry::from_bytes(text, &members()).unwrap();
    assert_eq!(entry.owing(), MemberSet::EMPTY.with(MemberId(0)));
    assert_eq!(entry.intent.unwrap().lead, MemberId(1));
}
