//! `PostObject`: a browser's form becomes a `PutObject`.
//!
//! The fields before the file hold the key, the policy and its signature; they are read first,
//! and then the form walks the same steps as any request: prove, authorize, take in, route. The
//! fields become the headers of the `PutObject`.
//!
//! Where the file ends shows only when the form ends, but stores want to know a length ahead. A
//! form of at most [`COLLECTED_BYTES_MAX`] is collected; of a larger one the file is taken to be
//! the last field, and if it is not, the upload fails with `IncompleteBody` and nothing is stored.
//!
//! Source: Amazon S3 API Reference, "POST Object".

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use forebay_s3::{
    bucket::BucketName,
    checksum::ChecksumHeader,
    chunked::Intake,
    code::Code,
    key::{InvalidKey, ObjectKey},
    operation::{ObjectId, Operation},
    policy::{Access, Carrier, Signature, SignatureVersion, needs},
    post_policy::{FormFields, FormReader, PostPolicy, Step, SuccessAction},
    sigv4::PayloadMode,
    uri,
    xml::push_escaped,
};
use forebay_store::{Body, Error, Identity, PayloadProof, Query, Request, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};

use super::{
    authenticate::{self, Proof, refuse_form},
    authorize::{Asker, language_head},
    call,
    exchange::Exchange,
    headers,
    upload::{self, Source, Unread, Upload},
};
use crate::{
    server::{Connection, Security},
    settings::{Authentication, PUT_BYTES_MAX},
    users::SigningScopeRef,
};

/// A form up to this size is collected, so that fields after its file do no harm.
const COLLECTED_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Fields that become a header of the same name.
const SAME_HEADERS: [&str; 6] = [
    "cache-control",
    "content-type",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
];

/// Answers a form.
pub(super) async fn answer(
    exchange: &mut Exchange,
    head: Parts,
    bucket: BucketName,
    unread: Unread,
) -> Result<Response, Error> {
    let connection = exchange.connection().clone();
    let content_type = header_text(&head.headers, &header::CONTENT_TYPE);
    let reader = FormReader::new(content_type).map_err(|error| refuse_form(&error))?;
    let mut file = FormFile {
        unread,
        reader,
        received_bytes: 0,
    };
    let fields = file.fields().await?;

    let (proof, policy) = prove(&connection, &fields, &bucket)?;
    exchange.is_from(&proof.identity);
    let key = fields.key().map_err(|error| refuse_form(&error))?;
    let key = ObjectKey::parse(&key).map_err(|error| match error {
        InvalidKey::Empty => Error::refused_because(Code::InvalidArgument, error.to_string()),
        InvalidKey::TooLong { .. } => Error::refused(Code::KeyTooLongError),
    })?;
    let object = ObjectId {
        bucket,
        key,
        version: None,
    };
    let operation = Operation::PutObject(object.clone());
    exchange.is_about(&operation);

    let form_bytes = content_length(&head.headers)?;
    let put = put_head(&head, &fields)?;
    let host = headers::host(&head).to_owned();
    match needs(&operation, &language_head(&put, &host)) {
        Access::Needs(needs) => Asker::new(&connection, &put, &proof).may(&needs)?,
        Access::NamedInBody | Access::Free => return Err(Error::refused(Code::AccessDenied)),
    }

    let mut put_headers = put.headers;
    let body = take_file(
        &connection,
        file,
        form_bytes,
        policy.as_ref(),
        &mut put_headers,
    )
    .await?;
    let caller = exchange.caller(proof.identity, body.length());
    let request = Request {
        operation,
        method: Method::PUT,
        headers: put_headers,
        query: Query::default(),
        body,
        payload_proof: PayloadProof::None,
        caller,
    };
    let response = call(&connection, request).await?;
    if !response.status.is_success() {
        return Ok(response);
    }
    let scheme = match connection.security {
        Security::Plain => "http",
        Security::Tls { .. } => "https",
    };
    let base = format!("{scheme}://{host}");
    Ok(succeeded(
        response,
        &fields.success_action(),
        &base,
        &object,
    ))
}

