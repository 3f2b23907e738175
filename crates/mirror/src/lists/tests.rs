//! Listings of members that lack keys, against a store that has the right ones.

use forebay_native::MemoryStore;
use forebay_store::{
    Clock,
    contract::requests::{
        Answer, Builder, create_bucket, delete_bucket, list_buckets, list_v1, list_v2,
        list_versions, put,
    },
    faulty::Fault,
};

use super::*;
use crate::{
    journal::{Entry, Intent, Owed, WriteKind},
    rig::{Rig, subject},
};

/// Lists as the mirror does.
async fn call(rig: &Rig, request: Request) -> Result<Response, Error> {
    let shared = &rig.shared;
    match request.operation.clone() {
        Operation::ListObjects(of) => list(shared, request, Kind::V1, &of).await,
        Operation::ListObjectsV2(of) => list(shared, request, Kind::V2, &of).await,
        Operation::ListObjectVersions(of) => list(shared, request, Kind::Versions, &of).await,
        Operation::ListBuckets => super::list_buckets(shared, request).await,
        other => panic!("{other:?}"),
    }
}

async fn ask(rig: &Rig, request: Builder) -> Answer {
    let response = call(rig, request.build()).await.unwrap();
    let (body, _) = response.body.collect(usize::MAX).await.unwrap();
    Answer {
        status: response.status,
        headers: response.headers,
        body,
        cache: None,
    }
}

/// What one listing asks for.
#[derive(Debug, Clone)]
struct Wanted {
    kind: Kind,
    prefix: String,
    delimiter: Option<&'static str>,
    max_keys: usize,
}

impl Wanted {
    fn first(&self) -> Builder {
        let mut builder = match self.kind {
            Kind::V1 => list_v1("bucket"),
            Kind::V2 => list_v2("bucket"),
            Kind::Versions => list_versions("bucket"),
        };
        builder = builder
            .query("prefix", &self.prefix)
            .query("max-keys", &self.max_keys.to_string());
        match self.delimiter {
            Some(delimiter) => builder.query("delimiter", delimiter),
            None => builder,
        }
    }

    fn after(&self, page: &Answer) -> Option<Builder> {
        if page.element("IsTruncated") != "true" {
            return None;
        }
        let last_key = || {
            page.elements("Key")
                .last()
                .cloned()
                .expect("a page has keys")
        };
        let one = |name: &str| page.elements(name).first().cloned();
        Some(match self.kind {
            Kind::V1 => {
                let marker = one("NextMarker").unwrap_or_else(last_key);
                self.first().query("marker", &marker)
            }
            Kind::V2 => {
                let token = page.element("NextContinuationToken");
                self.first().query("continuation-token", &token)
            }
            Kind::Versions => {
                let key = page.element("NextKeyMarker");
                self.first().query("key-marker", &key)
            }
        })
    }
}

/// All that the pages of a listing give, in order: keys with their tags, and common prefixes.
async fn all_of(rig: Option<&Rig>, model: &MemoryStore, query: &Wanted) -> Vec<String> {
    let mut given = Vec::new();
    let mut next = Some(query.first());
    while let Some(request) = next.take() {
        let page = match rig {
            Some(rig) => ask(rig, request).await,
            None => request.expect(200, model).await,
        };
        let (keys, tags) = (page.elements("Key"), page.elements("ETag"));
        let text = page.text();
        let document = fragments::read(&text).unwrap();
        let prefixes = document
            .children
            .iter()
            .filter(|child| child.name == "CommonPrefixes");
        let prefixes: Vec<_> = prefixes
            .map(|child| child.text_at(&["Prefix"]).unwrap())
            .collect();
        let count = keys.len() + prefixes.len();
        assert!(count <= query.max_keys, "{count} {query:?}");
        if query.kind == Kind::V2 {
            assert_eq!(page.element("KeyCount"), count.to_string(), "{query:?}");
        }
        let mut page_given: Vec<_> = keys
            .iter()
            .zip(tags)
            .map(|(k, t)| format!("{k} {t}"))
            .collect();
        page_given.extend(prefixes);
        page_given.sort();
        given.extend(page_given);
        next = query.after(&page);
    }
    given
}

