//! Goal: whatever steps of threads come between each other, nothing outdated is found after a write
//! returned, the accounts are right at the end, and nobody waits for ever.
//!
//! Method: a few threads on one object, in many orders (`sync::scheduled`): of the index, of the
//! disk part with the index, and of fills. The origin is a number, which a write makes larger; a
//! record's tag is the number that was read.
//!
//! Not here: tasks of the runtime, such as fillers (`schedules`), and purges of more than one
//! object, which touch every counter: too many steps.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_disk::{PageId, PageStore, Put, Stats, Unwritten, memory::MemoryPages};
use forebay_native::MemoryStore;
use forebay_s3::operation::ObjectId;
use forebay_store::{Clock, Store};
use forebay_telemetry::cache::CacheMetrics;
use shuttle::{future::block_on, thread};

use super::{
    disk::part,
    origin::{Setup, settings},
};
use crate::{
    CacheSettings, PageBytes,
    disk::Disk,
    fill::{Attachment, End, Fill, Flow, Head, Purpose, Step},
    fills::{Fills, Joined},
    index::{
        Cause, Gone, GoneEntry, GoneSink, Index, Limits, Nobody, Written,
        queues::Place,
        tests::{PAGE, PAGE_BYTES, object, version_at},
    },
    layer::Layer,
    plan::Directive,
    policy::Keep,
    sync::scheduled::{explore, turn},
    version::Version,
};

/// An index with room for so much, in one shard below 8 MiB, in four from 16 MiB on.
fn index_of(capacity_bytes: u64) -> Index {
    let limits = Limits {
        capacity_bytes,
        pin_bytes_max: 1 << 20,
        pins_max: 4,
    };
    let metrics = CacheMetrics::default();
    Index::new(limits, PageBytes::OF_TESTS, Arc::new(Nobody), metrics)
}

fn name() -> ObjectId {
    object("bucket", "key")
}

fn write_of(object: &ObjectId) -> Written {
    Written::Object(object.bucket.clone(), object.key.clone())
}

/// What an origin has, and what it had when the last write returned.
#[derive(Default)]
struct Numbers {
    now: AtomicU64,
    returned: AtomicU64,
}

impl Numbers {
    /// Asks the origin, for a record of so many pages.
    fn learn(&self, index: &Index, pages: u64) -> Arc<Version> {
        let stamp = index.stamp(&name());
        turn();
        let now = self.now.load(SeqCst).to_string();
        turn();
        version_at(stamp, &name(), pages, Keep::Yes, &now)
    }

    /// A write, and what is done about it.
    fn write(&self, number: u64, invalidate: impl FnOnce()) {
        self.now.store(number, SeqCst);
        turn();
        invalidate();
        self.returned.store(number, SeqCst);
    }

    /// Where the last write that returned left the origin.
    fn floor(&self) -> u64 {
        turn();
        self.returned.load(SeqCst)
    }
}

