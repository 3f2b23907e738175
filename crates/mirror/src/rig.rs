//! A mirror of members in memory, for tests: what each holds and lacks is set by hand.

use std::sync::Arc;

use forebay_native::{
    MemoryStore,
    hot::{HotDurability, HotKey, Parts},
    memory::{MemoryBlobs, MemoryIndex, MemoryLeases},
};
use forebay_s3::time;
use forebay_store::{
    Budget, Clock, Store,
    contract::requests::{create_bucket, delete, object, put},
    faulty::Faulty,
};
use forebay_telemetry::mirror::MirrorMetrics;

use crate::{
    Gateways, MirrorParts, MirrorSettings, MirrorStore, Space,
    journal::{Entry, Owed, Subject},
    members::{MemberId, MemberSet},
    mirror::Shared,
};

/// See the module.
pub(crate) struct Rig {
    pub(crate) members: Vec<Arc<Faulty<MemoryStore>>>,
    pub(crate) mirror: MirrorStore,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
}

impl Rig {
    /// So many members, each with the bucket `bucket`.
    pub(crate) async fn new(count: usize) -> Self {
        Self::with(count, MirrorSettings::default()).await
    }

    pub(crate) async fn with(count: usize, settings: MirrorSettings) -> Self {
        let clock = Clock::manual(time::system_time(1_700_000_000));
        let new = || Arc::new(Faulty::new(MemoryStore::new(clock.clone())));
        let members: Vec<_> = (0..count).map(|_| new()).collect();
        let parts = MirrorParts {
            members: members
                .iter()
                .enumerate()
                .map(|(at, store)| (format!("m{at}"), Arc::clone(store) as Arc<dyn Store>))
                .collect(),
            journal: Parts {
                index: Arc::new(MemoryIndex::new()),
                blobs: Arc::new(MemoryBlobs::new()),
                leases: Arc::new(MemoryLeases::new(clock.clone())),
                durability: HotDurability::Local,
            },
            space: Space::parse("test").unwrap(),
            gateways: Gateways::One,
            clock: clock.clone(),
            budget: Budget::new(64 << 20, std::time::Duration::ZERO),
            metrics: MirrorMetrics::new(),
            holder: "g1".to_owned(),
        };
        let mirror = MirrorStore::new(parts, settings);
        let shared = mirror.operator().shared;
        for member in &members {
            create_bucket("bucket").expect(200, &**member).await;
        }
        Self {
            members,
            mirror,
            shared,
            clock,
        }
    }

    /// Gives a member an object of these bytes under a key, or none.
    pub(crate) async fn set(&self, member: usize, key: &str, bytes: Option<&str>) {
        let store = &*self.members[member];
        match bytes {
            Some(bytes) => {
                let request = put("bucket", key).body(bytes.to_owned());
                request.expect(200, store).await;
            }
            None => {
                delete("bucket", key).expect(204, store).await;
            }
        }
    }

    /// Gives all members the same.
    pub(crate) async fn set_all(&self, key: &str, bytes: Option<&str>) {
        for member in 0..self.members.len() {
            self.set(member, key, bytes).await;
        }
    }

    /// Writes down that these members lack the last state of a key.
    pub(crate) async fn owe(&self, subject: &Subject, members: &[u8]) {
        let owed = members.iter().map(|member| Owed {
            member: MemberId(*member),
            doubt_ms: 0,
        });
        let entry = Entry {
            at_ms: self.shared.now_ms(),
            intent: None,
            owed: owed.collect(),
        };
        self.enter(subject, Some(entry)).await;
    }

    /// Waits for what of writes goes on after their acknowledgement.
    pub(crate) async fn settle(&self) {
        assert!(
            self.shared
                .tasks
                .finish(std::time::Duration::from_mins(1))
                .await
        );
    }

    pub(crate) async fn enter(&self, subject: &Subject, entry: Option<Entry>) {
        let journal = &self.shared.journal;
        let from = journal.get(subject).await.unwrap();
        journal.swap(subject, from.as_ref(), entry).await.unwrap();
    }
}

/// A key of the bucket.
pub(crate) fn subject(key: &str) -> Subject {
    Subject::Object(HotKey::from(&object("bucket", key)))
}

pub(crate) fn members(of: &[u8]) -> MemberSet {
    of.iter().map(|member| MemberId(*member)).collect()
}
