//! Changes under way, and those that have ended lately.
//!
//! A job is a task that belongs to [`Jobs`]: cancelled by its number, stopped by [`Jobs::stop`]
//! when a drain begins, aborted when they are dropped. Whatever way its task ends, the job knows.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use forebay_cache::WarmProgress;
use forebay_mirror::{CompareCounts, CompareProgress};
use forebay_store::Clock;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use super::{
    messages::{JobState, JobStatus},
    mirrors,
};

/// Jobs under way at once: people and scripts start a few; more is a script gone wild.
const JOBS_MAX: usize = 16;
/// Jobs kept once they have ended, for who asks what became of them.
const ENDED_JOBS_MAX: usize = 64;

/// There are as many jobs under way as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyJobs;

/// All jobs.
#[derive(Debug)]
pub(super) struct Jobs {
    clock: Clock,
    listed: Mutex<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    id_last: u64,
    /// The newest first.
    jobs: VecDeque<Arc<Job>>,
    tasks: JoinSet<()>,
}

/// One job.
#[derive(Debug)]
pub(super) struct Job {
    id: u64,
    kind: &'static str,
    what: String,
    started: Instant,
    started_unix_seconds: i64,
    clock: Clock,
    /// Objects that a purge removed, and their bytes.
    pub(super) done: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Of each cache that a warm fills.
    pub(super) warms: Vec<Arc<WarmProgress>>,
    /// Of each mirror whose members are compared.
    pub(super) compares: Vec<Arc<CompareProgress>>,
    end: watch::Sender<Option<End>>,
    task: Mutex<Option<AbortHandle>>,
}

/// How a job ended.
#[derive(Debug, Clone)]
struct End {
    state: JobState,
    at: Instant,
    note: Option<String>,
}

/// What a task says at its end.
pub(super) type Ended = Result<Option<String>, String>;

/// What a new job is.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) kind: &'static str,
    pub(super) what: String,
    pub(super) warms: Vec<Arc<WarmProgress>>,
    pub(super) compares: Vec<Arc<CompareProgress>>,
}

/// Says so when the task is dropped before its end.
struct Underway(Arc<Job>);

impl Drop for Underway {
    fn drop(&mut self) {
        self.0.end(JobState::Cancelled, None);
    }
}

impl Jobs {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            listed: Mutex::default(),
        }
    }

    /// Begins a job; `work` makes its task.
    pub(super) fn begin<F>(
        &self,
        order: Order,
        work: impl FnOnce(Arc<Job>) -> F,
    ) -> Result<Arc<Job>, TooManyJobs>
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let mut listed = self.listed.lock();
        while listed.tasks.try_join_next().is_some() {}
        if listed.tasks.len() >= JOBS_MAX {
            return Err(TooManyJobs);
        }
        listed.id_last += 1;
        let job = Arc::new(Job {
            id: listed.id_last,
            kind: order.kind,
            what: order.what,
            started: self.clock.now(),
            started_unix_seconds: self.clock.unix_seconds(),
            clock: self.clock.clone(),
            done: 0.into(),
            bytes: 0.into(),
            warms: order.warms,
            compares: order.compares,
            end: watch::Sender::new(None),
            task: Mutex::default(),
        });
        let (underway, work) = (Underway(Arc::clone(&job)), work(Arc::clone(&job)));
        let task = listed.tasks.spawn(async move {
            match work.await {
                Ok(note) => underway.0.end(JobState::Done, note),
                Err(why) => underway.0.end(JobState::Failed, Some(why)),
            }
        });
        *job.task.lock() = Some(task);
        listed.jobs.push_front(Arc::clone(&job));
        listed.forget_old();
        Ok(job)
    }

    /// All that are known, the newest first.
    pub(super) fn all(&self) -> Vec<JobStatus> {
        let jobs: Vec<_> = self.listed.lock().jobs.iter().cloned().collect();
        jobs.iter().map(|job| job.status()).collect()
    }

    /// The job of this number.
    pub(super) fn find(&self, id: u64) -> Option<Arc<Job>> {
        let listed = self.listed.lock();
        listed.jobs.iter().find(|job| job.id == id).cloned()
    }

    /// Cancels all, and waits until none is left.
    pub(super) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut self.listed.lock().tasks);
        tasks.shutdown().await;
    }
}

impl Listed {
    fn forget_old(&mut self) {
        let mut ended_count = 0;
        self.jobs.retain(|job| {
            ended_count += usize::from(job.end.borrow().is_some());
            job.end.borrow().is_none() || ended_count <= ENDED_JOBS_MAX
        });
    }
}

impl Job {
    fn end(&self, state: JobState, note: Option<String>) {
        let at = self.clock.now();
        self.end.send_if_modified(|end| {
            let is_first = end.is_none();
            if is_first {
                *end = Some(End { state, at, note });
            }
            is_first
        });
    }

