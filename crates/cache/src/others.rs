//! What a layer and those of other gateways tell each other of their writes.
//!
//! Others are told of a write once it is done at the origin and known here, before the client is
//! answered ([`Told`], made by `write`); what is told is what was invalidated here. A task (`hear`)
//! is told by them, and invalidates the same way: memory, disk, kept answers, and fills that began
//! before. It tells nobody in its turn.
//!
//! Telling holds no client up for longer than [`tell::TELL_TIME_MAX`]: what could not be told by
//! then is told later, by another task (`later`), for as long as it takes. After a failure writes
//! are answered without a try, until that task has caught up. It also tells what a client did not
//! wait for. What a write of unknown outcome may touch is told again and again while it may still
//! come (`doubts` says for how long), since others can't know of the doubt.
//!
//! While others may not be heard, what rests on hearing them (`exclusive`) is validated at each
//! read: no record validated before `heard_since_ms` is trusted (`freshness`), no kept answer or
//! missing object is given.
//!
//! Not here: how it is passed on, and how a lost connection is noticed ([`Changes`]).

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicI64, Ordering},
};

use forebay_s3::key::ObjectKey;
use forebay_store::changes::{Changed, Changes};
use parking_lot::Mutex;
use tokio::{runtime::Handle, task::AbortHandle};

use crate::{index::Written, layer::Layer};

mod hear;
mod later;
mod tell;

use later::Later;
pub(crate) use tell::Told;

/// Nobody else writes, or all of it has been heard since ever.
const EVER: i64 = i64::MIN;
/// Others are not heard.
const NOT_YET: i64 = i64::MAX;

/// What one layer and others share.
pub(crate) struct Others {
    changes: OnceLock<Arc<dyn Changes>>,
    heard_since_ms: AtomicI64,
    pub(crate) later: Later,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Default for Others {
    /// There are none.
    fn default() -> Self {
        Self {
            changes: OnceLock::new(),
            heard_since_ms: EVER.into(),
            later: Later::default(),
            tasks: Mutex::default(),
        }
    }
}

impl Others {
    /// Begins to tell others and to hear them, on tasks that end with the layer.
    pub(crate) fn meet(layer: &Arc<Layer>, changes: Arc<dyn Changes>, runtime: &Handle) {
        let others = &layer.others;
        others.heard_since(NOT_YET);
        let events = changes.listen();
        let is_first = others.changes.set(changes).is_ok();
        assert!(is_first, "a layer meets others once");
        let hearing = runtime.spawn(hear::run(Arc::clone(layer), events));
        let telling = runtime.spawn(later::run(Arc::clone(layer)));
        let mut tasks = others.tasks.lock();
        tasks.extend([hearing.abort_handle(), telling.abort_handle()]);
    }

    /// Whether there is nobody to tell.
    pub(crate) fn are_none(&self) -> bool {
        self.changes.get().is_none()
    }

    /// Since when all that others write is heard of, in milliseconds of the layer's clock.
    pub(crate) fn heard_since_ms(&self) -> i64 {
        self.heard_since_ms.load(Ordering::Acquire)
    }

    /// Whether what others write may go unheard.
    pub(crate) fn is_unheard(&self) -> bool {
        self.heard_since_ms() == NOT_YET
    }

    /// All that others write from `since_ms` on is heard of.
    pub(crate) fn heard_since(&self, since_ms: i64) {
        self.heard_since_ms.store(since_ms, Ordering::Release);
    }

    /// Stops hearing and telling.
    pub(crate) fn abort(&self) {
        self.tasks.lock().iter().for_each(AbortHandle::abort);
    }
}

/// What to tell others of a write; `None` when it names no bucket.
fn changed(written: &Written) -> Option<Changed> {
    match written {
        Written::Object(bucket, key) => Some(Changed::Object {
            bucket: bucket.clone(),
            key: key.as_str().to_owned(),
        }),
        Written::Bucket(bucket) => Some(Changed::Prefix {
            bucket: bucket.clone(),
            prefix: String::new(),
        }),
        Written::All => None,
    }
}

/// What another one's write may have changed. A prefix counts for its bucket, which is one step
/// however much is kept of it.
fn written(changed: Changed) -> Written {
    match changed {
        Changed::Object { bucket, key } => match ObjectKey::parse(&key) {
            Ok(key) => Written::Object(bucket, key),
            Err(_) => Written::Bucket(bucket),
        },
        Changed::Prefix { bucket, prefix: _ } => Written::Bucket(bucket),
    }
}
