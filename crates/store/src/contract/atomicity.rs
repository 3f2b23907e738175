//! Whole or not at all: bodies that break, callers that go away, readers beside writers.

use std::{future::Future as _, pin::pin, sync::Arc, task::Poll};

use super::{
    bodies, bucket,
    requests::{complete_upload, create_upload, get, list_v2, put, upload_part},
    sample_bytes,
};
use crate::{Error, Store};

pub(super) async fn check(store: &Arc<dyn Store>) {
    a_body_that_breaks_changes_nothing(&**store).await;
    a_dropped_write_leaves_old_or_new_whole(store).await;
    readers_beside_a_writer_see_whole_versions(store).await;
}

async fn a_body_that_breaks_changes_nothing(store: &dyn Store) {
    let b = bucket(store, "contract-atomic-broken").await;
    put(b, "k").body("old").expect(200, store).await;
    for key in ["k", "new", "dir/new"] {
        let broken = put(b, key)
            .body(bodies::broken(b"half of it"))
            .send(store)
            .await;
        assert!(matches!(broken, Err(Error::ClientGone)), "{broken:?}");
    }
    let mut long = vec![bodies::Step::Data(sample_bytes(3_000_000).into())];
    long.push(bodies::Step::Fail(Error::ClientGone));
    assert!(
        put(b, "k")
            .body(bodies::scripted(long))
            .send(store)
            .await
            .is_err()
    );
    assert_eq!(get(b, "k").expect(200, store).await.text(), "old");
    assert_eq!(list_v2(b).expect(200, store).await.elements("Key"), ["k"]);

    let created = create_upload(b, "k").expect(200, store).await;
    let id = created.element("UploadId");
    let part = upload_part(b, "k", &id, 1)
        .body("part")
        .expect(200, store)
        .await;
    let broken = upload_part(b, "k", &id, 1)
        .body(bodies::broken(b"half"))
        .send(store)
        .await;
    assert!(matches!(broken, Err(Error::ClientGone)), "{broken:?}");
    complete_upload(b, "k", &id, &[(1, part.etag())])
        .expect(200, store)
        .await;
    assert_eq!(get(b, "k").expect(200, store).await.text(), "part");
}

async fn a_dropped_write_leaves_old_or_new_whole(store: &Arc<dyn Store>) {
    let b = bucket(&**store, "contract-atomic-dropped").await;
    let (old, new) = (sample_bytes(400_000), sample_bytes(500_001));
    put(b, "k").body(old.clone()).expect(200, &**store).await;
    for polls in 0..48 {
        {
            let request = put(b, "k").body(bodies::in_pieces(&new, 50_000)).build();
            let mut call = pin!(store.call(request));
            for _ in 0..polls {
                let done =
                    std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
                if done {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let read = get(b, "k").expect(200, &**store).await;
        assert!(read.body == old || read.body == new, "after {polls} polls");
    }
}

async fn readers_beside_a_writer_see_whole_versions(store: &Arc<dyn Store>) {
    let b = bucket(&**store, "contract-atomic-readers").await;
    let version = |n: usize| vec![u8::try_from(n % 256).unwrap_or_default(); 600_000 + n];
    put(b, "k").body(version(0)).expect(200, &**store).await;
    let writer = tokio::spawn({
        let store = Arc::clone(store);
        async move {
            for n in 1..12 {
                put(b, "k").body(version(n)).expect(200, &*store).await;
            }
        }
    });
    while !writer.is_finished() {
        let read = get(b, "k").expect(200, &**store).await;
        let n = usize::from(read.body[0]);
        assert!(read.body == version(n), "a mixed body");
        assert_eq!(read.header("content-length"), (600_000 + n).to_string());
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer does not panic");
}
