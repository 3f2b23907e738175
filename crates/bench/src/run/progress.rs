//! Tells how a run goes on, and ends it early when a signal says so.
//!
//! On a terminal one line that changes; elsewhere a line for each measurement, and one every ten
//! seconds. Both on standard error, so that standard output holds the results alone.
//!
//! The first SIGINT or SIGTERM stops the load; what was measured is then printed and written. A
//! second one ends the program at once.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use super::Notes;
use crate::{
    load::Live,
    results::{Outcome, exact},
    shown,
};

/// How often the line on a terminal changes.
const TICK: Duration = Duration::from_millis(250);
/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The exit code when a second signal comes: the run is not whole.
const EXIT_FAILED: i32 = 1;

/// What goes on at the moment.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    pub(super) what: String,
    pub(super) label: String,
    pub(super) round: u32,
    /// How many requests it takes, where that is known.
    pub(super) requests: Option<u64>,
    /// How long it takes, where that is known.
    pub(super) seconds: Option<Duration>,
}

#[derive(Debug, Default)]
struct State {
    doing: Option<(Doing, Arc<Live>, Instant)>,
    /// What the last tick saw, for the rate of now.
    last: Option<(Instant, u64, u64)>,
    last_line: Option<Instant>,
    measurements: u64,
    measurements_done: u64,
    expected: Duration,
    measured: Duration,
    signal: Option<&'static str>,
}

