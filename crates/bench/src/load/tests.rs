//! The load engine against a server with known delays.
//!
//! What is asserted of times are lower bounds, which a busy machine can't break, and counts.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::{Live, LoadSettings, Measured, Reads, Target, Verify, measure};
use crate::{
    content::Content,
    results::{Histogram, Load},
    scripted::{AT_ONCE, Reply, Seen, Server},
    sign::Access,
    wire::{
        Address, Connector,
        connect::{Timeouts, Trust},
    },
    workload::{Action, Choice, Layout, Objects, Operation, Plan},
};

const SIZE: usize = 5000;

fn target(server: &Server) -> Target {
    let address = Address::parse(&server.url()).unwrap();
    let timeouts = Timeouts {
        connect: Duration::from_secs(30),
        silence: Duration::from_secs(30),
    };
    Target {
        connector: Arc::new(Connector::new(&address, Trust::Machine, timeouts).unwrap()),
        host: address.authority,
        access: Access::Anonymous,
    }
}

fn objects(count: usize) -> Arc<Objects> {
    let layout = Layout {
        bucket: "b",
        folder: "f",
        own_objects_of: 0,
    };
    Arc::new(Objects::numbered(&layout, SIZE as u64, count))
}

fn fill(server: &Server, objects: &Objects) {
    for object in objects.shared() {
        let mut bytes = vec![0; SIZE];
        Content::of(&object.key).fill(0, &mut bytes);
        server.put(&object.path, bytes);
    }
}

fn settings(load: Load, clients: u32) -> LoadSettings {
    LoadSettings {
        threads: 2,
        clients,
        load,
        warm_up: Duration::ZERO,
        duration: None,
        verify: Verify::EachByte,
        reads: Reads::Anything,
    }
}

fn run(
    script: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    settings: LoadSettings,
    requests: Option<u64>,
) -> Measured {
    let server = Server::start(script);
    let objects = objects(3);
    fill(&server, &objects);
    let plan = Plan::new(Action::Get, &objects, Choice::Uniform, (requests, 1));
    let (_stop, stopped) = watch::channel(false);
    let live = Arc::new(Live::default());
    measure(&target(&server), settings, &Arc::new(plan), &live, &stopped).unwrap()
}

fn latency(measured: &Measured) -> &Histogram {
    let (operation, counts) = &measured.totals.operations[0];
    assert_eq!(*operation, Operation::Get);
    &counts.latency
}

#[test]
fn a_known_delay_is_what_the_histogram_shows() {
    let closed = Load::Closed { concurrency: 4 };
    let delay = Duration::from_millis(25);
    let measured = run(move |_| Reply::After(delay), settings(closed, 4), Some(40));
    let (_, counts) = &measured.totals.operations[0];
    assert_eq!((counts.requests, counts.bytes), (40, 40 * SIZE as u64));
    assert!(counts.errors.is_empty(), "{:?}", counts.errors);
    // A bucket is at most 1/128 wide.
    let least = latency(&measured).min_ns().unwrap();
    assert!(least >= 24_700_000, "{least} ns");
    assert!(
        measured.seconds >= 0.24,
        "ten in a row: {} s",
        measured.seconds
    );
    let requests: u64 = measured
        .totals
        .series
        .iter()
        .map(|second| second.requests)
        .sum();
    assert_eq!(requests, 40);
}

/// Goal: a stall of one second is in the 99th percentile of an open loop, as users would feel it,
/// although only as many requests met it as there are connections.
/// Method: the server holds everything that arrives in the second that begins after half a second.
#[test]
fn a_stall_shows_in_the_tail_of_an_open_loop() {
    let stall = |seen: &Seen| {
        let (begin, end) = (Duration::from_millis(500), Duration::from_millis(1500));
        if seen.at >= begin && seen.at < end {
            Reply::After(end.saturating_sub(seen.at))
        } else {
            AT_ONCE
        }
    };
    let open = LoadSettings {
        duration: Some(Duration::from_millis(2500)),
        ..settings(Load::Open { rate: 200.0 }, 8)
    };
    let measured = run(stall, open, None);
    let latency = latency(&measured);
    let missed: u64 = measured.totals.errors.values().sum();
    assert_eq!(
        latency.count() + missed,
        500,
        "each request that was due is accounted for"
    );
    let tail = latency.quantile_ns(0.99).unwrap();
    assert!(tail >= 800_000_000, "p99 is {tail} ns");
    // Of 500 requests 200 were due while it lasted; half of these waited for half of it or more.
    let fifth = latency.quantile_ns(0.85).unwrap();
    assert!(fifth >= 300_000_000, "p85 is {fifth} ns");
}

