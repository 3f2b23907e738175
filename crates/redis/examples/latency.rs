//! What a store costs over the client it is made of: PUT and GET of objects through `RedisStore`,
//! and SET and GET of the same bytes with the bare client, in turn, on the same server.
//!
//! `cargo run --release -p forebay-redis --example latency -- REPETITIONS [URL]`; without a URL it
//! starts a server of its own, with `appendonly yes` and `appendfsync everysec`. Exits with 1 when
//! a ratio of medians is above 1.5.
#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use forebay_native::Settings;
use forebay_redis::{RedisSettings, RedisStore};
use forebay_store::{
    Clock, Store as _,
    contract::requests::{create_bucket, get, put},
};
use forebay_telemetry::redis::RedisMetrics;
use redis::aio::MultiplexedConnection;
use tokio::{runtime::Handle, time::Instant};

/// A store may take so many times as long as the bare client.
const RATIO_MAX: f64 = 1.5;
/// Repetitions before each side's turn ends, so that both meet the same moments of the machine.
const TURN: usize = 50;
/// Exchanges of each kind before anything is counted.
const WARM_UP: usize = 200;

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let mut arguments = std::env::args().skip(1);
    let repetitions: usize = arguments.next().map_or(Ok(2000), |text| text.parse())?;
    let (_server, url) = if let Some(url) = arguments.next() {
        (None, url)
    } else {
        let (server, url) = Server::start()?;
        (Some(server), url)
    };
    let settings = RedisSettings::single("", 0).with_urls(std::slice::from_ref(&url))?;
    let metrics = Arc::new(RedisMetrics::new());
    let (clock, runtime) = (Clock::system(), Handle::current());
    let store = RedisStore::open(&settings, Settings::default(), clock, &metrics, runtime).await?;
    let client = redis::Client::open(url)?;
    let mut bare = client.get_multiplexed_async_connection().await?;
    // A bucket of an earlier run will do.
    let _ = store.call(create_bucket("latency").build()).await;

    println!("size      operation  store p50   bare p50   ratio  store p99   bare p99");
    let mut is_slow = false;
    for size in [1_000, 10_000, 100_000] {
        let bytes: Vec<u8> = (0..size).map(|_| fastrand::u8(..)).collect();
        for operation in [Operation::Put, Operation::Get] {
            for _ in 0..WARM_UP {
                through_store(&store, operation, &bytes).await?;
                through_client(&mut bare, operation, &bytes).await?;
            }
            let (mut stores, mut bares) = (Vec::new(), Vec::new());
            while stores.len() < repetitions {
                for _ in 0..TURN {
                    stores.push(through_store(&store, operation, &bytes).await?);
                }
                for _ in 0..TURN {
                    bares.push(through_client(&mut bare, operation, &bytes).await?);
                }
            }
            stores.sort_unstable();
            bares.sort_unstable();
            let at = |times: &[Duration], percent: usize| times[times.len() * percent / 100];
            let ratio = at(&stores, 50).as_secs_f64() / at(&bares, 50).as_secs_f64();
            is_slow |= ratio > RATIO_MAX;
            println!(
                "{size:<9} {:<9} {:>9.1?} {:>10.1?} {ratio:>7.2} {:>10.1?} {:>10.1?}",
                format!("{operation:?}"),
                at(&stores, 50),
                at(&bares, 50),
                at(&stores, 99),
                at(&bares, 99),
            );
        }
    }
    Ok(if is_slow {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Put,
    Get,
}

async fn through_store(
    store: &RedisStore,
    operation: Operation,
    bytes: &[u8],
) -> Result<Duration, Failure> {
    let request = match operation {
        Operation::Put => put("latency", "object").body(bytes.to_vec()).build(),
        Operation::Get => get("latency", "object").build(),
    };
    let begun = Instant::now();
    let response = store.call(request).await?;
    let (read, _) = response.body.collect(bytes.len()).await?;
    let took = begun.elapsed();
    match operation {
        Operation::Get if read != bytes => Err("the store gave other bytes".into()),
        Operation::Get | Operation::Put => Ok(took),
    }
}

async fn through_client(
    client: &mut MultiplexedConnection,
    operation: Operation,
    bytes: &[u8],
) -> Result<Duration, Failure> {
    let begun = Instant::now();
    match operation {
        Operation::Put => {
            let mut set = redis::cmd("SET");
            let () = set
                .arg("latency:bare")
                .arg(bytes)
                .query_async(client)
                .await?;
        }
        Operation::Get => {
            let mut get = redis::cmd("GET");
            let read: Vec<u8> = get.arg("latency:bare").query_async(client).await?;
            if read != bytes {
                return Err("the client gave other bytes".into());
            }
        }
    }
    Ok(begun.elapsed())
}

/// A server in a folder of its own, killed when it is dropped.
struct Server {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Result<(Self, String), Failure> {
        let folder = tempfile::tempdir()?;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let mut child = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--save",
                "",
                "--appendonly",
                "yes",
            ])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        let server = Self {
            child,
            _folder: folder,
        };
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        if !lines.any(|line| line.contains("Ready to accept connections")) {
            return Err("redis-server did not start".into());
        }
        std::thread::spawn(move || lines.for_each(drop));
        Ok((server, format!("redis://127.0.0.1:{port}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
