//! What operators and listeners see of the index.

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex as Lock;

use super::*;
use crate::{
    CacheSettings,
    plan::Method,
    policy::{Keep, Matching, Policies, Policy, Rule},
    version::Asked,
};

const KIB: u64 = 1024;
pub(crate) const PAGE_BYTES: u64 = 64 * KIB;
pub(crate) static PAGE: [u8; 64 * 1024] = [7; 64 * 1024];

/// Keeps what it is told.
#[derive(Debug, Default)]
struct Listener(Lock<Vec<(String, Cause, bool)>>);

impl GoneSink for Listener {
    fn gone(&self, gone: Gone) {
        let name = match gone.entry {
            GoneEntry::Version(version) => version.object.key.to_string(),
            GoneEntry::Page { page_index, .. } => format!("page {page_index}"),
        };
        self.0.lock().push((name, gone.cause, gone.was_hit));
    }
}

impl Listener {
    fn told(&self) -> Vec<(String, Cause, bool)> {
        std::mem::take(&mut self.0.lock())
    }
}

fn index_of(capacity_bytes: u64, pin_bytes_max: u64) -> (Index, Arc<Listener>) {
    let listener = Arc::new(Listener::default());
    let limits = Limits {
        capacity_bytes,
        pin_bytes_max,
        pins_max: 2,
    };
    let sink = Arc::clone(&listener) as Arc<dyn GoneSink>;
    let index = Index::new(limits, PageBytes::OF_TESTS, sink, CacheMetrics::default());
    (index, listener)
}

pub(crate) fn object(bucket: &str, key: &str) -> ObjectId {
    ObjectId {
        bucket: BucketName::parse(bucket).unwrap(),
        key: ObjectKey::parse(key).unwrap(),
        version: None,
    }
}

/// A record of an object with so many pages; its tag is `tag`.
fn version(index: &Index, object: &ObjectId, pages: u64, keep: Keep, tag: &str) -> Arc<Version> {
    version_at(index.stamp(object), object, pages, keep, tag)
}

/// The same of an origin that was asked when the counters stood there.
pub(crate) fn version_at(
    stamp: Stamp,
    object: &ObjectId,
    pages: u64,
    keep: Keep,
    tag: &str,
) -> Arc<Version> {
    let mut response = forebay_store::Response::new(StatusCode::OK);
    let size_bytes = pages * PAGE_BYTES;
    response.headers = HeaderMap::from_iter([
        (http::header::CONTENT_LENGTH, size_bytes.into()),
        (http::header::ETAG, format!("\"{tag}\"").parse().unwrap()),
        (
            http::header::LAST_MODIFIED,
            "Sat, 21 Nov 2026 00:00:00 GMT".parse().unwrap(),
        ),
    ]);
    let asked = Asked {
        generation: crate::purges::Generation::default(),
        stamp,
        at_ms: 0,
        doubt_until_ms: i64::MIN,
    };
    let settings = CacheSettings {
        page_bytes: PageBytes::OF_TESTS,
        ..CacheSettings::default()
    };
    let rule = Rule {
        matching: Matching::default(),
        policy: Policy {
            keep,
            ..settings.policy()
        },
    };
    let policies = Policies::new(&CacheSettings {
        rules: vec![rule],
        ..settings
    });
    let learned = crate::version::learn(Method::Head, object, asked, &response, &policies);
    Arc::new(learned.unwrap().version)
}

/// Stores an object: its record, and then its pages if it has more than one.
fn fill(index: &Index, object: &ObjectId, pages: u64, keep: Keep, now_ms: i64) -> Arc<Version> {
    let version = version(index, object, pages, keep, "a");
    let stored = index.put_version(Arc::clone(&version), now_ms);
    assert_eq!(stored, Stored::Yes);
    put_pages(index, &version, pages, now_ms);
    version
}

fn put_pages(index: &Index, version: &Version, pages: u64, now_ms: i64) {
    for page_index in (0..pages).filter(|_| pages > 1) {
        let room = index.room_for_page(PAGE_BYTES).unwrap();
        let page = Bytes::from_static(&PAGE);
        let stored = index.put_page_in(room, version.vid, page_index, page, now_ms);
        assert_eq!(stored, Stored::Yes);
    }
}

/// Stores and uses so much that nothing ordinary from before is left.
fn flood(index: &Index) {
    for name in 0..400 {
        let object = object("flood", &format!("{name}"));
        let now_ms = i64::from(name) * 10_000;
        let version = fill(index, &object, 2, Keep::Yes, now_ms);
        index.version(&object, now_ms + 5000);
        (0..2).for_each(|at| drop(index.page(version.vid, at, now_ms + 5000)));
    }
}

fn is_here(index: &Index, object: &ObjectId) -> bool {
    index.standing_of(object).is_some()
}

