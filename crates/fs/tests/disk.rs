//! What a directory store does beyond the contract: files as files, crashes, conflicts of names.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use forebay_fs::{Durability, FsSettings, FsStore, OpenError, RecordPlace};
use forebay_store::{
    Clock, Store,
    contract::{
        bodies,
        requests::{
            complete_upload, create_bucket, create_upload, delete, delete_bucket, get, head,
            list_buckets, list_parts, list_v2, put, put_tags, upload_part,
        },
        sample_bytes,
    },
};

const B: &str = "bucket";

fn open(root: &Path) -> FsStore {
    FsStore::open(FsSettings::new(root), Clock::system()).unwrap()
}

/// A root with a bucket, and its store.
async fn with_bucket() -> (tempfile::TempDir, FsStore) {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    create_bucket(B).expect(200, &store).await;
    (root, store)
}

/// Files below a directory, by path, sorted; the store's own are left out.
fn files(root: &Path) -> Vec<String> {
    fn visit(at: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with(".forebay") {
                visit(&path, root, found);
            } else if path.is_file() {
                found.push(
                    path.strip_prefix(root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                );
            }
        }
    }
    let mut found = Vec::new();
    visit(root, root, &mut found);
    found.sort();
    found
}

fn temporary_count(root: &Path) -> usize {
    fs::read_dir(root.join(B).join(".forebay/tmp")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn objects_are_files_and_files_are_objects() {
    let (root, store) = with_bucket().await;
    put(B, "dir/a b.txt")
        .body("hello")
        .expect(200, &store)
        .await;
    assert_eq!(
        fs::read_to_string(root.path().join("bucket/dir/a b.txt")).unwrap(),
        "hello"
    );

    fs::create_dir_all(root.path().join("bucket/by/hand")).unwrap();
    fs::write(root.path().join("bucket/by/hand/file"), "put there").unwrap();
    let read = get(B, "by/hand/file").expect(200, &store).await;
    assert_eq!(read.text(), "put there");
    assert!(read.etag().ends_with("-0\""), "no MD5: {}", read.etag());
    assert_eq!(
        list_v2(B).expect(200, &store).await.elements("Key"),
        ["by/hand/file", "dir/a b.txt"]
    );
    put_tags(B, "by/hand/file", &[("t", "1")])
        .expect(200, &store)
        .await;
    let tagged = head(B, "by/hand/file").expect(200, &store).await;
    assert_eq!(
        (tagged.etag(), tagged.header("x-amz-tagging-count")),
        (read.etag(), "1")
    );

    fs::create_dir(root.path().join("other-bucket")).unwrap();
    let buckets = list_buckets().expect(200, &store).await;
    assert_eq!(buckets.elements("Name"), [B, "other-bucket"]);
    put("other-bucket", "k").body("x").expect(200, &store).await;
}

#[tokio::test]
async fn a_file_changed_by_hand_is_another_object() {
    for records in [RecordPlace::Attribute, RecordPlace::Sidecar] {
        let root = tempfile::tempdir().unwrap();
        let settings = FsSettings {
            records,
            ..FsSettings::new(root.path())
        };
        let store = FsStore::open(settings, Clock::system()).unwrap();
        create_bucket(B).expect(200, &store).await;
        let put = put(B, "k").header("x-amz-meta-m", "1").body("hello");
        let written = put.expect(200, &store).await;
        fs::write(root.path().join("bucket/k"), "HELLO").unwrap();
        let read = get(B, "k").expect(200, &store).await;
        assert_eq!(read.text(), "HELLO");
        assert_ne!(read.etag(), written.etag());
        assert_eq!(read.header("x-amz-meta-m"), "");
    }
}

#[tokio::test]
async fn sidecars_come_and_go_with_their_objects() {
    let root = tempfile::tempdir().unwrap();
    let settings = FsSettings {
        records: RecordPlace::Sidecar,
        ..FsSettings::new(root.path())
    };
    let store = FsStore::open(settings, Clock::system()).unwrap();
    create_bucket(B).expect(200, &store).await;
    let sidecars = || {
        let records = root.path().join("bucket/.forebay/records");
        fs::read_dir(records).map_or(0, |directories| {
            directories
                .map(|d| fs::read_dir(d.unwrap().path()).unwrap().count())
                .sum()
        })
    };
    for body in ["one", "two"] {
        put(B, "k")
            .header("x-amz-meta-m", body)
            .body(body)
            .expect(200, &store)
            .await;
        assert_eq!(sidecars(), 1);
        assert_eq!(
            get(B, "k").expect(200, &store).await.header("x-amz-meta-m"),
            body
        );
    }
    delete(B, "k").expect(204, &store).await;
    assert_eq!(sidecars(), 0);
}

#[tokio::test]
async fn links_are_not_followed_and_not_objects() {
    let (root, store) = with_bucket().await;
    fs::write(root.path().join("secret"), "out").unwrap();
    symlink(root.path().join("secret"), root.path().join("bucket/link")).unwrap();
    symlink(root.path(), root.path().join("bucket/up")).unwrap();
    symlink(root.path(), root.path().join("linked-bucket")).unwrap();
    for key in ["link", "up/secret", "../secret", "up/bucket/link"] {
        assert_eq!(get(B, key).refusal(&store).await, "NoSuchKey", "{key}");
    }
    assert_eq!(
        list_v2(B).expect(200, &store).await.elements("Key"),
        [""; 0]
    );
    assert_eq!(
        get("linked-bucket", "secret").refusal(&store).await,
        "NoSuchBucket"
    );
    assert_eq!(
        put(B, "up/new").body("x").refusal(&store).await,
        "AccessDenied"
    );
    // A put replaces the link itself, not what it leads to.
    put(B, "link").body("mine").expect(200, &store).await;
    assert_eq!(
        fs::read_to_string(root.path().join("secret")).unwrap(),
        "out"
    );
    put(B, "../secret")
        .body("mine too")
        .expect(200, &store)
        .await;
    assert_eq!(
        fs::read_to_string(root.path().join("secret")).unwrap(),
        "out"
    );
    assert_eq!(delete_bucket(B).refusal(&store).await, "BucketNotEmpty");
}

#[tokio::test]
async fn an_object_moves_aside_for_a_directory_of_its_name() {
    let (root, store) = with_bucket().await;
    let first = put(B, "a")
        .header("x-amz-meta-m", "1")
        .body("of a")
        .expect(200, &store)
        .await;
    put(B, "a/b").body("of a/b").expect(200, &store).await;
    assert_eq!(files(root.path()), ["bucket/.object%a", "bucket/a/b"]);
    let read = get(B, "a").expect(200, &store).await;
    assert_eq!((read.text().as_str(), read.etag()), ("of a", first.etag()));
    assert_eq!(read.header("x-amz-meta-m"), "1");
    delete(B, "a/b").expect(204, &store).await;
    assert!(
        !root.path().join("bucket/a").exists(),
        "an empty directory goes"
    );
    put(B, "a").body("again").expect(200, &store).await;
    assert_eq!(get(B, "a").expect(200, &store).await.text(), "again");
    delete(B, "a").expect(204, &store).await;
    assert_eq!(files(root.path()), [""; 0]);
}

/// Goal: keys that get in each other's way do not disturb each other, whatever happens at once.
/// Method: a task for each key puts, reads and deletes it, and must always find what it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_each_others_way_do_not_disturb_each_other() {
    let root = tempfile::tempdir().unwrap();
    let settings = FsSettings {
        durability: Durability::None,
        ..FsSettings::new(root.path())
    };
    let store = Arc::new(FsStore::open(settings, Clock::system()).unwrap());
    create_bucket(B).expect(200, &*store).await;
    let mut tasks = Vec::new();
    for key in ["a", "a/b", "a/b/c", "a/b/c/d", "a/", "a/b/", "a/x", "a//b"] {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            for round in 0..200 {
                let body = format!("{key} {round}");
                let create = put(B, key).header("if-none-match", "*").body(body.clone());
                create.expect(200, &*store).await;
                assert_eq!(get(B, key).expect(200, &*store).await.text(), body);
                let listed = list_v2(B).query("prefix", key).expect(200, &*store).await;
                assert_eq!(listed.elements("Key")[0], key);
                delete(B, key).expect(204, &*store).await;
                assert_eq!(get(B, key).refusal(&*store).await, "NoSuchKey", "{key}");
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(files(root.path()), [""; 0]);
}

#[tokio::test]
async fn uploads_survive_a_restart_and_litter_does_not() {
    let (root, store) = with_bucket().await;
    let created = create_upload(B, "k")
        .header("x-amz-meta-m", "1")
        .expect(200, &store)
        .await;
    let id = created.element("UploadId");
    let part = upload_part(B, "k", &id, 1)
        .body("part")
        .expect(200, &store)
        .await;
    put(B, "kept").body("x").expect(200, &store).await;
    drop(store);
    let own = root.path().join("bucket/.forebay");
    fs::write(own.join("tmp/left"), "torn").unwrap();
    fs::create_dir(own.join("tmp/aborted")).unwrap();
    fs::write(own.join("tmp/aborted/part"), "torn").unwrap();
    fs::create_dir(own.join("uploads/half-begun")).unwrap();
    fs::create_dir_all(root.path().join(".forebay-removed-1/.forebay/tmp")).unwrap();
    fs::write(root.path().join(".forebay-removed-1/.forebay/tmp/x"), "").unwrap();

    let store = open(root.path());
    assert_eq!(fs::read_dir(own.join("tmp")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(own.join("uploads")).unwrap().count(), 1);
    assert!(!root.path().join(".forebay-removed-1").exists());
    let parts = list_parts(B, "k", &id).expect(200, &store).await;
    assert_eq!(parts.elements("ETag"), [part.etag()]);
    complete_upload(B, "k", &id, &[(1, part.etag())])
        .expect(200, &store)
        .await;
    let read = get(B, "k").expect(200, &store).await;
    assert_eq!(
        (read.text().as_str(), read.header("x-amz-meta-m")),
        ("part", "1")
    );
    assert_eq!(get(B, "kept").expect(200, &store).await.text(), "x");
    assert_eq!(fs::read_dir(own.join("uploads")).unwrap().count(), 0);
}

/// Goal: a write that is dropped, at whichever await, leaves nothing behind.
/// Method: poll a put of several pieces n times, drop it, and look at the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_and_broken_writes_leave_no_temporary_file() {
    let (root, store) = with_bucket().await;
    let bytes = sample_bytes(700_000);
    for polls in 0..40_u32 {
        let request = put(B, "k").body(bodies::in_pieces(&bytes, 100_000)).build();
        {
            let mut call = std::pin::pin!(store.call(request));
            for _ in 0..polls {
                let done = tokio::select! {
                    biased;
                    _ = &mut call => true,
                    () = tokio::task::yield_now() => false,
                };
                if done {
                    break;
                }
            }
        }
        put(B, "other")
            .body(bodies::broken(b"half"))
            .send(&store)
            .await
            .unwrap_err();
        if let Ok(read) = get(B, "k").send(&store).await {
            assert!(read.body == bytes, "after {polls} polls");
        }
    }
    // What was dropped removes itself on other threads.
    let removed = async {
        while temporary_count(root.path()) > 0 {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), removed).await;
    assert!(
        in_time.is_ok(),
        "{} files left",
        temporary_count(root.path())
    );
    assert!(files(root.path()).len() <= 1);
}

#[tokio::test]
async fn a_reader_keeps_its_version_while_it_is_replaced() {
    let (_root, store) = with_bucket().await;
    let (old, new) = (sample_bytes(2_000_000), vec![1; 2_000_000]);
    put(B, "k").body(old.clone()).expect(200, &store).await;
    let mut reading = get(B, "k").call(&store).await.unwrap();
    let first = reading
        .body
        .frame()
        .await
        .unwrap()
        .unwrap()
        .into_data()
        .unwrap();
    put(B, "k").body(new).expect(200, &store).await;
    delete(B, "k").expect(204, &store).await;
    let (rest, _) = reading.body.collect(usize::MAX).await.unwrap();
    assert!([&first[..], &rest].concat() == old);
}

#[tokio::test]
async fn a_file_cut_during_a_read_is_no_short_answer() {
    let (root, store) = with_bucket().await;
    put(B, "k")
        .body(sample_bytes(2_000_000))
        .expect(200, &store)
        .await;
    let reading = get(B, "k").call(&store).await.unwrap();
    assert_eq!(reading.body.length(), Some(2_000_000));
    fs::File::options()
        .write(true)
        .open(root.path().join("bucket/k"))
        .unwrap()
        .set_len(9)
        .unwrap();
    let error = reading.body.collect(usize::MAX).await.unwrap_err();
    assert!(matches!(error, forebay_store::Error::Cut { .. }), "{error}");
}

#[tokio::test]
async fn a_bucket_goes_with_its_empty_directories_but_not_with_files() {
    let (root, store) = with_bucket().await;
    fs::create_dir_all(root.path().join("bucket/empty/below")).unwrap();
    fs::write(root.path().join("bucket/.forebay%"), "a key like any other").unwrap();
    assert_eq!(delete_bucket(B).refusal(&store).await, "BucketNotEmpty");
    delete(B, ".forebay%").expect(204, &store).await;
    let no_key = std::ffi::OsStr::new("bucket");
    fs::write(root.path().join(no_key).join(".object%%zz"), "no key").unwrap();
    assert_eq!(delete_bucket(B).refusal(&store).await, "BucketNotEmpty");
    fs::remove_file(root.path().join("bucket/.object%%zz")).unwrap();
    delete_bucket(B).expect(204, &store).await;
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn one_store_at_a_time_owns_a_root() {
    let (root, store) = with_bucket().await;
    let second = FsStore::open(FsSettings::new(root.path()), Clock::system());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    drop(store);
    open(root.path());
    let missing = FsSettings::new(root.path().join("no/such/parent"));
    let error = FsStore::open(missing, Clock::system()).unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }));
}
