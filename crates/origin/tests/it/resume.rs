//! Bodies that break off or stall are continued elsewhere, and never with another version.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_store::{Body, Error, Response};
use tokio::sync::Notify;

use crate::{
    scripted::failure,
    stage::{Act, Stage, begun, eager, head, settle},
};

/// Short bodies are read through hyper, long ones past it.
const LENGTHS: [usize; 2] = [1000, 300_007];

fn pattern(length: usize) -> Bytes {
    (0..length)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0])
        .collect()
}

/// Reads to the end; what came, and the error, if any.
async fn drain(answer: Response) -> (Vec<u8>, Option<Error>) {
    let mut body = answer.body;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().unwrap()),
            Err(error) => return (bytes, Some(error)),
        }
    }
    (bytes, None)
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_continued_at_another_endpoint() {
    for length in LENGTHS {
        let object = pattern(length);
        let cuts = [
            Act::End(begun("\"v\"", &object, length / 2)),
            Act::End(begun("\"v\"", &object, 0)),
            Act::End(begun("\"v\"", &object, length - 1)),
            Act::Reset(begun("\"v\"", &object, length / 3)),
            Act::Reset(begun("\"v\"", &object, 0)),
        ];
        for cut in cuts {
            let mut stage = Stage::new(2, None).await;
            stage.put("\"v\"", object.clone());
            stage.acts([cut]);
            let answer = stage
                .read(&[("if-none-match", "\"old\"")])
                .await
                .unwrap()
                .unwrap();
            assert_eq!(answer.body.length(), Some(length as u64));
            let (bytes, error) = drain(answer).await;
            assert!(
                error.is_none() && bytes == object,
                "{error:?} after {}",
                bytes.len()
            );
            let (first, second) = (stage.arrived().await, stage.arrived().await);
            assert_ne!(first.origin, second.origin);
            assert_eq!(second.seen.header("if-match"), Some("\"v\""));
            assert_eq!(second.seen.header("if-none-match"), None);
            assert_eq!(stage.hedges().resumes.resumed.get(), 1);
            stage.assert_idle();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_is_continued_within_its_bounds() {
    let mut stage = Stage::new(2, None).await;
    stage.put("\"v\"", "0123456789");
    let more = "etag: \"v\"\r\ncontent-range: bytes 2-7/10\r\n";
    let mut begun = head(206, 6, more);
    begun.extend_from_slice(b"234");
    stage.acts([Act::End(begun)]);
    let answer = stage
        .read(&[("range", "bytes=2-7")])
        .await
        .unwrap()
        .unwrap();
    let (bytes, error) = drain(answer).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(bytes, b"234567");
    stage.arrived().await;
    assert_eq!(
        stage.arrived().await.seen.header("range"),
        Some("bytes=5-7")
    );
}

/// Goal: no body is ever of two versions.
/// Method: between the break and its continuation the object is overwritten; also, an origin that
/// does not honour `If-Match`, or `Range`, or sends another range, is not believed.
#[tokio::test(start_paused = true)]
async fn what_is_not_the_same_version_is_cut_where_it_broke() {
    let old = b"old old old old ";
    let rest = |more: &str| {
        let mut answer = head(206, 8, more);
        answer.extend_from_slice(b"new new ");
        Act::Say(answer)
    };
    let others = [
        Act::Serve,
        rest("etag: \"new\"\r\ncontent-range: bytes 8-15/16\r\n"),
        rest("content-range: bytes 8-15/16\r\n"),
        rest("etag: W/\"old\"\r\ncontent-range: bytes 8-15/16\r\n"),
        rest("etag: \"old\"\r\ncontent-range: bytes 0-7/16\r\n"),
        rest("etag: \"old\"\r\ncontent-range: bytes 8-15/17\r\n"),
        rest("etag: \"old\"\r\n"),
        Act::Say(begun("\"old\"", old, 16)),
        Act::Say(crate::scripted::status(404)),
    ];
    for other in others {
        let mut stage = Stage::new(2, None).await;
        stage.put("\"new\"", &b"new new new new "[..]);
        stage.acts([Act::End(begun("\"old\"", old, 8)), other]);
        let (bytes, error) = drain(stage.read(&[]).await.unwrap().unwrap()).await;
        assert_eq!(bytes, &old[..8]);
        assert!(matches!(error, Some(Error::Cut { .. })), "{error:?}");
        stage.arrived().await;
        stage.arrived().await;
        assert_eq!(stage.hedges().resumes.changed.get(), 1);
        assert_eq!(
            stage.origins.iter().map(|o| o.seen().len()).sum::<usize>(),
            2
        );
        stage.assert_idle();
    }
}

/// Goal: the arm that won is the version that is continued.
/// Method: the object changes between the arms; the hedge's answer is the new one, and breaks off.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_breaks_off_is_continued_with_its_own_version() {
    let mut stage = Stage::new(2, Some(eager())).await;
    let (old, new) = (b"old old old old ", b"new new new new ");
    stage.put("\"old\"", &old[..]);
    stage.acts([Act::Stall(Vec::new()), Act::End(begun("\"new\"", new, 8))]);
    let reading = stage.read(&[]);
    stage.arrived().await;
    stage.pass(crate::stage::DELAY * 2).await;
    stage.arrived().await;
    let (bytes, error) = drain(reading.await.unwrap().unwrap()).await;
    assert_eq!(bytes, &new[..8]);
    assert!(matches!(error, Some(Error::Cut { .. })), "{error:?}");
    assert_eq!(
        stage.arrived().await.seen.header("if-match"),
        Some("\"new\"")
    );
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_named_is_not_continued() {
    let bytes = b"0123456789";
    let weak = begun("W/\"v\"", bytes, 5);
    let mut nameless = head(200, 10, "");
    nameless.extend_from_slice(&bytes[..5]);
    let mut lengthless =
        b"HTTP/1.1 200 OK\r\netag: \"v\"\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    lengthless.extend_from_slice(b"5\r\n01234\r\n");
    for cut in [weak, nameless, lengthless] {
        let stage = Stage::new(2, None).await;
        stage.acts([Act::End(cut)]);
        let (got, error) = drain(stage.read(&[]).await.unwrap().unwrap()).await;
        assert_eq!(got, &bytes[..5]);
        assert!(matches!(error, Some(Error::Cut { .. })), "{error:?}");
        assert_eq!(
            stage.origins.iter().map(|o| o.seen().len()).sum::<usize>(),
            1
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_continued_three_times_at_most_and_within_the_budget_of_retries() {
    let object = pattern(1000);
    let part = |first: usize| {
        let more = format!("etag: \"v\"\r\ncontent-range: bytes {first}-999/1000\r\n");
        let mut answer = head(206, 1000 - first, &more);
        answer.extend_from_slice(&object[first..first + 100]);
        Act::End(answer)
    };
    let cuts = || {
        [
            Act::End(begun("\"v\"", &object, 100)),
            part(100),
            part(200),
            part(300),
        ]
    };
    let stage = Stage::new(2, None).await;
    // The budget is ten retries, and earns a tenth with each read.
    for _ in 0..3 {
        stage.acts(cuts());
        let (bytes, error) = drain(stage.read(&[]).await.unwrap().unwrap()).await;
        assert!(bytes == object[..400], "{}", bytes.len());
        assert!(matches!(error, Some(Error::Cut { .. })), "{error:?}");
    }
    stage.acts([Act::End(begun("\"v\"", &object, 100)), part(100)]);
    let (bytes, error) = drain(stage.read(&[]).await.unwrap().unwrap()).await;
    assert!(bytes == object[..200], "{}", bytes.len());
    assert!(matches!(error, Some(Error::Cut { .. })), "{error:?}");
    assert_eq!(stage.hedges().resumes.budget.get(), 1);
    stage.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_refuses_to_continue_is_followed_by_another() {
    let stage = Stage::new(2, None).await;
    stage.put("\"v\"", "0123456789");
    let refuse = Act::Say(crate::scripted::status(503));
    stage.acts([Act::End(begun("\"v\"", b"0123456789", 4)), refuse]);
    let (bytes, error) = drain(stage.read(&[]).await.unwrap().unwrap()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(bytes, b"0123456789");
    let resumes = &stage.hedges().resumes;
    assert_eq!((resumes.failed.get(), resumes.resumed.get()), (1, 1));
}

/// A body that has given its first five bytes, and is waited for.
async fn stalled(stage: &mut Stage) -> Body {
    let mut body = stage.read(&[]).await.unwrap().unwrap().body;
    stage.arrived().await;
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "01234");
    body
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_goes_on_elsewhere_and_the_first_is_let_go() {
    let hedge = eager();
    let stall = hedge.stall;
    let mut stage = Stage::new(2, Some(hedge)).await;
    stage.put("\"v\"", "0123456789");
    stage.acts([Act::Stall(begun("\"v\"", b"0123456789", 5))]);
    let body = stalled(&mut stage).await;
    let reading = tokio::spawn(body.collect(100));
    settle().await;
    stage.pass(stall.mul_f64(0.99)).await;
    assert_eq!(
        stage.hedges().resumes.resumed.get(),
        0,
        "not before its time"
    );
    stage.pass(stall.mul_f64(0.02)).await;
    assert_eq!(
        stage.arrived().await.seen.header("range"),
        Some("bytes=5-9")
    );
    assert_eq!(reading.await.unwrap().unwrap().0, "56789");
    stage.closed().await;
    stage.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_goes_on_by_itself_is_kept() {
    let hedge = eager();
    let stall = hedge.stall;
    let mut stage = Stage::new(2, Some(hedge)).await;
    let told = Arc::new(Notify::new());
    let begun = begun("\"v\"", b"0123456789", 5);
    let slow = Act::Later(begun, Arc::clone(&told), b"56789".to_vec());
    stage.acts([slow, Act::Stall(Vec::new())]);
    let body = stalled(&mut stage).await;
    let reading = tokio::spawn(body.collect(100));
    settle().await;
    stage.pass(stall * 2).await;
    stage.arrived().await;
    told.notify_one();
    assert_eq!(reading.await.unwrap().unwrap().0, "56789");
    stage.closed().await;
    assert_eq!(stage.hedges().resumes.resumed.get(), 0);
    stage.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_everywhere_is_cut_when_it_has_been_idle_too_long() {
    let hedge = eager();
    let stall = hedge.stall;
    let mut stage = Stage::new(2, Some(hedge)).await;
    stage.put("\"w\"", "9876543210");
    stage.acts([Act::Stall(begun("\"v\"", b"0123456789", 5))]);
    let body = stalled(&mut stage).await;
    let reading = tokio::spawn(body.collect(100));
    settle().await;
    stage.pass(stall * 2).await;
    stage.arrived().await;
    settle().await;
    assert!(
        !reading.is_finished(),
        "there is another version, but this one may go on"
    );
    stage.pass(Duration::from_secs(31)).await;
    let error = failure(reading.await.unwrap());
    assert!(matches!(error, Error::Cut { .. }), "{error:?}");
    stage.closed().await;
    stage.assert_idle();
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_pauses_is_no_stall() {
    let hedge = eager();
    let stall = hedge.stall;
    let mut stage = Stage::new(2, Some(hedge)).await;
    let told = Arc::new(Notify::new());
    let begun = begun("\"v\"", b"0123456789", 5);
    stage.acts([Act::Later(begun, Arc::clone(&told), b"56789".to_vec())]);
    let body = stalled(&mut stage).await;
    stage.pass(stall * 3).await;
    told.notify_one();
    settle().await;
    assert_eq!(body.collect(100).await.unwrap().0, "56789");
    let seen: usize = stage.origins.iter().map(|o| o.seen().len()).sum();
    stage.pass(stall * 3).await;
    assert_eq!(
        stage.origins.iter().map(|o| o.seen().len()).sum::<usize>(),
        seen
    );
}
