//! Whose folder it is, on the real file system; and the format on disk, version 1.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use forebay_store::Clock;
use forebay_telemetry::disk::DiskMetrics;

use super::{CAPACITY, id, page, settings};
use crate::{DiskPages, DiskSettings, OpenError, PageStore as _};

const V1: &[u8] = include_bytes!("../../tests/fixtures/v1/0000000000000000.segment");

fn open(folder: &Path) -> Result<DiskPages, OpenError> {
    let settings = DiskSettings {
        folder: folder.to_owned(),
        ..settings()
    };
    DiskPages::open(settings, Clock::system(), DiskMetrics::new())
}

/// Writes all that the fixture holds.
async fn write_all(folder: &Path) {
    let store = open(folder).unwrap();
    store.put(id(0), page(0, 1));
    store.put(id(1), page(1, 1000));
    store.flush().await.unwrap();
    store.remove(id(0));
    store.put(id(1), page(2, 16));
    store.put(id(u64::MAX), page(3, 300));
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_is_written_is_format_version_1() {
    let root = tempfile::tempdir().unwrap();
    write_all(root.path()).await;
    let written = fs::read(root.path().join("0000000000000000.segment")).unwrap();
    assert!(written == V1, "what is written has changed");
    let marker = fs::read_to_string(root.path().join("forebay-disk")).unwrap();
    assert_eq!(
        marker,
        format!("forebay-disk 1\npid {}\n", std::process::id())
    );
}

#[tokio::test]
async fn a_folder_of_format_version_1_is_read_sealed_or_not() {
    let items = 5;
    let footer_bytes = items * 32 + 32;
    for length in [V1.len(), V1.len() - 1, V1.len() - footer_bytes] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("forebay-disk"), "forebay-disk 1\npid 1\n").unwrap();
        fs::write(root.path().join("0000000000000000.segment"), &V1[..length]).unwrap();
        let store = open(root.path()).unwrap();
        assert_eq!(store.stats().entries, 2, "{length} bytes");
        assert_eq!(store.get(id(0)).await, None);
        assert_eq!(store.get(id(1)).await, Some(page(2, 16)));
        assert_eq!(store.get(id(u64::MAX)).await, Some(page(3, 300)));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn pages_survive_a_restart_on_a_real_file_system_within_the_capacity() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("made");
    for start in [0, 100] {
        let store = open(&folder).unwrap();
        if start > 0 {
            assert_eq!(store.get(id(99)).await, Some(page(99, 2000)));
        }
        for index in start..start + 100 {
            store.put(id(index), page(index, 2000));
            store.flush().await.unwrap();
            let files = fs::read_dir(&folder).unwrap();
            let bytes: u64 = files
                .map(|file| file.unwrap().metadata().unwrap().len())
                .sum();
            assert!(bytes <= CAPACITY + 64, "the marker besides");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn folder_and_files_are_for_their_owner_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("made");
    write_all(&folder).await;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[tokio::test]
async fn a_second_process_is_told_who_has_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path()).unwrap();
    let error = open(root.path()).unwrap_err();
    let pid = std::process::id();
    assert!(
        error
            .to_string()
            .contains(&format!("in use by process {pid};")),
        "{error}"
    );
    first.close().await.unwrap();
    open(root.path()).unwrap();
}

#[tokio::test]
async fn what_is_not_ours_is_refused_and_left_alone() {
    for (file, text, expected) in [
        (
            "photo.jpg",
            "meow",
            "is not empty and not a cache of Forebay (photo.jpg is in it)",
        ),
        (
            "0000000000000000.segment",
            "",
            "(0000000000000000.segment is in it)",
        ),
        (
            "forebay-disk",
            "forebay-disk 2\npid 1\n",
            "has format \"forebay-disk 2\"",
        ),
        (
            "forebay-disk",
            "something else\n",
            "has format \"something else\"",
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(file), text).unwrap();
        let error = open(root.path()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let left = fs::read_dir(root.path()).unwrap();
        assert_eq!(left.count(), 1, "nothing was made");
        assert_eq!(fs::read_to_string(root.path().join(file)).unwrap(), text);
    }
}

#[tokio::test]
async fn a_segment_of_another_version_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let segment = root.path().join("0000000000000000.segment");
    let mut later = V1[..100].to_vec();
    later[8] = 2;
    fs::write(root.path().join("forebay-disk"), "").unwrap();
    fs::write(&segment, &later).unwrap();
    let error = open(root.path()).unwrap_err();
    assert!(matches!(error, OpenError::UnknownVersion { .. }), "{error}");
    assert_eq!(fs::read(&segment).unwrap(), later);
}

#[tokio::test]
async fn other_files_in_a_marked_folder_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    write_all(root.path()).await;
    for name in ["notes.txt", "1.segment", "00000000000000FF.segment"] {
        fs::write(root.path().join(name), "mine").unwrap();
    }
    fs::create_dir(root.path().join("lost+found")).unwrap();
    write_all(root.path()).await;
    for name in ["notes.txt", "1.segment", "00000000000000FF.segment"] {
        assert_eq!(fs::read_to_string(root.path().join(name)).unwrap(), "mine");
    }
}
