//! The log on the real file system: whose folder it is, the contract of every store, and the
//! format, version 1.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, UNIX_EPOCH},
};

use forebay_disk::folder::OpenError as FolderError;
use forebay_native::index::{Index as _, Want};
use forebay_store::{Clock, Store, contract};
use forebay_telemetry::log::LogMetrics;

use super::{Shown, delete, done, put, shown};
use crate::{LogParts, LogSettings, LogStore, OpenError};

fn open(folder: &Path) -> Result<LogParts, OpenError> {
    let clock = Clock::manual(UNIX_EPOCH + Duration::from_hours(1));
    LogParts::open(small(folder), clock, LogMetrics::new())
}

fn small(folder: &Path) -> LogSettings {
    LogSettings {
        segment_bytes: 1 << 20,
        ..LogSettings::new(folder)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_keeps_the_contract_of_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let opened = LogStore::open(small(folder.path()), Clock::system(), LogMetrics::new());
    let store: Arc<dyn Store> = Arc::new(opened.unwrap());
    contract::check(async || Arc::clone(&store)).await;
}

#[tokio::test]
async fn a_second_opener_is_refused_and_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    done(&first, vec![put(0, 1, None)]).await;
    match open(folder.path()) {
        Err(OpenError::Folder(FolderError::Locked { holder, .. })) => {
            assert_eq!(holder, std::process::id().to_string());
        }
        other => panic!("{other:?}"),
    }
    done(&first, vec![put(1, 1, None)]).await;
    drop(first);
    assert_eq!(shown(&open(folder.path()).unwrap()).await.entries.len(), 2);
}

/// Goal: what the kernel has in memory is read on the caller's thread, without a hop to another.
/// Method: outside of any runtime, where a hop would panic, one poll gives the entry.
#[test]
fn an_entry_in_memory_is_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let parts = open(folder.path()).unwrap();
    let route = super::route();
    runtime.block_on(async {
        done(&parts, vec![put(0, 1, Some(1024))]).await;
        let read = parts
            .index
            .get(&route, &super::name(0), Want::Payload)
            .await;
        assert!(read.unwrap().is_some());
    });
    let device = &parts.opened.log().devices.segments;
    if device.read_cached(1, 0, 72).unwrap().is_none() {
        // This file system can't say whether a read would wait.
        return;
    }
    let name = super::name(0);
    let mut read = pin!(parts.index.get(&route, &name, Want::Payload));
    match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(Some(entry))) => assert_eq!(entry.payload, Some(super::sample(1, 1024))),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_folder_of_others_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("precious"), "x").unwrap();
    let refused = open(folder.path());
    assert!(
        matches!(refused, Err(OpenError::Folder(FolderError::Foreign { .. }))),
        "{refused:?}"
    );
}

/// Writes all that the fixture holds: each kind of item, in a closed log.
async fn write_all(folder: &Path) -> Shown {
    use forebay_native::index::{Change, Payload};
    let parts = open(folder).unwrap();
    done(&parts, vec![put(0, 1, Some(40)), put(1, 1, None)]).await;
    let keep = Change::Put {
        name: super::name(0),
        value: "tagged".into(),
        payload: Payload::Keep,
    };
    let count = Change::Count {
        counter: super::COUNTER.into(),
        by: -3,
    };
    done(&parts, vec![keep, count, delete(1)]).await;
    let shown = shown(&parts).await;
    parts.close().await;
    shown
}

/// Files of a folder by name, but for the one that says whose it is.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    files
        .filter(|file| file.file_type().unwrap().is_file())
        .map(|file| (file.file_name().into_string().unwrap(), file.path()))
        .filter(|(name, _)| name != "forebay-log")
        .map(|(name, path)| {
            let mut bytes = fs::read(path).unwrap();
            // What is not written yet of the open segment is zero.
            let end = bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |at| at + 1);
            bytes.truncate(end.next_multiple_of(8));
            (name, bytes)
        })
        .filter(|(_, bytes)| !bytes.is_empty())
        .collect()
}

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1");

#[tokio::test]
async fn what_is_written_is_format_version_1_and_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_all(folder.path()).await;
    let marker = fs::read_to_string(folder.path().join("forebay-log")).unwrap();
    assert_eq!(
        marker,
        format!("forebay-log 1\npid {}\n", std::process::id())
    );
    let written = files(folder.path());
    if std::env::var_os("FOREBAY_WRITE_FIXTURE").is_some() {
        fs::create_dir_all(FIXTURE).unwrap();
        for (name, bytes) in &written {
            fs::write(Path::new(FIXTURE).join(name), bytes).unwrap();
        }
    }
    let kept = files(Path::new(FIXTURE));
    let names: Vec<_> = kept.keys().collect();
    assert_eq!(names, written.keys().collect::<Vec<_>>());
    for (name, bytes) in &kept {
        assert!(*bytes == written[name], "{name} is written otherwise now");
    }
    // With its tables, and without.
    for suffix in ["", ".table"] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("forebay-log"), "forebay-log 1\npid 1\n").unwrap();
        for (name, bytes) in &kept {
            if suffix.is_empty() || !name.ends_with(suffix) {
                fs::write(folder.path().join(name), bytes).unwrap();
            }
        }
        let parts = open(folder.path()).unwrap();
        assert_eq!(shown(&parts).await, expected, "without {suffix:?}");
    }
}