/// A state of a key: none, or one of two contents.
fn any_state(random: &mut fastrand::Rng) -> Option<&'static str> {
    random.choice([None, Some("one"), Some("another")]).unwrap()
}

fn any_key(random: &mut fastrand::Rng) -> String {
    let names = ["a", "b", "a/", "b/", "c", "/"];
    let count = random.usize(1..4);
    (0..count)
        .map(|_| *random.choice(&names).unwrap())
        .collect()
}

/// Goal: listings are right whichever members lack which keys.
/// Method: each key has a right state; members that have it say nothing, and those that have
/// another owe it, or a write of it is under way whose lead has the right one. All pages of random
/// listings are compared with those of a store that has the right states.
#[tokio::test]
async fn listings_are_right_whatever_members_lack() {
    for case in 0..60 {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        println!("case {case} seed {seed}");
        let rig = Rig::new(3).await;
        let model = MemoryStore::new(Clock::system());
        create_bucket("bucket").expect(200, &model).await;
        let count = random.usize(0..30);
        for _ in 0..count {
            let key = any_key(&mut random);
            let right = any_state(&mut random);
            let lead = random.u8(0..3);
            let mut owed = Vec::new();
            for member in 0..3 {
                let has = if member == lead || random.bool() {
                    right
                } else {
                    owed.push(member);
                    any_state(&mut random)
                };
                rig.set(usize::from(member), &key, has).await;
            }
            let intent = random.bool().then_some(Intent {
                lead: MemberId(lead),
                kind: WriteKind::Put,
                sent_ms: 0,
            });
            enter(&rig, &key, owed, intent).await;
            if let Some(bytes) = right {
                put("bucket", &key).body(bytes).expect(200, &model).await;
            } else {
                let request = forebay_store::contract::requests::delete("bucket", &key);
                request.expect(204, &model).await;
            }
        }
        for _ in 0..6 {
            let query = Wanted {
                kind: random.choice([Kind::V1, Kind::V2, Kind::Versions]).unwrap(),
                prefix: random.choice(["", "a", "a/", "b"]).unwrap().to_owned(),
                delimiter: random.choice([None, Some("/")]).unwrap(),
                max_keys: random.choice([1, 2, 3, 1000]).unwrap(),
            };
            let expected = all_of(None, &model, &query).await;
            assert_eq!(
                all_of(Some(&rig), &model, &query).await,
                expected,
                "{seed} {query:?}"
            );
        }
    }
}

async fn enter(rig: &Rig, key: &str, owed: Vec<u8>, intent: Option<Intent>) {
    let owed: Vec<_> = owed
        .into_iter()
        .map(|member| Owed {
            member: MemberId(member),
            doubt_ms: 0,
        })
        .collect();
    let is_empty = owed.is_empty() && intent.is_none();
    let entry = Entry {
        at_ms: 1,
        intent,
        owed,
    };
    rig.enter(&subject(key), (!is_empty).then_some(entry)).await;
}

#[tokio::test]
async fn a_listing_of_equal_members_is_one_request() {
    let rig = Rig::new(3).await;
    rig.set_all("k", Some("x")).await;
    let before: u64 = rig.members.iter().map(|member| member.calls()).sum();
    ask(&rig, list_v2("bucket")).await;
    let after: u64 = rig.members.iter().map(|member| member.calls()).sum();
    assert_eq!(after - before, 1);
}

#[tokio::test]
async fn a_member_without_lacks_is_asked_before_one_with() {
    let rig = Rig::new(3).await;
    rig.set_all("k", Some("x")).await;
    for (lacking, asked) in [([0, 1], 2), ([1, 2], 0), ([0, 2], 1)] {
        rig.owe(&subject("k"), &lacking).await;
        let before = rig.members[asked].calls();
        ask(&rig, list_v1("bucket")).await;
        assert_eq!(rig.members[asked].calls() - before, 1, "{lacking:?}");
    }
}

