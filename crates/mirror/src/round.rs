//! One write at all members at once: who has it, when that is enough, and what is owed then.

use std::{collections::HashMap, sync::Arc, time::Duration};

use forebay_store::{Error, Request, Response};
use forebay_telemetry::mirror::WriteResult;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Fuse},
    stream::FuturesUnordered,
};
use http::StatusCode;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use crate::{
    journal::{Held, Subject, Swapped},
    ledger::{self, Plan, Progress, Verdict},
    locks::KeyLock,
    members::{Health, MemberId},
    mirror::Shared,
    send::{self, Sent, Telling},
    tee::Tee,
};

/// Time for which the key stays locked after the acknowledgement, for members that are nearly
/// done: then the entry goes in one step. A later write of the key waits for it.
const GRACE: Duration = Duration::from_millis(250);
/// Tries to write down the end of a member that was late.
const ATTEMPTS_MAX: usize = 8;

type Calls<'a> = FuturesUnordered<BoxFuture<'a, Sent>>;

/// See the module.
pub(crate) struct Round {
    shared: Arc<Shared>,
    subject: Subject,
    plan: Plan,
    /// The entry as this write has left it.
    held: Option<Held>,
    /// By member.
    progress: Vec<Progress>,
    answers: HashMap<MemberId, Result<Response, Error>>,
    /// Why the body ended early.
    body_error: Option<Error>,
    sender: Option<oneshot::Sender<Result<Response, Error>>>,
}

impl Round {
    pub(crate) fn new(
        shared: Arc<Shared>,
        subject: Subject,
        (plan, held): (Plan, Held),
        sender: oneshot::Sender<Result<Response, Error>>,
    ) -> Self {
        let mut progress = vec![Progress::NotSent; shared.members.count()];
        for member in plan.targets.iter() {
            progress[usize::from(member.0)] = Progress::Waiting;
        }
        Self {
            shared,
            subject,
            plan,
            held: Some(held),
            progress,
            answers: HashMap::new(),
            body_error: None,
            sender: Some(sender),
        }
    }

    /// Sends the write, answers the client, and writes down what is owed.
    pub(crate) async fn run(
        mut self,
        (requests, tee): (Vec<(MemberId, Request)>, Option<Tee>),
        telling: Telling,
        locks: Vec<KeyLock>,
    ) {
        let shared = Arc::clone(&self.shared);
        let (given_out, given) = watch::channel(tee.is_none());
        let how = (self.plan.kind, telling);
        let mut calls: Calls<'_> = FuturesUnordered::new();
        for (member, request) in requests {
            let mut given = given.clone();
            let shared = &shared;
            let sent = async move {
                let given = async move {
                    // Who gave the body out is gone when it has been given out.
                    drop(given.wait_for(|is_given| *is_given).await);
                };
                send::write(shared, member, request, how, given).await
            };
            calls.push(sent.boxed());
        }
        let mut giving = async {
            let ended = match tee {
                Some(tee) => tee.run().await,
                None => Ok(()),
            };
            given_out.send_replace(true);
            ended.err()
        }
        .boxed()
        .fuse();
        self.judge().await;
        while self.sender.is_some() {
            tokio::select! {
                biased;
                error = &mut giving => self.body_error = error,
                sent = calls.next() => self.take(sent),
            }
            self.judge().await;
        }
        // A body that streams is given out to the end, for those who have not got all of it yet.
        let deadline = Instant::now() + GRACE;
        let in_time = self.drain(&mut calls, &mut giving, Some(deadline)).await;
        self.write_down().await;
        for lock in locks {
            lock.release().await;
        }
        if in_time {
            return;
        }
        // The entry says already that who has not answered is in doubt.
        let Ok(_late) = shared.late.try_acquire() else {
            for (member, progress) in shared.members.set().iter().zip(&self.progress) {
                if *progress == Progress::Waiting {
                    shared.members.get(member).ended(Health::Failed);
                }
            }
            return;
        };
        self.drain(&mut calls, &mut giving, None).await;
        self.write_down().await;
    }

