//! Puts load on one endpoint and counts what comes of it.
//!
//! One call of [`measure`] is one measurement: threads are started, each with a runtime of its own
//! and its share of the connections; they send what the [`Plan`] gives them, in a closed or an
//! open loop; at the end their counts are merged. Threads share nothing while they run but the
//! plan's counters, so that ten of them cost what one costs ten times.
//!
//! - **Closed loop**: a connection sends again as soon as its answer is there. The rate is what the
//!   endpoint gives; a slow answer also holds back the requests that would have followed it.
//! - **Open loop**: requests are due at fixed times, whatever the answers do. Latency counts from
//!   when a request was due, so waiting for a free connection is in it ("coordinated omission").
//!   What was due and still unsent a moment after the end is counted as `NotStarted`.
//!
//! Requests that start during the warm-up are not counted. Those in flight at the end are waited
//! for: leaving them out would leave out the slowest. Whatever is still not there after the timeout
//! is counted as `Unfinished`; so a measurement always ends.
//!
//! | module | does |
//! |---|---|
//! | [`pace`] | says when the next request starts |
//! | [`worker`] | sends one request after another on one connection |
//! | [`known`] | the `ETag`s that conditional requests carry |
//! | [`multipart`] | an upload in parts as one of these |
//! | [`tally`] | counts, per thread, and merges |
//! | [`cost`] | what the client itself used, and whether it was the limit |

pub(crate) mod cost;
pub(crate) mod known;
pub(crate) mod multipart;
pub(crate) mod pace;
pub(crate) mod tally;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use forebay_store::Clock;
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    results::Load,
    sign::{Access, HeadWriter},
    wire::{Connection, Connector, SharedBuffers, connection::Buffers},
    workload::Plan,
};
use cost::{Meter, ThreadCost};
use known::KnownTags;
use pace::Pace;
use tally::{Tally, Totals};
use worker::Worker;

/// How long to send what was due before the end and found no free connection.
const LATE_START: Duration = Duration::from_secs(1);

/// Threads get ready in this time, so that all begin at one moment.
const LEAD: Duration = Duration::from_millis(5);

/// An endpoint as the load engine needs it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) connector: Arc<Connector>,
    pub(crate) host: Box<str>,
    pub(crate) access: Access,
}

/// How much load, for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadSettings {
    pub(crate) threads: u32,
    /// Connections, over all threads.
    pub(crate) clients: u32,
    pub(crate) load: Load,
    pub(crate) warm_up: Duration,
    /// The time measured; `None` when the plan ends by itself.
    pub(crate) duration: Option<Duration>,
    pub(crate) verify: Verify,
    pub(crate) reads: Reads,
}

/// What reads ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Anything,
    /// Only versions that are not known yet.
    Changes,
}

/// Whether the bytes of answers are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verify {
    LengthOnly,
    EachByte,
}

/// What a measurement has counted so far, for whoever shows progress.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Live {
    fn add(&self, requests: u64, bytes: u64, errors: u64) {
        // Readers only show them; no order is needed.
        self.requests.fetch_add(requests, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.errors.fetch_add(errors, Ordering::Relaxed);
    }
}

/// What one measurement gave.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) totals: Totals,
    /// The time measured: to the planned end, or to the last answer if that came later.
    pub(crate) seconds: f64,
    pub(crate) threads: Vec<ThreadCost>,
    /// Whether it was stopped before its end.
    pub(crate) is_cut: bool,
}

/// The moments of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Requests start.
    pub(crate) begin: Instant,
    /// Requests that start from here on count.
    pub(crate) measure: Instant,
    /// No request is due from here on.
    pub(crate) end: Option<Instant>,
}

/// What every thread of a measurement shares.
#[derive(Debug)]
struct Shared<'a> {
    target: &'a Target,
    settings: LoadSettings,
    plan: &'a Arc<Plan>,
    live: &'a Arc<Live>,
    times: Times,
    stop: watch::Receiver<bool>,
}

/// What a thread hands back.
struct ThreadEnd {
    tally: Tally,
    cost: ThreadCost,
    is_cut: bool,
}