/// Proves who made the form, and gives the policy that limits it.
fn prove(
    connection: &Connection,
    fields: &FormFields,
    bucket: &BucketName,
) -> Result<(Proof, Option<PostPolicy>), Error> {
    let shared = &connection.worker.shared;
    let users = shared.users.load();
    let now_unix_seconds = shared.clock.unix_seconds();
    let proof = |identity, user, signature| Proof {
        identity,
        user,
        signature,
        payload: PayloadMode::Unsigned,
        chunk_signer: None,
        now_unix_seconds,
    };
    if let Authentication::Off { identity } = &*connection.authentication {
        let user = match identity {
            Identity::Anonymous => None,
            Identity::User(name) => users.by_name(name).cloned(),
        };
        return Ok((proof(identity.clone(), user, None), None));
    }
    let Some(presented) = fields.signature().map_err(|error| refuse_form(&error))? else {
        return Ok((proof(Identity::Anonymous, None, None), None));
    };
    let regions: Vec<&str> = shared.settings.regions.iter().map(String::as_str).collect();
    let expected = authenticate::expected_scope(&regions);
    presented
        .check(&expected)
        .map_err(|error| refuse_form(&error))?;
    let scope = SigningScopeRef {
        access_key_id: presented.access_key_id(),
        date_stamp: presented.date_stamp(),
        region: presented.region(),
    };
    let (user, key) = authenticate::find(&users, scope)?;
    authenticate::refuse_token(presented.session_token().is_some())?;
    presented
        .verify(&key)
        .map_err(|error| refuse_form(&error))?;
    let policy = PostPolicy::parse(presented.policy()).map_err(|error| refuse_form(&error))?;
    policy
        .check(fields, bucket.as_str(), now_unix_seconds)
        .map_err(|error| refuse_form(&error))?;
    let signature = Signature {
        carrier: Carrier::Form,
        version: SignatureVersion::V4,
        // A form is as old as its policy lets it be; the policy's expiry is the limit.
        age_millis: 0,
    };
    let identity = Identity::User(user.name.clone());
    Ok((proof(identity, Some(user), Some(signature)), Some(policy)))
}

/// The head of the `PutObject`: the client's own, with the fields as headers.
fn put_head(head: &Parts, fields: &FormFields) -> Result<Parts, Error> {
    let (mut put, ()) = http::Request::new(()).into_parts();
    put.method = Method::PUT;
    put.uri = head.uri.clone();
    for name in [header::USER_AGENT, header::REFERER] {
        if let Some(value) = head.headers.get(&name) {
            put.headers.insert(name, value.clone());
        }
    }
    for (name, value) in fields.iter() {
        let name = match name {
            "acl" => "x-amz-acl",
            "tagging" => {
                return Err(Error::refused_because(
                    Code::NotImplemented,
                    "the field tagging is not supported: set tags after the upload",
                ));
            }
            name if SAME_HEADERS.contains(&name) => name,
            name if is_amz_header(name) => name,
            _ => continue,
        };
        let invalid =
            || Error::refused_because(Code::InvalidArgument, format!("invalid form field {name}"));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        put.headers.insert(header, value);
    }
    Ok(put)
}

/// Whether a field is a header of `PutObject`, and not part of the form's signature.
fn is_amz_header(name: &str) -> bool {
    name.starts_with("x-amz-")
        && !matches!(
            name,
            "x-amz-algorithm"
                | "x-amz-credential"
                | "x-amz-date"
                | "x-amz-signature"
                | "x-amz-security-token"
                | "x-amz-content-sha256"
                | "x-amz-decoded-content-length"
                | "x-amz-trailer"
                | "x-amz-copy-source"
        )
}

/// Makes the body that a store reads.
async fn take_file(
    connection: &Connection,
    file: FormFile,
    form_bytes: u64,
    policy: Option<&PostPolicy>,
    headers: &mut HeaderMap,
) -> Result<Body, Error> {
    let check = |bytes: u64| policy.map_or(Ok(()), |policy| policy.check_length(bytes));
    let budget = &connection.worker.shared.budget;
    let left_bytes = form_bytes.saturating_sub(file.received_bytes);
    let predicted_bytes = (file.in_hand_bytes() + left_bytes).saturating_sub(file.tail_bytes());
    let room = budget
        .reserve(predicted_bytes.min(COLLECTED_BYTES_MAX))
        .await?;
    let collects = predicted_bytes <= COLLECTED_BYTES_MAX;
    if !collects {
        check(predicted_bytes).map_err(|error| refuse_form(&error))?;
        headers.insert(header::CONTENT_LENGTH, predicted_bytes.into());
    }
    if predicted_bytes > PUT_BYTES_MAX {
        return Err(Error::refused(Code::EntityTooLarge));
    }
    let about = ChecksumHeader::OfPayload;
    let intake = Intake::new(headers, PayloadMode::Unsigned, about, None)
        .map_err(|error| upload::refuse(&error))?;
    let length = (!collects).then_some(predicted_bytes);
    let upload = Upload::new(Source::Form(file), intake, length, connection);
    if !collects {
        return Ok(Body::stream(upload.holding(room)));
    }
    // All of it is in the form, which is not larger.
    let bytes_max = usize::try_from(form_bytes).unwrap_or(usize::MAX);
    let (bytes, _) = Body::stream(upload).collect(bytes_max).await?;
    check(bytes.len() as u64).map_err(|error| refuse_form(&error))?;
    headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    Ok(Body::from(bytes).holding(room))
}

