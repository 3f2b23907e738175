//! The task beside a set of endpoints: looks names up, probes what was left out.
//!
//! It ends with the set, which aborts it, or with the runtime it was started on; the next choice
//! then starts it on a runtime that lives. Lookups and probes run beside each other, at most one of
//! each for a name or an endpoint.

use std::sync::{Arc, Weak};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    attempt::Sender,
    endpoint::{Endpoint, Shared},
    resolve::Lookup,
    set::EndpointSet,
};

/// Says that there is no task any more, however it ended.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.set_kept(false);
    }
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub lookups: Vec<Lookup>,
    pub probes: Vec<Arc<Endpoint>>,
    /// When there will be more.
    pub next: Option<Instant>,
}

/// Keeps a set until it is dropped.
pub(crate) async fn keep(set: Weak<EndpointSet>, sender: Weak<Sender>, running: Running) {
    let mut jobs = JoinSet::new();
    loop {
        let (Some(kept), Some(sender)) = (set.upgrade(), sender.upgrade()) else {
            return;
        };
        let due = kept.due(Instant::now());
        drop(kept);
        for lookup in due.lookups {
            let set = Weak::clone(&set);
            jobs.spawn(async move {
                let found = lookup.run().await;
                if let Some(set) = set.upgrade() {
                    set.found(&lookup, found);
                }
            });
        }
        for endpoint in due.probes {
            let sender = Arc::clone(&sender);
            jobs.spawn(async move {
                endpoint.probed(sender.probe(&endpoint).await);
            });
        }
        drop(sender);
        let later = async {
            match due.next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = running.0.wake.notified() => {}
            // What it came to is with the set; when more is due may have changed.
            Some(_) = jobs.join_next() => {}
            () = later => {}
        }
    }
}