#[test]
fn an_open_loop_counts_what_it_could_not_start() {
    let open = LoadSettings {
        duration: Some(Duration::from_millis(200)),
        ..settings(Load::Open { rate: 1000.0 }, 2)
    };
    let slow = |_: &Seen| Reply::After(Duration::from_millis(400));
    let measured = run(slow, open, None);
    let started = latency(&measured).count();
    let missed = measured
        .totals
        .errors
        .get("NotStarted")
        .copied()
        .unwrap_or(0);
    assert_eq!(started + missed, 200);
    assert!(missed > 100, "{missed} of 200 could not be started");
}

#[test]
fn a_flipped_bit_is_counted_only_where_bytes_are_checked() {
    let flip = |seen: &Seen| {
        if seen.number == 7 {
            Reply::Flipped
        } else {
            AT_ONCE
        }
    };
    for (verify, wrong) in [(Verify::EachByte, 1), (Verify::LengthOnly, 0)] {
        let settings = LoadSettings {
            verify,
            ..settings(Load::Closed { concurrency: 2 }, 2)
        };
        let measured = run(flip, settings, Some(20));
        let (_, counts) = &measured.totals.operations[0];
        let found = counts.errors.get("WrongBytes").copied().unwrap_or(0);
        assert_eq!((counts.requests, found), (20 - wrong, wrong), "{verify:?}");
    }
}

#[test]
fn errors_are_counted_by_their_names() {
    let script = |seen: &Seen| match seen.number % 4 {
        1 => Reply::Error(503, "SlowDown"),
        2 => Reply::Cut,
        _ => AT_ONCE,
    };
    let closed = settings(Load::Closed { concurrency: 1 }, 1);
    let measured = run(script, closed, Some(8));
    let (_, counts) = &measured.totals.operations[0];
    let errors: Vec<_> = counts
        .errors
        .iter()
        .map(|(name, count)| (&**name, *count))
        .collect();
    assert_eq!(errors, [("ShortBody", 2), ("SlowDown", 2)]);
    assert_eq!(counts.requests, 4);
}

#[test]
fn uploads_in_parts_arrive_whole() {
    let server = Server::start(|_| AT_ONCE);
    let objects = objects(3);
    let action = Action::Multipart {
        part_bytes: 700,
        at_once: 3,
    };
    let plan = Arc::new(Plan::new(action, &objects, Choice::each(), (None, 1)));
    let (_stop, stopped) = watch::channel(false);
    let live = Arc::new(Live::default());
    let closed = settings(Load::Closed { concurrency: 2 }, 2);
    let measured = measure(&target(&server), closed, &plan, &live, &stopped).unwrap();
    let requests = |wanted| {
        let all = measured.totals.operations.iter();
        all.filter(|(operation, _)| *operation == wanted)
            .map(|(_, counts)| counts.requests)
            .sum()
    };
    assert_eq!(
        (requests(Operation::Multipart), requests(Operation::Part)),
        (3_u64, 24_u64)
    );
    // Reading them back checks each byte.
    let plan = Arc::new(Plan::new(Action::Get, &objects, Choice::each(), (None, 1)));
    let measured = measure(&target(&server), closed, &plan, &live, &stopped).unwrap();
    assert_eq!(measured.totals.operations[0].1.requests, 3);
}

#[test]
fn a_stop_keeps_what_was_counted() {
    let server = Server::start(|seen| {
        if seen.number < 5 {
            AT_ONCE
        } else {
            Reply::Silence
        }
    });
    let objects = objects(3);
    fill(&server, &objects);
    let plan = Arc::new(Plan::new(Action::Get, &objects, Choice::Uniform, (None, 1)));
    let (stop, stopped) = watch::channel(false);
    let live = Arc::new(Live::default());
    let watched = Arc::clone(&live);
    let ender = std::thread::spawn(move || {
        while watched.requests.load(std::sync::atomic::Ordering::Relaxed) < 5 {
            std::thread::yield_now();
        }
        stop.send(true).unwrap();
        stop
    });
    let closed = settings(Load::Closed { concurrency: 2 }, 2);
    let measured = measure(&target(&server), closed, &plan, &live, &stopped).unwrap();
    let _kept = ender.join().unwrap();
    assert!(measured.is_cut);
    assert_eq!(measured.totals.operations[0].1.requests, 5);
}