/// Measures until the duration is over, the plan has ended, or `stop` turns true.
///
/// # Errors
/// When the machine gives no thread, timer or socket watcher.
pub(crate) fn measure(
    target: &Target,
    settings: LoadSettings,
    plan: &Arc<Plan>,
    live: &Arc<Live>,
    stop: &watch::Receiver<bool>,
) -> io::Result<Measured> {
    let begin = Instant::now() + LEAD;
    let measure = begin + settings.warm_up;
    let shared = Shared {
        target,
        settings,
        plan,
        live,
        times: Times {
            begin,
            measure,
            end: settings.duration.map(|duration| measure + duration),
        },
        stop: stop.clone(),
    };
    let threads = settings.threads.clamp(1, settings.clients.max(1));
    let ends: Vec<io::Result<ThreadEnd>> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|index| {
                let shared = &shared;
                thread::Builder::new()
                    .name(format!("load-{index}"))
                    .spawn_scoped(scope, move || run_thread(shared, index, threads))
            })
            .collect();
        let join = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| match thread?.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        started.into_iter().map(join).collect()
    });
    let mut tally = Tally::new(measure);
    let (mut costs, mut is_cut) = (Vec::new(), false);
    for end in ends {
        let end = end?;
        tally.merge(end.tally);
        costs.push(end.cost);
        is_cut |= end.is_cut;
    }
    // A plan may end before its time: then it is the last answer that ends the measurement.
    let now = Instant::now();
    let planned = match shared.times.end {
        Some(end) if end <= now => end,
        Some(_) if is_cut => now,
        Some(_) | None => measure,
    };
    let last = tally.last_done().map_or(planned, |done| done.max(planned));
    Ok(Measured {
        totals: tally.into_totals(),
        seconds: last.saturating_duration_since(measure).as_secs_f64(),
        threads: costs,
        is_cut,
    })
}

fn run_thread(shared: &Shared<'_>, index: u32, threads: u32) -> io::Result<ThreadEnd> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(drive_thread(shared, index, threads))
}

async fn drive_thread(shared: &Shared<'_>, index: u32, threads: u32) -> io::Result<ThreadEnd> {
    let (settings, times) = (shared.settings, shared.times);
    let pace = Rc::new(match settings.load {
        Load::Closed { .. } => Pace::closed(times.end),
        Load::Open { rate } => {
            let late_end = times.end.map(|end| end + LATE_START);
            Pace::open(times, late_end, (rate, index, threads))?
        }
    });
    let tally = Rc::new(RefCell::new(Tally::new(times.measure)));
    let mut workers = start_workers(shared, (index, threads), &pace, &tally);
    let pacer = {
        let pace = Rc::clone(&pace);
        tokio::task::spawn_local(async move { pace.drive().await })
    };
    let mut meter = None;
    let mut stop = shared.stop.clone();
    let last_moment = times
        .end
        .map(|end| end + LATE_START + shared.target.connector.timeouts().silence);
    let is_cut = {
        let work = async {
            sleep_until(times.measure).await;
            meter = Some(Meter::start());
            while workers.join_next().await.is_some() {}
        };
        let last_moment = async {
            match last_moment {
                Some(moment) => sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = work => false,
            () = last_moment => false,
            // An error means that nobody is left to stop it, which can't be while it runs.
            _ = stop.wait_for(|stop| *stop) => true,
        }
    };
    let cost = meter.map(Meter::stop).unwrap_or_default();
    let unfinished = workers.len() as u64;
    workers.shutdown().await;
    pacer.abort();
    let mut tally =
        Rc::try_unwrap(tally).map_or_else(|shared| shared.borrow_mut().take(), RefCell::into_inner);
    if !is_cut {
        tally.add_errors("Unfinished", unfinished);
        tally.add_errors("NotStarted", pace.missed(times.measure));
    }
    Ok(ThreadEnd {
        tally,
        cost,
        is_cut,
    })
}

fn start_workers(
    shared: &Shared<'_>,
    (index, threads): (u32, u32),
    pace: &Rc<Pace>,
    tally: &Rc<RefCell<Tally>>,
) -> JoinSet<()> {
    let buffers: SharedBuffers = Buffers::shared();
    let target = shared.target;
    let heads = HeadWriter::new(&target.host, &target.access, Clock::system());
    let heads = Rc::new(RefCell::new(heads));
    let known = match shared.settings.reads {
        Reads::Anything => None,
        Reads::Changes => Some(Rc::<RefCell<KnownTags>>::default()),
    };
    let mut workers = JoinSet::new();
    for number in (index..shared.settings.clients).step_by(threads as usize) {
        let connect = || Connection::new(Arc::clone(&target.connector), Rc::clone(&buffers));
        let worker = Worker {
            number,

            heads: Rc::clone(&heads),
            plan: Arc::clone(shared.plan),
            pace: Rc::clone(pace),
            tally: Rc::clone(tally),
            live: Arc::clone(shared.live),
            verify: shared.settings.verify,
            known: known.clone(),
            scheme: target.connector.scheme(),
            times: shared.times,
            silence: target.connector.timeouts().silence,
        };
        let connections = (0..shared.plan.connections_per_client()).map(|_| connect());
        workers.spawn_local(worker.run(connections.collect()));
    }
    workers
}