fn number_of(version: &Version) -> u64 {
    let tag = version.etag.to_string();
    tag.trim_matches('"').parse().unwrap()
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn nothing_outdated_is_found_in_memory_after_a_write_returned() {
    for written in [write_of(&name()), Written::Bucket(name().bucket)] {
        explore(move || {
            let shared = Arc::new((index_of(1 << 20), Numbers::default()));
            let fill = |shared: &Arc<(Index, Numbers)>| {
                let shared = Arc::clone(shared);
                thread::spawn(move || {
                    let (index, numbers) = &*shared;
                    index.put_version(numbers.learn(index, 1), 0);
                })
            };
            let look = |(index, numbers): &(Index, Numbers)| {
                let floor = numbers.floor();
                if let Some(found) = index.version(&name(), 0) {
                    assert!(number_of(&found) >= floor, "outdated, and found");
                }
            };
            let reader = Arc::clone(&shared);
            let threads = [
                fill(&shared),
                fill(&shared),
                thread::spawn(move || (0..2).for_each(|_| look(&reader))),
            ];
            let (index, numbers) = &*shared;
            for number in 1..=2 {
                numbers.write(number, || index.invalidate(&written));
            }
            join(threads);
            look(&shared);
            index.audit();
        });
    }
}

#[test]
fn the_account_is_the_sum_whoever_stores_and_makes_room_at_once() {
    explore(|| {
        let index = Arc::new(index_of(3 * PAGE_BYTES));
        let fill = |key: &'static str| {
            let index = Arc::clone(&index);
            thread::spawn(move || {
                let object = object("bucket", key);
                let stamp = index.stamp(&object);
                let version = version_at(stamp, &object, 2, Keep::Yes, "0");
                index.put_version(Arc::clone(&version), 0);
                for page_index in 0..2 {
                    if let Some(room) = index.room_for_page(PAGE_BYTES) {
                        let page = Bytes::from_static(&PAGE);
                        index.put_page_in(room, version.vid, page_index, page, 0);
                    }
                    index.page(version.vid, 0, 5000);
                }
                if key == "one" {
                    index.forget(&version);
                }
            })
        };
        let threads = ["one", "two", "one"].map(fill);
        let [one, two] = [object("bucket", "one"), object("bucket", "two")];
        index.pin(&one);
        index.invalidate(&write_of(&two));
        index.unpin(&one);
        index.purge_object(&one.bucket, &one.key);
        join(threads);
        index.audit();
    });
}

#[test]
fn a_page_is_pinned_only_while_its_record_is() {
    explore(|| {
        let index = Arc::new(index_of(16 << 20));
        let put = |tag: &str| {
            let version = version_at(index.stamp(&name()), &name(), 2, Keep::Yes, tag);
            index.put_version(Arc::clone(&version), 0);
            version
        };
        let put_page = |index: &Index, version: &Version| {
            let room = index.room_for_page(PAGE_BYTES).unwrap();
            let page = Bytes::from_static(&PAGE);
            index.put_page_in(room, version.vid, 1, page, 0);
        };
        let first = put("1");
        let room = index.room_for_page(PAGE_BYTES).unwrap();
        index.put_page_in(room, first.vid, 0, Bytes::from_static(&PAGE), 0);
        let [pins, fills, unpins] = [(); 3].map(|()| Arc::clone(&index));
        let threads = [
            thread::spawn(move || {
                pins.pin(&name());
            }),
            thread::spawn(move || put_page(&fills, &first)),
            thread::spawn(move || unpins.unpin(&name())),
        ];
        put("2");
        join(threads);
        index.audit();
        let mut pinned = Vec::new();
        index.visit(&mut |version, standing| {
            if standing.place == Place::Pinned {
                pinned.push(version.vid);
            }
        });
        index.visit_pages(&mut |vid, standing| {
            let is_left = standing.place == Place::Pinned && !pinned.contains(&vid);
            assert!(!is_left, "a pinned page whose record is not pinned");
        });
    });
}

/// A store of pages where others may go first before each call.
#[derive(Debug, Default)]
struct Turning {
    pages: MemoryPages,
    reads_under_way: AtomicU64,
}

/// Of a read that ends, or that nobody waits for any more.
struct EndOfRead<'a>(&'a AtomicU64);

