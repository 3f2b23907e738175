//! The store in a simulated network: partitions, hosts that crash and return, names that change.
//!
//! Time is virtual and all random numbers come from a seed that a failure prints, so that what
//! happens is the same each time. What is asserted is counted, and no time is measured.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use forebay_store::{Clock, contract::requests::get};
use forebay_telemetry::origin::OriginMetrics;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};
use turmoil::{
    Sim,
    net::{TcpListener, TcpStream},
};

use crate::{
    OriginStore,
    dial::Dial,
    resolve::Resolve,
    set::Network,
    settings::{CredentialsSource, OriginSettings},
    stream::Tcp,
};

const CLIENTS: u64 = 8;
/// Between two requests of a client.
const THINKS: Duration = Duration::from_millis(20);

/// The names that the origin's name stands for.
#[derive(Debug, Clone)]
struct Simulated(Arc<Mutex<Vec<&'static str>>>);

#[async_trait]
impl Resolve for Simulated {
    async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let hosts = self.0.lock().unwrap().clone();
        let address = |host| SocketAddr::new(turmoil::lookup(host), port);
        Ok(hosts.into_iter().map(address).collect())
    }
}

#[async_trait]
impl Dial for Simulated {
    async fn dial(&self, peer: SocketAddr) -> io::Result<Tcp> {
        Ok(Tcp::Simulated(TcpStream::connect(peer).await?))
    }
}

/// What came of the requests of one run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Log {
    /// The second, who answered (or why nobody did), and how many times.
    answers: BTreeMap<(u64, String), usize>,
    unreachable_count: u64,
}

impl Log {
    /// Answers of `host` in these seconds.
    fn of(&self, host: &str, seconds: std::ops::Range<u64>) -> usize {
        let is_it = |(second, who): &(u64, String)| seconds.contains(second) && who == host;
        let rows = self.answers.iter().filter(|(key, _)| is_it(key));
        rows.map(|(_, count)| count).sum()
    }

    /// Requests without an answer.
    fn failed(&self) -> usize {
        let is_host = |who: &str| HOSTS.contains(&who);
        let rows = self.answers.iter().filter(|((_, who), _)| !is_host(who));
        rows.map(|(_, count)| count).sum()
    }
}

const HOSTS: [&str; 3] = ["one", "two", "three"];

/// Runs clients before `hosts` for `seconds`; `disturb` is called at the start of each.
fn run(
    seed: u64,
    hosts: &[&'static str],
    seconds: u64,
    mut disturb: impl FnMut(u64, &mut Sim<'_>, &Mutex<Vec<&'static str>>),
) -> Log {
    let mut builder = turmoil::Builder::new();
    builder
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(seconds + 60))
        .tick_duration(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(3));
    let mut sim = builder.build();
    for host in HOSTS {
        sim.host(host, move || serve(host));
    }
    let names = Arc::new(Mutex::new(hosts.to_vec()));
    let log = Arc::new(Mutex::new(Log::default()));
    let simulated = Simulated(Arc::clone(&names));
    sim.client("gateway", ask(seed, simulated, seconds, Arc::clone(&log)));
    let mut second = 0;
    while !sim.step().unwrap() {
        if sim.elapsed() >= Duration::from_secs(second) {
            disturb(second, &mut sim, &names);
            second += 1;
        }
    }
    drop(sim);
    let log = log.lock().unwrap();
    log.clone()
}

/// A host that answers with its name.
async fn serve(host: &'static str) -> turmoil::Result {
    let listener = TcpListener::bind(("0.0.0.0", 80)).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut request = Vec::new();
            while stream
                .read_buf(&mut request)
                .await
                .is_ok_and(|read| read > 0)
            {
                if !request.ends_with(b"\r\n\r\n") {
                    continue;
                }
                let body = if request.starts_with(b"HEAD") {
                    ""
                } else {
                    host
                };
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
                request.clear();
            }
        });
    }
}

fn settings() -> OriginSettings {
    let mut settings = OriginSettings::new("http://origin.test".parse().unwrap());
    settings.credentials = CredentialsSource::Anonymous;
    settings.timeouts.connect = Duration::from_millis(500);
    settings.timeouts.first_byte = Duration::from_millis(500);
    settings.balance.resolve_interval = Duration::from_secs(1);
    settings
}

