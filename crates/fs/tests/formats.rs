//! The format on disk, version 1: what was written then is read now, and what is written now is
//! what was written then. docs/formats.md describes it.
//!
//! A fixture is a directory as JSON, because extended attributes and times would not survive a
//! version control system.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use forebay_fs::{FsSettings, FsStore, RecordPlace};
use forebay_store::{
    Clock,
    contract::requests::{
        attributes, complete_upload, create_bucket, create_upload, get, get_tags, list_buckets,
        list_parts, list_uploads, list_v2, put, upload_part,
    },
};
use rustix::fs::XattrFlags;
use serde::{Deserialize, Serialize};

const V1: &str = include_str!("fixtures/v1/tree.json");
/// The buckets: records in attributes where possible, and always in sidecars.
const A: &str = "attributes";
const S: &str = "sidecars";
/// Stands for the ids that a store makes up.
const UPLOAD_ID: &str = "000000000000000000000000000000000000000000000000";
const ATTRIBUTE: &str = "user.forebay";
/// The time at which the fixture was written, Unix seconds.
const WRITTEN: Duration = Duration::from_secs(1_750_000_000);

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: String,
    mtime_ns: u64,
    text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attribute: Option<String>,
}

fn write_tree(root: &Path, entries: &[Entry]) {
    for entry in entries {
        let path = root.join(&entry.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &entry.text).unwrap();
        if let Some(value) = &entry.attribute {
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(&path, ATTRIBUTE, value.as_bytes(), flags).unwrap();
        }
        let time = UNIX_EPOCH + Duration::from_nanos(entry.mtime_ns);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    }
}

fn read_tree(root: &Path) -> Vec<Entry> {
    fn visit(at: &Path, root: &Path, entries: &mut Vec<Entry>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let stat = path.metadata().unwrap();
            if stat.is_dir() {
                visit(&path, root, entries);
                continue;
            }
            let mut value = Vec::with_capacity(4096);
            let spare = rustix::buffer::spare_capacity(&mut value);
            let has_value = rustix::fs::getxattr(&path, ATTRIBUTE, spare).is_ok();
            let seconds = u64::try_from(stat.mtime()).unwrap();
            entries.push(Entry {
                path: path.strip_prefix(root).unwrap().to_str().unwrap().into(),
                mtime_ns: seconds * 1_000_000_000 + u64::try_from(stat.mtime_nsec()).unwrap(),
                text: fs::read_to_string(&path).unwrap(),
                attribute: has_value.then(|| String::from_utf8(value).unwrap()),
            });
        }
    }
    let mut entries = Vec::new();
    visit(root, root, &mut entries);
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn open(root: &Path, records: RecordPlace) -> FsStore {
    let settings = FsSettings {
        records,
        ..FsSettings::new(root)
    };
    FsStore::open(settings, Clock::manual(UNIX_EPOCH + WRITTEN)).unwrap()
}

/// Begins an upload, and gives it two parts; the first of them twice.
async fn upload(store: &FsStore, key: &str) -> (String, [String; 2]) {
    let create = create_upload(A, key)
        .header("content-type", "text/plain")
        .header("x-amz-checksum-algorithm", "CRC32");
    let id = create.expect(200, store).await.element("UploadId");
    let part = async |number, body: &'static str| {
        let part = upload_part(A, key, &id, number).body(body);
        part.expect(200, store).await.etag().to_owned()
    };
    part(2, "replaced").await;
    let etags = [part(2, "second").await, part(5, "fifth").await];
    (id, etags)
}

/// Writes all that the fixture holds; ids are made equal.
async fn write_all(root: &Path) -> Vec<Entry> {
    let store = open(root, RecordPlace::Attribute);
    create_bucket(A).expect(200, &store).await;
    put(A, "photos/cat.jpg")
        .header("content-type", "image/jpeg")
        .header("cache-control", "max-age=60")
        .header("x-amz-meta-colour", "black")
        .header("x-amz-tagging", "kind=pet&name=")
        .body("meow")
        .expect(200, &store)
        .await;
    let long = "x".repeat(300);
    for key in [
        "a", "a/b", "photos/", "a//b", "../x", ".object%", "nul\0", &long,
    ] {
        put(A, key).body("plain").expect(200, &store).await;
    }
    let (completed, [etag, _]) = upload(&store, "multi").await;
    let complete = complete_upload(A, "multi", &completed, &[(2, &etag)]);
    complete.expect(200, &store).await;
    let (begun, _) = upload(&store, "unfinished").await;
    drop(store);
    let store = open(root, RecordPlace::Sidecar);
    create_bucket(S).expect(200, &store).await;
    let put = put(S, "k").header("x-amz-meta-in", "a sidecar");
    put.body("beside").expect(200, &store).await;
    drop(store);
    let by_hand = Entry {
        path: format!("{A}/by/hand"),
        mtime_ns: u64::try_from(WRITTEN.as_nanos()).unwrap(),
        text: "put there".into(),
        attribute: None,
    };
    write_tree(root, &[by_hand]);
    let mut entries = read_tree(root);
    for entry in &mut entries {
        // Only an object's time means something.
        if entry.path.contains("/.forebay/") {
            entry.mtime_ns = 0;
        }
        let texts = [&mut entry.path, &mut entry.text];
        for text in texts.into_iter().chain(&mut entry.attribute) {
            *text = text
                .replace(&completed, UPLOAD_ID)
                .replace(&begun, UPLOAD_ID);
        }
    }
    entries
}

