//! Sends one request after another on one connection, and counts what comes of each.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use forebay_s3::uri::encode_query;
use tokio::time::{Instant, sleep};

use super::{
    Live, Times, Verify,
    known::KnownTags,
    multipart,
    pace::{Pace, Ticket},
    tally::{Success, Tally},
};
use crate::{
    content::Content,
    sign::{Asked, HeadWriter, Verb},
    wire::{
        Body, Connection, Exchanged, Head, Outgoing, Scheme, Sink, WireError,
        answer::Expects,
        redis::{put_command, put_set},
    },
    workload::{Object, Operation, Plan, Step},
};

/// Rest after a failed connection, so that a refusing endpoint isn't asked a hundred thousand times
/// a second.
const REST: Duration = Duration::from_millis(100);
/// A worker ends when nothing but broken connections came for this many timeouts.
const SILENT_TIMEOUTS_MAX: u32 = 3;

/// What sends; on one connection, or on as many as an upload has parts in flight.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: u32,

    pub(crate) heads: Rc<RefCell<HeadWriter>>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) pace: Rc<Pace>,
    pub(crate) tally: Rc<RefCell<Tally>>,
    pub(crate) live: Arc<Live>,
    pub(crate) verify: Verify,
    /// Where requests say which version they know already.
    pub(crate) known: Option<Rc<RefCell<KnownTags>>>,
    pub(crate) scheme: Scheme,
    pub(crate) times: Times,
    pub(crate) silence: Duration,
}

/// What came of a request.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Done {
        exchanged: Exchanged,
        /// Bytes of objects in either direction.
        bytes: u64,
    },
    /// The endpoint answered something else.
    Refused { name: Box<str> },
    /// There was no answer.
    Broken(WireError),
}

impl Worker {
    /// Sends until the pace or the plan ends.
    pub(crate) async fn run(self, mut connections: Vec<Connection>) {
        let mut memory = self.plan.memory(self.number);
        let mut head = Vec::with_capacity(1024);
        let mut now = Instant::now();
        if now < self.times.begin {
            tokio::time::sleep_until(self.times.begin).await;
            now = Instant::now();
        }
        let mut broken_since = None;
        while let Some(ticket) = self.pace.next(now).await {
            // What is asked for by number is what counts, so the warm-up takes none.
            if now >= self.times.measure && !self.plan.take() {
                return;
            }
            let Some(step) = self.plan.next(&mut memory) else {
                return;
            };
            let (started, fate) = self
                .perform(&step, ticket, (&mut connections, &mut head))
                .await;
            now = self.count(step.operation, started, &fate);
            match fate {
                Fate::Done { .. } | Fate::Refused { .. } => broken_since = None,
                Fate::Broken(_) => {
                    let since = *broken_since.get_or_insert(started);
                    if now.saturating_duration_since(since) > self.silence * SILENT_TIMEOUTS_MAX {
                        return;
                    }
                    sleep(REST).await;
                    now = Instant::now();
                }
            }
        }
    }

    async fn perform(
        &self,
        step: &Step,
        ticket: Ticket,
        (connections, head): (&mut [Connection], &mut Vec<u8>),
    ) -> (Instant, Fate) {
        if step.operation == Operation::Multipart {
            return multipart::upload(self, step, ticket, connections).await;
        }
        let object = self.plan.objects.get(step.object);
        let body = match step.operation {
            Operation::Put => Body::Content {
                content: object.content,
                start: 0,
                len_bytes: object.size_bytes.unwrap_or(0),
            },
            _ => Body::None,
        };
        let mut check = Check::new(step, object, self.verify);
        let tail: &[u8] = match self.scheme {
            Scheme::Http | Scheme::Https => {
                self.write_head(step, object, &body, head);
                if let Some(known) = self.known_tags(step) {
                    let is_sent = known.borrow().write_condition(step.object, head);
                    check.condition = if is_sent {
                        Condition::Sent
                    } else {
                        Condition::Wanted { tag: None }
                    };
                }
                b""
            }
            Scheme::Redis => write_command(step.operation, object, &body, head),
        };
        let expects = match step.operation {
            Operation::Head => Expects::HeadOnly,
            _ => Expects::Body,
        };
        let request = Outgoing {
            head,
            body,
            tail,
            expects,
        };
        let started = match ticket {
            Ticket::Free => Instant::now(),
            Ticket::Due(due) => due,
        };
        let connection = &mut connections[0];
        let exchanged = connection.exchange(&request, &mut check).await;
        let sent_bytes = body.len_bytes();
        let fate = self.judge(exchanged, connection, &check, sent_bytes);
        if let (Some(known), Condition::Wanted { tag: Some(tag) }, Fate::Done { .. }) =
            (self.known_tags(step), &check.condition, &fate)
        {
            known.borrow_mut().learn(step.object, tag);
        }
        (started, fate)
    }

