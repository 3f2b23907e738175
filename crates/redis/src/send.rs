//! Sends commands to whoever has their slot, and turns what comes back into what callers act on.
//!
//! | what came back | what is done |
//! |---|---|
//! | not sent; the server loads, elects, was demoted | tried again for `retry`; `Unavailable` |
//! | `MOVED`, `ASK` | sent on, at once |
//! | sent, no answer | repeated once where that is harmless; else [`Error::Indeterminate`] |
//! | done, too few replicas have it | [`Error::Indeterminate`] |
//! | `OOM`, too many commands waiting | [`Error::SlowDown`]: the tier writes through |
//! | `NOSCRIPT` | the script's text is sent, which has the server learn it |
//! | denied, or an answer that makes no sense | `Unavailable`, or `Internal` |

use std::{sync::Arc, time::Duration};

use forebay_store::Error;
use prometheus_client::metrics::histogram::Histogram;
use redis::{Pipeline, Value};
use tokio::time::Instant;

use crate::{
    failure::{self, Verdict},
    fleet::Fleet,
    keys::Slot,
    link::NoAnswer,
    node::{Lane, Node},
    script::{By, Call},
    settings::ServerAddress,
};

/// Redirects of one command that are followed at once; more mean that the layout is in motion.
const REDIRECTS_MAX: u32 = 4;
/// Pause between attempts of a command that had no effect.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// What a client is told to wait when the servers have no room: the mover may have made some.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether commands may be sent a second time when nobody knows whether the first had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// They read, or write the same wherever and how often they are done.
    Repeatable,
    /// They must not be done twice.
    Once,
}

/// How commands are sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending<'a> {
    pub(crate) slot: Slot,
    pub(crate) lane: Lane,
    pub(crate) effect: Effect,
    /// Where the time that it took is counted.
    pub(crate) seconds: &'a Histogram,
}

/// Where the next attempt goes.
enum Next {
    Owner,
    Moved(Arc<Node>),
}

/// What an attempt came to, if no answer for the caller.
enum Outcome {
    /// No effect: try again after a pause, and say this when time is up.
    Again(Arc<str>),
    Redirected(Next),
    Failed(Error),
    Unanswered,
}

impl Fleet {
    /// Does what a script does.
    pub(crate) async fn call(&self, sending: Sending<'_>, call: &Call) -> Result<Value, Error> {
        for by in [By::Hash, By::Text] {
            let answer = self.send(sending, &call.command(by)).await?.pop();
            match answer {
                // Answered only to the hash, so this is not the end of the loop.
                Some(Value::ServerError(_)) => {}
                Some(value) => return Ok(value),
                None => break,
            }
        }
        Err(self.nonsense())
    }

    /// Sends commands and returns their answers; of errors only `NOSCRIPT` is among them.
    pub(crate) async fn send(
        &self,
        sending: Sending<'_>,
        commands: &Pipeline,
    ) -> Result<Vec<Value>, Error> {
        let begun = Instant::now();
        let deadline = begun + self.settings().timeouts.retry;
        let (mut next, mut redirects, mut unanswered) = (Next::Owner, 0, 0);
        loop {
            let outcome = match self.attempt(sending, commands, &next, deadline).await {
                Ok(answers) => {
                    sending.seconds.observe(begun.elapsed().as_secs_f64());
                    return Ok(answers);
                }
                Err(outcome) => outcome,
            };
            let failures = &self.metrics().failures;
            next = match outcome {
                Outcome::Redirected(next) if redirects < REDIRECTS_MAX => {
                    self.metrics().redirects.inc();
                    redirects += 1;
                    next
                }
                Outcome::Redirected(_) => {
                    self.pause(deadline, "redirected too often").await?;
                    redirects = 0;
                    Next::Owner
                }
                Outcome::Again(reason) => {
                    self.pause(deadline, &reason).await?;
                    Next::Owner
                }
                Outcome::Unanswered => {
                    failures.unanswered.inc();
                    unanswered += 1;
                    match sending.effect {
                        Effect::Repeatable if unanswered == 1 => Next::Owner,
                        Effect::Repeatable => return Err(unavailable("it does not answer")),
                        Effect::Once => {
                            let elapsed = begun.elapsed();
                            return Err(Error::Indeterminate { elapsed });
                        }
                    }
                }
                Outcome::Failed(error) => return Err(error),
            };
        }
    }

