//! Copies between members of several kinds, whole, broken, changed under way and slow.

use std::{sync::Mutex, time::Duration};

use async_trait::async_trait;
use forebay_fs::{FsSettings, FsStore};
use forebay_native::MemoryStore;
use forebay_store::{
    Body, Error, Request, Response,
    contract::requests::{
        attributes, complete_upload, create_bucket, create_upload, delete, get, get_tags, head,
        object, put, upload_part,
    },
    faulty::{Fault, Faulty},
};

use super::*;

const MIB: usize = 1 << 20;

/// Two members with the bucket `bucket`.
struct Pair {
    source: Arc<dyn Store>,
    target: Arc<dyn Store>,
    copier: Copier,
}

impl Pair {
    async fn of(source: Arc<dyn Store>, target: Arc<dyn Store>) -> Self {
        for store in [&source, &target] {
            create_bucket("bucket").expect(200, &**store).await;
        }
        let copier = Copier::new(Clock::system(), &MirrorSettings::default());
        Self {
            source,
            target,
            copier,
        }
    }

    async fn copy(&self, key: &str) -> Result<Copied, CopyError> {
        let key = HotKey::from(&object("bucket", key));
        let ends = Ends {
            source: &*self.source,
            target: &*self.target,
        };
        self.copier.copy(&key, ends).await
    }

    /// Asserts that both tell the same of a key, but for the time.
    async fn assert_equal(&self, key: &str) {
        let mut told = Vec::new();
        for store in [&self.source, &self.target] {
            let request = get("bucket", key).header("x-amz-checksum-mode", "ENABLED");
            let mut read = request.expect(200, &**store).await;
            read.headers.remove("last-modified");
            let mut headers: Vec<_> = read.headers.iter().collect();
            headers.sort_by_key(|(name, _)| name.as_str());
            let tags = get_tags("bucket", key).expect(200, &**store).await.text();
            told.push((format!("{headers:?}"), read.body.clone(), tags));
        }
        assert_eq!(told[0], told[1]);
    }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Clock::system()))
}

fn directory(root: &tempfile::TempDir) -> Arc<dyn Store> {
    let settings = FsSettings::new(root.path());
    Arc::new(FsStore::open(settings, Clock::system()).unwrap())
}

/// Uploads an object of parts of these sizes.
async fn upload(store: &dyn Store, key: &str, sizes: &[usize]) {
    upload_with(store, key, sizes, None).await;
}

async fn upload_with(store: &dyn Store, key: &str, sizes: &[usize], sum: Option<&str>) {
    let mut create = create_upload("bucket", key)
        .header("content-type", "text/plain")
        .header("x-amz-meta-name", "value")
        .header("x-amz-tagging", "a=b");
    if let Some(algorithm) = sum {
        create = create.header("x-amz-checksum-algorithm", algorithm);
    }
    let id = create.expect(200, store).await.element("UploadId");
    let mut parts = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let number = u16::try_from(2 * at + 1).unwrap();
        let bytes = vec![b'a' + u8::try_from(at).unwrap(); *size];
        let part = upload_part("bucket", key, &id, number).body(bytes);
        let answer = part.expect(200, store).await;
        parts.push((number, answer.header("etag").to_owned()));
    }
    let named: Vec<_> = parts.iter().map(|(n, etag)| (*n, etag.as_str())).collect();
    complete_upload("bucket", key, &id, &named)
        .expect(200, store)
        .await;
}

#[tokio::test]
async fn a_copy_has_bytes_headers_metadata_tags_and_checksum() {
    let root = tempfile::tempdir().unwrap();
    for (source, target) in [(memory(), directory(&root)), (memory(), memory())] {
        let pair = Pair::of(source, target).await;
        let sum = "x-amz-checksum-sha256";
        let value = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=";
        put("bucket", "k")
            .header("content-type", "text/plain")
            .header("cache-control", "max-age=1")
            .header("content-encoding", "gzip")
            .header("x-amz-meta-name", "value")
            .header("x-amz-storage-class", "STANDARD_IA")
            .header("x-amz-tagging", "a%20b=c%26d&e=")
            .header(sum, value)
            .body("abc")
            .expect(200, &*pair.source)
            .await;
        let written = Copied::Written(3, Likeness::Same);
        assert_eq!(pair.copy("k").await.unwrap(), written);
        pair.assert_equal("k").await;
        assert_eq!(pair.copy("k").await.unwrap(), Copied::Nothing);
        put("bucket", "empty")
            .body("")
            .expect(200, &*pair.source)
            .await;
        let written = Copied::Written(0, Likeness::Same);
        assert_eq!(pair.copy("empty").await.unwrap(), written);
        pair.assert_equal("empty").await;
    }
}