/// The file of a form, and the form around it, as they arrive.
#[derive(Debug)]
pub(super) struct FormFile {
    unread: Unread,
    reader: FormReader,
    /// Bytes of the form read so far.
    received_bytes: u64,
}

impl FormFile {
    /// Reads the fields before the file.
    async fn fields(&mut self) -> Result<FormFields, Error> {
        loop {
            match self.reader.step().map_err(|error| refuse_form(&error))? {
                Step::Fields(fields) => return Ok(fields),
                Step::NeedMore => {
                    let bytes = std::future::poll_fn(|cx| self.unread.poll_bytes(cx)).await;
                    self.push(bytes.transpose()?)?;
                }
                Step::File(_) | Step::End => {
                    return Err(Error::refused(Code::MalformedPOSTRequest));
                }
            }
        }
    }

    fn push(&mut self, bytes: Option<Bytes>) -> Result<(), Error> {
        let Some(bytes) = bytes else {
            return Err(Error::refused(Code::MalformedPOSTRequest));
        };
        self.received_bytes += bytes.len() as u64;
        self.reader.push(bytes);
        Ok(())
    }

    /// The next bytes of the file, `None` at its end.
    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            match self.reader.step() {
                Ok(Step::File(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::NeedMore) => {}
                Ok(Step::Fields(_)) => {
                    return Poll::Ready(Some(Err(Error::refused(Code::MalformedPOSTRequest))));
                }
                Err(error) => return Poll::Ready(Some(Err(refuse_form(&error)))),
            }
            let bytes = ready!(self.unread.poll_bytes(cx)).transpose();
            if let Err(error) = bytes.and_then(|bytes| self.push(bytes)) {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// Gives up on what has not come.
    pub(super) fn abandon(&mut self) {
        self.unread.abandon();
    }

    /// Bytes of the file that were read with the fields.
    fn in_hand_bytes(&self) -> u64 {
        self.reader.unread_bytes() as u64
    }

    /// Bytes after a file that is the last field: the closing delimiter and its line end.
    fn tail_bytes(&self) -> u64 {
        self.reader.closing_bytes() as u64
    }
}

/// The answer that the form asked for.
fn succeeded(
    response: Response,
    action: &SuccessAction,
    base: &str,
    object: &ObjectId,
) -> Response {
    let etag = header_text(&response.headers, &header::ETAG).to_owned();
    let (bucket, key) = (object.bucket.as_str(), object.key.as_str());
    let location = format!("{base}/{bucket}/{}", uri::encode_path(key));
    let mut answer = Response {
        body: Body::empty(),
        ..response
    };
    answer.headers.remove(header::CONTENT_LENGTH);
    let set = |answer: &mut Response, location: &str| {
        if let Ok(location) = HeaderValue::try_from(location) {
            answer.headers.insert(header::LOCATION, location);
        }
    };
    match action {
        SuccessAction::NoContent => answer.status = StatusCode::NO_CONTENT,
        SuccessAction::Ok => answer.status = StatusCode::OK,
        SuccessAction::Created => {
            answer.status = StatusCode::CREATED;
            answer.headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/xml"),
            );
            answer.body = created(&location, bucket, key, &etag).into();
        }
        SuccessAction::Redirect(url) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            let query = format!(
                "bucket={}&key={}&etag={}",
                uri::encode_query(bucket),
                uri::encode_query(key),
                uri::encode_query(&etag)
            );
            answer.status = StatusCode::SEE_OTHER;
            set(&mut answer, &format!("{url}{separator}{query}"));
            return answer;
        }
    }
    set(&mut answer, &location);
    answer
}

/// The `PostResponse` document.
fn created(location: &str, bucket: &str, key: &str, etag: &str) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse>".to_owned();
    for (name, text) in [
        ("Location", location),
        ("Bucket", bucket),
        ("Key", key),
        ("ETag", etag),
    ] {
        xml.extend(["<", name, ">"]);
        push_escaped(&mut xml, text);
        xml.extend(["</", name, ">"]);
    }
    xml.push_str("</PostResponse>");
    xml
}

fn content_length(headers: &HeaderMap) -> Result<u64, Error> {
    header_text(headers, &header::CONTENT_LENGTH)
        .parse()
        .map_err(|_| Error::refused(Code::MissingContentLength))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