#[tokio::test]
async fn what_is_written_is_format_version_1() {
    let root = tempfile::tempdir().unwrap();
    let written = write_all(root.path()).await;
    let fixture: Vec<Entry> = serde_json::from_str(V1).unwrap();
    let json = serde_json::to_string_pretty(&written).unwrap();
    assert!(written == fixture, "what is written has changed:\n{json}");
}

#[tokio::test]
async fn a_directory_of_format_version_1_is_read() {
    for records in [RecordPlace::Attribute, RecordPlace::Sidecar] {
        let root = tempfile::tempdir().unwrap();
        write_tree(
            root.path(),
            &serde_json::from_str::<Vec<Entry>>(V1).unwrap(),
        );
        let store = open(root.path(), records);
        let buckets = list_buckets().expect(200, &store).await;
        assert_eq!(buckets.elements("Name"), [A, S]);
        objects_are_there(&store).await;
        multipart_is_there(&store).await;
    }
}

async fn objects_are_there(store: &FsStore) {
    let long = "x".repeat(300);
    let keys = [
        "../x", ".object%", "a", "a/b", "a//b", "nul\0", "photos/", &long,
    ];
    for key in keys {
        assert_eq!(
            get(A, key).expect(200, store).await.text(),
            "plain",
            "{key}"
        );
    }
    let others = ["by/hand", "multi", "photos/cat.jpg"];
    let mut expected: Vec<&str> = keys.into_iter().chain(others).collect();
    expected.sort_unstable();
    let listed = list_v2(A)
        .query("encoding-type", "url")
        .expect(200, store)
        .await;
    assert_eq!(listed.elements("Key").len(), expected.len());

    let cat = get(A, "photos/cat.jpg").expect(200, store).await;
    assert_eq!(cat.text(), "meow");
    assert_eq!(
        cat.etag(),
        "\"4a4be40c96ac6314e91d93f38043a634\"",
        "MD5 of the bytes"
    );
    for (name, value) in [
        ("content-type", "image/jpeg"),
        ("cache-control", "max-age=60"),
        ("x-amz-meta-colour", "black"),
        ("x-amz-tagging-count", "2"),
        ("last-modified", "Sun, 15 Jun 2025 15:06:40 GMT"),
    ] {
        assert_eq!(cat.header(name), value, "{name}");
    }
    let tags = get_tags(A, "photos/cat.jpg").expect(200, store).await;
    let tags = [tags.elements("Key"), tags.elements("Value")];
    assert_eq!(tags, [["kind", "name"], ["pet", ""]]);
    let by_hand = get(A, "by/hand").expect(200, store).await;
    assert_eq!(by_hand.text(), "put there");
    assert!(by_hand.etag().ends_with("-0\""), "{}", by_hand.etag());

    let beside = get(S, "k").expect(200, store).await;
    assert_eq!(
        (beside.text().as_str(), beside.header("x-amz-meta-in")),
        ("beside", "a sidecar")
    );
}

async fn multipart_is_there(store: &FsStore) {
    let multi = get(A, "multi")
        .query("partNumber", "1")
        .expect(206, store)
        .await;
    assert_eq!(multi.text(), "second");
    assert!(multi.etag().ends_with("-1\""), "{}", multi.etag());
    assert_eq!(multi.header("content-type"), "text/plain");
    let parts = attributes(A, "multi", "ObjectParts,Checksum")
        .expect(200, store)
        .await;
    assert_eq!(parts.elements("PartNumber"), ["2"]);
    assert_eq!(
        parts.elements("ChecksumCRC32").len(),
        2,
        "of the object and of its part"
    );

    let uploads = list_uploads(A).expect(200, store).await;
    assert_eq!(uploads.elements("UploadId"), [UPLOAD_ID]);
    let parts = list_parts(A, "unfinished", UPLOAD_ID)
        .expect(200, store)
        .await;
    assert_eq!(parts.elements("PartNumber"), ["2", "5"]);
    let second = parts.elements("ETag").swap_remove(0);
    let complete = complete_upload(A, "unfinished", UPLOAD_ID, &[(2, &second)]);
    complete.expect(200, store).await;
    let read = get(A, "unfinished").expect(200, store).await;
    assert_eq!(read.text(), "second", "the later of two files of one part");
}