    /// Waits for those who have not answered, until then; whether all have.
    async fn drain(
        &mut self,
        calls: &mut Calls<'_>,
        giving: &mut Fuse<BoxFuture<'_, Option<Error>>>,
        deadline: Option<Instant>,
    ) -> bool {
        while !calls.is_empty() {
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                error = &mut *giving => self.body_error = error,
                sent = calls.next() => self.take(sent),
                () = late => return false,
            }
        }
        true
    }

    fn take(&mut self, sent: Option<Sent>) {
        let Some(sent) = sent else { return };
        let is_done = matches!(sent.progress, Progress::Done(_));
        let at = usize::from(sent.member.0);
        // Of a body that broke off nobody has the whole.
        let progress = if self.body_error.is_some() && !is_done {
            Progress::NoEffect
        } else {
            sent.progress
        };
        self.progress[at] = progress;
        if let Some(answer) = sent.answer {
            self.answers.insert(sent.member, answer);
        }
    }

    /// Answers the client as soon as it can be answered.
    async fn judge(&mut self) {
        let verdict = ledger::judge(&self.plan, &self.progress, self.shared.now_ms());
        let (result, answer) = match verdict {
            Verdict::Wait => return,
            Verdict::Acknowledge => (WriteResult::Acknowledged, Ok(self.answer())),
            Verdict::SettleAndAcknowledge => match self.settle().await {
                Ok(()) => (WriteResult::Acknowledged, Ok(self.answer())),
                Err(error) => (WriteResult::TooFew, Err(error)),
            },
            Verdict::TooFew | Verdict::Unknown => {
                // What fails here is settled by repair.
                drop(self.settle().await);
                (WriteResult::TooFew, Err(indeterminate()))
            }
            Verdict::Nothing => {
                drop(self.settle().await);
                let answer = self.refusal();
                let is_ours = answer.as_ref().is_err_and(Error::is_retryable);
                let result = if is_ours {
                    WriteResult::NotSent
                } else {
                    WriteResult::Refused
                };
                (result, answer)
            }
        };
        self.shared.metrics.wrote(result);
        if let Some(sender) = self.sender.take() {
            // The client may be gone.
            drop(sender.send(answer));
        }
    }

    /// Writes down what is owed now.
    async fn settle(&mut self) -> Result<(), Error> {
        let Some(held) = &self.held else {
            return Ok(());
        };
        let shared = &self.shared;
        let times = (shared.now_ms(), shared.doubt_ms());
        let next = ledger::after(&self.plan, &self.progress, times);
        if next.as_ref() == Some(&held.entry) {
            return Ok(());
        }
        match shared.change(&self.subject, Some(held), next.clone()).await {
            Ok(Swapped::Done(sequence)) => {
                self.held = next.map(|entry| Held { entry, sequence });
                Ok(())
            }
            // The lease was lost, and another gateway has settled the write.
            Ok(Swapped::Changed) => {
                self.held = None;
                Err(indeterminate())
            }
            Err(_) => Err(indeterminate()),
        }
    }

    /// Writes down what is owed at the end, if nobody else has written since.
    async fn write_down(&mut self) {
        for _ in 0..ATTEMPTS_MAX {
            if self.settle().await.is_ok() {
                break;
            }
        }
        if let Some(held) = &self.held {
            let entry = &held.entry;
            if entry.intent.is_none() {
                self.shared.metrics.partial_writes.inc();
            }
            // What a member that is down owes waits for it.
            let is_for_now = !entry.owing().and(self.shared.members.up()).is_empty();
            if is_for_now || entry.intent.is_some() {
                self.shared.wake.notify_one();
            }
        }
    }

    /// The answer to the client, of a member that has the write.
    fn answer(&mut self) -> Response {
        let having = ledger::having(&self.plan, &self.progress);
        let lead = having.iter().filter(|member| *member == self.plan.lead);
        for member in lead.chain(having.iter()) {
            if let Some(Ok(response)) = self.answers.remove(&member) {
                return response;
            }
        }
        // A delete of what was not there.
        Response::new(StatusCode::NO_CONTENT)
    }

    /// The answer to the client of a write that has changed nothing.
    fn refusal(&mut self) -> Result<Response, Error> {
        if let Some(error) = self.body_error.take() {
            return Err(error);
        }
        let is_refused =
            |member: &MemberId| self.progress[usize::from(member.0)] == Progress::Refused;
        let lead = Some(self.plan.lead).filter(is_refused);
        let first = lead.or_else(|| self.plan.targets.iter().find(is_refused));
        let refused = first.and_then(|member| self.answers.remove(&member));
        refused.unwrap_or(Err(Error::SlowDown { retry_after: None }))
    }
}

fn indeterminate() -> Error {
    Error::Indeterminate {
        elapsed: Duration::ZERO,
    }
}
