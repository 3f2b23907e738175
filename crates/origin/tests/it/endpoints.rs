//! Several endpoints that share their data.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use forebay_origin::{
    OriginSettings, OriginStore, PayloadSigning,
    operator::{EndpointState, EndpointStatus, UnknownEndpoint},
    resolve::Resolve,
};
use forebay_store::{
    Clock, Error, Store as _,
    contract::requests::{get, put},
};
use forebay_telemetry::origin::OriginMetrics;
use tokio::sync::Semaphore;

use crate::scripted::{Scripted, failure, ok, settings, status, store, store_counting};

/// Settings with all of these endpoints, and short times.
fn settings_of(origins: &[&Scripted]) -> OriginSettings {
    let mut all = settings(&format!("http://{}", origins[0].address));
    all.endpoints = origins
        .iter()
        .map(|origin| format!("http://{}", origin.address).parse().unwrap())
        .collect();
    all.health.ejection = Duration::from_millis(10);
    all.health.ejection_max = Duration::from_millis(20);
    all
}

/// An origin that answers every request with the status that is set.
async fn switched() -> (Scripted, Arc<AtomicU16>) {
    let code = Arc::new(AtomicU16::new(200));
    let switch = Arc::clone(&code);
    let origin = Scripted::answering(move |_| status(code.load(Ordering::SeqCst))).await;
    (origin, switch)
}

/// Waits until the endpoints are as `wanted`.
async fn until(store: &OriginStore, wanted: impl Fn(&[EndpointStatus]) -> bool) {
    let operator = store.operator();
    while !wanted(&operator.status()) {
        tokio::task::yield_now().await;
    }
}

fn states(store: &OriginStore) -> Vec<EndpointState> {
    let status = store.operator().status();
    status.into_iter().map(|status| status.state).collect()
}

fn gets(origin: &Scripted) -> usize {
    let seen = origin.seen();
    seen.iter().filter(|seen| seen.method == "GET").count()
}

#[tokio::test]
async fn each_attempt_is_signed_for_the_host_that_it_goes_to() {
    let busy = Scripted::answering(|_| status(503)).await;
    let calm = Scripted::answering(|_| ok(b"calm")).await;
    let store = store(&settings_of(&[&busy, &calm]));
    for _ in 0..8 {
        get("bucket", "k").expect(200, &store).await;
    }
    let signature = |origin: &Scripted| {
        let seen = origin.seen();
        for seen in &seen {
            assert_eq!(seen.header("host").unwrap(), origin.address.to_string());
        }
        seen[0].header("authorization").unwrap().to_owned()
    };
    assert_ne!(signature(&busy), signature(&calm));
}

#[tokio::test]
async fn an_upload_that_was_not_sent_goes_to_another_endpoint_signed_anew() {
    let gone = Scripted::answering(|_| status(200)).await;
    let calm = Scripted::answering(|_| status(200)).await;
    let mut all = settings_of(&[&gone, &calm]);
    all.payload_signing = PayloadSigning::Chunks;
    let store = store(&all);
    drop(gone);
    for _ in 0..4 {
        put("bucket", "k").body("bytes").expect(200, &store).await;
    }
    let seen = calm.seen();
    assert_eq!(seen.len(), 4);
    for seen in seen {
        assert_eq!(seen.header("host").unwrap(), calm.address.to_string());
        assert!(seen.body.starts_with(b"5;chunk-signature="));
    }
}

/// Goal: what one endpoint can't do another is asked for at once, also when it asks to wait.
#[tokio::test]
async fn a_failure_of_one_endpoint_is_hidden_by_another() {
    let refusing = "HTTP/1.1 503 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    let answers = [
        refusing.as_bytes().to_vec(),
        status(500),
        status(502),
        status(504),
    ];
    for answer in answers {
        let bad = Scripted::answering(move |_| answer.clone()).await;
        let good = Scripted::answering(|_| ok(b"good")).await;
        let store = store(&settings_of(&[&bad, &good]));
        for _ in 0..6 {
            assert_eq!(get("bucket", "k").expect(200, &store).await.text(), "good");
        }
        assert!(!bad.seen().is_empty(), "it was never asked");
    }
}

#[tokio::test]
async fn an_endpoint_that_fails_is_left_out_and_comes_back_by_itself() {
    let ((bad, code), (good, _)) = (switched().await, switched().await);
    let metrics = OriginMetrics::default();
    let store = store_counting(&settings_of(&[&bad, &good]), &metrics);
    code.store(500, Ordering::SeqCst);
    until_ejected(&store).await;
    assert_eq!(states(&store)[1], EndpointState::Up);
    let of_bad = format!("http://{}", bad.address);
    assert!(metrics.endpoints.endpoint(&of_bad).ejections.get() >= 1);
    // Probes fail meanwhile, and no request goes there.
    let before = gets(&bad);
    for _ in 0..20 {
        get("bucket", "k").expect(200, &store).await;
    }
    assert_eq!(gets(&bad), before);
    code.store(200, Ordering::SeqCst);
    until(&store, |all| all[0].state == EndpointState::Probing).await;
    // The request that a trial allows.
    while gets(&bad) == before {
        get("bucket", "k").expect(200, &store).await;
    }
    assert!(states(&store)[0] != EndpointState::Ejected);
}

