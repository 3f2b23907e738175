//! How fast small writes are durable:
//! `cargo run --release -p forebay-log --example puts FOLDER [SECONDS]`.
//!
//! Measures in turns, on one disk: (a) a bare `fdatasync` after a write of 64 KiB into a file that
//! was filled before, and after one of 4 KiB; (b) PUTs of 1 KiB by 64 writers, and by one, through
//! the log as a store; (c) the same through a store that syncs each file. Then the log is opened
//! again, and it is told how long that took and how much memory a name takes.

#![expect(clippy::print_stdout, reason = "a program for the command line")]

use std::{
    error::Error,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_fs::{FsSettings, FsStore};
use forebay_log::{LogSettings, LogStore};
use forebay_store::{Body, Clock, Store, contract::requests};
use forebay_telemetry::log::LogMetrics;

const WRITERS: usize = 64;
const OBJECT_BYTES: usize = 1024;

/// Latencies of one run.
struct Run {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Run {
    fn tell(&mut self, what: &str) {
        self.latencies.sort_unstable();
        let count = self.latencies.len();
        let at = |share: f64| {
            // A count of requests is far below what a float holds exactly.
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
            #[expect(clippy::cast_sign_loss)]
            let index = (count as f64 * share) as usize;
            self.latencies[index.min(count - 1)].as_secs_f64() * 1e3
        };
        #[expect(clippy::cast_precision_loss)]
        let rate = count as f64 / self.took.as_secs_f64();
        let (p50, p99) = (at(0.5), at(0.99));
        println!("{what:34} {rate:9.0}/s  p50 {p50:7.3} ms  p99 {p99:7.3} ms");
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let place = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let seconds = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    let folder = place.join("forebay-log-example");
    std::fs::create_dir_all(&folder)?;
    let clock = Clock::system();
    for round in 1..=3 {
        println!("round {round}");
        for bytes in [4 << 10, 64 << 10] {
            bare(&folder, bytes, time / 4, &clock)?.tell(&format!("fdatasync of {bytes} bytes"));
        }
        let path = folder.join(format!("log-{round}"));
        let settings = LogSettings::new(&path);
        let log = LogStore::open(settings.clone(), clock.clone(), LogMetrics::new())?;
        let log: Arc<dyn Store> = Arc::new(log);
        make_bucket(&log).await?;
        for writers in [1, WRITERS] {
            let mut run = puts(&log, writers, time, &clock).await?;
            run.tell(&format!("log, {writers} writers"));
        }
        drop(log);
        let began = clock.now();
        let log = LogStore::open(settings, clock.clone(), LogMetrics::new())?;
        let stats = log.parts().stats();
        println!(
            "opened again in {:?}: {} entries, {} bytes of index, {} segments",
            clock.now() - began,
            stats.entries,
            stats.index_bytes,
            stats.segments,
        );
        drop(log);
        let files = FsStore::open(FsSettings::new(folder.join("files")), clock.clone())?;
        let files: Arc<dyn Store> = Arc::new(files);
        make_bucket(&files).await?;
        let mut run = puts(&files, WRITERS, time, &clock).await?;
        run.tell(&format!("a file each, {WRITERS} writers"));
        drop(files);
        std::fs::remove_dir_all(folder.join("files"))?;
        std::fs::remove_dir_all(path)?;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Writes and syncs, one after the other, in a file that has its bytes.
fn bare(folder: &Path, bytes: usize, time: Duration, clock: &Clock) -> Result<Run, Box<dyn Error>> {
    const FILE_BYTES: usize = 64 << 20;
    let path = folder.join("bare");
    let file = File::create(&path)?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let payload = vec![7; bytes];
    let (mut latencies, began) = (Vec::new(), clock.now());
    while clock.now() - began < time {
        let offset = (latencies.len() * bytes) % FILE_BYTES;
        let start = clock.now();
        file.write_all_at(&payload, offset as u64)?;
        file.sync_data()?;
        latencies.push(clock.now() - start);
    }
    let took = clock.now() - began;
    std::fs::remove_file(path)?;
    Ok(Run { latencies, took })
}

async fn make_bucket(store: &Arc<dyn Store>) -> Result<(), Box<dyn Error>> {
    requests::create_bucket("bench").call(&**store).await?;
    Ok(())
}

/// PUTs of objects that were not there, by so many writers.
async fn puts(
    store: &Arc<dyn Store>,
    writers: usize,
    time: Duration,
    clock: &Clock,
) -> Result<Run, Box<dyn Error>> {
    let next = Arc::new(AtomicU64::new(0));
    let began = clock.now();
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next, clock) = (Arc::clone(store), Arc::clone(&next), clock.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while clock.now() - began < time {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let key = format!("of-{writers}/{number:012}");
                    let body = Body::from(vec![7; OBJECT_BYTES]);
                    let start = clock.now();
                    let put = requests::put("bench", &key).body(body);
                    put.call(&*store).await?;
                    latencies.push(clock.now() - start);
                }
                Ok::<_, forebay_store::Error>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let took = clock.now() - began;
    Ok(Run { latencies, took })
}
