//! When an endpoint is left out, and how it comes back.
//!
//! ```text
//! up ─failures in a row─▶ ejected ─its time─▶ probing ─alive─▶ trial ─an answer─▶ slow start ─▶ up
//!                            ▲                   │ dead          │ a failure
//!                            └── for twice the time ─────────────┘
//! ```
//!
//! What counts:
//!
//! | what came | counts as |
//! |---|---|
//! | an answer below 500, 501 | a success: it ends the row of failures |
//! | 503 | neither: it is there, and is asked for less ([`crate::concurrency`]) |
//! | another 5xx | a failure of the *answer* |
//! | no connection, one that closed; an answer too late, or broken off | a failure to *reach* it |
//! | a connection found closed after it was idle; the client's own end | nothing |
//!
//! A second failure of the same request at the same endpoint does not count either. An endpoint
//! that answers is never left out when no other is up: a service that has trouble with some keys
//! serves the rest. One that can't be reached is, even as the last, so that requests fail at once
//! and not each by its own timeout; its first probe is then sent at once, and while no endpoint is
//! up the next ones after [`NONE_UP_WAIT`], since all requests wait for one to succeed.
//!
//! Pure: time is an argument. Called by [`crate::endpoint`]; probes are sent by [`crate::keeper`].

use std::time::Duration;

use tokio::time::Instant;

use crate::settings::HealthSettings;

/// Longest time between probes while no endpoint is up: four small requests a second do no harm,
/// and an origin that is back is used at once.
const NONE_UP_WAIT: Duration = Duration::from_millis(250);

/// The state of one endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    state: State,
    /// Failures since the last success.
    row: u32,
    /// Those of them since the last answer of any kind.
    unreached_row: u32,
    /// Time until the probe after the next one.
    wait: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    SlowStart { since: Instant },
    Ejected { probe_at: Instant },
    Probing,
    Trial,
    HeldOut,
    Draining,
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It answered 5xx.
    Answer,
    /// There was no answer, or not the whole of it.
    Unreached,
}

/// Whether another endpoint takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    SomeUp,
    NoneUp,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probed {
    /// It answered below 500, or 501.
    Alive,
    /// It answered another 5xx.
    InTrouble,
    /// It did not answer.
    Dead,
}

impl Health {
    /// Of an endpoint that was there from the beginning.
    pub(crate) fn up(settings: &HealthSettings) -> Self {
        Self {
            state: State::Up,
            row: 0,
            unreached_row: 0,
            wait: settings.ejection,
        }
    }

