//! Goal: what a process acknowledged before it was killed is there for the next one.
//! Method: this program starts itself as a writer that tells of each write once it is acknowledged,
//! kills it at some write under way, opens the folder, and reads what it was told of. The writer
//! goes on in the same folder, several times, with compaction and large payloads beside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use forebay_log::{LogParts, LogSettings, LogStore};
use forebay_store::{Body, Clock, Store, contract::requests};
use forebay_telemetry::log::LogMetrics;

const CHILD: &str = "FOREBAY_LOG_KILLED_CHILD";
const KEYS: u64 = 40;
const WRITERS: u64 = 8;

fn open(folder: &Path) -> LogStore {
    let settings = LogSettings {
        segment_bytes: 64 << 10,
        payload_bytes_max: 8 << 10,
        ..LogSettings::new(folder)
    };
    LogStore::open(settings, Clock::system(), LogMetrics::new()).unwrap()
}

/// Bytes of a write: one in ten is a large payload.
fn payload(turn: u64) -> Vec<u8> {
    let length = if turn.is_multiple_of(10) {
        100_000
    } else {
        700
    };
    turn.to_le_bytes().repeat(length / 8)
}

/// Writes until it is killed; tells `KEY TURN` once that is acknowledged.
async fn write_until_killed(folder: &Path) {
    let store = open(folder);
    let parts: LogParts = store.parts().clone();
    let store: Arc<dyn Store> = Arc::new(store);
    let _there_already = requests::create_bucket("killed").call(&*store).await;
    let first = std::env::var("FOREBAY_LOG_KILLED_FIRST").unwrap();
    let first: u64 = first.parse().unwrap();
    for writer in 0..WRITERS {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for turn in (first + writer..).step_by(usize::try_from(WRITERS).unwrap()) {
                // Keys of a writer are its own, so the last that was told is the last.
                let key = turn % KEYS;
                let put = requests::put("killed", &key.to_string()).body(Body::from(payload(turn)));
                put.call(&*store).await.unwrap();
                let mut out = std::io::stdout().lock();
                writeln!(out, "{key} {turn}").unwrap();
                out.flush().unwrap();
            }
        });
    }
    loop {
        parts.compact().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_acknowledged_is_there() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut told = vec![None; usize::try_from(KEYS).unwrap()];
    let mut turn_next = 0;
    for round in 0..4 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "what_a_killed_process_had_acknowledged_is_there",
                "--nocapture",
            ])
            .env(CHILD, folder.path())
            .env("FOREBAY_LOG_KILLED_FIRST", turn_next.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut count = 0;
        let mut take = |line: &str| {
            let numbers = line.split_once(' ');
            let numbers = numbers.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            if let Some((key, turn)) = numbers {
                let (key, turn): (usize, u64) = (key, turn);
                told[key] = told[key].max(Some(turn));
                turn_next = turn_next.max(turn + 1);
                count += 1;
            }
            count
        };
        let mut is_killed = false;
        // What it said before it was killed is read to the end.
        for line in lines {
            if take(&line.unwrap()) >= 100 + 13 * round && !is_killed {
                child.kill().unwrap();
                is_killed = true;
            }
        }
        child.wait().unwrap();
        assert!(is_killed, "round {round}: it ended by itself");
        turn_next = turn_next.next_multiple_of(KEYS);
        check(folder.path(), &told).await;
    }
}

/// Each key has what was told last of it, or a later write that was under way.
async fn check(folder: &Path, told: &[Option<u64>]) {
    let store = open(folder);
    for (key, told) in told.iter().enumerate() {
        let Some(told) = told else {
            continue;
        };
        let answer = requests::get("killed", &key.to_string())
            .expect(200, &store)
            .await;
        let bytes = &answer.body[..];
        let turn = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        assert!(
            turn >= *told,
            "key {key}: {turn}, but {told} was acknowledged"
        );
        assert!(*bytes == payload(turn)[..], "key {key}: torn");
    }
    let verified = store.parts().verify().await.unwrap();
    assert!(verified.damaged.is_empty(), "{verified:?}");
}