async fn ask(seed: u64, network: Simulated, seconds: u64, log: Arc<Mutex<Log>>) -> turmoil::Result {
    fastrand::seed(seed);
    let metrics = OriginMetrics::default();
    let network = Network {
        resolver: Arc::new(network.clone()),
        dial: Arc::new(network),
    };
    let store = OriginStore::with_network(&settings(), network, Clock::system(), metrics.clone())?;
    let (store, started) = (Arc::new(store), Instant::now());
    let clients = (0..CLIENTS).map(|_| {
        let (store, log) = (Arc::clone(&store), Arc::clone(&log));
        tokio::spawn(async move {
            while started.elapsed() < Duration::from_secs(seconds) {
                let second = started.elapsed().as_secs();
                let who = match get("bucket", "k").send(&*store).await {
                    Ok(answer) => answer.text(),
                    Err(error) => error.to_string(),
                };
                *log.lock()
                    .unwrap()
                    .answers
                    .entry((second, who))
                    .or_default() += 1;
                tokio::time::sleep(THINKS).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await?;
    }
    for host in HOSTS {
        let name = format!("http://origin.test@{}", turmoil::lookup(host));
        let count = metrics.endpoints.endpoint(&name).unreachable.get();
        log.lock().unwrap().unreachable_count += count;
    }
    Ok(())
}

/// Goal: behind a partition an endpoint costs a few attempts and no request, and it has its share
/// again within 5 s of the end.
#[test]
fn a_partition_is_not_seen_by_clients_and_its_end_is() {
    for seed in 0..2 {
        let disturbed = || {
            run(seed, &HOSTS, 20, |second, sim, _| match second {
                5 => sim.partition("gateway", "one"),
                10 => sim.repair("gateway", "one"),
                _ => {}
            })
        };
        let log = disturbed();
        assert_eq!(log.failed(), 0, "seed {seed}: {log:?}");
        assert!(log.of("one", 2..5) > 100, "seed {seed}: {log:?}");
        // What was under way, and a few trials.
        assert!(log.unreachable_count < 30, "seed {seed}: {log:?}");
        let share = log.of("one", 15..20) * 3;
        let all: usize = HOSTS.iter().map(|host| log.of(host, 15..20)).sum();
        assert!(share * 2 > all, "seed {seed}: {log:?}");
        assert_eq!(log, disturbed(), "seed {seed} runs the same each time");
    }
}

/// Goal: an endpoint that goes and comes all the time disturbs nobody.
#[test]
fn a_flapping_endpoint_is_not_seen_by_clients() {
    for seed in 0..2 {
        let log = run(seed, &HOSTS, 20, |second, sim, _| match second {
            0..4 => {}
            second if second % 2 == 0 => sim.crash("two"),
            _ => sim.bounce("two"),
        });
        assert_eq!(log.failed(), 0, "seed {seed}: {log:?}");
        assert!(log.unreachable_count < 100, "seed {seed}: {log:?}");
    }
}

/// Goal: requests go where a name leads, and no longer where it led.
#[test]
fn a_name_that_moves_takes_the_requests_with_it() {
    for seed in 0..2 {
        let log = run(
            seed,
            &["one", "two"],
            15,
            |second, sim, names| match second {
                4 => *names.lock().unwrap() = vec!["two", "three"],
                // Long after the change, so that only who still asked it would notice.
                9 => sim.crash("one"),
                _ => {}
            },
        );
        assert_eq!(
            (log.failed(), log.unreachable_count),
            (0, 0),
            "seed {seed}: {log:?}"
        );
        assert_eq!(log.of("three", 0..4), 0, "seed {seed}: {log:?}");
        assert!(log.of("one", 0..4) > 100, "seed {seed}: {log:?}");
        assert_eq!(log.of("one", 8..15), 0, "seed {seed}: {log:?}");
        assert!(log.of("three", 8..15) > 300, "seed {seed}: {log:?}");
    }
}

/// Goal: with the whole origin gone requests fail, and by itself all is well again after it.
#[test]
fn an_origin_that_was_gone_is_used_again_within_five_seconds() {
    for seed in 0..2 {
        let log = run(seed, &HOSTS, 20, |second, sim, _| match second {
            5 => HOSTS.iter().for_each(|host| sim.crash(*host)),
            10 => HOSTS.iter().for_each(|host| sim.bounce(*host)),
            _ => {}
        });
        let failed = |seconds: std::ops::Range<u64>| {
            let rows = log.answers.iter();
            rows.filter(|((second, who), _)| {
                seconds.contains(second) && !HOSTS.contains(&who.as_str())
            })
            .map(|(_, count)| count)
            .sum::<usize>()
        };
        assert_eq!(
            (failed(0..5), failed(15..20)),
            (0, 0),
            "seed {seed}: {log:?}"
        );
        // They fail at once, and not each by a timeout: as many as think time allows.
        assert!(failed(7..10) > 8 * 100, "seed {seed}: {log:?}");
    }
}