/// Asks until the first endpoint is left out.
async fn until_ejected(store: &OriginStore) {
    let is_out = |state| matches!(state, EndpointState::Ejected | EndpointState::Probing);
    while !is_out(states(store)[0]) {
        get("bucket", "k").send(store).await.unwrap();
    }
}

/// Goal: one endpoint with trouble of its own in some keys serves the others.
#[tokio::test]
async fn the_only_endpoint_is_not_left_out_for_what_it_answers() {
    let (only, code) = switched().await;
    let store = store(&settings_of(&[&only]));
    code.store(500, Ordering::SeqCst);
    for _ in 0..20 {
        get("bucket", "k").expect(500, &store).await;
    }
    code.store(200, Ordering::SeqCst);
    get("bucket", "k").expect(200, &store).await;
    assert_eq!(only.seen().len(), 21);
}

/// Goal: with the whole origin gone a request fails without a try, and when it returns the next
/// one is served.
#[tokio::test]
async fn an_origin_that_is_gone_fails_at_once_and_is_found_again() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut only = settings(&format!("http://{address}"));
    only.health.ejection = Duration::from_millis(10);
    only.health.ejection_max = Duration::from_millis(20);
    only.retries.attempts_max = 1;
    let metrics = OriginMetrics::default();
    let store = store_counting(&only, &metrics);
    for _ in 0..5 {
        failure(get("bucket", "k").send(&store).await);
    }
    until(&store, |all| all[0].state == EndpointState::Ejected).await;
    let tried = || metrics.endpoints.endpoint(&format!("http://{address}"));
    let before = tried().unreachable.get();
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(tried().unreachable.get(), before, "it was tried");
    let _back = Scripted::answering_at(address, |_| status(200)).await;
    until(&store, |all| {
        all[0].state == EndpointState::Probing && all[0].until.is_none()
    })
    .await;
    while get("bucket", "k").send(&store).await.is_err() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_operator_takes_endpoints_out_and_brings_them_back() {
    let ((one, _), (other, _)) = (switched().await, switched().await);
    let store = store(&settings_of(&[&one, &other]));
    let operator = store.operator();
    let name = format!("http://{}", one.address);
    for state in [EndpointState::HeldOut, EndpointState::Draining] {
        let taken_out = match state {
            EndpointState::HeldOut => operator.eject(&name),
            _ => operator.drain(&name),
        };
        taken_out.unwrap();
        assert_eq!(states(&store), [state, EndpointState::Up]);
        for _ in 0..10 {
            get("bucket", "k").expect(200, &store).await;
        }
        assert_eq!(one.seen().len(), 0);
    }
    operator.restore(&name).unwrap();
    assert_eq!(states(&store)[0], EndpointState::SlowStart);
    while one.seen().is_empty() {
        get("bucket", "k").expect(200, &store).await;
    }
    let unknown = operator.eject("http://nobody").unwrap_err();
    assert_eq!(
        unknown,
        UnknownEndpoint {
            name: "http://nobody".to_owned()
        }
    );
    for name in [&name, &format!("http://{}", other.address)] {
        operator.eject(name).unwrap();
    }
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

/// An origin whose answers wait for permits.
async fn gated() -> (Scripted, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let origin = Scripted::new({
        let gate = Arc::clone(&gate);
        move |_, mut peer| {
            let gate = Arc::clone(&gate);
            async move {
                while peer.request().await.is_some() {
                    gate.acquire().await.unwrap().forget();
                    peer.write(ok(b"x")).await;
                }
            }
        }
    })
    .await;
    (origin, gate)
}

/// Goal: at its limit an endpoint is left for another, then waited for, and not for ever.
#[tokio::test]
async fn requests_in_flight_are_bounded_at_each_endpoint() {
    let ((one, gate), (other, other_gate)) = (gated().await, gated().await);
    let mut all = settings_of(&[&one, &other]);
    all.limits.requests_max = 2;
    all.pool.wait_max = Duration::from_millis(50);
    let store = Arc::new(store(&all));
    let sent: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { get("bucket", "k").send(&*store).await })
        })
        .collect();
    until(&store, |all| all.iter().all(|one| one.in_flight == 2)).await;
    let error = failure(get("bucket", "k").send(&*store).await);
    assert!(matches!(error, Error::SlowDown { .. }), "{error:?}");
    gate.add_permits(10);
    other_gate.add_permits(10);
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
    assert_eq!((one.seen().len(), other.seen().len()), (2, 2));
    until(&store, |all| all.iter().all(|one| one.in_flight == 0)).await;
}

