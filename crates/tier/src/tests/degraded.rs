//! A full budget, a hot store that fails, a cold store that is down.

use std::sync::atomic::{AtomicU8, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_native::{
    hot::{Held, HotKey, HotStore, Queue, Queued, Swap, Swapped, Totals, Want},
    leases::Lease,
};
use forebay_s3::{bucket::BucketName, key::ObjectKey};
use forebay_store::{
    Body, Error,
    contract::requests::{get, list_v2, put},
    faulty::Fault,
};

use super::*;

/// A hot store that takes no writes, or answers nothing.
struct Failing {
    hot: IndexedHot,
    /// 0: works; 1: full; 2: gone.
    state: AtomicU8,
}

impl Failing {
    fn new(rig: &Rig) -> Arc<Self> {
        Arc::new(Self {
            hot: IndexedHot::new(rig.parts.clone(), Space::parse("test").unwrap()),
            state: AtomicU8::new(0),
        })
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Relaxed);
    }

    fn check(&self, from: u8) -> Result<(), Error> {
        if self.state.load(Ordering::Relaxed) >= from {
            return Err(Error::Unavailable {
                reason: "injected".into(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl HotStore for Failing {
    async fn get(&self, key: &HotKey, want: Want) -> Result<Option<Held>, Error> {
        self.check(2)?;
        self.hot.get(key, want).await
    }

    async fn swap(&self, swap: Swap<'_>) -> Result<Swapped, Error> {
        self.check(1)?;
        self.hot.swap(swap).await
    }

    async fn bytes(
        &self,
        key: &HotKey,
        held: &Held,
        span: std::ops::Range<u64>,
    ) -> Result<Option<Body>, Error> {
        self.check(2)?;
        self.hot.bytes(key, held, span).await
    }

    async fn range(
        &self,
        bucket: &BucketName,
        keys: std::ops::Range<Vec<u8>>,
        records_max: usize,
    ) -> Result<Vec<(ObjectKey, Held)>, Error> {
        self.check(2)?;
        self.hot.range(bucket, keys, records_max).await
    }

    async fn queue(
        &self,
        queue: Queue,
        after: Option<&Queued>,
        places_max: usize,
    ) -> Result<Vec<Queued>, Error> {
        self.check(2)?;
        self.hot.queue(queue, after, places_max).await
    }

    async fn totals(&self) -> Result<Totals, Error> {
        self.check(2)?;
        self.hot.totals().await
    }

    async fn lease(
        &self,
        name: &'static str,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error> {
        self.check(1)?;
        self.hot.lease(name, holder, time).await
    }

    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error> {
        self.check(1)?;
        self.hot.renew(lease, time).await
    }

    async fn release(&self, lease: Lease) -> Result<(), Error> {
        self.check(1)?;
        self.hot.release(lease).await
    }

    fn durability(&self) -> HotDurability {
        self.hot.durability()
    }
}

fn is_unavailable<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Unavailable { .. }))
}

async fn tier_of(name: &str, layer: &TierLayer) -> String {
    let answer = get("bucket", name).expect(200, layer).await;
    answer.header("x-forebay-tier").to_owned()
}

#[tokio::test]
async fn a_hot_store_that_takes_nothing_lets_writes_through_but_never_past_what_it_has() {
    let (rig, _) = Rig::with_bucket().await;
    let hot = Failing::new(&rig);
    let both = (
        hot.clone() as Arc<dyn HotStore>,
        rig.cold.clone() as Arc<dyn Store>,
    );
    let layer = rig.gateway_over("g1", TierSettings::default(), both);
    put("bucket", "dirty").body("v1").expect(200, &layer).await;
    hot.set(1);
    let written = put("bucket", "new").body("v1").expect(200, &layer).await;
    assert_eq!(written.header("x-forebay-durability"), "origin");
    assert!(is_unavailable(
        &put("bucket", "dirty").body("v2").send(&layer).await
    ));
    assert_eq!(
        get("bucket", "dirty").expect(200, &layer).await.text(),
        "v1"
    );
    // Nobody knows what is dirty: neither an older object nor a wrong absence is told.
    hot.set(2);
    for name in ["dirty", "new"] {
        assert!(
            is_unavailable(&get("bucket", name).send(&layer).await),
            "{name}"
        );
        assert!(
            is_unavailable(&put("bucket", name).body("v2").send(&layer).await),
            "{name}"
        );
    }
    assert!(is_unavailable(&list_v2("bucket").send(&layer).await));
    hot.set(0);
    put("bucket", "dirty").body("v3").expect(200, &layer).await;
    assert_eq!(tier_of("dirty", &layer).await, "hot");
}

#[tokio::test]
async fn a_full_budget_sends_writes_to_the_cold_store_and_loses_nothing() {
    let (rig, _) = Rig::with_bucket().await;
    let settings = TierSettings {
        dirty_bytes_max: 100,
        ..TierSettings::default()
    };
    let layer = rig.gateway("g1", settings);
    let body = |n: u8| vec![n; 30];
    for n in 0..3 {
        put("bucket", &n.to_string())
            .body(body(n))
            .expect(200, &layer)
            .await;
    }
    let over = put("bucket", "3").body(body(3)).expect(200, &layer).await;
    assert_eq!(over.header("x-forebay-tier"), "cold");
    // What takes no more room than it frees may stay.
    put("bucket", "0").body(body(9)).expect(200, &layer).await;
    assert_eq!(tier_of("0", &layer).await, "hot");
    let status = layer.operator().status().await.unwrap();
    assert_eq!(
        (status.totals.dirty_bytes, status.totals.dirty_count),
        (90, 3)
    );
    // From half of the budget on the mover does not wait for age.
    assert_eq!(layer.mover().turn().await.unwrap().done_count, 3);
    put("bucket", "4").body(body(4)).expect(200, &layer).await;
    assert_eq!(tier_of("4", &layer).await, "hot");
    for (name, byte) in [("0", 9), ("1", 1), ("2", 2), ("3", 3), ("4", 4)] {
        let answer = get("bucket", name).expect(200, &layer).await;
        assert_eq!(answer.body, body(byte), "{name}");
    }
}

#[tokio::test]
async fn writes_go_on_while_the_cold_store_is_down_and_it_catches_up_by_itself() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "before").body("v").expect(200, &layer).await;
    rig.pass(3600);
    let calls = rig.cold.calls();
    rig.cold.script(std::iter::repeat_n(Fault::Unavailable, 64));
    for n in 0..20 {
        put("bucket", &n.to_string())
            .body("v")
            .expect(200, &layer)
            .await;
    }
    let turn = layer.mover().turn().await.unwrap();
    assert_eq!(turn.done_count, 0);
    // A store that is down is not asked for every object.
    assert!(rig.cold.calls() - calls < 64);
    rig.cold.script([]);
    while rig.cold.calls() < calls + 64 {
        let _ = get("bucket", "elsewhere").send(&*rig.cold).await;
    }
    rig.pass(3600);
    layer.mover().turn().await.unwrap();
    assert!(!layer.operator().has_dirty().await.unwrap());
}

#[tokio::test]
async fn one_key_that_is_refused_holds_up_no_other() {
    let (rig, _) = Rig::with_bucket().await;
    let layer = rig.gateway(
        "g1",
        TierSettings {
            moves_max: 1,
            ..TierSettings::default()
        },
    );
    create_bucket("gone-soon").expect(200, &*rig.cold).await;
    put("gone-soon", "k").body("v").expect(200, &layer).await;
    put("bucket", "k").body("v").expect(200, &layer).await;
    contract::requests::delete_bucket("gone-soon")
        .expect(204, &*rig.cold)
        .await;
    rig.pass(3600);
    let turn = layer.mover().turn().await.unwrap();
    assert_eq!((turn.done_count, turn.failed_count), (1, 1));
    // It is tried later, and not every time.
    assert_eq!(layer.mover().turn().await.unwrap().failed_count, 0);
    rig.pass(3600);
    assert_eq!(layer.mover().turn().await.unwrap().failed_count, 1);
    assert_eq!(get("gone-soon", "k").expect(200, &layer).await.text(), "v");
}

#[tokio::test]
async fn a_drain_leaves_nothing_and_takes_nothing_until_it_is_over() {
    let (rig, layer) = Rig::with_bucket().await;
    put("bucket", "k").body("v").expect(200, &layer).await;
    let operator = layer.operator();
    assert!(operator.drain(Duration::ZERO).await.unwrap());
    assert!(!operator.has_dirty().await.unwrap());
    put("bucket", "k2").body("v").expect(200, &layer).await;
    assert_eq!(tier_of("k2", &layer).await, "cold");
    operator.resume();
    put("bucket", "k2").body("v").expect(200, &layer).await;
    assert_eq!(tier_of("k2", &layer).await, "hot");
    drop(rig);
}

#[tokio::test]
async fn a_gateway_is_not_ready_when_the_oldest_dirty_object_is_too_old() {
    let (rig, layer) = Rig::with_bucket().await;
    let operator = layer.operator();
    put("bucket", "k").body("v").expect(200, &layer).await;
    operator.readiness().await.unwrap();
    rig.pass(24 * 3600 + 1);
    let late = operator.readiness().await.unwrap_err();
    assert_eq!(late.age, Duration::from_secs(24 * 3600 + 1));
    layer.mover().turn().await.unwrap();
    operator.readiness().await.unwrap();
}
