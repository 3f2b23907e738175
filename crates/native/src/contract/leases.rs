//! Leases: one holder, for a time, with numbers that grow.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::{
    index::Route,
    leases::{Lease, Leases},
};

/// Runs out within no check.
const LONG: Duration = Duration::from_hours(1);
/// Runs out when it has passed.
const SHORT: Duration = Duration::from_secs(1);

pub(super) async fn check<F, P>(make: &F, pass: &P)
where
    F: AsyncFn() -> Arc<dyn Leases>,
    P: AsyncFn(Duration),
{
    a_lease_has_one_holder(&*make().await).await;
    of_many_who_ask_one_holds(&make().await).await;
    a_released_lease_is_free(&*make().await).await;
    a_lease_that_ran_out_is_free(&*make().await, pass).await;
    a_renewed_lease_lasts(&*make().await, pass).await;
}

fn route(name: &'static str) -> Route {
    Route::One(Bytes::from(name))
}

async fn ask(
    leases: &dyn Leases,
    route: &Route,
    holder: &'static str,
    time: Duration,
) -> Option<Lease> {
    let asked = leases.acquire(route, &Bytes::from(holder), time).await;
    asked.expect("an answer")
}

async fn a_lease_has_one_holder(leases: &dyn Leases) {
    let one = route("lease/one");
    let first = ask(leases, &one, "a", LONG).await.expect("it is free");
    assert_eq!((&first.route, &first.holder[..]), (&one, &b"a"[..]));
    assert_eq!(ask(leases, &one, "b", LONG).await, None);
    let other = ask(leases, &route("lease/other"), "b", LONG).await;
    assert!(other.is_some(), "another route has a lease of its own");
    let again = ask(leases, &one, "a", LONG).await.expect("its own");
    assert!(again.fence > first.fence, "asked again, a new fence");
    let stale = leases.renew(&first, LONG).await.expect("an answer");
    assert!(!stale, "the lease with the earlier fence is not held");
    assert!(leases.renew(&again, LONG).await.expect("an answer"));
}

async fn of_many_who_ask_one_holds(leases: &Arc<dyn Leases>) {
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let leases = Arc::clone(leases);
        tasks.spawn(async move {
            let holder = Bytes::from(format!("holder {task}"));
            let asked = leases.acquire(&route("lease/storm"), &holder, LONG).await;
            asked.expect("an answer")
        });
    }
    let held: Vec<Lease> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(held.len(), 1, "{held:?}");
}

async fn a_released_lease_is_free(leases: &dyn Leases) {
    let route = route("lease/released");
    let first = ask(leases, &route, "a", LONG).await.expect("it is free");
    leases.release(first.clone()).await.expect("a release");
    assert!(!leases.renew(&first, LONG).await.expect("an answer"));
    let second = ask(leases, &route, "b", LONG).await.expect("it is free");
    assert!(second.fence > first.fence);
    leases
        .release(first)
        .await
        .expect("no longer held is success");
    assert!(leases.renew(&second, LONG).await.expect("an answer"));
}

async fn a_lease_that_ran_out_is_free<P: AsyncFn(Duration)>(leases: &dyn Leases, pass: &P) {
    let route = route("lease/ran-out");
    let first = ask(leases, &route, "a", SHORT).await.expect("it is free");
    pass(SHORT).await;
    assert!(!leases.renew(&first, LONG).await.expect("an answer"));
    let second = ask(leases, &route, "b", LONG).await.expect("it is free");
    assert!(second.fence > first.fence);
    assert!(!leases.renew(&first, LONG).await.expect("an answer"));
    leases
        .release(first)
        .await
        .expect("no longer held is success");
    assert_eq!(ask(leases, &route, "a", LONG).await, None);
}

async fn a_renewed_lease_lasts<P: AsyncFn(Duration)>(leases: &dyn Leases, pass: &P) {
    let route = route("lease/renewed");
    let lease = ask(leases, &route, "a", SHORT).await.expect("it is free");
    assert!(leases.renew(&lease, LONG).await.expect("an answer"));
    pass(SHORT).await;
    assert_eq!(ask(leases, &route, "b", LONG).await, None);
    assert!(leases.renew(&lease, LONG).await.expect("an answer"));
}

pub(super) async fn reopened<F: AsyncFn() -> Arc<dyn Leases>>(open: &F) {
    let route = route("lease/reopened");
    let first = open().await;
    let before = ask(&*first, &route, "a", LONG).await.expect("it is free");
    first.release(before.clone()).await.expect("a release");
    drop(first);
    let second = open().await;
    let after = ask(&*second, &route, "b", LONG).await.expect("it is free");
    assert!(after.fence > before.fence, "fences grow across restarts");
}
