//! Start, drain and stop.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use super::harness::{Ask, Client, Edge, settings};
use crate::{Drained, Gateway, Parts, StartError, routes::Routes};

pub(super) const LONG: Duration = Duration::from_secs(20);

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_drain_finishes_what_is_under_way_and_takes_nothing_new() {
    let edge = Edge::start();
    edge.store.put("key", "bytes");
    let gate = Arc::new(Semaphore::new(0));
    *edge.store.gate.lock().unwrap() = Some(Arc::clone(&gate));
    let (mut idle, mut busy) = (edge.connect(), edge.connect());
    busy.write(&Ask::get("/public/key").bytes(&edge));
    let Edge {
        running,
        store,
        address,
        ..
    } = edge;
    let drained = block_on(async {
        store.reached.notified().await;
        let drain = tokio::spawn(running.drain(LONG));
        // The idle connection's end tells that the drain has begun.
        tokio::task::spawn_blocking(move || assert!(idle.is_closed()))
            .await
            .unwrap();
        gate.add_permits(1);
        drain.await.unwrap()
    });
    assert_eq!(drained, Drained { connections_cut: 0 });
    let reply = busy.reply();
    assert_eq!((reply.status, reply.text().as_str()), (200, "bytes"));
    assert!(busy.is_closed());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn a_drain_cuts_what_is_left_at_its_deadline() {
    let edge = Edge::start();
    *edge.store.gate.lock().unwrap() = Some(Arc::new(Semaphore::new(0)));
    let mut client = edge.connect();
    client.write(&Ask::get("/public/key").bytes(&edge));
    let Edge { running, store, .. } = edge;
    let drained = block_on(async {
        store.reached.notified().await;
        running.drain(Duration::from_millis(100)).await
    });
    assert_eq!(drained, Drained { connections_cut: 1 });
    assert!(client.is_closed());
}

#[test]
fn every_thread_accepts_on_the_same_port() {
    let mut settings = settings();
    settings.threads = 3.try_into().unwrap();
    let edge = Edge::start_with(settings);
    edge.store.put("key", "bytes");
    let mut clients: Vec<Client> = (0..30).map(|_| edge.connect()).collect();
    for client in &mut clients {
        assert_eq!(
            client.send(&Ask::get("/public/key").bytes(&edge)).text(),
            "bytes"
        );
    }
    assert_eq!(block_on(edge.running.drain(LONG)).connections_cut, 0);
}

#[test]
fn an_address_in_use_is_told_at_the_start() {
    let edge = Edge::start();
    let mut settings = settings();
    settings.listeners[0].address = edge.address;
    let parts = Parts {
        routes: Routes::new(vec![]),
        users: super::harness::users(),
        clock: edge.clock.clone(),
        budget: forebay_store::Budget::new(1024, LONG),
        metrics: Gateway::metrics(&settings),
    };
    let error = Gateway::start(settings, parts).unwrap_err();
    assert!(matches!(error, StartError::Listen { address, .. } if address == edge.address));
}
