//! What a write through the layer makes unknown, and when.

use std::sync::Arc;

use forebay_s3::{
    key::ObjectKey,
    operation::{Operation, OperationName, Target},
};
use forebay_store::{
    Body,
    contract::requests::{self, Builder},
    faulty::Fault,
};
use http::Method;

use super::origin::{Fixture, KIB};
use crate::{index::Written, write::written};

/// Whether the cache has to ask the origin for the object.
async fn is_unknown(fixture: &Fixture, key: &str) -> bool {
    fixture.asked();
    let answer = requests::head("bucket", key).send(&*fixture.cache).await;
    drop(answer);
    !fixture.asked().is_empty()
}

async fn warm(fixture: &Fixture, key: &str) {
    fixture.put(key, 100 * KIB).await;
    fixture.get(key).await;
    fixture.settle().await;
    assert!(!is_unknown(fixture, key).await);
}

fn operation(name: OperationName, method: Method) -> Builder {
    let key = ObjectKey::parse("key").unwrap();
    let target = Target::Object(requests::bucket_name("bucket"), key);
    Builder::new(method, Operation::Other(name, target))
}

#[tokio::test]
async fn each_write_invalidates_what_it_may_change_and_nothing_else() {
    type Write = fn() -> Builder;
    let writes: [(&str, Write); 8] = [
        ("put", || requests::put("bucket", "key").body("new")),
        ("copy", || {
            requests::copy(("bucket", "other"), ("bucket", "key"))
        }),
        ("delete", || requests::delete("bucket", "key")),
        ("delete many", || {
            requests::delete_many("bucket", &["key", "a&b"])
        }),
        ("acl", || {
            operation(OperationName::PutObjectAcl, Method::PUT)
        }),
        ("restore", || {
            operation(OperationName::RestoreObject, Method::POST)
        }),
        ("of the future", || {
            operation(OperationName::UnknownWrite, Method::PUT)
        }),
        ("put that is refused", || {
            requests::put("bucket", "key").header("if-none-match", "*")
        }),
    ];
    for (name, write) in writes {
        let fixture = Fixture::new().await;
        warm(&fixture, "key").await;
        warm(&fixture, "other").await;
        drop(write().send(&*fixture.cache).await);
        assert!(is_unknown(&fixture, "key").await, "{name}");
        assert!(!is_unknown(&fixture, "other").await, "{name}");
        fixture.settle().await;
    }
}

#[tokio::test]
async fn reads_and_parts_of_uploads_invalidate_nothing() {
    let fixture = Fixture::new().await;
    warm(&fixture, "key").await;
    drop(
        operation(OperationName::GetObjectAcl, Method::GET)
            .send(&*fixture.cache)
            .await,
    );
    requests::list_v2("bucket")
        .expect(200, &*fixture.cache)
        .await;
    let upload = requests::create_upload("bucket", "key")
        .expect(200, &*fixture.cache)
        .await;
    let upload_id = upload.element("UploadId");
    let part = requests::upload_part("bucket", "key", &upload_id, 1).body("part");
    let part = part.expect(200, &*fixture.cache).await;
    assert!(!is_unknown(&fixture, "key").await);
    let parts = [(1, part.etag())];
    let complete = requests::complete_upload("bucket", "key", &upload_id, &parts);
    complete.expect(200, &*fixture.cache).await;
    assert_eq!(fixture.get("key").await.body, "part");
}

#[tokio::test]
async fn an_unreadable_delete_invalidates_its_bucket() {
    for body in [
        "<Delete><Unknown/></Delete>".to_owned(),
        "x".repeat(3 << 20),
    ] {
        let fixture = Fixture::new().await;
        warm(&fixture, "key").await;
        let bucket = requests::bucket_name("bucket");
        let delete = Builder::new(Method::POST, Operation::DeleteObjects(bucket));
        drop(
            delete
                .query("delete", "")
                .body(body)
                .send(&*fixture.cache)
                .await,
        );
        assert!(is_unknown(&fixture, "key").await);
        fixture.get("key").await;
        fixture.settle().await;
    }
}