/// Shows progress and hears signals, on a thread of its own.
#[derive(Debug)]
pub(super) struct Progress {
    state: Arc<Mutex<State>>,
    stop: watch::Receiver<bool>,
    end: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to listen for signals and to show what goes on.
    ///
    /// # Errors
    /// When the machine gives no thread, or signals can't be heard.
    pub(super) fn start(notes: Notes) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State::default()));
        let (stop_sender, stop) = watch::channel(false);
        let (end, end_receiver) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::clone(&state);
        let (mut interrupts, mut terminations) = {
            let _within = runtime.enter();
            (
                signal(SignalKind::interrupt())?,
                signal(SignalKind::terminate())?,
            )
        };
        let thread = thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let mut screen = Screen::new(notes);
                    let mut ticks = interval(TICK);
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                    let mut end = end_receiver;
                    loop {
                        let name = tokio::select! {
                            _ = interrupts.recv() => "SIGINT",
                            _ = terminations.recv() => "SIGTERM",
                            _ = ticks.tick() => {
                                screen.show(&mut locked(&shared));
                                continue;
                            }
                            // An error means that the run is over as well.
                            _ = end.wait_for(|end| *end) => break,
                        };
                        if locked(&shared).signal.replace(name).is_some() {
                            std::process::exit(EXIT_FAILED);
                        }
                        screen.say(&format!("{name}: stopping; once more ends at once"));
                        // The receiver lives as long as the run.
                        let _ = stop_sender.send(true);
                    }
                    screen.clear();
                });
            })?;
        Ok(Self {
            state,
            stop,
            end,
            thread: Some(thread),
        })
    }

    /// Says how much there is to do: measurements, and how long they take as far as known.
    pub(super) fn plan(&self, measurements: u64, expected: Duration) {
        let mut state = locked(&self.state);
        (state.measurements, state.expected) = (measurements, expected);
    }

    /// Something begins; gives where it is to be counted.
    pub(super) fn begin(&self, doing: Doing) -> Arc<Live> {
        let live = Arc::new(Live::default());
        let mut state = locked(&self.state);
        state.doing = Some((doing, Arc::clone(&live), Instant::now()));
        (state.last, state.last_line) = (None, None);
        live
    }

    /// A measurement ended.
    pub(super) fn measured(&self, seconds: f64) {
        let mut state = locked(&self.state);
        state.measurements_done += 1;
        state.measured += Duration::try_from_secs_f64(seconds).unwrap_or_default();
        state.doing = None;
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// Turns true when a signal has come.
    pub(super) fn stop_signal(&self) -> watch::Receiver<bool> {
        self.stop.clone()
    }

    /// Clears the line, and says how the run ended: a signal outranks what it led to.
    pub(super) fn finish(mut self, outcome: &Outcome) -> Outcome {
        self.join();
        match (locked(&self.state).signal, outcome) {
            (Some(name), Outcome::Interrupted { .. }) => Outcome::Interrupted {
                reason: format!("interrupted by {name}"),
            },
            (_, outcome) => outcome.clone(),
        }
    }

    fn join(&mut self) {
        // Nobody listens only when the thread has ended already.
        let _ = self.end.send(true);
        if let Some(thread) = self.thread.take() {
            // What it shows is no part of the result.
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.join();
    }
}

/// A panic elsewhere leaves numbers to show at worst.
fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where lines go.
enum Screen {
    Bar(ProgressBar),
    Lines(Box<dyn io::Write + Send>),
}

impl Screen {
    fn new(notes: Notes) -> Self {
        if let Notes::Lines(out) = notes {
            return Self::Lines(out);
        }
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:16} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::Bar(bar)
    }

    fn show(&mut self, state: &mut State) {
        let now = Instant::now();
        let is_due = matches!(self, Self::Bar(_))
            || state.last_line.is_none_or(|last| now >= last + LINE_EVERY);
        if state.doing.is_none() || !is_due {
            return;
        }
        let line = state.line(now);
        if let Self::Bar(bar) = self {
            bar.set_position(state.permille(now));
            bar.set_message(line);
        } else {
            state.last_line = Some(now);
            self.say(&line);
        }
    }

    fn say(&mut self, line: &str) {
        match self {
            Self::Bar(bar) => bar.println(line),
            // Nowhere to go with a closed standard error.
            Self::Lines(out) => drop(writeln!(out, "{line}")),
        }
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl State {
    /// What goes on, how fast, and how long it will still take.
    fn line(&mut self, now: Instant) -> String {
        let Some((doing, live, since)) = &self.doing else {
            return String::new();
        };
        let count = live.requests.load(Ordering::Relaxed);
        let bytes = live.bytes.load(Ordering::Relaxed);
        let errors = live.errors.load(Ordering::Relaxed);
        let mut words = Vec::new();
        if self.measurements_done < self.measurements {
            words.push(format!(
                "[{}/{}]",
                self.measurements_done + 1,
                self.measurements
            ));
        }
        words.push(format!("{} · {}", doing.what, doing.label));
        if doing.seconds.is_some() {
            words.push(format!("· round {}", doing.round + 1));
        }
        if let Some((before, count_before, bytes_before)) = self.last {
            let seconds = (now - before).as_secs_f64().max(1e-3);
            let per_second = exact(count.saturating_sub(count_before)) / seconds;
            let bytes_per_second = exact(bytes.saturating_sub(bytes_before)) / seconds;
            let rate = shown::count(per_second);
            words.push(format!(
                "· {rate}/s, {} MiB/s",
                shown::mebibytes(bytes_per_second)
            ));
        }
        if let Some(of) = doing.requests {
            words.push(format!("· {count} of {of}"));
        }
        if errors > 0 {
            words.push(format!("· {errors} errors"));
        }
        let current = now.saturating_duration_since(*since);
        if let Some(left) = self.left(current) {
            words.push(format!("· {} left", rounded(left)));
        }
        self.last = Some((now, count, bytes));
        words.join(" ")
    }

    /// How long all that is planned will still take.
    fn left(&self, current: Duration) -> Option<Duration> {
        if self.measurements == 0 {
            return None;
        }
        if !self.expected.is_zero() {
            return Some(self.expected.saturating_sub(self.measured + current));
        }
        let done = u32::try_from(self.measurements_done)
            .ok()
            .filter(|done| *done > 0)?;
        let left = u32::try_from(self.measurements - self.measurements_done).ok()?;
        Some((self.measured / done * left).saturating_sub(current))
    }

    fn permille(&self, now: Instant) -> u64 {
        let Some((doing, live, begun)) = &self.doing else {
            return 0;
        };
        let share = match (doing.requests, doing.seconds) {
            (Some(of), _) => exact(live.requests.load(Ordering::Relaxed)) / exact(of.max(1)),
            (None, Some(of)) => (now - *begun).as_secs_f64() / of.as_secs_f64().max(1e-3),
            (None, None) => 0.0,
        };
        let all = exact(self.measurements.max(1));
        let permille = 1000.0 * (exact(self.measurements_done) + share.min(1.0)) / all;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 to 1000"
        )]
        let permille = permille as u64;
        permille
    }
}

/// `1h05m`, `2m10s`, `9s`.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_rate_and_time_left() {
        let now = Instant::now();
        let live = Arc::new(Live::default());
        live.requests.store(300, Ordering::Relaxed);
        live.errors.store(2, Ordering::Relaxed);
        let doing = Doing {
            what: "get, 1 KiB, 16 at once".to_owned(),
            label: "a".to_owned(),
            round: 1,
            requests: None,
            seconds: Some(Duration::from_secs(10)),
        };
        let mut state = State {
            doing: Some((doing, live, now - Duration::from_secs(5))),
            last: Some((now - Duration::from_secs(1), 100, 0)),
            measurements: 4,
            measurements_done: 1,
            expected: Duration::from_mins(2),
            measured: Duration::from_secs(30),
            ..State::default()
        };
        let shown = state.line(now);
        let expected = "[2/4] get, 1 KiB, 16 at once · a · round 2 · 200/s, 0 MiB/s \
                        · 2 errors · 1m25s left";
        assert_eq!(shown, expected);
        assert_eq!(state.permille(now), 375);
        assert_eq!(rounded(Duration::from_mins(65)), "1h05m");
    }
}
