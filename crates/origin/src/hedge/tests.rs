//! The parts together, over virtual time: what is measured decides what is sent.

use super::*;

/// One endpoint, asked one read after the other; no sockets.
struct Origin {
    hedging: Hedging,
    times: Arc<ReadTimes>,
    reads: u64,
    hedges: u64,
}

/// How a read goes.
#[derive(Clone, Copy)]
struct Course {
    primary: Duration,
    hedge: Duration,
    worth: Worth,
}

impl Origin {
    fn new(settings: &HedgeSettings) -> Self {
        Self {
            hedging: Hedging::new(settings, &HedgeMetrics::new()),
            times: Arc::default(),
            reads: 0,
            hedges: 0,
        }
    }

    /// Makes a read, as `race` does; tells whether it was hedged.
    async fn read(&mut self, course: Course) {
        let hedging = &self.hedging;
        self.reads += 1;
        let mut read = hedging.begin_kind(Kind::GetWhole);
        let delay = hedging.delay(&mut read, &self.times);
        let primary = hedging.time(read.kind, &self.times);
        let slow = delay.filter(|delay| *delay < course.primary);
        let Some(delay) = slow else {
            tokio::time::advance(course.primary).await;
            primary.end(course.worth);
            read.answered();
            return;
        };
        tokio::time::advance(delay).await;
        if hedging.may_send(read.kind) != Leave::Given {
            tokio::time::advance(course.primary.saturating_sub(delay)).await;
            primary.end(course.worth);
            read.answered();
            return;
        }
        self.hedges += 1;
        let hedge = hedging.time(read.kind, &self.times);
        let left = course.primary.saturating_sub(delay);
        tokio::time::advance(left.min(course.hedge)).await;
        if left < course.hedge {
            primary.end(course.worth);
        } else {
            hedge.end(course.worth);
        }
        read.answered();
    }

    /// Makes reads that take a few milliseconds, `times` as long; gives the hedges among them.
    async fn reads(&mut self, count: u32, times: f64, worth: impl Fn(u32) -> Worth) -> u64 {
        let before = self.hedges;
        let draw = || Duration::from_secs_f64(0.004 * times * (1.0 - fastrand::f64()).powf(-0.4));
        for read in 0..count {
            let course = Course {
                primary: draw(),
                hedge: draw(),
                worth: worth(read),
            };
            self.read(course).await;
        }
        self.hedges - before
    }
}

fn usable(_: u32) -> Worth {
    Worth::Usable
}

/// Goal: a brown-out does not make us add to it.
/// Method: a minute as usual, then five times as slow for a while, then as usual.
#[tokio::test(start_paused = true)]
async fn a_step_to_five_times_stays_within_the_budget_and_is_then_not_hedged_at_all() {
    fastrand::seed(7);
    let mut origin = Origin::new(&HedgeSettings::default());
    let usual = origin.reads(10_000, 1.0, usable).await;
    assert!((100..=200).contains(&usual), "{usual} of 10,000");
    // It is seen after 64 reads or a quarter of a second, whichever is later.
    let first = origin.reads(128, 5.0, usable).await;
    assert!(first <= u64::from(budget::BURST) + 3, "{first}");
    let then = origin.reads(5000, 5.0, usable).await;
    assert_eq!(then, 0, "of 5000 reads in some two minutes");
    let suppressed = origin.hedging.metrics.suppressed.slowdown.get();
    assert!(suppressed > 4900, "{suppressed}");
    origin.reads(128, 1.0, usable).await;
    let again = origin.reads(10_000, 1.0, usable).await;
    assert!(again > 50, "{again}");
    // Each read earns 2 % of a hedge.
    assert!(origin.hedges <= origin.reads / 50);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_hedged_while_more_than_a_twentieth_fail() {
    fastrand::seed(7);
    let mut origin = Origin::new(&HedgeSettings::default());
    let usual = origin.reads(5000, 1.0, usable).await;
    assert!(usual > 0);
    let one_in_ten = |read: u32| {
        if read.is_multiple_of(10) {
            Worth::Failed
        } else {
            Worth::Usable
        }
    };
    origin.reads(300, 1.0, one_in_ten).await;
    assert_eq!(origin.reads(5000, 1.0, one_in_ten).await, 0);
    assert!(origin.hedging.metrics.suppressed.failures.get() > 4000);
    // Ten seconds without a failure, and a little more.
    origin.reads(3000, 1.0, usable).await;
    assert!(origin.reads(5000, 1.0, usable).await > 0);
}

#[tokio::test(start_paused = true)]
async fn the_control_arm_is_never_hedged_and_its_latencies_are_apart() {
    fastrand::seed(7);
    let mut origin = Origin::new(&HedgeSettings {
        control_share: 0.5,
        ..HedgeSettings::default()
    });
    origin.reads(300, 1.0, usable).await;
    let slow = Course {
        primary: Duration::from_secs(1),
        hedge: Duration::from_millis(4),
        worth: Worth::Usable,
    };
    let metrics = origin.hedging.metrics.clone();
    let (mut control, mut hedged) = (0, 0);
    for _ in 0..40 {
        let (before, sent) = (metrics.suppressed.control.get(), origin.hedges);
        origin.read(slow).await;
        if metrics.suppressed.control.get() > before {
            assert_eq!(origin.hedges, sent);
            control += 1;
        } else {
            hedged += origin.hedges - sent;
        }
        // Quick ones between them, so that the budget and the median stay as they are.
        origin.reads(100, 1.0, usable).await;
    }
    assert!(control > 5 && hedged > 5, "{control} kept, {hedged} hedged");
}

/// Goal: an attempt that is dropped, for whatever reason, is a sample all the same.
/// Method: every second one is dropped, later than the others are answered.
#[tokio::test(start_paused = true)]
async fn a_dropped_attempt_counts_as_given_up() {
    let origin = Origin::new(&HedgeSettings::default());
    let settings = HedgeSettings::default();
    for read in 0..3 * settings.samples_min {
        let timing = origin.hedging.time(Kind::GetWhole, &origin.times);
        if read.is_multiple_of(2) {
            tokio::time::advance(Duration::from_millis(5)).await;
            timing.end(Worth::Usable);
        } else {
            tokio::time::advance(Duration::from_millis(50)).await;
            drop(timing);
        }
    }
    let threshold = origin.times.threshold(Kind::GetWhole).unwrap();
    assert!(threshold >= Duration::from_millis(50), "{threshold:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_finds_no_budget_may_ask_again() {
    let hedging = Hedging::new(&HedgeSettings::default(), &HedgeMetrics::new());
    assert_eq!(hedging.may_send(Kind::Head), Leave::Later);
    (0..50).for_each(|_| hedging.budget.earn());
    assert_eq!(hedging.may_send(Kind::Head), Leave::Given);
    assert_eq!(hedging.may_send(Kind::Head), Leave::Later);
}