    /// Stops it, if it is under way, and waits until it has stopped.
    pub(super) async fn cancel(&self) {
        if let Some(task) = &*self.task.lock() {
            task.abort();
        }
        self.ended().await;
    }

    /// Waits for its end.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn ended(&self) {
        // The sender is part of the job, so it is there for as long as this waits.
        let _ = self.end.subscribe().wait_for(Option::is_some).await;
    }

    /// How far it has come.
    pub(super) fn status(&self) -> JobStatus {
        let end = self.end.borrow().clone();
        let until = end.as_ref().map_or_else(|| self.clock.now(), |end| end.at);
        let mut status = JobStatus {
            id: self.id,
            kind: self.kind.to_owned(),
            what: self.what.clone(),
            state: end.as_ref().map_or(JobState::Running, |end| end.state),
            started_unix_seconds: self.started_unix_seconds,
            seconds: until.saturating_duration_since(self.started).as_secs_f64(),
            done: self.done.load(Ordering::Relaxed),
            total: None,
            bytes: self.bytes.load(Ordering::Relaxed),
            fresh: 0,
            not_kept: 0,
            missing: 0,
            failed: 0,
            errors: Vec::new(),
            compared: None,
            note: end.and_then(|end| end.note),
        };
        let (mut total, mut is_all_found) = (0, true);
        for counts in self.warms.iter().map(|progress| progress.counts()) {
            status.done += counts.done();
            status.bytes += counts.bytes;
            status.fresh += counts.fresh;
            status.not_kept += counts.not_kept;
            status.missing += counts.missing;
            status.failed += counts.failed;
            total += counts.found;
            is_all_found &= counts.is_all_found;
            status.errors.extend(counts.errors);
        }
        if !self.warms.is_empty() && is_all_found {
            status.total = Some(total);
        }
        for counts in self.compares.iter().map(|progress| progress.counts()) {
            add_compared(&mut status, counts);
        }
        status
    }
}

fn add_compared(status: &mut JobStatus, counts: CompareCounts) {
    let CompareCounts {
        buckets,
        keys,
        pending,
        missing,
        differing,
        undecided,
        conflicts,
        repaired,
        deleted,
        failed,
        bytes,
        differences,
        errors,
    } = counts;
    status.done += keys;
    status.bytes += bytes;
    status.failed += failed;
    status.errors.extend(errors);
    let all = status.compared.get_or_insert_default();
    all.buckets += buckets;
    all.pending += pending;
    all.missing += missing;
    all.differing += differing;
    all.undecided += undecided;
    all.conflicts += conflicts;
    all.repaired += repaired;
    all.deleted += deleted;
    all.differences
        .extend(differences.iter().map(mirrors::shown_difference));
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    fn order() -> Order {
        Order {
            kind: "purge",
            what: "all".to_owned(),
            warms: Vec::new(),
            compares: Vec::new(),
        }
    }

    fn jobs() -> Jobs {
        Jobs::new(Clock::system())
    }

    async fn end_of(job: &Job) -> (JobState, Option<String>) {
        job.ended().await;
        let status = job.status();
        (status.state, status.note)
    }

    #[tokio::test]
    async fn a_job_knows_how_it_ended() {
        let jobs = jobs();
        let done = jobs.begin(order(), |_| async { Ok(None) }).unwrap();
        assert_eq!(end_of(&done).await, (JobState::Done, None));
        let failed = jobs.begin(order(), |_| async { Err("why".into()) });
        let expected = (JobState::Failed, Some("why".to_owned()));
        assert_eq!(end_of(&failed.unwrap()).await, expected);
        let endless = jobs.begin(order(), |_| future::pending()).unwrap();
        assert_eq!(endless.status().state, JobState::Running);
        endless.cancel().await;
        assert_eq!(end_of(&endless).await, (JobState::Cancelled, None));
        done.cancel().await;
        assert_eq!(end_of(&done).await, (JobState::Done, None));
        let ids: Vec<_> = jobs.all().iter().map(|status| status.id).collect();
        assert_eq!(ids, [3, 2, 1]);
        assert!(jobs.find(2).is_some() && jobs.find(4).is_none());
    }

    #[tokio::test]
    async fn jobs_are_bounded_under_way_and_after() {
        let jobs = jobs();
        for _ in 0..JOBS_MAX {
            jobs.begin(order(), |_| future::pending()).unwrap();
        }
        let more = jobs.begin(order(), |_| future::pending());
        assert_eq!(more.err(), Some(TooManyJobs));
        jobs.stop().await;
        for status in jobs.all() {
            assert_eq!(status.state, JobState::Cancelled);
        }
        for _ in 0..ENDED_JOBS_MAX + 10 {
            let job = jobs.begin(order(), |_| async { Ok(None) }).unwrap();
            job.ended().await;
        }
        assert!(jobs.all().len() <= ENDED_JOBS_MAX + 1);
        assert!(jobs.find(1).is_none());
    }
}
