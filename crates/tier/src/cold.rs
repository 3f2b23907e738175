//! The requests that a tier makes of the cold store itself: look, write, delete, and ask of a
//! bucket. Each has a time limit, and an answer that says what to do next.
//!
//! Here is also our idea of the cold store's clock: its `Date` and the time since by a clock that
//! nobody sets. Where it says none, it is the clock of this machine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use base64::Engine as _;
use bytes::Bytes;
use forebay_native::{hot::HotKey, record::ObjectRecord};
use forebay_s3::{
    code::Code,
    operation::{Operation, ReadObject},
    time, uri, xml,
};
use forebay_store::{
    Body, Caller, Clock, Error, Identity, PayloadProof, Query, Request, RequestId, Response, Store,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;

use crate::ledger::{Found, Likeness};

/// Most bytes of an answer that is read for what it says.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Headers of an object that travel with it, besides `Content-Type`, which stores fill in.
const CARRIED: [HeaderName; 5] = [
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::EXPIRES,
];
const USER_PREFIX: &str = "x-amz-meta-";

/// The cold store, as the tier itself asks it.
pub(crate) struct Cold {
    pub(crate) store: Arc<dyn Store>,
    clock: Clock,
    timeout: Duration,
    date: Mutex<Option<(i64, Instant)>>,
    requests: AtomicU64,
}

/// Why a request of ours did not do what it was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The store refused it, and nothing changed: its status and code.
    Refused(StatusCode, String),
    /// The store can't be asked now, and nothing changed.
    Busy,
    /// It may or may not have happened, and may still.
    Unknown,
}

/// What must hold of the object that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// There is none.
    Absent,
    /// It has this tag.
    Match(String),
    /// Anything.
    None,
}

