//! Limits: what happens to clients that are slow, silent, or too many.

use std::{io::Read, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_store::{Budget, Response};
use http::StatusCode;

use super::harness::{Ask, Edge, TestStore, settings, stalling};
use crate::settings::{Limits, Settings};

const SHORT: Duration = Duration::from_millis(200);

fn with_limits(change: impl FnOnce(&mut Limits)) -> Settings {
    let mut settings = settings();
    change(&mut settings.limits);
    settings
}

#[test]
fn a_head_larger_than_the_limit_is_told_so() {
    let edge = Edge::start_with(with_limits(|limits| limits.header_bytes_max = 4096));
    let ask = |bytes: usize| Ask::get("/public/key").header("x-filler", &"x".repeat(bytes));
    assert_eq!(edge.send(&ask(3000)).code(), "NoSuchKey");
    let reply = edge.send(&ask(5000));
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (400, "RequestHeaderSectionTooLarge")
    );
    assert_eq!(edge.send(&ask(100_000)).status, 431);
    let many = (0..200).fold(Ask::get("/public/key"), |ask, i| {
        ask.header(&format!("x-{i}"), "")
    });
    assert_eq!(edge.send(&many).status, 431);
}

#[test]
fn a_head_that_drips_is_cut() {
    let edge = Edge::start_with(with_limits(|limits| limits.header_timeout = SHORT));
    for text in ["", "G", "PRI * HTTP/2.0\r\n", "GET / HTTP/1.1\r\nhost:"] {
        let mut client = edge.connect();
        client.write(text.as_bytes());
        assert!(client.is_closed(), "{text:?}");
    }
    // The same in a second request of a connection.
    let mut client = edge.connect();
    assert_eq!(
        client.send(&Ask::get("/public/key").bytes(&edge)).status,
        404
    );
    client.write(b"GET /public/");
    assert!(client.is_closed());
}

#[test]
fn an_idle_connection_is_closed() {
    let edge = Edge::start_with(with_limits(|limits| limits.idle_timeout = SHORT));
    let mut client = edge.connect();
    assert_eq!(
        client.send(&Ask::get("/public/key").bytes(&edge)).status,
        404
    );
    assert!(client.is_closed());
}

#[test]
fn an_upload_that_stalls_gets_a_timeout_and_is_not_stored() {
    let edge = Edge::start_with(with_limits(|limits| limits.stall_timeout = SHORT));
    let put = Ask::put("/open/key", vec![7; 1000])
        .signed_by("ann")
        .bytes(&edge);
    let mut client = edge.connect();
    let reply = client.send(&put[..put.len() - 500]);
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (400, "RequestTimeout")
    );
    assert!(edge.store.object("key").is_none());
    assert!(client.is_closed());
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let edge = Edge::start_with(with_limits(|limits| limits.stall_timeout = SHORT));
    // More than any socket buffer takes.
    edge.store.put("key", vec![7; 32 * 1024 * 1024]);
    let mut client = edge.connect();
    client.write(&Ask::get("/public/key").bytes(&edge));
    let is_cut = || {
        edge.running
            .metrics_text()
            .contains("forebay_connections_cut_total 1\n")
    };
    while !is_cut() {
        std::thread::yield_now();
    }
    let mut rest = Vec::new();
    // Cut, with or without an error.
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 32 * 1024 * 1024);
}

#[test]
fn a_slow_store_is_no_slow_reader() {
    let edge = Edge::start_with(with_limits(|limits| limits.stall_timeout = SHORT));
    edge.store.answers(|_| {
        let first = vec![Ok(Bytes::from_static(b"12345"))];
        Ok(Response::new(StatusCode::OK).with_body(stalling(first, 10)))
    });
    let mut client = edge.connect();
    client.write(&Ask::get("/public/key").bytes(&edge));
    client.stream.set_read_timeout(Some(4 * SHORT)).unwrap();
    let mut all = Vec::new();
    let error = client.stream.read_to_end(&mut all).unwrap_err();
    // The client's own patience ended, not the gateway's.
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(all.ends_with(b"12345"));
}

#[test]
fn a_store_that_does_not_answer_in_time_is_unavailable() {
    let edge = Edge::start_with(with_limits(|limits| limits.request_timeout = SHORT));
    *edge.store.gate.lock().unwrap() = Some(Arc::new(tokio::sync::Semaphore::new(0)));
    let reply = edge.send(&Ask::get("/public/key"));
    assert_eq!(
        (reply.status, reply.code().as_str()),
        (503, "ServiceUnavailable")
    );
}

#[test]
fn connections_beyond_the_limit_wait() {
    let edge = Edge::start_with(with_limits(|limits| limits.connections_max = 2));
    let get = Ask::get("/public/key").bytes(&edge);
    let mut first = edge.connect();
    let mut second = edge.connect();
    assert_eq!(
        (first.send(&get).status, second.send(&get).status),
        (404, 404)
    );
    let mut third = edge.connect();
    third.write(&get);
    third.stream.set_read_timeout(Some(SHORT)).unwrap();
    let error = third.stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    third
        .stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    drop(first);
    assert_eq!(third.reply().status, 404);
}

#[test]
fn an_upload_that_finds_no_room_is_told_to_slow_down() {
    let store = Arc::new(TestStore::default());
    let budget = Budget::new(32 * 1024, SHORT);
    let held = budget.try_reserve(32 * 1024).unwrap();
    let edge = Edge::start_within(settings(), Arc::clone(&store) as _, store, budget);
    let put = Ask::put("/open/key", vec![7; 1000]).signed_by("ann");
    let reply = edge.send(&put);
    assert_eq!((reply.status, reply.code().as_str()), (503, "SlowDown"));
    assert!(reply.header("retry-after").is_some());
    drop(held);
    assert_eq!(edge.send(&put).status, 200);
}

#[test]
fn a_client_that_leaves_frees_what_it_held() {
    let store = Arc::new(TestStore::default());
    let budget = Budget::new(1024 * 1024, SHORT);
    let edge = Edge::start_within(settings(), Arc::clone(&store) as _, store, budget.clone());
    let put = Ask::put("/open/key", vec![7; 100_000])
        .signed_by("ann")
        .bytes(&edge);
    let mut client = edge.connect();
    client.write(&put[..put.len() - 1]);
    while budget.used_bytes() == 0 {
        std::thread::yield_now();
    }
    drop(client);
    edge.wait_for_requests(0);
    assert_eq!(budget.used_bytes(), 0);
    assert!(edge.store.object("key").is_none());
}