#[tokio::test]
async fn a_member_that_fails_is_replaced_and_a_refusal_stands() {
    let rig = Rig::new(2).await;
    rig.set_all("k", Some("x")).await;
    for member in &rig.members {
        member.script([Fault::Unavailable]);
    }
    let refused = call(&rig, list_v2("bucket").build()).await;
    assert!(
        matches!(refused, Err(Error::Unavailable { .. })),
        "{refused:?}"
    );
    rig.members[0].script([Fault::Unavailable]);
    assert_eq!(ask(&rig, list_v2("bucket")).await.elements("Key"), ["k"]);
    assert_eq!(ask(&rig, list_v2("bucket")).await.elements("Key"), ["k"]);
    let refused = call(&rig, list_v2("none").build()).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
}

#[tokio::test]
async fn that_a_bucket_is_not_there_is_believed_when_a_second_member_says_so() {
    let rig = Rig::new(3).await;
    rig.set(1, "k", Some("x")).await;
    rig.set(2, "k", Some("x")).await;
    delete_bucket("bucket").expect(204, &*rig.members[0]).await;
    for request in [
        list_v1("bucket"),
        list_v2("bucket"),
        list_versions("bucket"),
    ] {
        assert_eq!(ask(&rig, request).await.elements("Key"), ["k"]);
    }
}

/// Goal: more entries than are read at once do not hide keys beyond them.
/// Method: so many deletes that each member lacks some of, and then objects that one of them has.
#[tokio::test]
async fn a_page_ends_where_the_entries_that_were_read_end() {
    let rig = Rig::new(2).await;
    let key = |n: usize| format!("k{n:04}");
    for n in 0..1100 {
        if n >= 1000 {
            rig.set(n % 2, &key(n), Some("x")).await;
        }
        rig.owe(&subject(&key(n)), &[u8::try_from(1 - n % 2).unwrap()])
            .await;
    }
    let query = Wanted {
        kind: Kind::V2,
        prefix: String::new(),
        delimiter: None,
        max_keys: 1000,
    };
    let given = all_of(Some(&rig), &MemoryStore::new(Clock::system()), &query).await;
    assert_eq!(given.len(), 100);
    assert!(given.is_sorted());
}

#[tokio::test]
async fn buckets_are_those_of_the_journal_and_pages_of_them_go_on() {
    let rig = Rig::new(3).await;
    for name in ["created", "deleted"] {
        create_bucket(name).expect(200, &*rig.members[0]).await;
    }
    create_bucket("created").expect(200, &*rig.members[1]).await;
    create_bucket("deleted").expect(200, &*rig.members[2]).await;
    let bucket = |name| Subject::Bucket(forebay_store::contract::requests::bucket_name(name));
    rig.owe(&bucket("created"), &[2]).await;
    rig.owe(&bucket("deleted"), &[0, 2]).await;
    let all = ask(&rig, list_buckets()).await;
    assert_eq!(all.elements("Name"), ["bucket", "created"]);
    let first = ask(&rig, list_buckets().query("max-buckets", "1")).await;
    assert_eq!(first.elements("Name"), ["bucket"]);
    let token = first.element("ContinuationToken");
    let second = ask(&rig, list_buckets().query("continuation-token", &token)).await;
    assert_eq!(second.elements("Name"), ["created"]);
    assert!(second.elements("ContinuationToken").is_empty());
    let of = ask(&rig, list_buckets().query("prefix", "cr")).await;
    assert_eq!(of.elements("Name"), ["created"]);
    rig.members[0].script([Fault::Unavailable]);
    assert_eq!(
        ask(&rig, list_buckets()).await.elements("Name"),
        ["bucket", "created"]
    );
    delete_bucket("created").expect(204, &*rig.members[0]).await;
}
