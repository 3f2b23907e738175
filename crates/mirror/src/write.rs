//! Writes of one key: an intent in the journal, the request at all members, the answer when enough
//! have it, and what is owed after it.
//!
//! A write is a task of its own, so that a client which hangs up does not leave it half done. A
//! payload that fits [`WHOLE_BYTES_MAX`] is read before the key is locked; a longer one streams to
//! all members through a [`Tee`] while the key is locked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_native::{
    gate::{Act, Gate},
    hot::HotKey,
};
use forebay_s3::{code::Code, etag::ETag};
use forebay_store::{Body, Error, Request, Reservation, Response};
use forebay_telemetry::mirror::WriteResult;
use http::{HeaderMap, HeaderName, header};
use tokio::sync::oneshot;

use crate::{
    journal::{Held, Subject, Swapped, WriteKind},
    ledger::{self, NoPlan, Plan},
    locks::KeyLock,
    members::{MemberId, MemberSet},
    mirror::Shared,
    request::{Head, take_checksums},
    round::Round,
    send::Telling,
    settle,
    tee::{Tee, WINDOW_BYTES_MAX},
};

/// Payloads up to so many bytes are read before anything else is done.
const WHOLE_BYTES_MAX: u64 = WINDOW_BYTES_MAX;
/// Tries to write an intent over what others change.
const ATTEMPTS_MAX: usize = 8;
/// Time between two of them.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Headers of a copy that say what must hold of its source, and what a HEAD calls them.
const SOURCE_CONDITIONS: [(&str, HeaderName); 4] = [
    ("x-amz-copy-source-if-match", header::IF_MATCH),
    ("x-amz-copy-source-if-none-match", header::IF_NONE_MATCH),
    (
        "x-amz-copy-source-if-modified-since",
        header::IF_MODIFIED_SINCE,
    ),
    (
        "x-amz-copy-source-if-unmodified-since",
        header::IF_UNMODIFIED_SINCE,
    ),
];

/// What is written.
#[derive(Debug, Clone)]
pub(crate) struct What {
    /// The key.
    pub(crate) key: HotKey,
    pub(crate) kind: WriteKind,
    /// The key that is copied from.
    pub(crate) source: Option<HotKey>,
    /// Of the completion of an upload: by which id each member knows it.
    pub(crate) uploads: Option<Arc<BTreeMap<MemberId, String>>>,
}

/// A write that is under way.
struct Write {
    shared: Arc<Shared>,
    what: What,
    subject: Subject,
    head: Head,
    gate: Gate,
}

/// What a write sends to each member.
pub(crate) enum Payload {
    /// These bytes.
    Whole(Bytes),
    /// A body that streams.
    Stream(Body),
}

/// Writes a key at all members.
///
/// # Cancel safety
/// The write goes on when the future is dropped.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    request: Request,
    what: What,
) -> Result<Response, Error> {
    let gate = Gate::from_headers(&request.headers)?;
    let (head, body) = Head::split(request);
    let write = Write {
        shared: Arc::clone(shared),
        subject: Subject::Object(what.key.clone()),
        what,
        head,
        gate,
    };
    let (sender, receiver) = oneshot::channel();
    shared.tasks.run(write.run(body, sender));
    receiver.await.unwrap_or(Err(Error::Indeterminate {
        elapsed: Duration::ZERO,
    }))
}

/// Room for a payload, and the payload.
pub(crate) async fn take_payload(
    shared: &Shared,
    head: &mut Head,
    body: Body,
) -> Result<(Payload, Reservation), Error> {
    let length = body.length().unwrap_or(u64::MAX);
    let room = shared.budget.reserve(length.min(WHOLE_BYTES_MAX)).await?;
    if length > WHOLE_BYTES_MAX {
        return Ok((Payload::Stream(body), room));
    }
    let bytes_max = usize::try_from(WHOLE_BYTES_MAX).unwrap_or(usize::MAX);
    let (bytes, trailers) = body.collect(bytes_max).await?;
    take_checksums(&mut head.headers, trailers);
    let length = header::HeaderValue::from(bytes.len());
    if !bytes.is_empty() || head.headers.contains_key(header::CONTENT_LENGTH) {
        head.headers.insert(header::CONTENT_LENGTH, length);
    }
    Ok((Payload::Whole(bytes), room))
}