#[test]
fn who_listens_is_told_of_each_entry_that_leaves_and_why() {
    let (index, listener) = index_of(1 << 20, 0);
    let [one, two] = [object("bucket", "one"), object("bucket", "two")];
    let first = fill(&index, &one, 2, Keep::Yes, 0);
    assert!(index.page(first.vid, 1, 5000).is_some());
    index.put_version(version(&index, &one, 2, Keep::Yes, "b"), 0);
    assert_eq!(
        listener.told(),
        [("one".to_owned(), Cause::Replaced, false)]
    );
    index.invalidate(&Written::Object(one.bucket.clone(), one.key.clone()));
    assert_eq!(
        listener.told(),
        [("one".to_owned(), Cause::Invalidated, false)]
    );
    let second = fill(&index, &two, 2, Keep::Yes, 0);
    index.forget(&second);
    let superseded = |name: &str| (name.to_owned(), Cause::Superseded, false);
    assert_eq!(listener.told(), ["two", "page 0", "page 1"].map(superseded));
    flood(&index);
    let told = listener.told();
    assert!(told.contains(&("page 0".to_owned(), Cause::Room, false)));
    assert!(told.contains(&("page 1".to_owned(), Cause::Room, true)));
    index.audit();
}

#[test]
fn a_visit_shows_each_record_and_how_it_stands() {
    let (index, _) = index_of(1 << 24, 1 << 20);
    for name in 0..700 {
        fill(
            &index,
            &object("bucket", &format!("{name}")),
            1,
            Keep::Yes,
            0,
        );
    }
    fill(&index, &object("other", "pinned"), 1, Keep::Pinned, 0);
    assert!(index.version(&object("bucket", "7"), 5000).is_some());
    index.invalidate(&Written::Bucket(object("gone", "x").bucket));
    let mut seen = Vec::new();
    index.visit(&mut |version, standing| seen.push((version.object.key.to_string(), standing)));
    assert_eq!(seen.len(), 701);
    for (key, standing) in seen {
        let uses = u8::from(key == "7");
        let place = if key == "pinned" {
            Place::Pinned
        } else {
            Place::Small
        };
        assert_eq!((standing.uses, standing.place), (uses, place), "{key}");
        assert!(standing.weight_bytes > 100);
    }
}

#[test]
fn a_purge_removes_what_matches_its_pages_and_fills_of_it() {
    let (index, listener) = index_of(1 << 22, 1 << 20);
    let [gone, stays] = [object("bucket", "gone/1"), object("bucket", "stays")];
    let version_of_gone = fill(&index, &gone, 3, Keep::Pinned, 0);
    let version_of_other = fill(&index, &stays, 2, Keep::Yes, 0);
    let stamp = index.stamp(&gone);
    let purged = index.purge(&mut |object| object.key.as_str().starts_with("gone/"));
    assert_eq!((purged.records, purged.pages), (1, 3));
    assert!(purged.bytes > 3 * PAGE_BYTES);
    assert!(!is_here(&index, &gone) && is_here(&index, &stays));
    assert_eq!(index.present(&version_of_gone), Present::default());
    let present = Present {
        pages: 2,
        bytes: 2 * PAGE_BYTES,
    };
    assert_eq!(index.present(&version_of_other), present);
    assert!(!index.is_current(&stamp), "a fill under way is not stored");
    assert!(
        listener
            .told()
            .iter()
            .all(|(_, cause, _)| *cause == Cause::Purged)
    );
    assert_eq!(index.pinned_bytes(), 0);
    index.audit();
}

#[test]
fn a_pinned_object_stays_while_others_make_room() {
    for by_rule in [true, false] {
        let (index, _) = index_of(2 << 20, 1 << 20);
        let pinned = object("bucket", "pinned");
        let keep = if by_rule { Keep::Pinned } else { Keep::Yes };
        let before = fill(&index, &pinned, 3, keep, 0);
        if !by_rule {
            let answer = index.pin(&pinned);
            assert!(matches!(
                answer,
                Pinned::Kept {
                    refused_bytes: 0,
                    ..
                }
            ));
        }
        index.audit();
        flood(&index);
        assert_eq!(index.present(&before).pages, 3);
        // Filled again, with another tag: the old pages leave, the new ones stay.
        let after = version(&index, &pinned, 3, keep, "b");
        index.put_version(Arc::clone(&after), 0);
        assert_eq!(index.present(&before).pages, 0, "nobody would find them");
        put_pages(&index, &after, 3, 0);
        flood(&index);
        assert_eq!(index.present(&after).pages, 3);
        index.unpin(&pinned);
        index.audit();
        assert_eq!(index.pinned_bytes(), 0);
        flood(&index);
        assert!(!is_here(&index, &pinned));
    }
}