    /// Of one that came later.
    pub(crate) fn newcomer(settings: &HealthSettings, now: Instant) -> Self {
        Self {
            state: State::SlowStart { since: now },
            ..Self::up(settings)
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Failures since the last success.
    pub(crate) fn row(&self) -> u32 {
        self.row
    }

    /// A request had an answer that is a success.
    pub(crate) fn succeed(&mut self, now: Instant) {
        (self.row, self.unreached_row) = (0, 0);
        match self.state {
            State::Trial => {
                self.state = State::SlowStart { since: now };
            }
            // What was under way when it was left out tells of the time before.
            State::Up
            | State::SlowStart { .. }
            | State::Ejected { .. }
            | State::Probing
            | State::HeldOut
            | State::Draining => {}
        }
    }

    /// The slow start is over: what was before is forgotten.
    pub(crate) fn take_full_share(&mut self, settings: &HealthSettings) {
        if let State::SlowStart { .. } = self.state {
            self.state = State::Up;
            self.wait = settings.ejection;
        }
    }

    /// A request was answered 503.
    pub(crate) fn slow_down(&mut self, now: Instant) {
        self.unreached_row = 0;
        if self.state == State::Trial {
            self.state = State::SlowStart { since: now };
        }
    }

    /// A request failed.
    pub(crate) fn fail(
        &mut self,
        fault: Fault,
        others: Others,
        settings: &HealthSettings,
        now: Instant,
    ) {
        self.row = self.row.saturating_add(1);
        self.unreached_row = match fault {
            Fault::Answer => 0,
            Fault::Unreached => self.unreached_row.saturating_add(1),
        };
        let is_too_often = match others {
            Others::SomeUp => self.row >= settings.failures_max,
            Others::NoneUp => self.unreached_row >= settings.failures_max,
        };
        match (self.state, fault, others) {
            (State::Up | State::SlowStart { .. }, _, _) if is_too_often => {
                self.leave_out(others, settings, now);
            }
            // Whoever answers is better than nobody.
            (State::Trial, Fault::Answer, Others::NoneUp) => {
                self.state = State::SlowStart { since: now };
            }
            (State::Trial, _, _) => self.wait_on(others, settings, now),
            (
                State::Up
                | State::SlowStart { .. }
                | State::Ejected { .. }
                | State::Probing
                | State::HeldOut
                | State::Draining,
                _,
                _,
            ) => {}
        }
    }

    /// The time of the probe has come; whether one is to be sent.
    pub(crate) fn begin_probe(&mut self, now: Instant) -> bool {
        match self.state {
            State::Ejected { probe_at } if probe_at <= now => {
                self.state = State::Probing;
                true
            }
            State::Ejected { .. }
            | State::Up
            | State::SlowStart { .. }
            | State::Probing
            | State::Trial
            | State::HeldOut
            | State::Draining => false,
        }
    }

    /// A probe ended; an operator may have decided otherwise meanwhile.
    pub(crate) fn probed(
        &mut self,
        probed: Probed,
        others: Others,
        settings: &HealthSettings,
        now: Instant,
    ) {
        if self.state != State::Probing {
            return;
        }
        match (probed, others) {
            (Probed::Alive, _) | (Probed::InTrouble, Others::NoneUp) => self.state = State::Trial,
            (Probed::InTrouble, Others::SomeUp) | (Probed::Dead, _) => {
                self.wait_on(others, settings, now);
            }
        }
    }

    /// An operator takes it out.
    pub(crate) fn hold_out(&mut self) {
        self.state = State::HeldOut;
    }

    /// It is to take no new requests.
    pub(crate) fn drain(&mut self) {
        self.state = State::Draining;
    }

    /// An operator brings it back.
    pub(crate) fn restore(&mut self, settings: &HealthSettings, now: Instant) {
        *self = Self::newcomer(settings, now);
    }

    fn leave_out(&mut self, others: Others, settings: &HealthSettings, now: Instant) {
        match others {
            Others::SomeUp => self.wait_on(others, settings, now),
            Others::NoneUp => self.state = State::Ejected { probe_at: now },
        }
    }

    fn wait_on(&mut self, others: Others, settings: &HealthSettings, now: Instant) {
        let wait = match others {
            Others::SomeUp => self.wait,
            Others::NoneUp => self.wait.min(NONE_UP_WAIT),
        };
        let probe_at = now + wait;
        self.state = State::Ejected { probe_at };
        if others == Others::SomeUp {
            self.wait = (self.wait * 2).min(settings.ejection_max.max(settings.ejection));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Patient {
        health: Health,
        settings: HealthSettings,
        now: Instant,
    }

    impl Patient {
        fn new() -> Self {
            let settings = HealthSettings::default();
            Self {
                health: Health::up(&settings),
                settings,
                now: Instant::now(),
            }
        }

        fn fails(&mut self, count: u32, fault: Fault, others: Others) -> State {
            for _ in 0..count {
                self.health.fail(fault, others, &self.settings, self.now);
            }
            self.health.state()
        }

        fn succeeds(&mut self) -> State {
            self.health.succeed(self.now);
            self.health.state()
        }

        /// Waits for the probe and ends it; how long that was.
        fn probed(&mut self, probed: Probed) -> Duration {
            self.probed_beside(probed, Others::SomeUp)
        }

        fn probed_beside(&mut self, probed: Probed, others: Others) -> Duration {
            let State::Ejected { probe_at } = self.health.state() else {
                panic!("no probe is due in {:?}", self.health.state());
            };
            assert!(probe_at <= self.now || !self.health.begin_probe(self.now));
            let waited = probe_at.saturating_duration_since(self.now);
            self.now += waited;
            assert!(self.health.begin_probe(self.now));
            assert!(!self.health.begin_probe(self.now), "one probe at a time");
            self.health.probed(probed, others, &self.settings, self.now);
            waited
        }
    }

    fn is_ejected(state: State) -> bool {
        matches!(state, State::Ejected { .. })
    }

    #[test]
    fn failures_in_a_row_eject_and_a_success_between_them_does_not() {
        let mut patient = Patient::new();
        for _ in 0..10 {
            assert_eq!(
                patient.fails(4, Fault::Unreached, Others::SomeUp),
                State::Up
            );
            assert_eq!(patient.succeeds(), State::Up);
        }
        assert!(is_ejected(patient.fails(5, Fault::Answer, Others::SomeUp)));
    }

    #[test]
    fn the_last_endpoint_that_answers_stays_and_one_that_can_not_be_reached_does_not() {
        let mut patient = Patient::new();
        assert_eq!(patient.fails(100, Fault::Answer, Others::NoneUp), State::Up);
        // An answer between them, of whatever kind, tells that it can be reached.
        for _ in 0..10 {
            patient.fails(4, Fault::Unreached, Others::NoneUp);
            assert_eq!(patient.fails(1, Fault::Answer, Others::NoneUp), State::Up);
        }
        let state = patient.fails(5, Fault::Unreached, Others::NoneUp);
        assert_eq!(
            state,
            State::Ejected {
                probe_at: patient.now
            }
        );
    }

    #[test]
    fn a_busy_endpoint_is_not_a_failing_one() {
        let mut patient = Patient::new();
        for _ in 0..100 {
            patient.health.slow_down(patient.now);
        }
        assert_eq!(
            (patient.health.state(), patient.health.row()),
            (State::Up, 0)
        );
    }

    #[test]
    fn probes_are_sent_ever_more_rarely_up_to_the_setting() {
        let mut patient = Patient::new();
        patient.fails(5, Fault::Unreached, Others::SomeUp);
        let waits: Vec<u64> = (0..5)
            .map(|_| patient.probed(Probed::Dead).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 4, 4]);
    }

    #[test]
    fn the_last_endpoint_is_probed_four_times_a_second() {
        let mut patient = Patient::new();
        patient.fails(5, Fault::Unreached, Others::NoneUp);
        let waits: Vec<u128> = (0..4)
            .map(|_| {
                patient
                    .probed_beside(Probed::Dead, Others::NoneUp)
                    .as_millis()
            })
            .collect();
        assert_eq!(waits, [0, 250, 250, 250]);
    }

    #[test]
    fn a_return_is_a_probe_then_one_request_then_a_slow_start() {
        let mut patient = Patient::new();
        patient.fails(5, Fault::Unreached, Others::SomeUp);
        patient.probed(Probed::Alive);
        assert_eq!(patient.health.state(), State::Trial);
        // The trial fails: out again, for longer.
        assert!(is_ejected(patient.fails(1, Fault::Answer, Others::SomeUp)));
        assert_eq!(patient.probed(Probed::Alive), 2 * SECOND);
        let since = patient.now;
        assert_eq!(patient.succeeds(), State::SlowStart { since });
        // Ejected again before its start is over, it waits longer still; after it, as at first.
        patient.fails(5, Fault::Unreached, Others::SomeUp);
        assert_eq!(patient.probed(Probed::Alive), 4 * SECOND);
        patient.succeeds();
        patient.health.take_full_share(&patient.settings);
        patient.fails(5, Fault::Unreached, Others::SomeUp);
        assert_eq!(patient.probed(Probed::Alive), SECOND);
    }

    #[test]
    fn an_endpoint_in_trouble_is_tried_only_if_no_other_is_up() {
        for (others, is_tried) in [(Others::SomeUp, false), (Others::NoneUp, true)] {
            let mut patient = Patient::new();
            patient.fails(5, Fault::Unreached, Others::NoneUp);
            assert!(patient.health.begin_probe(patient.now));
            let settings = patient.settings.clone();
            let now = patient.now;
            patient
                .health
                .probed(Probed::InTrouble, others, &settings, now);
            assert_eq!(patient.health.state() == State::Trial, is_tried);
        }
    }

    #[test]
    fn what_was_under_way_before_does_not_bring_an_endpoint_back() {
        let mut patient = Patient::new();
        patient.fails(5, Fault::Unreached, Others::SomeUp);
        assert!(is_ejected(patient.succeeds()));
    }

    #[test]
    fn only_an_operator_brings_back_what_an_operator_took_out() {
        for take_out in [Health::hold_out, Health::drain] {
            let mut patient = Patient::new();
            patient.fails(5, Fault::Unreached, Others::SomeUp);
            take_out(&mut patient.health);
            let out = patient.health.state();
            assert!(!patient.health.begin_probe(patient.now + 100 * SECOND));
            let (others, settings) = (Others::SomeUp, patient.settings.clone());
            patient
                .health
                .probed(Probed::Alive, others, &settings, patient.now);
            assert_eq!(patient.succeeds(), out);
            assert_eq!(patient.fails(9, Fault::Unreached, Others::SomeUp), out);
            patient.health.restore(&patient.settings, patient.now);
            let since = patient.now;
            assert_eq!(patient.health.state(), State::SlowStart { since });
        }
    }
}