impl Write {
    async fn run(mut self, body: Body, sender: oneshot::Sender<Result<Response, Error>>) {
        match self.prepare(body).await {
            Ok((locks, plan, held, (payload, room))) => {
                if !locks.iter().all(KeyLock::is_held) {
                    // Another gateway settles it, and finds that nothing was sent.
                    self.shared.metrics.wrote(WriteResult::NotSent);
                    drop(sender.send(Err(Error::SlowDown { retry_after: None })));
                    return;
                }
                let shared = Arc::clone(&self.shared);
                let timeout = shared.settings.attempt_timeout;
                let (requests, tee) =
                    payload.requests(plan.targets, |member| self.head_for(member), timeout);
                let round = Round::new(shared, self.subject.clone(), (plan, held), sender);
                round.run((requests, tee), self.telling(), locks).await;
                drop(room);
            }
            Err(error) => {
                let result = match &error {
                    Error::Refused(_) | Error::ClientGone | Error::Cut { .. } => {
                        WriteResult::Refused
                    }
                    Error::SlowDown { .. }
                    | Error::Unavailable { .. }
                    | Error::Indeterminate { .. }
                    | Error::Internal { .. } => WriteResult::NotSent,
                };
                self.shared.metrics.wrote(result);
                // The client may be gone.
                drop(sender.send(Err(error)));
            }
        }
    }

    /// All that comes before the first member is asked: the intent is durable at its end.
    async fn prepare(
        &mut self,
        body: Body,
    ) -> Result<(Vec<KeyLock>, Plan, Held, (Payload, Reservation)), Error> {
        let payload = take_payload(&self.shared, &mut self.head, body).await?;
        let mut subjects = vec![self.subject.clone()];
        subjects.extend(self.what.source.clone().map(Subject::Object));
        let locks = self.shared.locks.lock_all(&subjects).await;
        let locks = locks.map_err(|error| self.shared.journal_failed(error))?;
        for _ in 0..ATTEMPTS_MAX {
            let able = self.able().await?;
            let (plan, held) = self.plan(able).await?;
            self.judge(&plan).await?;
            self.judge_source(able).await?;
            let intent = Some(plan.entry.clone());
            match self
                .shared
                .change(&self.subject, held.as_ref(), intent)
                .await
            {
                Ok(Swapped::Done(sequence)) => {
                    let entry = plan.entry.clone();
                    return Ok((locks, plan, Held { entry, sequence }, payload));
                }
                // The end of an earlier write of this key was written down meanwhile.
                Ok(Swapped::Changed) => tokio::time::sleep(AGAIN_AFTER / 10).await,
                // Nothing was sent, so nothing has happened, whether the intent is there or not.
                Err(_) => {
                    return Err(Error::Unavailable {
                        reason: "the mirror's journal takes no writes".into(),
                    });
                }
            }
        }
        Err(Error::SlowDown {
            retry_after: Some(AGAIN_AFTER),
        })
    }

    /// What a member is sent besides the body.
    fn head_for(&self, member: MemberId) -> Head {
        let ids = self.what.uploads.as_ref();
        match ids.and_then(|ids| ids.get(&member)) {
            Some(id) => self.head.for_upload(id),
            None => self.head.clone(),
        }
    }

    /// How the answer says whether the write happened.
    fn telling(&self) -> Telling {
        if self.what.source.is_some() || self.what.uploads.is_some() {
            Telling::Body
        } else {
            Telling::Status
        }
    }

    /// Members that can take the write.
    async fn able(&self) -> Result<MemberSet, Error> {
        let standings = self.shared.standings();
        if let Some(ids) = &self.what.uploads {
            return Ok(ids.keys().copied().collect());
        }
        let Some(source) = &self.what.source else {
            return Ok(standings.all);
        };
        let subject = Subject::Object(source.clone());
        let held = settled(&self.shared, &subject).await?;
        let current = held.map(|held| held.entry.current(standings.all));
        Ok(current.unwrap_or(standings.all).and(standings.known))
    }

    async fn plan(&self, able: MemberSet) -> Result<(Plan, Option<Held>), Error> {
        let shared = &self.shared;
        let held = settled(shared, &self.subject).await?;
        let standings = shared.standings();
        let first = shared.members.by_promise(standings.up);
        let entry = held.as_ref().map(|held| &held.entry);
        let now = (&first[..], shared.now_ms());
        match ledger::plan(entry, self.what.kind, standings, able, now) {
            Ok(plan) => Ok((plan, held)),
            Err(no_plan) => {
                shared.wake.notify_one();
                Err(cannot(no_plan))
            }
        }
    }

