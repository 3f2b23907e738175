//! What the client itself used, and whether it was the limit.

use std::fs;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::results::{ClientCost, Warning};

/// From this share of a core on, a load thread has no room left to be faster.
const BUSY_MIN: f64 = 0.9;
/// From this share of the time on, waiting for a core shapes what is measured.
const WAITING_MIN: f64 = 0.2;

/// What one load thread used while it was measured.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadCost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    /// Ready to run, with no core free.
    pub(crate) waiting_seconds: f64,
}

/// Reads the clocks of the thread that it was started on.
#[derive(Debug)]
pub(crate) struct Meter {
    started: Instant,
    cpu_seconds: f64,
    waiting_seconds: f64,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu_seconds: cpu_seconds(),
            waiting_seconds: waiting_seconds(),
        }
    }

    pub(crate) fn stop(self) -> ThreadCost {
        ThreadCost {
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - self.cpu_seconds,
            waiting_seconds: waiting_seconds() - self.waiting_seconds,
        }
    }
}

/// Processor time of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    seconds(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs())
}

/// How long this thread was ready and had no core; 0 where the kernel doesn't tell.
fn waiting_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited_ns = text
        .split_whitespace()
        .nth(1)
        .and_then(|ns| ns.parse().ok());
    seconds(0, waited_ns.unwrap_or(0))
}

fn seconds(whole: u64, ns: u64) -> f64 {
    crate::results::exact(whole) + crate::results::exact(ns) / 1e9
}

/// Sums the threads up and judges whether they were the limit.
pub(crate) fn client_cost(threads: &[ThreadCost]) -> ClientCost {
    let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
    let sum = |of: fn(&ThreadCost) -> f64| threads.iter().map(of).sum::<f64>();
    let (elapsed, cpu, waiting) = (
        sum(|thread| thread.seconds),
        sum(|thread| thread.cpu_seconds),
        sum(|thread| thread.waiting_seconds),
    );
    ClientCost {
        cpu_seconds: cpu,
        threads: count,
        limited: limit(count, cpu / elapsed, waiting / elapsed),
    }
}

fn limit(threads: u32, busy: f64, waiting: f64) -> Option<Warning> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    if waiting >= WAITING_MIN {
        return Some(Warning {
            fact: format!(
                "the client waited for a core {} of the time",
                percent(waiting)
            ),
            cause: "other programs, perhaps the endpoint itself, share its cores".to_owned(),
            remedy: "run it on a machine or on cores of its own, or compare ratios only".to_owned(),
        });
    }
    (busy >= BUSY_MIN).then(|| Warning {
        fact: format!(
            "the client's {threads} threads were busy {} of the time",
            percent(busy)
        ),
        cause: "the endpoint is faster than the client at this size".to_owned(),
        remedy: "give it more --threads, or more machines".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_or_a_starved_client_is_told() {
        let thread = |cpu_seconds, waiting_seconds| ThreadCost {
            seconds: 10.0,
            cpu_seconds,
            waiting_seconds,
        };
        let fact = |threads: &[ThreadCost]| client_cost(threads).limited.map(|limit| limit.fact);
        assert_eq!(fact(&[thread(5.0, 0.1), thread(9.5, 0.1)]), None);
        let busy = "the client's 2 threads were busy 95 % of the time";
        assert_eq!(fact(&[thread(9.5, 0.1); 2]).as_deref(), Some(busy));
        let starved = "the client waited for a core 30 % of the time";
        assert_eq!(fact(&[thread(7.0, 3.0)]).as_deref(), Some(starved));
        assert_eq!(fact(&[]), None);
    }

    #[test]
    fn work_costs_processor_time() {
        let meter = Meter::start();
        let mut sum = 0_u64;
        for number in 0..3_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
        let cost = meter.stop();
        assert!(cost.cpu_seconds > 0.0, "{cost:?}, {sum}");
    }
}