impl Drop for EndOfRead<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[async_trait]
impl PageStore for Turning {
    async fn get(&self, id: PageId) -> Option<Bytes> {
        let others = self.reads_under_way.fetch_add(1, SeqCst);
        assert_eq!(others, 0, "one read for all who come");
        let _end = EndOfRead(&self.reads_under_way);
        // Whoever reads leaves here, if it does.
        let mut first = true;
        std::future::poll_fn(|cx| {
            turn();
            if std::mem::take(&mut first) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        let page = self.pages.get(id).await;
        turn();
        page
    }

    fn put(&self, id: PageId, page: Bytes) -> Put {
        turn();
        self.pages.put(id, page)
    }

    fn contains(&self, id: PageId) -> bool {
        turn();
        self.pages.contains(id)
    }

    fn remove(&self, id: PageId) {
        turn();
        self.pages.remove(id);
    }

    fn stats(&self) -> Stats {
        self.pages.stats()
    }

    async fn flush(&self) -> Result<(), Unwritten> {
        self.pages.flush().await
    }

    async fn close(&self) -> Result<(), Unwritten> {
        self.pages.close().await
    }
}

/// Memory of a layer, and of what its disk part needs there.
const CAPACITY_BYTES: u64 = 1 << 20;

/// A layer with a disk, and on it or in memory a record of so many pages that was used.
struct Room {
    layer: Arc<Layer>,
    numbers: Numbers,
    pages: u64,
}

impl Room {
    fn new(pages: u64) -> Arc<Self> {
        let setup = Setup {
            settings: CacheSettings {
                capacity_bytes: CAPACITY_BYTES,
                ..settings()
            },
            disk: Some(part(Arc::new(Turning::default()))),
            ..Setup::default()
        };
        let inner = Arc::new(MemoryStore::new(Clock::system())) as Arc<dyn Store>;
        Arc::new(Self {
            layer: Arc::clone(&setup.over(inner).layer),
            numbers: Numbers::default(),
            pages,
        })
    }

    fn disk(&self) -> &Disk {
        self.layer.disk.as_deref().unwrap()
    }

    /// Stores what the origin has, and uses it.
    fn fill(&self) {
        let index = &self.layer.index;
        let version = self.numbers.learn(index, self.pages);
        self.layer.keep_record(&version);
        index.version(&name(), 5000);
    }

    /// All that is in memory leaves for room, of which there is never so much.
    fn evict(&self) {
        let room = self.layer.index.room_for_page(CAPACITY_BYTES);
        assert!(room.is_none());
    }

    /// A write, as the layer sees it.
    fn write(&self) {
        let invalidate = || self.layer.invalidate(&write_of(&name()));
        self.numbers.write(1, invalidate);
    }

    /// Reads as a client does, in memory, then on disk.
    fn look(&self) {
        let floor = self.numbers.floor();
        let found = self.layer.index.version(&name(), 0);
        let found = found.or_else(|| block_on(self.layer.load(&name())));
        if let Some(found) = found {
            assert!(number_of(&found) >= floor, "outdated, and found");
        }
    }
}

/// What thread a schedule has beside others.
fn beside(room: &Arc<Room>, act: impl Fn(&Room) + Send + 'static) -> thread::JoinHandle<()> {
    let room = Arc::clone(room);
    thread::spawn(move || act(&room))
}

#[test]
fn a_record_that_makes_room_while_a_write_passes_is_not_found_on_disk() {
    explore(|| {
        let room = Room::new(1);
        let version = room.numbers.learn(&room.layer.index, 1);
        let evicted = beside(&room, move |room| {
            room.disk().gone(Gone {
                entry: GoneEntry::Version(Arc::clone(&version)),
                was_hit: true,
                cause: Cause::Room,
            });
        });
        room.write();
        room.look();
        join([evicted]);
        room.look();
    });
}

#[test]
fn a_record_that_is_read_from_disk_while_a_write_passes_is_not_found_in_memory() {
    explore(|| {
        let room = Room::new(1);
        room.fill();
        room.evict();
        let reader = beside(&room, Room::look);
        room.write();
        room.look();
        room.fill();
        room.evict();
        room.look();
        join([reader]);
        room.look();
    });
}

#[test]
fn nothing_outdated_is_found_whoever_fills_evicts_and_reads_while_a_write_passes() {
    explore(|| {
        let room = Room::new(2);
        room.fill();
        let threads = [Room::fill, Room::evict, Room::look].map(|act| beside(&room, act));
        room.write();
        room.look();
        join(threads);
        room.look();
        room.evict();
        room.look();
        room.layer.index.audit();
    });
}

#[test]
fn a_record_is_read_once_for_all_who_come_and_those_who_leave_disturb_nobody() {
    explore(|| {
        let room = Room::new(2);
        room.fill();
        room.evict();
        assert!(room.disk().has_record(&name()));
        let load = |room: &Room| {
            assert!(block_on(room.layer.load(&name())).is_some());
        };
        let leave = |room: &Room| {
            let name = name();
            let mut load = Box::pin(room.layer.load(&name));
            block_on(std::future::poll_fn(|cx| {
                drop(load.as_mut().poll(cx));
                Poll::Ready(())
            }));
        };
        let threads = [beside(&room, load), beside(&room, leave)];
        leave(&room);
        join(threads);
        assert_eq!(room.disk().loads_count(), 0, "all loads have ended");
        room.layer.index.audit();
    });
}

/// Bytes that arrive at once.
const PIECE_BYTES: usize = 40_000;

/// A filler, as far as it needs no origin: brings two pages.
fn bring(fills: &Fills, fill: &Arc<Fill>, version: Arc<Version>, under_way: &AtomicU64) {
    let flow = Flow {
        ahead_bytes_max: PIECE_BYTES as u64,
        page_bytes: None,
    };
    fill.begin(version, 0..2 * PAGE_BYTES, flow);
    let mut left = usize::try_from(2 * PAGE_BYTES).unwrap();
    while left > 0 && block_on(std::future::poll_fn(|cx| fill.poll_read_on(cx))) {
        let piece = Bytes::from_static(&PAGE[..left.min(PIECE_BYTES)]);
        left -= piece.len();
        fill.push(piece).unwrap();
    }
    under_way.fetch_sub(1, SeqCst);
    fill.end(if left == 0 { End::Whole } else { End::Broken });
    fills.remove(0, fill);
}

/// Reads until its fill has no more, or so many bytes.
fn read(attachment: &Attachment, bytes_max: u64) {
    let head = block_on(attachment.head());
    assert!(matches!(head, Head::Version(_)), "{head:?}");
    let mut position = 0;
    while position < bytes_max {
        let poll = |cx: &mut std::task::Context<'_>| attachment.poll(position, u64::MAX, cx);
        match block_on(std::future::poll_fn(poll)) {
            Step::Bytes(bytes) => position += bytes.len() as u64,
            Step::Past => {
                assert_eq!(position, 2 * PAGE_BYTES, "the end is that of the body");
                break;
            }
            // A faster one went ahead: the rest would be in the cache.
            Step::Behind => break,
            step @ (Step::Broken | Step::Changed) => panic!("{step:?} at {position}"),
        }
    }
}

#[test]
fn one_begins_a_fill_the_others_follow_and_nobody_waits_for_ever() {
    explore(|| {
        let index = index_of(1 << 20);
        let stamp = index.stamp(&name());
        let version = version_at(stamp, &name(), 2, Keep::Yes, "1");
        let shared = Arc::new((Fills::default(), AtomicU64::new(0)));
        let come = |bytes_max: u64| {
            let (shared, version) = (Arc::clone(&shared), Arc::clone(&version));
            thread::spawn(move || {
                let (fills, under_way) = &*shared;
                let begin = || {
                    let others = under_way.fetch_add(1, SeqCst);
                    assert_eq!(others, 0, "one begins, and the others follow");
                    let purpose = Purpose::Learn {
                        stale: None,
                        directive: Directive::None,
                    };
                    Fill::new(name(), purpose, stamp)
                };
                let (attachment, filler) = match fills.learn(0, &name(), 0, |_| true, begin) {
                    Joined::Follower(attachment) => (attachment, None),
                    Joined::Leader(attachment) => {
                        let (shared, fill) = (Arc::clone(&shared), Arc::clone(attachment.fill()));
                        let run = move || bring(&shared.0, &fill, version, &shared.1);
                        (attachment, Some(thread::spawn(run)))
                    }
                };
                read(&attachment, bytes_max);
                drop(attachment);
                join(filler);
            })
        };
        let threads = [come(u64::MAX), come(1), come(u64::MAX)];
        block_on(shared.0.settled(0));
        join(threads);
        assert_eq!(shared.0.count(), 0);
    });
}