#[tokio::test]
async fn operations_on_a_bucket_invalidate_it_and_no_other() {
    let fixture = Fixture::new().await;
    warm(&fixture, "key").await;
    requests::create_bucket("elsewhere")
        .expect(200, &*fixture.cache)
        .await;
    assert!(!is_unknown(&fixture, "key").await);
    drop(
        requests::delete_bucket("bucket")
            .send(&*fixture.cache)
            .await,
    );
    assert!(is_unknown(&fixture, "key").await);
}

#[test]
fn what_a_write_may_change_is_told_by_its_operation() {
    let object = requests::object("bucket", "key");
    let key = Some(Written::Object(object.bucket.clone(), object.key.clone()));
    let bucket = Some(Written::Bucket(object.bucket.clone()));
    let target = || Target::Object(object.bucket.clone(), object.key.clone());
    for (operation, expected) in [
        (Operation::PutObject(object.clone()), key.clone()),
        (Operation::PutObjectTagging(object.clone()), key.clone()),
        (Operation::CreateMultipartUpload(object.clone()), None),
        (Operation::GetObjectTagging(object.clone()), None),
        (Operation::PostObject(object.bucket.clone()), bucket.clone()),
        (
            Operation::Other(OperationName::PutObjectAcl, target()),
            key.clone(),
        ),
        (
            Operation::Other(OperationName::RenameObject, target()),
            bucket,
        ),
        (
            Operation::Other(OperationName::GetObjectAcl, target()),
            None,
        ),
        (
            Operation::Other(OperationName::UnknownWrite, Target::Service),
            Some(Written::All),
        ),
    ] {
        assert_eq!(written(&operation), expected, "{operation:?}");
    }
}

#[tokio::test]
async fn a_fill_begun_before_a_write_is_not_stored_after_it() {
    for size_bytes in [1000, 300 * KIB] {
        let fixture = Fixture::new().await;
        let old = fixture.put("key", size_bytes).await;
        fixture.origin.gate.close_at(500);
        let begun = requests::get("bucket", "key")
            .call(&*fixture.cache)
            .await
            .unwrap();
        requests::put("bucket", "key")
            .body("new")
            .expect(200, &*fixture.cache)
            .await;
        // A reader that comes after the write does not join the fill from before it.
        assert_eq!(fixture.get("key").await.body, "new");
        fixture.origin.gate.open();
        let (body, _) = begun.body.collect(usize::MAX).await.unwrap();
        assert!(body == old, "it began before");
        fixture.settle().await;
        assert_eq!(fixture.get("key").await.body, "new");
    }
}

#[tokio::test]
async fn a_read_during_a_write_is_not_stored_either() {
    let fixture = Arc::new(Fixture::new().await);
    fixture.put("key", 1000).await;
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let body = Body::stream(Late(receiver));
    let cache = Arc::clone(&fixture.cache);
    let write = tokio::spawn(async move {
        requests::put("bucket", "key")
            .body(body)
            .expect(200, &*cache)
            .await;
    });
    while fixture.asked() != ["PUT key"] {
        tokio::task::yield_now().await;
    }
    // The write has begun and invalidated; this reads and keeps the old object.
    fixture.get("key").await;
    fixture.settle().await;
    sender.send(()).unwrap();
    write.await.unwrap();
    assert_eq!(fixture.get("key").await.body, "", "what the write put");
}

/// An empty body that ends when told.
pub(super) struct Late(pub(super) tokio::sync::oneshot::Receiver<()>);

impl http_body::Body for Late {
    type Data = bytes::Bytes;
    type Error = forebay_store::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(|_| None)
    }
}

#[tokio::test]
async fn a_write_that_is_dropped_or_fails_invalidates_as_well() {
    let fixture = Fixture::new().await;
    warm(&fixture, "key").await;
    let mut write = Box::pin(
        requests::put("bucket", "key")
            .body("x")
            .call(&*fixture.cache),
    );
    let polled = futures_poll(write.as_mut());
    assert!(polled.is_pending(), "it is under way");
    // Meanwhile somebody reads the old object.
    fixture.get("key").await;
    fixture.settle().await;
    drop(write);
    assert!(is_unknown(&fixture, "key").await);
    fixture.origin.store.script([Fault::AnswerLost]);
    let lost = requests::put("bucket", "key")
        .body("stored")
        .send(&*fixture.cache)
        .await;
    assert!(lost.is_err());
    assert_eq!(fixture.get("key").await.body, "stored");
}

fn futures_poll<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}