#[tokio::test]
async fn a_request_is_in_flight_until_the_last_byte_of_its_answer() {
    let origin = Scripted::answering(|_| ok(b"bytes")).await;
    let store = store(&settings_of(&[&origin]));
    let in_flight = || store.operator().status()[0].in_flight;
    let answer = store.call(get("bucket", "k").build()).await.unwrap();
    assert_eq!(in_flight(), 1);
    answer.body.collect(100).await.unwrap();
    assert_eq!(in_flight(), 0);
    let answer = store.call(get("bucket", "k").build()).await.unwrap();
    drop(answer);
    assert_eq!(in_flight(), 0);
}

#[tokio::test]
async fn refusals_lower_what_is_asked_of_an_endpoint() {
    let (only, code) = switched().await;
    let store = store(&settings_of(&[&only]));
    code.store(503, Ordering::SeqCst);
    get("bucket", "k").expect(503, &store).await;
    let at_least = store.operator().status()[0].clone();
    assert_eq!(
        (at_least.requests_max_now, at_least.state),
        (1, EndpointState::Up)
    );
    code.store(200, Ordering::SeqCst);
    for _ in 0..30 {
        get("bucket", "k").expect(200, &store).await;
    }
    assert!(store.operator().status()[0].requests_max_now > 1);
}

/// Goal: bytes in a second are bounded in both directions together.
/// Method: time that stands still but for waits; each body is a second's worth.
#[tokio::test]
async fn bytes_in_a_second_are_bounded() {
    const SECOND_BYTES: usize = 2000;
    let origin = Scripted::answering(|seen| match seen.method.as_str() {
        "GET" => ok(&[1; SECOND_BYTES / 20]),
        _ => status(200),
    })
    .await;
    let mut all = settings_of(&[&origin]);
    all.limits.bytes_per_second_max = Some(SECOND_BYTES as u64);
    let store = store(&all);
    let started = tokio::time::Instant::now();
    for _ in 0..5 {
        put("bucket", "k")
            .body(vec![1; SECOND_BYTES / 20])
            .expect(200, &store)
            .await;
        get("bucket", "k").expect(200, &store).await;
    }
    // Half a second's worth; the last piece is not waited for, and a burst is free.
    assert!(
        started.elapsed() >= Duration::from_millis(350),
        "{:?}",
        started.elapsed()
    );
}

/// A name service that says what a test wants.
#[derive(Debug, Default)]
struct Names {
    addresses: Mutex<Vec<SocketAddr>>,
    fails: AtomicBool,
    asked: AtomicU16,
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "origin.test");
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        Ok(self.addresses.lock().unwrap().clone())
    }
}

fn named(names: &Arc<Names>) -> OriginStore {
    let mut settings = settings("http://origin.test");
    settings.balance.resolve_interval = Duration::from_millis(10);
    let resolver: Arc<dyn Resolve> = Arc::<Names>::clone(names);
    OriginStore::with_resolver(
        &settings,
        resolver,
        Clock::system(),
        OriginMetrics::default(),
    )
    .unwrap()
}

#[tokio::test]
async fn every_address_behind_a_name_is_an_endpoint_and_changes_are_followed() {
    let ((one, _), (two, _), (three, _)) = (switched().await, switched().await, switched().await);
    let names = Arc::new(Names::default());
    let set = |origins: &[&Scripted]| {
        *names.addresses.lock().unwrap() = origins.iter().map(|one| one.address).collect();
    };
    set(&[&one, &two]);
    let store = named(&names);
    // The first request waits for the first lookup.
    get("bucket", "k").expect(200, &store).await;
    while one.seen().is_empty() || two.seen().is_empty() {
        get("bucket", "k").expect(200, &store).await;
    }
    assert_eq!(one.seen()[0].header("host").unwrap(), "origin.test");
    set(&[&two, &three]);
    until(&store, |all| {
        all.len() == 2 && all[1].state == EndpointState::SlowStart
    })
    .await;
    let before = one.seen().len();
    while three.seen().is_empty() {
        get("bucket", "k").expect(200, &store).await;
    }
    assert_eq!(one.seen().len(), before);
    // A name service in trouble changes nothing.
    names.fails.store(true, Ordering::SeqCst);
    let asked = names.asked.load(Ordering::SeqCst);
    while names.asked.load(Ordering::SeqCst) < asked + 4 {
        tokio::task::yield_now().await;
    }
    get("bucket", "k").expect(200, &store).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_asked_for_again() {
    let (origin, _) = switched().await;
    let names = Arc::new(Names::default());
    names.fails.store(true, Ordering::SeqCst);
    let store = named(&names);
    let error = failure(get("bucket", "k").send(&store).await);
    assert!(error.to_string().contains("resolve") || matches!(error, Error::Unavailable { .. }));
    *names.addresses.lock().unwrap() = vec![origin.address];
    names.fails.store(false, Ordering::SeqCst);
    until(&store, |all| !all.is_empty()).await;
    get("bucket", "k").expect(200, &store).await;
    // Nothing asks once the store is gone.
    drop(store);
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&names), 1);
}
