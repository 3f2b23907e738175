//! What the relay adds to the line, and to which request.
//!
//! Pure: what is done to request number n follows from the seed, n and the settings, so that a run
//! repeats however connections and threads interleave. [`FaultTexts`] is what flags and
//! `PUT /faults` bring; [`Faults`] is what was checked.
//!
//! The line (delay, jitter, bandwidth, workers) is always in force; the faults that strike some
//! requests are confined to a window of requests or of time where `after` and `for` are given.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fault, FaultyInput},
    quantity::{
        SHARE_ALLOWED, SIZE_ALLOWED, Share, TIME_ALLOWED, parse_size, parse_time, show_size,
    },
};

/// Delays beyond this are taken for slips of the pen.
const TIME_MAX: Duration = Duration::from_hours(1);
/// More are as good as no limit.
const WORKERS_MAX: usize = 65_536;
/// Draws of an exponential distribution end at this many means.
const EXPONENTIAL_MEANS_MAX: f64 = 10.0;

/// Faults as they are written: on the command line, and as JSON in `PUT /faults`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "The line")]
pub struct FaultTexts {
    /// Hold back the first byte of every answer for so long; the rest follows at full rate.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// Add up to so much to the delay (with `exponential`: so much in the mean).
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<String>,
    /// Distribution of the jitter: `uniform` (the default) or `exponential`, cut at ten means.
    #[arg(long, value_name = "SHAPE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_shape: Option<String>,
    /// Bytes per second of one connection, each direction.
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<String>,
    /// Bytes per second of all connections together, each direction.
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_total: Option<String>,
    /// Answer as a server of so many workers: each has one request at a time, for as long as its
    /// answer is held back, and further requests wait for one.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<String>,
    /// Share of requests whose answer comes late.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<String>,
    /// How late (1s unless given).
    #[arg(long, value_name = "TIME", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_for: Option<String>,
    /// Share of requests whose answer stops in mid-body.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<String>,
    /// For how long (2s unless given).
    #[arg(long, value_name = "TIME", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_for: Option<String>,
    /// Share of requests that the tap answers itself, with 503; the server sees nothing.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
    /// Share of requests whose connection is reset before the server sees them.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_request: Option<String>,
    /// Share of requests whose connection is reset once the server has answered, before the
    /// client gets a byte: what was done is done, and the client can't know.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_answer: Option<String>,
    /// Share of requests whose connection is reset in the middle of the answer's body.
    #[arg(long, value_name = "SHARE", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_body: Option<String>,
    /// Begin with the faults after so many requests (`100`) or so much time (`10s`).
    #[arg(long, value_name = "N|TIME", help_heading = "Faults")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// End them so many requests or so much time later.
    #[arg(long = "for", value_name = "N|TIME", help_heading = "Faults")]
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub during: Option<String>,
}

/// Faults that make sense. The default adds nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// What is added before the first byte of each answer.
    pub delay: Duration,
    /// What is added to the delay, drawn for each request.
    pub jitter: Jitter,
    /// Bytes per second of a connection, each direction.
    pub bandwidth: Option<u64>,
    /// Bytes per second of all connections, each direction.
    pub bandwidth_total: Option<u64>,
    /// Requests that are answered at a time; `None`: all.
    pub workers: Option<usize>,
    /// Answers that come late, and by how much.
    pub slow: (Share, Duration),
    /// Answers that stop in mid-body, and for how long.
    pub stall: (Share, Duration),
    /// Requests answered with 503 by the tap.
    pub busy: Share,
    /// Requests reset before the server sees them.
    pub reset_request: Share,
    /// Requests reset when the server has answered.
    pub reset_answer: Share,
    /// Requests reset in the middle of the answer's body.
    pub reset_body: Share,
    /// When the faults that strike some requests begin; `None`: at once.
    pub after: Option<Moment>,
    /// When they end, counted from their begin; `None`: never.
    pub during: Option<Moment>,
}

/// What is added to the delay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Jitter {
    /// Nothing.
    #[default]
    None,
    /// From nothing to this.
    Uniform(Duration),
    /// This in the mean, ten times as much at most.
    Exponential(Duration),
}

/// A number of requests or a length of time, counted from when the faults were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// After so many requests.
    Requests(u64),
    /// After so much time.
    Time(Duration),
}

/// What is done to one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Before the first byte of the answer; with what a slow answer adds.
    pub(super) hold: Duration,
    pub(super) is_slow: bool,
    pub(super) stall: Option<Duration>,
    pub(super) end: Ending,
    /// Where in the body a stall or a reset strikes, as a draw from all of `u64`.
    pub(super) place: u64,
}