#[test]
fn a_pin_beyond_the_quota_is_refused_and_its_entry_is_an_ordinary_one() {
    let (index, _) = index_of(2 << 20, 2 * PAGE_BYTES);
    let large = object("bucket", "large");
    let version = fill(&index, &large, 4, Keep::Pinned, 0);
    index.audit();
    assert!(index.pinned_bytes() <= 2 * PAGE_BYTES);
    assert_eq!(index.metrics.pins_refused.get(), 3);
    flood(&index);
    assert_eq!(index.present(&version).pages, 1);
}

#[test]
fn pinned_names_are_bounded_and_survive_a_purge() {
    let (index, _) = index_of(2 << 20, 1 << 20);
    let [a, b, c] = ["a", "b", "c"].map(|key| object("bucket", key));
    let kept = Pinned::Kept {
        pinned_bytes: 0,
        refused_bytes: 0,
    };
    assert_eq!([&a, &b, &a].map(|name| index.pin(name)), [kept; 3]);
    assert_eq!(index.pin(&c), Pinned::TooManyNames);
    fill(&index, &a, 1, Keep::Yes, 0);
    assert!(index.pinned_bytes() > 0);
    index.purge(&mut |_| true);
    assert_eq!((index.pinned_bytes(), index.pinned_names().len()), (0, 2));
    fill(&index, &a, 1, Keep::Yes, 0);
    assert!(index.pinned_bytes() > 0);
}

#[test]
fn a_write_removes_what_is_pinned_as_any_other() {
    let (index, _) = index_of(2 << 20, 1 << 20);
    let pinned = object("bucket", "pinned");
    let writes = [
        Written::Object(pinned.bucket.clone(), pinned.key.clone()),
        Written::Bucket(pinned.bucket.clone()),
        Written::All,
    ];
    for written in writes {
        let version = fill(&index, &pinned, 3, Keep::Pinned, 0);
        assert!(index.pinned_bytes() > 3 * PAGE_BYTES);
        index.invalidate(&written);
        assert_eq!(index.pinned_bytes(), 0, "{written:?}");
        assert_eq!(index.present(&version).pages, 0);
        index.audit();
    }
}

/// Where the counters of an index to which nothing was written stand.
pub(crate) fn stamp_of(object: &ObjectId) -> Stamp {
    let limits = Limits {
        capacity_bytes: 0,
        pin_bytes_max: 0,
        pins_max: 0,
    };
    let metrics = CacheMetrics::default();
    Index::new(limits, PageBytes::MIN, Arc::new(Nobody), metrics).stamp(object)
}

/// Goal: whatever is asked of an index, it may forget but never lies, and its accounts are right.
/// Method: seeded operations against a map of what was stored last; all that the index shows must
/// be in it, and what was removed must not be shown.
#[test]
fn an_index_forgets_but_never_lies() {
    use crate::tests::schedules::Random;
    for seed in 0..30 {
        let (index, _) = index_of(2 << 20, 1 << 20);
        let mut random = Random(seed);
        let objects: Vec<_> = (0..12).map(|n| object("bucket", &format!("{n}"))).collect();
        let mut stored = std::collections::HashMap::new();
        for step in 0..400 {
            let object = &objects[usize::try_from(random.below(12)).unwrap()];
            match random.below(10) {
                0..4 => {
                    let keep = [Keep::Yes, Keep::Pinned][usize::from(random.below(3) == 0)];
                    let pages = 1 + random.below(4);
                    let version = version(&index, object, pages, keep, &format!("{step}"));
                    if index.put_version(Arc::clone(&version), step * 700) == Stored::Yes {
                        put_pages(&index, &version, pages, step * 700);
                        stored.insert(object.clone(), version.vid);
                    }
                }
                4..7 => {
                    if let Some(found) = index.version(object, step * 700) {
                        assert_eq!(stored.get(object), Some(&found.vid), "seed {seed}");
                        let page = index.page(found.vid, 0, step * 700);
                        assert!(page.is_none_or(|page| page.len() == PAGE.len()));
                    }
                }
                7 => {
                    index.pin(object);
                }
                8 => index.unpin(object),
                _ => {
                    let (bucket, key) = (object.bucket.clone(), object.key.clone());
                    match random.below(8) {
                        0 => index.invalidate(&Written::Bucket(bucket)),
                        1 => drop(index.purge(&mut |_| true)),
                        2 => {
                            index.purge(&mut |name| name == object);
                            stored.remove(object);
                            continue;
                        }
                        _ => {
                            index.invalidate(&Written::Object(bucket, key));
                            stored.remove(object);
                            continue;
                        }
                    }
                    stored.clear();
                }
            }
            index.audit();
            assert!(index.pinned_bytes() <= 1 << 20, "seed {seed}");
        }
        index.purge(&mut |_| true);
        index.invalidate(&Written::All);
        assert_eq!(
            index.pinned_bytes(),
            0,
            "seed {seed}: nothing pinned is left behind"
        );
    }
}