impl Cold {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, timeout: Duration) -> Self {
        Self {
            store,
            clock,
            timeout,
            date: Mutex::default(),
            requests: AtomicU64::default(),
        }
    }

    /// The time by the cold store's clock, Unix milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        match *self.date.lock() {
            None => time::unix_millis(self.clock.wall()),
            Some((date_ms, at)) => {
                let since = self.clock.now().saturating_duration_since(at).as_millis();
                date_ms + i64::try_from(since).unwrap_or(0)
            }
        }
    }

    fn learn_date(&self, headers: &HeaderMap) {
        let date = headers
            .get(header::DATE)
            .and_then(|value| time::parse_http_date(value.to_str().ok()?));
        if let Some(seconds) = date {
            *self.date.lock() = Some((seconds * 1000, self.clock.now()));
        }
    }

    /// A request of the tier's own.
    pub(crate) fn request(&self, method: Method, operation: Operation, query: &str) -> Request {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        Request {
            operation,
            method,
            headers: HeaderMap::new(),
            query: Query::new(query),
            body: Body::empty(),
            payload_proof: PayloadProof::None,
            caller: Caller {
                identity: Identity::User("forebay-tier".into()),
                request_id: RequestId(number),
                remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                deadline: self.clock.now() + self.timeout,
            },
        }
    }

    /// Sends a request and reads its answer to the end.
    pub(crate) async fn ask(&self, request: Request) -> Result<(HeaderMap, Bytes), Trouble> {
        let answered = async {
            let response = self.store.call(request).await?;
            let Response {
                status,
                headers,
                body,
                ..
            } = response;
            let (bytes, _) = body.collect(ANSWER_BYTES_MAX).await?;
            Ok::<_, Error>((status, headers, bytes))
        };
        let Ok(answer) = tokio::time::timeout(self.timeout, answered).await else {
            return Err(Trouble::Unknown);
        };
        match answer {
            Ok((status, headers, bytes)) => {
                self.learn_date(&headers);
                if status.is_success() {
                    return Ok((headers, bytes));
                }
                let code = xml::error_in(&bytes).map(|error| error.code);
                let code = code.unwrap_or_default();
                if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
                    return Err(Trouble::Unknown);
                }
                Err(Trouble::Refused(status, code))
            }
            Err(error) => Err(Trouble::from(error)),
        }
    }

    /// What the cold store holds under a key, compared with a record.
    pub(crate) async fn find(
        &self,
        key: &HotKey,
        record: Option<&ObjectRecord>,
    ) -> Result<Option<Found>, Trouble> {
        let read = ReadObject {
            object: key.object(),
            range: None,
            part_number: None,
        };
        let mut request = self.request(Method::HEAD, Operation::HeadObject(read), "");
        let checksums = HeaderValue::from_static("ENABLED");
        request.headers.insert("x-amz-checksum-mode", checksums);
        match self.ask(request).await {
            Ok((headers, _)) => Ok(Some(found(&headers, record))),
            // A bucket that is gone is trouble; HEAD has no code to tell it by.
            Err(Trouble::Refused(StatusCode::NOT_FOUND, code)) if code != "NoSuchBucket" => {
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Writes an object; its tag.
    pub(crate) async fn write(
        &self,
        key: &HotKey,
        record: &ObjectRecord,
        body: Body,
        condition: &Condition,
    ) -> Result<String, Trouble> {
        let mut request = self.request(Method::PUT, Operation::PutObject(key.object()), "");
        request.headers = headers_of(record);
        set_condition(&mut request.headers, condition);
        request.body = body;
        let (headers, _) = self.ask(request).await?;
        Ok(etag_in(&headers))
    }

    /// Deletes a key.
    pub(crate) async fn delete(&self, key: &HotKey, condition: &Condition) -> Result<(), Trouble> {
        let operation = Operation::DeleteObject(key.object());
        let mut request = self.request(Method::DELETE, operation, "");
        set_condition(&mut request.headers, condition);
        self.ask(request).await.map(drop)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => {
                Self::Refused(refusal.code.status(), refusal.code.as_str().to_owned())
            }
            Error::SlowDown { .. } | Error::Unavailable { .. } => Self::Busy,
            Error::Indeterminate { .. }
            | Error::Cut { .. }
            | Error::ClientGone
            | Error::Internal { .. } => Self::Unknown,
        }
    }
}

impl Trouble {
    /// Whether the condition of a write did not hold.
    pub(crate) fn is_condition(&self) -> bool {
        match self {
            Self::Refused(status, code) => {
                *status == StatusCode::PRECONDITION_FAILED
                    || code == Code::NoSuchKey.as_str()
                    || (*status == StatusCode::NOT_FOUND && code.is_empty())
                    || code == "ConditionalRequestConflict"
            }
            Self::Busy | Self::Unknown => false,
        }
    }
}

fn set_condition(headers: &mut HeaderMap, condition: &Condition) {
    match condition {
        Condition::None => {}
        Condition::Absent => {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        Condition::Match(etag) => {
            if let Ok(etag) = HeaderValue::try_from(etag.as_str()) {
                headers.insert(header::IF_MATCH, etag);
            }
        }
    }
}

/// The headers with which an object is written.
fn headers_of(record: &ObjectRecord) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name: Option<HeaderName>, value: &str| {
        if let (Some(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.insert(name, value);
        }
    };
    for (name, value) in &record.attributes.headers {
        set(HeaderName::try_from(name.as_str()).ok(), value);
    }
    for (name, value) in &record.attributes.user {
        set(
            HeaderName::try_from(format!("{USER_PREFIX}{name}")).ok(),
            value,
        );
    }
    if !record.attributes.tags.is_empty() {
        let pairs = record.attributes.tags.iter();
        let pairs = pairs.map(|(name, value)| {
            format!("{}={}", uri::encode_query(name), uri::encode_query(value))
        });
        let tagging = HeaderName::from_static("x-amz-tagging");
        set(Some(tagging), &pairs.collect::<Vec<_>>().join("&"));
    }
    if let Some(sum) = &record.checksum {
        let name = HeaderName::from_static(sum.checksum.algorithm().header());
        set(Some(name), &sum.to_string());
    }
    let md5 = hex::decode(record.etag.value()).ok();
    if let Some(md5) = md5.filter(|digest| digest.len() == 16) {
        let text = base64::engine::general_purpose::STANDARD.encode(md5);
        set(Some(HeaderName::from_static("content-md5")), &text);
    }
    headers.insert(header::CONTENT_LENGTH, record.size_bytes.into());
    headers
}

/// The tag in an answer, with quotes; empty when it has none.
pub(crate) fn etag_in(headers: &HeaderMap) -> String {
    let text = headers
        .get(header::ETAG)
        .and_then(|value| value.to_str().ok());
    text.unwrap_or_default().to_owned()
}

fn found(headers: &HeaderMap, record: Option<&ObjectRecord>) -> Found {
    let modified = headers
        .get(header::LAST_MODIFIED)
        .and_then(|value| time::parse_http_date(value.to_str().ok()?));
    Found {
        etag: etag_in(headers),
        // What has no date is taken as new, so that it is not replaced.
        modified_ms: modified.map_or(i64::MAX, |seconds| seconds * 1000),
        likeness: record.map_or(Likeness::None, |record| likeness(headers, record)),
    }
}

fn likeness(headers: &HeaderMap, record: &ObjectRecord) -> Likeness {
    let text = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let same_size = text("content-length") == Some(record.size_bytes.to_string().as_bytes());
    let same_etag = etag_in(headers) == record.etag.to_string();
    let same_checksum = record.checksum.as_ref().is_some_and(|sum| {
        text(sum.checksum.algorithm().header()) == Some(sum.to_string().as_bytes())
    });
    if !same_size || !(same_etag || same_checksum) {
        return Likeness::None;
    }
    let kept = &record.attributes.headers;
    let mut carried = CARRIED.iter();
    let same_headers =
        carried.all(|name| text(name.as_str()) == kept.get(name.as_str()).map(String::as_bytes));
    let same_type = kept
        .get("content-type")
        .is_none_or(|kind| text("content-type") == Some(kind.as_bytes()));
    let user = &record.attributes.user;
    let names = headers.keys().map(HeaderName::as_str);
    let user_count = names.filter(|name| name.starts_with(USER_PREFIX)).count();
    let same_user = user_count == user.len()
        && user
            .iter()
            .all(|(name, value)| text(&format!("{USER_PREFIX}{name}")) == Some(value.as_bytes()));
    // Tags do not come with a HEAD, so an object that has some is written again.
    let no_tags = record.attributes.tags.is_empty() && text("x-amz-tagging-count").is_none();
    if same_headers && same_type && same_user && no_tags {
        Likeness::Whole
    } else {
        Likeness::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_native::{
        MemoryStore,
        record::{Attributes, ObjectRecord},
    };
    use forebay_s3::etag::ETag;
    use forebay_store::contract::requests::{create_bucket, get, object, put};

    fn record() -> ObjectRecord {
        ObjectRecord {
            etag: ETag::strong("900150983cd24fb0d6963f7d28e17f72").unwrap(),
            size_bytes: 3,
            modified_ms: 0,
            attributes: Attributes {
                headers: [("content-type".into(), "text/plain".into())].into(),
                user: [("a".into(), "1".into())].into(),
                tags: Vec::new(),
            },
            checksum: None,
            part_count: None,
            upload_id: None,
        }
    }

    fn cold(store: Arc<dyn Store>) -> Cold {
        Cold::new(store, Clock::system(), Duration::from_secs(5))
    }

    #[tokio::test]
    async fn what_was_written_is_found_like_it_and_what_differs_is_not() {
        let store = Arc::new(MemoryStore::new(Clock::system()));
        create_bucket("bucket").expect(200, &*store).await;
        let (cold, key) = (cold(store.clone()), HotKey::from(&object("bucket", "k")));
        let record = record();
        assert_eq!(cold.find(&key, Some(&record)).await.unwrap(), None);
        let etag = cold
            .write(&key, &record, "abc".into(), &Condition::Absent)
            .await
            .unwrap();
        assert_eq!(etag, record.etag.to_string());
        let likeness = async |record: &ObjectRecord| {
            let found = cold.find(&key, Some(record)).await.unwrap().unwrap();
            found.likeness
        };
        assert_eq!(likeness(&record).await, Likeness::Whole);
        let change: [fn(&mut ObjectRecord); 4] = [
            |r| drop(r.attributes.user.insert("b".into(), "2".into())),
            |r| r.attributes.user.clear(),
            |r| drop(r.attributes.headers.insert("expires".into(), "x".into())),
            |r| r.attributes.tags.push(("a".into(), "b".into())),
        ];
        for change in change {
            let mut other = record.clone();
            change(&mut other);
            assert_eq!(likeness(&other).await, Likeness::Bytes, "{other:?}");
        }
        put("bucket", "k").body("abd").expect(200, &*store).await;
        assert_eq!(likeness(&record).await, Likeness::None);
        let again = cold.write(&key, &record, "abc".into(), &Condition::Absent);
        assert!(again.await.unwrap_err().is_condition());
        cold.delete(&key, &Condition::Match(etag))
            .await
            .unwrap_err();
        cold.delete(&key, &Condition::None).await.unwrap();
        assert_eq!(get("bucket", "k").refusal(&*store).await, "NoSuchKey");
    }

    #[test]
    fn the_time_is_that_of_the_cold_store_once_it_has_told_it() {
        let clock = Clock::manual(time::system_time(1_000_000));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let cold = Cold::new(store, clock.clone(), Duration::from_secs(1));
        assert_eq!(cold.now_ms(), 1_000_000_000);
        let date = time::http_date(2_000_000);
        let headers = [(header::DATE, HeaderValue::from_str(date.as_str()).unwrap())];
        cold.learn_date(&headers.into_iter().collect());
        clock.advance(Duration::from_millis(5));
        assert_eq!(cold.now_ms(), 2_000_000_005);
    }
}
