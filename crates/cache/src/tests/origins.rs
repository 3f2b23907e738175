//! Origins that behave in ways the memory store does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::MemoryStore;
use forebay_s3::{operation::Operation, range::ByteRange};
use forebay_store::{Body, Clock, Error, Request, Response, Store, contract::requests};
use http::{HeaderValue, StatusCode, header};
use http_body::Frame;
use tokio::sync::oneshot;

use super::origin::Setup;

/// Answers each request with an error document of its own.
struct Forbidding {
    calls: AtomicU64,
    status: StatusCode,
}

#[async_trait]
impl Store for Forbidding {
    async fn call(&self, _: Request) -> Result<Response, Error> {
        tokio::task::yield_now().await;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(self.status).with_body(format!("refusal {call}")))
    }
}

#[tokio::test]
async fn answers_that_are_errors_are_neither_kept_nor_shared() {
    for status in [
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let origin = Arc::new(Forbidding {
            calls: AtomicU64::new(0),
            status,
        });
        let cache = Arc::new(Setup::default().over(Arc::clone(&origin) as Arc<dyn Store>));
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let cache = Arc::clone(&cache);
                tokio::spawn(async move {
                    requests::get("bucket", "key")
                        .send(&*cache)
                        .await
                        .unwrap()
                        .text()
                })
            })
            .collect();
        let mut texts = Vec::new();
        for reader in readers {
            texts.push(reader.await.unwrap());
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), 20, "each has its own");
        assert_eq!(cache.used_bytes(), 0);
    }
}

/// Does what its answer says only while the answer's body is read, as S3 does with large
/// multipart uploads.
struct Late {
    memory: Arc<MemoryStore>,
    done: parking_lot::Mutex<Option<oneshot::Receiver<()>>>,
}

struct LateBody {
    memory: Arc<MemoryStore>,
    done: oneshot::Receiver<()>,
    write: Option<Pending>,
    step: u8,
}

type Pending = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[async_trait]
impl Store for Late {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        if let Operation::CompleteMultipartUpload(_) = request.operation {
            let done = self.done.lock().take().unwrap();
            let memory = Arc::clone(&self.memory);
            let body = LateBody {
                memory,
                done,
                write: None,
                step: 0,
            };
            return Ok(Response::new(StatusCode::OK).with_body(Body::stream(body)));
        }
        self.memory.call(request).await
    }
}

impl http_body::Body for LateBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.step {
            0 => {
                self.step = 1;
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))));
            }
            1 => {
                if std::pin::Pin::new(&mut self.done).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let memory = Arc::clone(&self.memory);
                self.write = Some(Box::pin(async move {
                    requests::put("bucket", "key")
                        .body("new")
                        .expect(200, &*memory)
                        .await;
                }));
                self.step = 2;
            }
            2 => {}
            _ => return Poll::Ready(None),
        }
        let Some(write) = &mut self.write else {
            return Poll::Ready(None);
        };
        std::task::ready!(write.as_mut().poll(cx));
        self.step = 3;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"<done/>")))))
    }
}

#[tokio::test]
async fn a_write_that_is_done_while_its_answer_is_read_invalidates_then() {
    let memory = Arc::new(MemoryStore::new(Clock::system()));
    let (sender, receiver) = oneshot::channel();
    let done = parking_lot::Mutex::new(Some(receiver));
    let cache = Setup::default().over(Arc::new(Late {
        memory: Arc::clone(&memory),
        done,
    }));
    requests::create_bucket("bucket")
        .expect(200, &*memory)
        .await;
    requests::put("bucket", "key")
        .body("old")
        .expect(200, &*memory)
        .await;
    let complete = requests::complete_upload("bucket", "key", "id", &[(1, "tag")]);
    let mut body = complete.call(&cache).await.unwrap().body;
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        " "
    );
    // The old object is read, and kept, while the upload is being completed.
    for _ in 0..2 {
        assert_eq!(
            requests::get("bucket", "key")
                .expect(200, &cache)
                .await
                .body,
            "old"
        );
    }
    sender.send(()).unwrap();
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "<done/>"
    );
    assert_eq!(
        requests::get("bucket", "key")
            .expect(200, &cache)
            .await
            .body,
        "new"
    );
}

/// Answers every GET with the whole object and status 200, whatever range and tag were asked for.
struct Simple;

#[async_trait]
impl Store for Simple {
    async fn call(&self, _: Request) -> Result<Response, Error> {
        let text = |text| HeaderValue::from_static(text);
        Ok(Response::new(StatusCode::OK)
            .with_header(header::ETAG, text("\"tag\""))
            .with_header(header::LAST_MODIFIED, text("Sun, 06 Nov 1994 08:49:37 GMT"))
            .with_body(vec![7; 200_000]))
    }
}

#[tokio::test]
async fn an_origin_without_ranges_and_conditions_serves_all_the_same() {
    let cache = Setup::default().over(Arc::new(Simple));
    for range in [
        "bytes=150000-150009",
        "bytes=5-9",
        "bytes=-10",
        "bytes=100000-",
    ] {
        let request = requests::get("bucket", "key").range(range);
        let answer = request.expect(206, &cache).await;
        assert!(answer.body.iter().all(|byte| *byte == 7));
        assert!(
            answer.header("content-range").ends_with("/200000"),
            "{:?}",
            answer.headers
        );
    }
    let whole = requests::get("bucket", "key").expect(200, &cache).await;
    assert_eq!(whole.body.len(), 200_000);
}

/// Has ranges but no conditions; each of its versions is one byte, many times.
struct Unconditional {
    version: AtomicU64,
}

#[async_trait]
impl Store for Unconditional {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let Operation::GetObject(read) = &request.operation else {
            panic!("only GET is asked")
        };
        let version = self.version.load(Ordering::Relaxed).to_le_bytes()[0];
        let date = HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT");
        let range = read.range.map(|range| range.resolve(200_000).unwrap());
        let length = range.map_or(200_000, ByteRange::len);
        let mut response = Response::new(StatusCode::OK)
            .with_header(header::ETAG, format!("\"{version}\"").try_into().unwrap())
            .with_header(header::LAST_MODIFIED, date)
            .with_body(vec![version; usize::try_from(length).unwrap()]);
        if let Some(range) = range {
            response.status = StatusCode::PARTIAL_CONTENT;
            let content_range = range.content_range(200_000).try_into().unwrap();
            response
                .headers
                .insert(header::CONTENT_RANGE, content_range);
        }
        Ok(response)
    }
}

#[tokio::test]
async fn an_origin_that_ignores_if_match_mixes_no_versions() {
    let origin = Arc::new(Unconditional {
        version: AtomicU64::new(1),
    });
    let cache = Setup::default().over(Arc::clone(&origin) as Arc<dyn Store>);
    let range = |range| requests::get("bucket", "key").range(range);
    assert_eq!(
        range("bytes=0-1").expect(206, &cache).await.body[..],
        [1, 1]
    );
    tokio::task::yield_now().await;
    origin.version.store(2, Ordering::Relaxed);
    // Nothing was sent yet: begun anew.
    assert_eq!(
        range("bytes=150000-150001").expect(206, &cache).await.body[..],
        [2, 2]
    );
    assert_eq!(
        range("bytes=0-1").expect(206, &cache).await.body[..],
        [2, 2]
    );
    tokio::task::yield_now().await;
    origin.version.store(3, Ordering::Relaxed);
    // The first page is sent before it shows.
    let cut = requests::get("bucket", "key").send(&cache).await;
    assert!(matches!(cut, Err(Error::Cut { .. })), "{cut:?}");
}