#[tokio::test]
async fn metadata_or_tags_alone_are_brought_too() {
    let pair = Pair::of(memory(), memory()).await;
    for (of_source, of_target) in [
        (("x-amz-meta-a", "1"), ("x-amz-meta-a", "2")),
        (("x-amz-tagging", "a=1"), ("x-amz-tagging", "a=2")),
        (("x-amz-meta-a", "1"), ("x-amz-tagging", "a=1")),
    ] {
        let object = |(name, value)| put("bucket", "k").header(name, value).body("abc");
        object(of_source).expect(200, &*pair.source).await;
        object(of_target).expect(200, &*pair.target).await;
        let written = Copied::Written(3, Likeness::Same);
        assert_eq!(pair.copy("k").await.unwrap(), written, "{of_source:?}");
        pair.assert_equal("k").await;
    }
}

#[tokio::test]
async fn what_the_source_has_not_is_deleted_at_the_target() {
    let pair = Pair::of(memory(), memory()).await;
    put("bucket", "k")
        .body("abc")
        .expect(200, &*pair.target)
        .await;
    assert_eq!(pair.copy("k").await.unwrap(), Copied::Deleted);
    assert_eq!(get("bucket", "k").refusal(&*pair.target).await, "NoSuchKey");
    assert_eq!(pair.copy("k").await.unwrap(), Copied::Deleted);
}

/// Goal: an object of parts keeps its tag, whatever sizes and numbers its parts had.
/// Method: uploads between stores that tell parts, both ways; part numbers 1, 3, 5.
#[tokio::test]
async fn an_object_of_parts_keeps_its_tag() {
    let root = tempfile::tempdir().unwrap();
    let (memory, directory) = (memory(), directory(&root));
    let sizes = [5 * MIB, 6 * MIB + 1, 7];
    let there = Pair::of(memory.clone(), directory.clone()).await;
    upload(&*memory, "k", &sizes).await;
    let written = Copied::Written(sizes.iter().map(|size| *size as u64).sum(), Likeness::Same);
    assert_eq!(there.copy("k").await.unwrap(), written);
    there.assert_equal("k").await;
    let back = Pair {
        source: directory,
        target: memory,
        ..there
    };
    delete("bucket", "k").expect(204, &*back.target).await;
    assert_eq!(back.copy("k").await.unwrap(), written);
    back.assert_equal("k").await;
    assert!(
        head("bucket", "k")
            .expect(200, &*back.target)
            .await
            .header("etag")
            .ends_with("-3\"")
    );
}

#[tokio::test]
async fn checksums_of_parts_and_of_the_whole_come_out_as_they_were() {
    let pair = Pair::of(memory(), memory()).await;
    for algorithm in ["SHA256", "CRC32", "CRC64NVME"] {
        upload_with(&*pair.source, algorithm, &[5 * MIB, 3], Some(algorithm)).await;
        let written = Copied::Written((5 * MIB + 3) as u64, Likeness::Same);
        assert_eq!(pair.copy(algorithm).await.unwrap(), written, "{algorithm}");
        pair.assert_equal(algorithm).await;
        let sums =
            |store| attributes("bucket", algorithm, "Checksum,ObjectParts").expect(200, store);
        let (a, b) = (sums(&*pair.source).await, sums(&*pair.target).await);
        let told = |text: String| text.replace("<PartNumber>3<", "<PartNumber>2<");
        let marker = |text: String| text.replace("Marker>3<", "Marker>2<");
        assert_eq!(marker(told(a.text())), marker(b.text()), "{algorithm}");
    }
}

/// A store that knows of no part numbers.
struct Partless(Arc<dyn Store>);

#[async_trait]
impl Store for Partless {
    async fn call(&self, mut request: Request) -> Result<Response, Error> {
        if let Operation::HeadObject(read) | Operation::GetObject(read) = &mut request.operation {
            read.part_number = None;
        }
        self.0.call(request).await
    }
}

#[tokio::test]
async fn without_told_parts_usual_sizes_are_tried_and_another_tag_is_said() {
    let pair = Pair::of(Arc::new(Partless(memory())), memory()).await;
    upload(&*pair.source, "usual", &[8 * MIB, 8 * MIB, 1]).await;
    let written = Copied::Written((16 * MIB + 1) as u64, Likeness::Same);
    assert_eq!(pair.copy("usual").await.unwrap(), written);
    pair.assert_equal("usual").await;
    upload(&*pair.source, "odd", &[5 * MIB, 9 * MIB, 1]).await;
    let written = Copied::Written((14 * MIB + 1) as u64, Likeness::OtherTag);
    assert_eq!(pair.copy("odd").await.unwrap(), written);
    let read = async |store| get("bucket", "odd").expect(200, store).await.body;
    assert_eq!(read(&*pair.source).await, read(&*pair.target).await);
    let empty = Copied::Written(0, Likeness::Same);
    upload(&*pair.source, "empty", &[0]).await;
    assert_eq!(pair.copy("empty").await.unwrap(), empty);
}

/// Writes over a key once its GET has been answered, or before.
struct Overwritten {
    inner: Arc<dyn Store>,
    /// What is written at the next GET.
    next: Mutex<Option<&'static str>>,
    /// Whether it obeys `If-Match`.
    conditions: Conditions,
}