/// How a request ends; a request meets at most one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ending {
    #[default]
    Answered,
    Busy,
    ResetRequest,
    ResetAnswer,
    ResetBody,
}

/// A request's place since the faults were set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Since the tap started, from 0: what the draws follow from.
    pub(super) number: u64,
    /// Requests seen since the faults were set.
    pub(super) requests: u64,
    /// Time since then.
    pub(super) elapsed: Duration,
}

impl Faults {
    /// Reads what was written.
    ///
    /// # Errors
    /// Everything that is wrong, at once; `input` says where it was written.
    pub fn check(texts: &FaultTexts, input: &str) -> Result<Self, FaultyInput> {
        let FaultTexts {
            delay,
            jitter,
            jitter_shape,
            bandwidth,
            bandwidth_total,
            workers,
            slow,
            slow_for,
            stall,
            stall_for,
            busy,
            reset_request,
            reset_answer,
            reset_body,
            after,
            during,
        } = texts;
        let mut reader = Reader::default();
        let jitter_time = reader.time("jitter", jitter.as_ref());
        let faults = Self {
            delay: reader.time("delay", delay.as_ref()).unwrap_or_default(),
            jitter: reader.jitter(jitter_shape.as_ref(), jitter_time),
            bandwidth: reader.rate("bandwidth", bandwidth.as_ref()),
            bandwidth_total: reader.rate("bandwidth_total", bandwidth_total.as_ref()),
            workers: reader.workers(workers.as_ref()),
            slow: (
                reader.share("slow", slow.as_ref()),
                reader
                    .time("slow_for", slow_for.as_ref())
                    .unwrap_or(Duration::from_secs(1)),
            ),
            stall: (
                reader.share("stall", stall.as_ref()),
                reader
                    .time("stall_for", stall_for.as_ref())
                    .unwrap_or(Duration::from_secs(2)),
            ),
            busy: reader.share("busy", busy.as_ref()),
            reset_request: reader.share("reset_request", reset_request.as_ref()),
            reset_answer: reader.share("reset_answer", reset_answer.as_ref()),
            reset_body: reader.share("reset_body", reset_body.as_ref()),
            after: reader.moment("after", after.as_ref()),
            during: reader.moment("for", during.as_ref()),
        };
        let measures = (faults.after, faults.during);
        if let (Some(Moment::Requests(_)), Some(Moment::Time(_)))
        | (Some(Moment::Time(_)), Some(Moment::Requests(_))) = measures
        {
            let value = during.as_deref().unwrap_or_default();
            let allowed = "requests if `after` is in requests, a time if it is a time";
            reader.refuse(
                "for",
                value,
                allowed,
                "give both in requests or both as times",
            );
        }
        if reader.faults.is_empty() {
            Ok(faults)
        } else {
            Err(FaultyInput {
                input: input.to_owned(),
                faults: reader.faults,
            })
        }
    }

    /// What is done to the request at this place.
    pub(super) fn plan(&self, seed: u64, place: Place) -> Plan {
        if *self == Self::default() {
            return Plan::default();
        }
        // A multiplication by an odd number gives each request a seed of its own.
        let own = place
            .number
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draws = fastrand::Rng::with_seed(seed ^ own);
        // All draws are made whatever is in force, so that one fault's share does not move the
        // requests that another one strikes.
        let jitter = self.jitter.draw(&mut draws);
        let mut strikes = |share: Share| draws.u32(0..1_000_000) < share.parts_per_million();
        let is_slow = strikes(self.slow.0);
        let is_stalled = strikes(self.stall.0);
        let endings = [
            (strikes(self.reset_request), Ending::ResetRequest),
            (strikes(self.busy), Ending::Busy),
            (strikes(self.reset_answer), Ending::ResetAnswer),
            (strikes(self.reset_body), Ending::ResetBody),
        ];
        let is_struck = self.is_open(place);
        let ending = endings.into_iter().find(|(strikes, _)| *strikes);
        Plan {
            hold: self.delay
                + jitter
                + if is_slow && is_struck {
                    self.slow.1
                } else {
                    Duration::ZERO
                },
            is_slow: is_slow && is_struck,
            stall: (is_stalled && is_struck).then_some(self.stall.1),
            end: match ending {
                Some((_, ending)) if is_struck => ending,
                _ => Ending::Answered,
            },
            place: draws.u64(..),
        }
    }

