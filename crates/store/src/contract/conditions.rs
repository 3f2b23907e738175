//! Conditions of reads and writes; writes are judged atomically per key.

use std::sync::Arc;

use super::{
    bucket,
    requests::{delete, get, head, put},
};
use crate::{Error, Store};

pub(super) async fn check(store: &Arc<dyn Store>) {
    reads_follow_their_conditions(&**store).await;
    writes_follow_their_conditions(&**store).await;
    deletes_follow_their_conditions(&**store).await;
    of_many_creators_one_wins(store).await;
    of_many_writers_over_one_version_one_wins(store).await;
}

async fn reads_follow_their_conditions(store: &dyn Store) {
    let b = bucket(store, "contract-cond-read").await;
    let etag = put(b, "k")
        .body("hello")
        .expect(200, store)
        .await
        .etag()
        .to_owned();
    let modified = get(b, "k")
        .expect(200, store)
        .await
        .header("last-modified")
        .to_owned();
    let (past, future) = (
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 2044 08:49:37 GMT",
    );
    for (name, value, status) in [
        ("if-match", etag.as_str(), 200),
        ("if-match", "*", 200),
        ("if-match", "\"other\"", 412),
        ("if-none-match", &etag, 304),
        ("if-none-match", etag.trim_matches('"'), 304),
        ("if-none-match", "\"other\"", 200),
        ("if-modified-since", &modified, 304),
        ("if-modified-since", past, 200),
        ("if-modified-since", "nonsense", 200),
        ("if-unmodified-since", &modified, 200),
        ("if-unmodified-since", past, 412),
        ("if-unmodified-since", future, 200),
    ] {
        for request in [get(b, "k"), head(b, "k")] {
            let request = request.header(name, value);
            if status == 412 {
                assert_eq!(
                    request.refusal(store).await,
                    "PreconditionFailed",
                    "{name}: {value}"
                );
                continue;
            }
            let answer = request.expect(status, store).await;
            assert_eq!(answer.etag(), etag, "{name}: {value}");
            assert!(status == 200 || answer.body.is_empty(), "{name}: {value}");
        }
    }
    let ranged = |validator: &str| get(b, "k").range("bytes=1-2").header("if-range", validator);
    assert_eq!(ranged(&etag).expect(206, store).await.text(), "el");
    assert_eq!(ranged("\"other\"").expect(200, store).await.text(), "hello");
    assert_eq!(
        get(b, "gone")
            .header("if-none-match", "*")
            .refusal(store)
            .await,
        "NoSuchKey"
    );
}

async fn writes_follow_their_conditions(store: &dyn Store) {
    let b = bucket(store, "contract-cond-write").await;
    let create = |body: &'static str| put(b, "k").header("if-none-match", "*").body(body);
    let absent = put(b, "k")
        .header("if-match", "\"x\"")
        .body("0")
        .refusal(store)
        .await;
    assert_eq!(absent, "NoSuchKey");
    let first = create("1").expect(200, store).await;
    assert_eq!(create("2").refusal(store).await, "PreconditionFailed");
    assert_eq!(get(b, "k").expect(200, store).await.text(), "1");
    let over = |etag: &str, body: &'static str| put(b, "k").header("if-match", etag).body(body);
    assert_eq!(
        over("\"other\"", "3").refusal(store).await,
        "PreconditionFailed"
    );
    over(first.etag(), "4").expect(200, store).await;
    assert_eq!(
        over(first.etag(), "5").refusal(store).await,
        "PreconditionFailed"
    );
    assert_eq!(get(b, "k").expect(200, store).await.text(), "4");
    let tagged = put(b, "k")
        .header("if-none-match", "\"x\"")
        .body("6")
        .refusal(store)
        .await;
    assert_eq!(tagged, "NotImplemented");
}

async fn deletes_follow_their_conditions(store: &dyn Store) {
    let b = bucket(store, "contract-cond-delete").await;
    let etag = put(b, "k")
        .body("1")
        .expect(200, store)
        .await
        .etag()
        .to_owned();
    let delete_of = |etag: &str| delete(b, "k").header("if-match", etag);
    assert_eq!(
        delete_of("\"other\"").refusal(store).await,
        "PreconditionFailed"
    );
    get(b, "k").expect(200, store).await;
    delete_of(&etag).expect(204, store).await;
    assert_eq!(delete_of("*").refusal(store).await, "PreconditionFailed");
}

/// Runs `writers` writes at once and counts those that were let through.
async fn winners(
    store: &Arc<dyn Store>,
    writers: usize,
    request: impl Fn(usize) -> super::requests::Builder,
) -> usize {
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let (store, request) = (Arc::clone(store), request(writer));
        tasks.push(tokio::spawn(async move { request.send(&*store).await }));
    }
    let mut won = 0;
    for task in tasks {
        match task.await.expect("a write does not panic") {
            Ok(answer) if answer.status == 200 => won += 1,
            Ok(answer) => assert!([409, 412].contains(&answer.status.as_u16())),
            Err(Error::Refused(refusal)) => {
                let status = refusal.code.status().as_u16();
                assert!([409, 412].contains(&status), "{}", refusal.code.as_str());
            }
            Err(other) => panic!("{other}"),
        }
    }
    won
}

async fn of_many_creators_one_wins(store: &Arc<dyn Store>) {
    let b = bucket(&**store, "contract-cond-creators").await;
    for round in 0..8 {
        let key = format!("dir/{round}");
        let won = winners(store, 16, |writer| {
            put(b, &key)
                .header("if-none-match", "*")
                .body(format!("writer {writer}"))
        })
        .await;
        assert_eq!(won, 1, "creators of {key}");
    }
}

async fn of_many_writers_over_one_version_one_wins(store: &Arc<dyn Store>) {
    let b = bucket(&**store, "contract-cond-writers").await;
    for round in 0..8 {
        let key = format!("k{round}");
        let etag = put(b, &key)
            .body("first")
            .expect(200, &**store)
            .await
            .etag()
            .to_owned();
        let won = winners(store, 16, |writer| {
            put(b, &key)
                .header("if-match", &etag)
                .body(format!("writer {writer}"))
        })
        .await;
        assert_eq!(won, 1, "writers of {key}");
    }
}