    /// Judges the conditions of the write on a member that has the last state; they are not sent
    /// on then, as members that differ in the least would disagree.
    async fn judge(&mut self, plan: &Plan) -> Result<(), Error> {
        if self.gate.is_open() {
            return Ok(());
        }
        let object = self.what.key.object();
        let found = self.look(plan.voters, |shared, member| {
            let (shared, object) = (Arc::clone(shared), object.clone());
            async move {
                let store = &*shared.members.get(member).store;
                shared.copier.look(store, &object).await
            }
        });
        let found = found.await?;
        let etag = found.map(|found| ETag::parse(&found.etag)).transpose();
        let etag = etag.map_err(|error| Error::internal("read a member's tag", error))?;
        let act = match self.what.kind {
            WriteKind::Delete => Act::Delete,
            WriteKind::Put | WriteKind::Retag => Act::Write,
        };
        self.gate.check(act, &self.what.key.key, etag.as_ref())?;
        self.head.headers.remove(header::IF_MATCH);
        self.head.headers.remove(header::IF_NONE_MATCH);
        Ok(())
    }

    /// Judges what a copy says of its source, likewise.
    async fn judge_source(&mut self, able: MemberSet) -> Result<(), Error> {
        let Some(source) = &self.what.source else {
            return Ok(());
        };
        let mut conditions = HeaderMap::new();
        for (name, of_head) in SOURCE_CONDITIONS {
            if let Some(value) = self.head.headers.get(name) {
                conditions.insert(of_head, value.clone());
            }
        }
        if conditions.is_empty() {
            return Ok(());
        }
        let object = source.object();
        let judged = self.look(able, |shared, member| {
            let mut request = shared
                .copier
                .asker()
                .head(crate::ask::whole(object.clone()), "");
            request.headers.extend(conditions.clone());
            let shared = Arc::clone(shared);
            async move {
                let store = Arc::clone(&shared.members.get(member).store);
                match shared.copier.asker().ask(&*store, request).await {
                    Ok(_) => Ok(true),
                    // Of a source that is not there the members tell themselves.
                    Err(trouble) if trouble.is_absent() => Ok(true),
                    Err(crate::ask::Trouble::Refused(..)) => Ok(false),
                    Err(trouble) => Err(trouble),
                }
            }
        });
        if !judged.await? {
            return Err(Error::refused(Code::PreconditionFailed));
        }
        for (name, _) in SOURCE_CONDITIONS {
            self.head.headers.remove(name);
        }
        Ok(())
    }

    /// Asks one of these members after the other until one answers.
    async fn look<T, F>(
        &self,
        members: MemberSet,
        ask: impl Fn(&Arc<Shared>, MemberId) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, crate::ask::Trouble>>,
    {
        let shared = &self.shared;
        let up = members.and(shared.members.up());
        for member in shared.members.by_promise(up) {
            match ask(shared, member).await {
                Ok(found) => return Ok(found),
                Err(trouble) => {
                    let name = &shared.members.get(member).name;
                    tracing::debug!(member = name, %trouble, "a condition could not be judged");
                }
            }
        }
        Err(Error::Unavailable {
            reason: "no member can judge the condition".into(),
        })
    }
}

/// The entry of a subject, settled if it was not; the caller has its lock.
pub(crate) async fn settled(shared: &Shared, subject: &Subject) -> Result<Option<Held>, Error> {
    match shared.held(subject).await? {
        Some(held) if held.entry.intent.is_some() => settle::settle(shared, subject, &held).await,
        held => Ok(held),
    }
}

/// Why a write can't be sent, for the client.
pub(crate) fn cannot(no_plan: NoPlan) -> Error {
    let reason = match no_plan {
        NoPlan::Unsettled => "an earlier write of the key is not settled",
        NoPlan::NobodyCurrent => "no member that has the last state is up",
        NoPlan::TooFew => "too few members are up for a write",
    };
    Error::Unavailable {
        reason: reason.into(),
    }
}

impl Payload {
    /// What each of these members is sent, and what gives a body that streams out to them.
    pub(crate) fn requests(
        self,
        members: MemberSet,
        head_for: impl Fn(MemberId) -> Head,
        alone_max: Duration,
    ) -> (Vec<(MemberId, Request)>, Option<Tee>) {
        let count = members.count();
        let (bodies, tee) = match self {
            Self::Whole(bytes) => {
                let bodies = std::iter::repeat_n(bytes, count).map(Body::from);
                (bodies.collect::<Vec<_>>(), None)
            }
            Self::Stream(body) => {
                let (tee, bodies) = Tee::new(body, count, alone_max);
                (bodies, Some(tee))
            }
        };
        let requests = members
            .iter()
            .zip(bodies)
            .map(|(member, body)| (member, head_for(member).with(body)));
        (requests.collect(), tee)
    }
}