    /// Whether the window of `after` and `for` is open; `check` has seen to it that both are in
    /// one measure.
    fn is_open(&self, place: Place) -> bool {
        let has_begun = self.after.is_none_or(|after| after.is_past(place));
        let has_ended = self.during.is_some_and(|during| {
            let end = self.after.map_or(during, |after| during.later_than(after));
            end.is_past(place)
        });
        has_begun && !has_ended
    }
}

impl Moment {
    fn is_past(self, place: Place) -> bool {
        match self {
            Self::Requests(requests) => place.requests >= requests,
            Self::Time(time) => place.elapsed >= time,
        }
    }

    /// This much after another moment of the same measure.
    fn later_than(self, begin: Self) -> Self {
        match (self, begin) {
            (Self::Requests(n), Self::Requests(begin)) => Self::Requests(n.saturating_add(begin)),
            (Self::Time(time), Self::Time(begin)) => Self::Time(time.saturating_add(begin)),
            (Self::Requests(_), Self::Time(_)) | (Self::Time(_), Self::Requests(_)) => self,
        }
    }
}

impl Jitter {
    fn draw(self, draws: &mut fastrand::Rng) -> Duration {
        let draw = draws.f64();
        match self {
            Self::None => Duration::ZERO,
            Self::Uniform(most) => most.mul_f64(draw),
            Self::Exponential(mean) => {
                // `draw` is below 1, so that its complement has a logarithm.
                mean.mul_f64((-(1.0 - draw).ln()).min(EXPONENTIAL_MEANS_MAX))
            }
        }
    }
}

/// Reads texts and collects what is wrong with them.
#[derive(Default)]
struct Reader {
    faults: Vec<Fault>,
}

impl Reader {
    fn refuse(&mut self, key: &str, value: &str, allowed: &str, remedy: &str) {
        self.faults.push(Fault {
            key: key.to_owned(),
            value: format!("{value:?}"),
            allowed: allowed.to_owned(),
            remedy: remedy.to_owned(),
        });
    }

    fn time(&mut self, key: &str, text: Option<&String>) -> Option<Duration> {
        let text = text?;
        match parse_time(text) {
            Some(time) if time <= TIME_MAX => Some(time),
            Some(_) => {
                self.refuse(key, text, "0 to 1h", "choose a shorter time");
                None
            }
            None => {
                self.refuse(key, text, TIME_ALLOWED, "write it like 20ms or 1.5s");
                None
            }
        }
    }

    fn rate(&mut self, key: &str, text: Option<&String>) -> Option<u64> {
        let text = text?;
        match parse_size(text) {
            Some(bytes) if bytes >= 1_000 => Some(bytes),
            Some(bytes) => {
                let value = show_size(bytes);
                self.refuse(key, &value, "1KB or more", "leave it out for no limit");
                None
            }
            None => {
                let remedy = "write the bytes per second, like 10MiB";
                self.refuse(key, text, SIZE_ALLOWED, remedy);
                None
            }
        }
    }

    fn workers(&mut self, text: Option<&String>) -> Option<usize> {
        let text = text?;
        let count = text
            .parse()
            .ok()
            .filter(|count| (1..=WORKERS_MAX).contains(count));
        if count.is_none() {
            let allowed = format!("1 to {WORKERS_MAX}");
            self.refuse("workers", text, &allowed, "leave it out for no limit");
        }
        count
    }

    fn share(&mut self, key: &str, text: Option<&String>) -> Share {
        let Some(text) = text else {
            return Share::NONE;
        };
        Share::parse(text).unwrap_or_else(|| {
            self.refuse(key, text, SHARE_ALLOWED, "write it like 5% or 0.1%");
            Share::NONE
        })
    }

    fn moment(&mut self, key: &str, text: Option<&String>) -> Option<Moment> {
        let text = text?;
        let moment = match text.parse() {
            Ok(requests) => Some(Moment::Requests(requests)),
            Err(_) => parse_time(text).map(Moment::Time),
        };
        if moment.is_none() {
            let allowed = "a number of requests, or a time with its unit";
            self.refuse(key, text, allowed, "write it like 100 or 10s");
        }
        moment
    }

    fn jitter(&mut self, shape: Option<&String>, time: Option<Duration>) -> Jitter {
        match (shape.map(String::as_str), time) {
            (None | Some("uniform"), Some(time)) => Jitter::Uniform(time),
            (Some("exponential"), Some(time)) => Jitter::Exponential(time),
            (None | Some("uniform" | "exponential"), None) => Jitter::None,
            (Some(other), _) => {
                let allowed = "uniform, exponential";
                self.refuse("jitter_shape", other, allowed, "choose one of the two");
                Jitter::None
            }
        }
    }
}

#[cfg(test)]
mod tests;