    async fn attempt(
        &self,
        sending: Sending<'_>,
        commands: &Pipeline,
        next: &Next,
        deadline: Instant,
    ) -> Result<Vec<Value>, Outcome> {
        let owner = || {
            self.trouble();
            Outcome::Again("nobody has the slot".into())
        };
        let node = match next {
            Next::Owner => self.node_of(sending.slot).ok_or_else(owner)?,
            Next::Moved(node) => Arc::clone(node),
        };
        let mut answers = self.exchange(&node, sending, commands, deadline).await?;
        // The slot is on its way, and each of its keys is either here or there: what was answered
        // here stands, and only what is not here is asked for there.
        if let Some(there) = self.asked_elsewhere(&node, &answers) {
            self.metrics().redirects.inc();
            let mut asking = Pipeline::new();
            for (place, command) in commands.cmd_iter().enumerate() {
                if asked_at(&node, &answers[place]).as_ref() == Some(&there.address) {
                    asking.cmd("ASKING");
                    asking.add_command(command.clone());
                }
            }
            let found = self.exchange(&there, sending, &asking, deadline).await?;
            let mut found = found.into_iter().skip(1).step_by(2);
            for answer in &mut answers {
                if asked_at(&node, answer).as_ref() == Some(&there.address) {
                    *answer = found.next().unwrap_or(Value::Nil);
                }
            }
        }
        if answers
            .iter()
            .any(|answer| asked_at(&node, answer).is_some())
        {
            return Err(Outcome::Again("the slot moves on".into()));
        }
        Ok(answers)
    }

    /// The server at which the first of the commands that are not answered here is to be asked.
    fn asked_elsewhere(&self, here: &Node, answers: &[Value]) -> Option<Arc<Node>> {
        let address = answers.iter().find_map(|answer| asked_at(here, answer))?;
        Some(self.node_at(&address))
    }

    /// Sends commands to a server. All are for one slot, so the first error that says anything
    /// speaks for all; only `ASK` and `NOSCRIPT` say something of one command.
    async fn exchange(
        &self,
        node: &Node,
        sending: Sending<'_>,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, Outcome> {
        let answers = node.exchange(sending.lane, commands, deadline).await;
        let answers = answers.map_err(|no_answer| self.unanswered(no_answer))?;
        for answer in &answers {
            let Value::ServerError(error) = answer else {
                continue;
            };
            let failures = &self.metrics().failures;
            let outcome = match failure::judge(error) {
                Verdict::NoScript | Verdict::Ask(_) => continue,
                Verdict::Moved(_, to) => {
                    self.trouble();
                    Outcome::Redirected(Next::Moved(self.node_at(&to.address(&node.address))))
                }
                Verdict::Wait | Verdict::Unsafe => Outcome::Again(error.code().into()),
                Verdict::Demoted => {
                    self.trouble();
                    Outcome::Again("it is no master any more".into())
                }
                Verdict::Full => {
                    failures.full.inc();
                    let retry_after = Some(FULL_RETRY_AFTER);
                    Outcome::Failed(Error::SlowDown { retry_after })
                }
                Verdict::Denied => {
                    failures.denied.inc();
                    tracing::error!(server = %node.address, %error, "Redis denied a command");
                    Outcome::Failed(unavailable("it denied a command"))
                }
                Verdict::Fault => {
                    failures.fault.inc();
                    Outcome::Failed(Error::internal("ask Redis", error.to_string()))
                }
            };
            return Err(outcome);
        }
        Ok(answers)
    }

    fn unanswered(&self, no_answer: NoAnswer) -> Outcome {
        let failures = &self.metrics().failures;
        match no_answer {
            NoAnswer::NotSent(reason) => {
                self.trouble();
                Outcome::Again(reason)
            }
            NoAnswer::Busy => {
                failures.busy.inc();
                Outcome::Failed(Error::SlowDown { retry_after: None })
            }
            NoAnswer::Unanswered => Outcome::Unanswered,
            NoAnswer::NotReplicated => {
                failures.replicas.inc();
                let elapsed = self.settings().timeouts.replicate;
                Outcome::Failed(Error::Indeterminate { elapsed })
            }
        }
    }

    /// Lets some time pass before another attempt.
    async fn pause(&self, deadline: Instant, reason: &str) -> Result<(), Error> {
        let pause = RETRY_PAUSE.mul_f64(0.5 + fastrand::f64());
        if Instant::now() + pause >= deadline {
            self.metrics().failures.unavailable.inc();
            return Err(unavailable(reason));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// An answer of a kind that the command does not have.
    pub(crate) fn nonsense(&self) -> Error {
        self.metrics().failures.fault.inc();
        Error::internal("ask Redis", "it answered in another way than it does")
    }

    /// Bytes that are not what was written.
    pub(crate) fn damaged(&self) -> Error {
        self.metrics().failures.damaged.inc();
        Error::internal("read from Redis", "what it keeps is damaged")
    }
}

/// Where a command is to be asked instead, as an answer says.
fn asked_at(here: &Node, answer: &Value) -> Option<ServerAddress> {
    let Value::ServerError(error) = answer else {
        return None;
    };
    match failure::judge(error) {
        Verdict::Ask(to) => Some(to.address(&here.address)),
        Verdict::Moved(..)
        | Verdict::NoScript
        | Verdict::Wait
        | Verdict::Demoted
        | Verdict::Full
        | Verdict::Unsafe
        | Verdict::Denied
        | Verdict::Fault => None,
    }
}

fn unavailable(reason: &str) -> Error {
    Error::Unavailable {
        reason: format!("Redis: {reason}").into(),
    }
}
