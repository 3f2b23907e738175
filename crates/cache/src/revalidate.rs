//! Validations in the background, while what is stale still answers (RFC 5861 §3).
//!
//! One at a time for each record, and so many in all. A read that finds no place validates by
//! itself, as if nothing stale could be used: a bound on what is asked of the origin must not
//! become one on what is learned from it.
//!
//! The tasks belong to the layer, which aborts them when it is dropped. What they bring goes the
//! way of any fill: one that nobody reads stops when much of a changed object is missing.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{
    ask::{Ask, Template},
    fill::{Fill, Purpose},
    fills::Joined,
    layer::Layer,
    plan::Part,
    read::head,
    version::Version,
};

/// Most validations of one layer in the background: a sixteenth of the connections that an origin
/// store opens unless told otherwise, so that readers who wait are never behind those who do not.
/// A guess.
pub(crate) const REVALIDATIONS_MAX: usize = 64;

/// Those under way.
#[derive(Debug, Default)]
pub(crate) struct Revalidations {
    tasks: Mutex<JoinSet<()>>,
}

/// Whether a record is being validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is, as of now or already.
    Yes,
    /// Too many others are.
    NoRoom,
}

/// Ends the note in the record, whatever way the task ends.
struct UnderWay(Arc<Version>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end_revalidation();
    }
}

impl Revalidations {
    /// Begins to validate `stale` with a request for `part`, unless that is under way.
    pub(crate) fn begin(
        &self,
        layer: &Arc<Layer>,
        part: Part,
        template: &Template,
        stale: &Arc<Version>,
    ) -> Begun {
        if !stale.begin_revalidation() {
            return Begun::Yes;
        }
        let under_way = UnderWay(Arc::clone(stale));
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= REVALIDATIONS_MAX {
            return Begun::NoRoom;
        }
        let (layer, template) = (Arc::clone(layer), template.clone());
        tasks.spawn(async move { run(&layer, part, &template, &under_way.0).await });
        Begun::Yes
    }

    /// Stops all.
    pub(crate) fn abort(&self) {
        self.tasks.lock().abort_all();
    }
}

async fn run(layer: &Arc<Layer>, part: Part, template: &Template, stale: &Arc<Version>) {
    let object = template.object();
    if part == Part::Head {
        let heard = head::ask(layer, template, Some(stale)).await;
        if let Some(found) = heard.found {
            layer.keep_record(&Arc::new(found));
        }
        return;
    }
    let begin = || {
        let purpose = Purpose::Learn {
            stale: Some(Arc::clone(stale)),
            directive: template.directive(),
        };
        Fill::new(object.clone(), purpose, layer.index.stamp(object))
    };
    let name_hash = layer.index.name_hash(&object.bucket, &object.key);
    let is_current = |fill: &Fill| layer.index.is_current(&fill.stamp);
    let joined = layer.fills.learn(name_hash, object, 0, is_current, begin);
    if let Joined::Leader(attachment) = &joined {
        let (page_bytes, now) = (stale.policy.page_bytes, layer.now());
        let request = template.learn(part, Ask::Unless(stale), page_bytes, now);
        layer.start(attachment, request);
    }
    let (Joined::Leader(attachment) | Joined::Follower(attachment)) = joined;
    attachment.head().await;
}
