//! Sees to it that the objects of a case are there, and takes them away again.
//!
//! What is there with the right size is kept and used again: filling a terabyte twice helps nobody.
//! Uploading and deleting are loads like any other, sent by [`crate::load`] from many connections;
//! only bucket and listings are asked for here, one request after another.
//!
//! Nothing is deleted but below the prefix of the benchmark.
//!
//! Sources: Amazon S3 API Reference, `ListObjectsV2`, `CreateBucket`.

mod listing;

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use forebay_s3::uri::encode_query;
use forebay_store::Clock;
use tokio::sync::watch;

use listing::{NotAListing, element, read_batch, unescaped};

use crate::{
    load::{self, Live, LoadSettings, Reads, Target, Verify, worker::refusal_name},
    results::Load,
    sign::{Asked, HeadWriter, Verb},
    wire::{
        Body, Connection, Head, Outgoing, Scheme, Sink, WireError, answer::Expects,
        connection::Buffers,
    },
    workload::{Action, Choice, Object, Objects, Plan},
};

/// Longest answer that is read: 1000 longest keys with their escapes.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Why an endpoint can't be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("{0}")]
    Unreachable(WireError),
    #[error("{asked} was answered by {code}{}", hint(.code))]
    Refused { asked: &'static str, code: Box<str> },
    #[error("the answer to {0} makes no sense")]
    Strange(&'static str),
    #[error("{count} of {of} objects could not be {what}: {why}")]
    Objects {
        what: &'static str,
        count: u64,
        of: u64,
        why: String,
    },
    #[error("the machine gave no thread or socket: {0}")]
    Machine(io::ErrorKind),
    #[error("interrupted")]
    Interrupted,
}

impl From<io::Error> for PrepareError {
    fn from(error: io::Error) -> Self {
        Self::Machine(error.kind())
    }
}

impl PrepareError {
    pub(crate) fn is_no_such_bucket(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if &**code == "NoSuchBucket")
    }
}

/// What to do about the refusals that newcomers meet.
fn hint(code: &str) -> &'static str {
    match code {
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
            "; look at --access-key, --secret-key and the AWS_* variables"
        }
        "AccessDenied" | "Http403" => "; the credentials, or --anonymous, don't allow it",
        "NoSuchBucket" => "; --create-bucket makes it",
        "AuthorizationHeaderMalformed" => "; look at --region",
        "RequestTimeTooSkewed" => "; look at the clocks of both machines",
        _ => "",
    }
}

/// An answer read whole.
#[derive(Debug, Default)]
struct Whole {
    server: Option<String>,
    body: Vec<u8>,
}

impl Sink for Whole {
    fn head(&mut self, head: &Head<'_>) {
        let text = head.header("server").map(String::from_utf8_lossy);
        self.server = text.map(std::borrow::Cow::into_owned);
    }

