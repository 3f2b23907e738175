//! An upload in parts: create, several parts at once, complete; if anything fails, abort.

use std::{cell::Cell, fmt::Write as _, future::Future, pin::Pin, task::Poll};

use tokio::time::Instant;

use super::{
    pace::Ticket,
    worker::{Check, Fate, Worker},
};
use crate::{
    sign::{Asked, Verb},
    wire::{Body, Connection, Exchanged, Head, Outgoing, Sink, WireError, answer::Expects},
    workload::{Action, Object, Operation, Step},
};

/// Most parts of an upload, as S3 has it.
const PARTS_MAX: u64 = 10_000;

/// Performs one upload; its latency is that of the whole.
pub(crate) async fn upload(
    worker: &Worker,
    step: &Step,
    ticket: Ticket,
    connections: &mut [Connection],
) -> (Instant, Fate) {
    let started = match ticket {
        Ticket::Free => Instant::now(),
        Ticket::Due(due) => due,
    };
    let object = worker.plan.objects.get(step.object);
    let upload_id = match create(worker, object, &mut connections[0]).await {
        Ok(upload_id) => upload_id,
        Err(fate) => return (started, fate),
    };
    let (fate, is_complete) = match send_parts(worker, object, &upload_id, connections).await {
        Ok(tags) => complete(worker, object, (&upload_id, &tags), &mut connections[0]).await,
        Err(fate) => (fate, false),
    };
    if !is_complete {
        let query = format!("uploadId={upload_id}");
        let asked = (Verb::Delete, object, &*query);
        // The upload has failed already; what becomes of its rest changes no figure.
        let _ = ask(worker, asked, &Body::None, &mut connections[0]).await;
    }
    (started, fate)
}

/// What an answer in an upload held.
#[derive(Debug, Default)]
struct Held {
    tag: Option<String>,
    body: Vec<u8>,
}

/// Longest body of these answers that is read.
const BODY_BYTES_MAX: usize = 16 * 1024;

impl Sink for Held {
    fn head(&mut self, head: &Head<'_>) {
        self.tag = head
            .header("etag")
            .map(|tag| String::from_utf8_lossy(tag).into_owned());
    }

    fn body(&mut self, bytes: &[u8]) {
        let room = BODY_BYTES_MAX.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Held {
    fn element(&self, name: &str) -> Option<&str> {
        let text = str::from_utf8(&self.body).ok()?;
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    }
}

async fn ask(
    worker: &Worker,
    (verb, object, query): (Verb, &Object, &str),
    body: &Body<'_>,
    connection: &mut Connection,
) -> Result<(Exchanged, Held), Fate> {
    let mut head = Vec::new();
    let asked = Asked {
        verb,
        path: &object.path,
        query: Some(query),
        range: None,
        slot: None,
    };
    worker.heads.borrow_mut().write(&mut head, &asked, body);
    let request = Outgoing {
        head: &head,
        body: *body,
        tail: b"",
        expects: Expects::Body,
    };
    let mut taken = Held::default();

    let exchanged = connection.exchange(&request, &mut taken).await;
    match worker.judge(exchanged, connection, &Check::of_nothing(), 0) {
        Fate::Done { exchanged, .. } => Ok((exchanged, taken)),
        fate => Err(fate),
    }
}

async fn create(
    worker: &Worker,
    object: &Object,
    connection: &mut Connection,
) -> Result<String, Fate> {
    let asked = (Verb::Post, object, "uploads=");
    let (_, taken) = ask(worker, asked, &Body::None, connection).await?;
    let id = taken.element("UploadId").map(forebay_s3::uri::encode_query);
    id.map(std::borrow::Cow::into_owned)
        .ok_or(Fate::Broken(WireError::MalformedAnswer("no UploadId")))
}

/// Sends all parts, on as many connections as there are; gives their tags in order.
async fn send_parts(
    worker: &Worker,
    object: &Object,
    upload_id: &str,
    connections: &mut [Connection],
) -> Result<Vec<String>, Fate> {
    let Action::Multipart { part_bytes, .. } = worker.plan.action else {
        unreachable!("only this action has uploads")
    };
    let size_bytes = object.size_bytes.unwrap_or(part_bytes);
    let count = size_bytes.div_ceil(part_bytes).clamp(1, PARTS_MAX);
    let next = Cell::new(0);
    let senders = connections.iter_mut().map(|connection| {
        let next = &next;
        async move {
            let mut tags = Vec::new();
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                let start = number * part_bytes;
                let body = Body::Content {
                    content: object.content,
                    start,
                    len_bytes: part_bytes.min(size_bytes - start),
                };
                let query = format!("partNumber={}&uploadId={upload_id}", number + 1);
                let tag = send_part(worker, (object, &query), &body, connection).await;
                if tag.is_err() {
                    // The others need not begin what will be aborted.
                    next.set(count);
                }
                tags.push((number, tag?));
            }
            Ok(tags)
        }
    });
    let mut tags = Vec::new();
    for sent in all(senders).await {
        tags.extend(sent?);
    }
    tags.sort_unstable_by_key(|(number, _)| *number);
    Ok(tags.into_iter().map(|(_, tag)| tag).collect())
}

async fn send_part(
    worker: &Worker,
    (object, query): (&Object, &str),
    body: &Body<'_>,
    connection: &mut Connection,
) -> Result<String, Fate> {
    let started = Instant::now();
    let sent = ask(worker, (Verb::Put, object, query), body, connection).await;
    let fate = match &sent {
        Ok((exchanged, _)) => Fate::Done {
            exchanged: *exchanged,
            bytes: body.len_bytes(),
        },
        Err(fate) => fate.clone(),
    };
    worker.count(Operation::Part, started, &fate);
    sent.map(|(_, taken)| taken.tag.unwrap_or_default())
}

async fn complete(
    worker: &Worker,
    object: &Object,
    (upload_id, tags): (&str, &[String]),
    connection: &mut Connection,
) -> (Fate, bool) {
    let mut document = String::from("<CompleteMultipartUpload>");
    for (index, tag) in tags.iter().enumerate() {
        let tag = tag.replace('"', "&quot;");
        // Writing to a text can't fail.
        let _ = write!(
            document,
            "<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>",
            index + 1
        );
    }
    document.push_str("</CompleteMultipartUpload>");
    let query = format!("uploadId={upload_id}");
    let asked = (Verb::Post, object, &*query);
    match ask(worker, asked, &Body::Bytes(document.as_bytes()), connection).await {
        // S3 may find a fault after it has begun a 200.
        Ok((_, taken)) if taken.element("Code").is_some() => {
            let name = taken.element("Code").unwrap_or_default().into();
            (Fate::Refused { name }, false)
        }
        Ok((exchanged, _)) => {
            let bytes = object.size_bytes.unwrap_or(0);
            (Fate::Done { exchanged, bytes }, true)
        }
        Err(fate) => (fate, false),
    }
}

/// A future that is not done, or what it gave.
enum Running<F: Future> {
    Pending(Pin<Box<F>>),
    Done(F::Output),
}

/// Runs all of them at once, within this task, and gives what each gave.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures
        .map(|future| Running::Pending(Box::pin(future)))
        .collect();
    std::future::poll_fn(|cx| {
        let mut is_done = true;
        for each in &mut running {
            let Running::Pending(future) = each else {
                continue;
            };
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *each = Running::Done(output),
                Poll::Pending => is_done = false,
            }
        }
        if is_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let outputs = running.into_iter().filter_map(|each| match each {
        Running::Done(output) => Some(output),
        Running::Pending(_) => None,
    });
    outputs.collect()
}
