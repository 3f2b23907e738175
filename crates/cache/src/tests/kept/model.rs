//! Goal: where every write passes the layer, a listing through it is the store's own at each step.
//! Method: random writes and listings; the store beneath is the model. After each write the last
//! listings are asked for again, as the same one rarely comes twice by itself.

use std::{collections::VecDeque, time::Duration};

use forebay_store::contract::requests::{self, Builder};
use proptest::prelude::*;

use super::{all_for, setup};
use crate::{Coherence, Lasting, tests::origin::Fixture};

const KEYS: [&str; 9] = ["a", "a/", "a/b", "a/b/c", "a/é", "b", "b/1", "aa", "z"];
/// Listings that are asked for after each write.
const LISTINGS: usize = 8;
const PREFIXES: [&str; 8] = ["", "a", "a/", "a/b", "a/b/", "b", "é", "zz"];

#[derive(Debug, Clone)]
enum Op {
    Put(usize),
    Copy(usize, usize),
    Delete(usize),
    DeleteMany(Vec<usize>),
    Upload(usize),
    CreateBucket,
    DeleteBucket,
    List(Listing),
    Head,
    Buckets,
    Advance(u64),
}

/// A listing: its version, and what of it.
#[derive(Debug, Clone)]
struct Listing {
    version: u8,
    prefix: usize,
    after: Option<usize>,
    has_delimiter: bool,
    keys_max: Option<u8>,
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = || 0..KEYS.len();
    let listing = (
        0..3_u8,
        0..PREFIXES.len(),
        prop::option::of(key()),
        any::<bool>(),
        prop::option::of(1..4_u8),
    );
    let listing = listing.prop_map(|(version, prefix, after, has_delimiter, keys_max)| {
        Op::List(Listing {
            version,
            prefix,
            after,
            has_delimiter,
            keys_max,
        })
    });
    prop_oneof![
        4 => key().prop_map(Op::Put),
        1 => (key(), key()).prop_map(|(from, to)| Op::Copy(from, to)),
        3 => key().prop_map(Op::Delete),
        1 => prop::collection::vec(key(), 1..4).prop_map(Op::DeleteMany),
        1 => key().prop_map(Op::Upload),
        1 => Just(Op::CreateBucket),
        1 => Just(Op::DeleteBucket),
        12 => listing,
        1 => Just(Op::Head),
        1 => Just(Op::Buckets),
        1 => (0..100_000_u64).prop_map(Op::Advance),
    ]
}

impl Listing {
    fn request(&self) -> Builder {
        let (mut listing, after) = match self.version {
            0 => (requests::list_v1("bucket"), "marker"),
            1 => (requests::list_v2("bucket"), "start-after"),
            _ => (requests::list_versions("bucket"), "key-marker"),
        };
        // An empty prefix may be there or not.
        if self.prefix > 0 || self.has_delimiter {
            listing = listing.query("prefix", PREFIXES[self.prefix]);
        }
        if let Some(key) = self.after {
            listing = listing.query(after, KEYS[key]);
        }
        if self.has_delimiter {
            listing = listing.query("delimiter", "/");
        }
        match self.keys_max {
            Some(keys_max) => listing.query("max-keys", &keys_max.to_string()),
            None => listing,
        }
    }
}

/// What the layer says to a request is what the store says.
async fn agree(fixture: &Fixture, request: impl Fn() -> Builder) {
    let through = request().send(&*fixture.cache).await;
    let own = request().send(fixture.origin.store.inner()).await;
    match (through, own) {
        (Ok(through), Ok(own)) => {
            assert_eq!(through.status, own.status);
            assert_eq!(through.text(), own.text());
        }
        (Err(through), Err(own)) => assert_eq!(through.to_string(), own.to_string()),
        (through, own) => panic!("{through:?} but {own:?}"),
    }
}

async fn apply(fixture: &Fixture, op: &Op) {
    let cache = &*fixture.cache;
    let write = match op {
        Op::Put(key) => requests::put("bucket", KEYS[*key]).body("bytes"),
        Op::Copy(from, to) => requests::copy(("bucket", KEYS[*from]), ("bucket", KEYS[*to])),
        Op::Delete(key) => requests::delete("bucket", KEYS[*key]),
        Op::DeleteMany(keys) => {
            let keys: Vec<&str> = keys.iter().map(|key| KEYS[*key]).collect();
            requests::delete_many("bucket", &keys)
        }
        Op::Upload(key) => {
            let Ok(upload) = requests::create_upload("bucket", KEYS[*key])
                .send(cache)
                .await
            else {
                return;
            };
            let id = upload.element("UploadId");
            let part = requests::upload_part("bucket", KEYS[*key], &id, 1).body("part");
            let part = part.expect(200, cache).await;
            requests::complete_upload("bucket", KEYS[*key], &id, &[(1, part.etag())])
        }
        Op::CreateBucket => requests::create_bucket("bucket"),
        Op::DeleteBucket => requests::delete_bucket("bucket"),
        Op::List(listing) => return agree(fixture, || listing.request()).await,
        Op::Head => return agree(fixture, || requests::head_bucket("bucket")).await,
        Op::Buckets => return agree(fixture, requests::list_buckets).await,
        Op::Advance(ms) => {
            fixture.clock.advance(Duration::from_millis(*ms));
            return;
        }
    };
    // Some are refused: of a bucket that is not there, or not empty.
    drop(write.send(cache).await);
}

fn check(ops: &[Op], capacity_bytes: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(async {
        let mut kept = all_for(Duration::from_hours(10_000), None);
        kept.list_objects = Lasting::Usual;
        kept.list_objects_v2 = Lasting::Usual;
        let mut setup = setup(Coherence::Exclusive, kept);
        setup.settings.capacity_bytes = capacity_bytes;
        let fixture = setup.build().await;
        let mut listings: VecDeque<&Listing> = VecDeque::new();
        for op in ops {
            apply(&fixture, op).await;
            if let Op::List(listing) = op {
                listings.push_front(listing);
                listings.truncate(LISTINGS);
            } else {
                for listing in &listings {
                    agree(&fixture, || listing.request()).await;
                }
            }
            fixture.cache.layer.kept.audit();
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_listing_through_exclusive_is_the_stores_own(
        ops in prop::collection::vec(any_op(), 1..80)
    ) {
        check(&ops, 64 << 20);
    }

    #[test]
    fn and_so_it_is_when_few_are_kept(ops in prop::collection::vec(any_op(), 1..80)) {
        check(&ops, 80_000);
    }
}