    fn body(&mut self, bytes: &[u8]) {
        let room = ANSWER_BYTES_MAX.saturating_sub(self.body.len());
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Asks one endpoint for one thing after another.
struct Asker {
    connection: Connection,
    heads: HeadWriter,
    scheme: Scheme,
}

impl Asker {
    fn new(target: &Target) -> Self {
        Self {
            connection: Connection::new(Arc::clone(&target.connector), Buffers::shared()),
            heads: HeadWriter::new(&target.host, &target.access, Clock::system()),
            scheme: target.connector.scheme(),
        }
    }

    async fn ask(
        &mut self,
        what: &'static str,
        asked: &Asked<'_>,
        body: &Body<'_>,
    ) -> Result<Whole, PrepareError> {
        let mut head = Vec::new();
        self.heads.write(&mut head, asked, body);
        let expects = match asked.verb {
            Verb::Head => Expects::HeadOnly,
            _ => Expects::Body,
        };
        self.send(
            what,
            &Outgoing {
                head: &head,
                body: *body,
                tail: b"",
                expects,
            },
        )
        .await
    }

    async fn send(
        &mut self,
        asked: &'static str,
        request: &Outgoing<'_>,
    ) -> Result<Whole, PrepareError> {
        let mut whole = Whole::default();
        let exchanged = self
            .connection
            .exchange(request, &mut whole)
            .await
            .map_err(PrepareError::Unreachable)?;
        if exchanged.is_success() {
            return Ok(whole);
        }
        let body = self.connection.error_body();
        let code = refusal_name(self.scheme, exchanged.status, body);
        Err(PrepareError::Refused { asked, code })
    }
}

/// Runs to its end what needs a runtime for a moment only.
fn block_on<T>(future: impl Future<Output = Result<T, PrepareError>>) -> Result<T, PrepareError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(future)
}

/// What the endpoint says of itself: its `Server` header, if it can list the bucket.
///
/// # Errors
/// When it can't be reached, or refuses.
pub(crate) fn list_once(target: &Target, bucket: &str) -> Result<Option<String>, PrepareError> {
    block_on(async {
        let mut client = Asker::new(target);
        if target.connector.scheme() == Scheme::Redis {
            let mut head = Vec::new();
            crate::wire::redis::put_command(&mut head, &["PING"]);
            let request = Outgoing {
                head: &head,
                body: Body::None,
                tail: b"",
                expects: Expects::Body,
            };
            return client.send("PING", &request).await.map(|_| None);
        }
        let path = format!("/{bucket}");
        let whole = client
            .ask(
                "a listing of the bucket",
                &Asked {
                    verb: Verb::Get,
                    path: &path,
                    query: Some("list-type=2&max-keys=1"),
                    range: None,
                    slot: None,
                },
                &Body::None,
            )
            .await?;
        Ok(whole.server)
    })
}

/// Whether an object is there, by HEAD; gives the `Server` header.
///
/// # Errors
/// When it isn't, or the endpoint can't be reached.
pub(crate) fn look_at(target: &Target, object: &Object) -> Result<Option<String>, PrepareError> {
    block_on(async {
        let asked = Asked {
            verb: Verb::Head,
            path: &object.path,
            query: None,
            range: None,
            slot: None,
        };
        let whole = Asker::new(target)
            .ask("HEAD of the first object", &asked, &Body::None)
            .await?;
        Ok(whole.server)
    })
}

/// The body that is at a path.
///
/// # Errors
/// When it isn't there, or the endpoint can't be reached.
pub(crate) fn fetch(target: &Target, path: &str) -> Result<Vec<u8>, PrepareError> {
    block_on(async {
        let asked = Asked {
            verb: Verb::Get,
            path,
            query: None,
            range: None,
            slot: None,
        };
        Ok(Asker::new(target)
            .ask("GET", &asked, &Body::None)
            .await?
            .body)
    })
}

/// Makes a bucket.
///
/// # Errors
/// When the endpoint refuses or can't be reached.
pub(crate) fn create_bucket(
    target: &Target,
    bucket: &str,
    region: &str,
) -> Result<(), PrepareError> {
    let document = match region {
        // The region that S3 wants not to be named.
        "us-east-1" => String::new(),
        other => format!(
            "<CreateBucketConfiguration><LocationConstraint>{other}</LocationConstraint>\
             </CreateBucketConfiguration>"
        ),
    };
    let body = if document.is_empty() {
        Body::None
    } else {
        Body::Bytes(document.as_bytes())
    };
    let path = format!("/{bucket}");
    let asked = Asked {
        verb: Verb::Put,
        path: &path,
        query: None,
        range: None,
        slot: None,
    };
    block_on(async { Asker::new(target).ask("CreateBucket", &asked, &body).await })?;
    Ok(())
}

/// Keys and sizes of all objects below a prefix.
fn list(target: &Target, bucket: &str, prefix: &str) -> Result<HashMap<String, u64>, PrepareError> {
    block_on(async {
        let mut client = Asker::new(target);
        let (mut found, mut token) = (HashMap::new(), None::<String>);
        let path = format!("/{bucket}");
        loop {
            let mut query = String::new();
            // The parameters are signed in the order of their names; S3 takes any order.
            if let Some(token) = &token {
                query = format!("continuation-token={}&", encode_query(token));
            }
            query.push_str("encoding-type=url&list-type=2&max-keys=1000&prefix=");
            query.push_str(&encode_query(prefix));
            let asked = Asked {
                verb: Verb::Get,
                path: &path,
                query: Some(&query),
                range: None,
                slot: None,
            };
            let whole = client.ask("a listing", &asked, &Body::None).await?;
            let text =
                str::from_utf8(&whole.body).map_err(|_| PrepareError::Strange("a listing"))?;
            read_batch(text, &mut found)
                .map_err(|NotAListing| PrepareError::Strange("a listing"))?;
            token = element(text, "NextContinuationToken").map(unescaped);
            if element(text, "IsTruncated") != Some("true") || token.is_none() {
                return Ok(found);
            }
        }
    })
}

/// How to fill and empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hands {
    pub(crate) threads: u32,
    pub(crate) clients: u32,
}