    /// What is known of objects, where the step may say so.
    fn known_tags(&self, step: &Step) -> Option<&RefCell<KnownTags>> {
        match step.operation {
            Operation::Get | Operation::Head => self.known.as_deref(),
            Operation::Put
            | Operation::Delete
            | Operation::List
            | Operation::Multipart
            | Operation::Part => None,
        }
    }

    fn write_head(&self, step: &Step, object: &Object, body: &Body<'_>, head: &mut Vec<u8>) {
        let mut heads = self.heads.borrow_mut();
        if step.operation == Operation::List {
            let path = format!("/{}", self.plan.objects.bucket());
            let prefix = encode_query(object.folder());
            let query = format!("list-type=2&max-keys=1000&prefix={prefix}");
            let asked = Asked {
                verb: Verb::Get,
                path: &path,
                query: Some(&query),
                range: None,
                slot: None,
            };
            heads.write(head, &asked, body);
            return;
        }
        let verb = match step.operation {
            Operation::Get | Operation::List => Verb::Get,
            Operation::Head => Verb::Head,
            Operation::Put | Operation::Part => Verb::Put,
            Operation::Delete => Verb::Delete,
            Operation::Multipart => Verb::Post,
        };
        let asked = Asked {
            verb,
            path: &object.path,
            query: None,
            range: step.range,
            slot: u32::try_from(step.object).ok(),
        };
        heads.write(head, &asked, body);
    }

    /// Says what an answer is worth.
    pub(crate) fn judge(
        &self,
        exchanged: Result<Exchanged, WireError>,
        connection: &Connection,
        check: &Check,
        sent_bytes: u64,
    ) -> Fate {
        let exchanged = match exchanged {
            Ok(exchanged) => exchanged,
            Err(error) => return Fate::Broken(error),
        };
        if check.is_unchanged(&exchanged) {
            let bytes = 0;
            return Fate::Done { exchanged, bytes };
        }
        if !exchanged.is_success() {
            let name = refusal_name(self.scheme, exchanged.status, connection.error_body());
            return Fate::Refused { name };
        }
        if let Some(name) = check.fault(&exchanged) {
            return Fate::Refused { name: name.into() };
        }
        let received_bytes = if check.is_object {
            exchanged.body_bytes
        } else {
            0
        };
        Fate::Done {
            exchanged,
            bytes: sent_bytes + received_bytes,
        }
    }

    /// Counts a request; gives when it ended.
    pub(crate) fn count(&self, operation: Operation, started: Instant, fate: &Fate) -> Instant {
        let mut tally = self.tally.borrow_mut();
        match fate {
            Fate::Done { exchanged, bytes } => {
                let success = Success {
                    operation,
                    started,
                    first_byte: exchanged.first_byte,
                    done: exchanged.done,
                    bytes: *bytes,
                };
                if tally.succeeded(&success) && operation.is_whole() {
                    self.live.add(1, *bytes, 0);
                }
                exchanged.done
            }
            Fate::Refused { .. } | Fate::Broken(_) => {
                let name = match fate {
                    Fate::Refused { name } => name,
                    Fate::Broken(error) => error.name(),
                    Fate::Done { .. } => unreachable!("handled above"),
                };
                let now = Instant::now();
                if tally.failed(operation, (started, now), name) && operation.is_whole() {
                    self.live.add(0, 0, 1);
                }
                now
            }
        }
    }
}

/// A command of Redis, and what follows its value.
fn write_command(
    operation: Operation,
    object: &Object,
    body: &Body<'_>,
    head: &mut Vec<u8>,
) -> &'static [u8] {
    head.clear();
    match operation {
        Operation::Put | Operation::Part | Operation::Multipart => {
            put_set(head, &object.key, body.len_bytes());
            b"\r\n"
        }
        Operation::Get | Operation::List => {
            put_command(head, &["GET", &object.key]);
            b""
        }
        Operation::Head => {
            put_command(head, &["STRLEN", &object.key]);
            b""
        }
        Operation::Delete => {
            put_command(head, &["DEL", &object.key]);
            b""
        }
    }
}