#[derive(Clone, Copy)]
enum Conditions {
    Obeyed,
    Ignored,
}

#[async_trait]
impl Store for Overwritten {
    async fn call(&self, mut request: Request) -> Result<Response, Error> {
        if let Operation::GetObject(_) = request.operation {
            if let Conditions::Ignored = self.conditions {
                request.headers.remove(header::IF_MATCH);
            }
            let next = self.next.lock().unwrap().take();
            if let Some(bytes) = next {
                put("bucket", "k")
                    .body(bytes)
                    .expect(200, &*self.inner)
                    .await;
            }
        }
        self.inner.call(request).await
    }
}

#[tokio::test]
async fn a_source_that_changes_under_way_is_seen_and_nothing_is_written() {
    for conditions in [Conditions::Obeyed, Conditions::Ignored] {
        changes_under_way(conditions).await;
    }
}

async fn changes_under_way(conditions: Conditions) {
    let source = Arc::new(Overwritten {
        inner: memory(),
        next: Mutex::new(Some("new")),
        conditions,
    });
    let pair = Pair::of(source, memory()).await;
    put("bucket", "k")
        .body("old")
        .expect(200, &*pair.source)
        .await;
    assert_eq!(pair.copy("k").await, Err(CopyError::Changed));
    assert_eq!(get("bucket", "k").refusal(&*pair.target).await, "NoSuchKey");
    assert!(pair.copy("k").await.is_ok());
    pair.assert_equal("k").await;
}

#[tokio::test]
async fn broken_bytes_of_a_source_are_never_stored() {
    let source = Arc::new(Faulty::new(MemoryStore::new(Clock::system())));
    let pair = Pair::of(source.clone(), memory()).await;
    put("bucket", "k")
        .body("abcdef")
        .expect(200, &*source)
        .await;
    // HEAD of the source passes; the next call is the GET.
    for fault in [Fault::CutAfter(3), Fault::FlipAt(2), Fault::FlipAt(5)] {
        source.script([Fault::None, fault]);
        let copied = pair.copy("k").await;
        assert!(
            matches!(copied, Err(CopyError::Target(_))),
            "{fault:?} {copied:?}"
        );
        let there = get("bucket", "k").refusal(&*pair.target).await;
        assert_eq!(there, "NoSuchKey", "{fault:?}");
    }
    source.script([Fault::Unavailable]);
    let expected = CopyError::Source(Trouble::Busy);
    assert_eq!(pair.copy("k").await, Err(expected));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_stands_still_is_given_up_after_its_time() {
    let source = Arc::new(Faulty::new(MemoryStore::new(Clock::system())));
    let pair = Pair::of(source.clone(), memory()).await;
    put("bucket", "k")
        .body("abcdef")
        .expect(200, &*source)
        .await;
    let start = tokio::time::Instant::now();
    source.script([Fault::Hang]);
    let expected = CopyError::Source(Trouble::Unknown);
    assert_eq!(pair.copy("k").await, Err(expected));
    source.script([Fault::None, Fault::StallAfter(3)]);
    let expected = CopyError::Target(Trouble::Unknown);
    assert_eq!(pair.copy("k").await, Err(expected));
    // Once for the HEAD; for the GET its time, and once more as it did bring something in it.
    let timeout = MirrorSettings::default().attempt_timeout;
    assert_eq!(start.elapsed(), 3 * timeout);
    assert!(pair.copy("k").await.is_ok());
}

/// Gives a body in pieces of 1 KiB.
struct Pieces(Arc<dyn Store>);

#[async_trait]
impl Store for Pieces {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let mut response = self.0.call(request).await?;
        let body = std::mem::take(&mut response.body);
        let (bytes, _) = body.collect(usize::MAX).await?;
        let pieces = bytes.chunks(1024).map(bytes::Bytes::copy_from_slice);
        response.body = Body::pieces(pieces.collect());
        Ok(response)
    }
}

#[tokio::test(start_paused = true)]
async fn copies_keep_to_their_rate_and_a_slow_rate_is_no_standstill() {
    let source = Arc::new(Pieces(memory()));
    let mut pair = Pair::of(source, memory()).await;
    let settings = MirrorSettings {
        repair_bytes_per_second_max: Some(1024),
        attempt_timeout: Duration::from_millis(700),
        ..MirrorSettings::default()
    };
    pair.copier = Copier::new(Clock::system(), &settings);
    for key in ["a", "b"] {
        put("bucket", key)
            .body(vec![0; 4096])
            .expect(200, &*pair.source)
            .await;
    }
    let start = tokio::time::Instant::now();
    let (a, b) = tokio::join!(pair.copy("a"), pair.copy("b"));
    let written = Copied::Written(4096, Likeness::Same);
    assert_eq!((a.unwrap(), b.unwrap()), (written, written));
    // The last piece waits for nobody behind it.
    assert!(
        start.elapsed() >= Duration::from_secs(7),
        "{:?}",
        start.elapsed()
    );
}