/// What goes on while filling and emptying.
#[derive(Debug, Clone)]
pub(crate) struct Watch<'a> {
    pub(crate) live: &'a Arc<Live>,
    pub(crate) stop: &'a watch::Receiver<bool>,
}

/// The objects that are absent or of another size.
///
/// # Errors
/// When the bucket can't be listed.
pub(crate) fn missing(
    target: &Target,
    objects: &Objects,
    prefix: &str,
) -> Result<Vec<(String, Option<u64>)>, PrepareError> {
    let found = match target.connector.scheme() {
        Scheme::Http | Scheme::Https => list(target, objects.bucket(), prefix)?,
        // Asking for each costs what writing it does.
        Scheme::Redis => HashMap::new(),
    };
    let is_missing = |object: &&Object| match (found.get(&*object.key), object.size_bytes) {
        (Some(found), Some(wanted)) => *found != wanted,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let absent = objects.shared().iter().filter(is_missing);
    Ok(absent
        .map(|object| (object.key.to_string(), object.size_bytes))
        .collect())
}

/// Uploads objects.
///
/// # Errors
/// When some could not be, with what the endpoint said to the first of them.
pub(crate) fn upload(
    target: &Target,
    objects: &Arc<Objects>,
    hands: Hands,
    watch: &Watch<'_>,
) -> Result<(), PrepareError> {
    all(target, (Action::Put, "uploaded"), objects, hands, watch)
}

/// Deletes objects of which it is known that they are there.
///
/// # Errors
/// As [`upload`].
pub(crate) fn delete(
    target: &Target,
    objects: &Arc<Objects>,
    hands: Hands,
    watch: &Watch<'_>,
) -> Result<(), PrepareError> {
    all(target, (Action::Delete, "deleted"), objects, hands, watch)
}

/// Deletes everything below a prefix; gives how many objects that were.
///
/// # Errors
/// As [`upload`], and when the bucket can't be listed.
pub(crate) fn empty(
    target: &Target,
    (bucket, prefix): (&str, &str),
    hands: Hands,
    watch: &Watch<'_>,
) -> Result<usize, PrepareError> {
    let found = match list(target, bucket, prefix) {
        Err(error) if error.is_no_such_bucket() => return Ok(0),
        other => other?,
    };
    let names = found
        .into_iter()
        .map(|(key, size_bytes)| (key, Some(size_bytes)));
    let objects = Arc::new(Objects::named(bucket, names));
    delete(target, &objects, hands, watch)?;
    Ok(objects.shared().len())
}

/// One operation on each of the objects.
fn all(
    target: &Target,
    (action, what): (Action, &'static str),
    objects: &Arc<Objects>,
    hands: Hands,
    watch: &Watch<'_>,
) -> Result<(), PrepareError> {
    let of = objects.shared().len() as u64;
    if of == 0 {
        return Ok(());
    }
    let clients = hands.clients.min(u32::try_from(of).unwrap_or(u32::MAX));
    let plan = Arc::new(Plan::new(action, objects, Choice::each(), (None, 0)));
    let settings = LoadSettings {
        threads: hands.threads,
        clients,
        load: Load::Closed {
            concurrency: clients,
        },
        warm_up: Duration::ZERO,
        duration: None,
        verify: Verify::LengthOnly,
        reads: Reads::Anything,
    };
    let before = watch.live.requests.load(Ordering::Relaxed);
    let measured = load::measure(target, settings, &plan, watch.live, watch.stop)?;
    if measured.is_cut {
        return Err(PrepareError::Interrupted);
    }
    let done = watch.live.requests.load(Ordering::Relaxed) - before;
    if done == of {
        return Ok(());
    }
    let errors = measured
        .totals
        .operations
        .iter()
        .flat_map(|(_, counts)| &counts.errors);
    let errors: Vec<_> = errors
        .map(|(name, count)| format!("{name} ×{count}"))
        .collect();
    Err(PrepareError::Objects {
        what,
        count: of - done,
        of,
        why: errors.join(", "),
    })
}