/// What a refusal is counted as: S3's code, or the status where the body has none.
pub(crate) fn refusal_name(scheme: Scheme, status: u16, body: &[u8]) -> Box<str> {
    if scheme == Scheme::Redis {
        let text = String::from_utf8_lossy(body);
        let word = text.trim_start_matches('-').split_whitespace().next();
        return match (status, word) {
            (404, _) => "NoSuchKey".into(),
            (_, Some(word)) => word.into(),
            (_, None) => "RedisError".into(),
        };
    }
    match code_of(body) {
        Some(code) => code.into(),
        None => format!("Http{status}").into(),
    }
}

/// The text of `<Code>` in an error document.
fn code_of(body: &[u8]) -> Option<&str> {
    const CODE_CHARS_MAX: usize = 64;
    let text = match str::from_utf8(body) {
        Ok(text) => text,
        // The kept beginning may end within a character.
        Err(error) => str::from_utf8(&body[..error.valid_up_to()]).ok()?,
    };
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_code = (1..=CODE_CHARS_MAX).contains(&code.len())
        && code
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    is_code.then_some(code)
}

/// Looks at an answer as it comes.
#[derive(Debug)]
pub(crate) struct Check {
    content: Content,
    verify: Verify,
    /// Whether the body is an object's bytes.
    is_object: bool,
    at: u64,
    is_different: bool,
    /// Bytes that a whole answer has, where that is known.
    expected_bytes: Option<u64>,
    is_partial_expected: bool,
    status: u16,
    condition: Condition,
}

/// What a request and its answer say of versions.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    /// Nothing.
    None,
    /// The answer's tag is to be remembered.
    Wanted { tag: Option<Box<[u8]>> },
    /// Only a version other than the known one was asked for; objects don't change during a load.
    Sent,
}

impl Check {
    fn new(step: &Step, object: &Object, verify: Verify) -> Self {
        let is_object = step.operation == Operation::Get;
        let expected_bytes = match step.range {
            Some((first, last)) => Some(last + 1 - first),
            None => object.size_bytes,
        };
        Self {
            content: object.content,
            verify,
            is_object,
            at: step.range.map_or(0, |(first, _)| first),
            is_different: false,
            expected_bytes: expected_bytes.filter(|_| is_object),
            is_partial_expected: step.range.is_some(),
            status: 200,
            condition: Condition::None,
        }
    }

    /// For answers of which nothing but the status counts.
    pub(crate) fn of_nothing() -> Self {
        Self {
            content: Content::of(""),
            verify: Verify::LengthOnly,
            is_object: false,
            at: 0,
            is_different: false,
            expected_bytes: None,
            is_partial_expected: false,
            status: 200,
            condition: Condition::None,
        }
    }

    /// Whether the answer says that the known version is the current one.
    fn is_unchanged(&self, exchanged: &Exchanged) -> bool {
        self.condition == Condition::Sent && exchanged.status == 304
    }

    /// What is wrong with an answer that said it was a success.
    fn fault(&self, exchanged: &Exchanged) -> Option<&'static str> {
        if self.condition == Condition::Sent {
            return Some("ConditionIgnored");
        }
        if self.is_partial_expected && self.status != 206 {
            return Some("RangeIgnored");
        }
        if self.is_different {
            return Some("WrongBytes");
        }
        let expected = self.expected_bytes?;
        (exchanged.body_bytes != expected).then_some("WrongLength")
    }
}

impl Sink for Check {
    fn head(&mut self, head: &Head<'_>) {
        self.status = head.status;
        if let Condition::Wanted { tag } = &mut self.condition {
            *tag = head.header("etag").map(Into::into);
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.verify == Verify::EachByte && self.is_object && !self.is_different {
            self.is_different = self.content.first_difference(self.at, bytes).is_some();
            self.at += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_code() {
        let xml = b"<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>no</Message>";
        for (scheme, status, body, name) in [
            (Scheme::Http, 503, &xml[..], "SlowDown"),
            (Scheme::Http, 502, b"<html>Bad Gateway</html>", "Http502"),
            (Scheme::Http, 404, b"", "Http404"),
            (Scheme::Http, 400, b"<Code>a b</Code>", "Http400"),
            (Scheme::Http, 400, b"<Code>Late</Code>\xc3", "Late"),
            (Scheme::Redis, 404, b"$-1\r\n", "NoSuchKey"),
            (Scheme::Redis, 400, b"-OOM command not allowed\r\n", "OOM"),
        ] {
            assert_eq!(&*refusal_name(scheme, status, body), name);
        }
    }
}
