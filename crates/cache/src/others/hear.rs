//! Hears what other gateways write.
//!
//! Each event is handled at once, with no wait in it: what was told is invalidated as soon as this
//! task has its turn.

use std::{sync::Arc, time::Duration};

use forebay_store::changes::{Changed, Event};
use forebay_telemetry::cache::Heard;
use tokio::sync::mpsc::Receiver;

use super::{NOT_YET, written};
use crate::layer::Layer;

/// How often time is counted while others are not heard.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Handles events for as long as the layer lasts.
pub(super) async fn run(layer: Arc<Layer>, mut events: Receiver<Event>) {
    let mut counted_to = layer.now();
    let mut is_over = false;
    loop {
        let is_unheard = layer.others.is_unheard();
        let event = tokio::select! {
            biased;
            event = events.recv(), if !is_over => {
                is_over = event.is_none();
                // Who tells nothing more has told all that there was.
                Some(event.unwrap_or(Event::Unverified))
            }
            () = tokio::time::sleep(COUNT_INTERVAL), if is_unheard || is_over => None,
        };
        let now = layer.now();
        if is_unheard {
            let time = now.saturating_duration_since(counted_to);
            layer.metrics.changes.unheard(time);
        }
        counted_to = now;
        if let Some(event) = event {
            handle(&layer, event);
        }
    }
}

fn handle(layer: &Layer, event: Event) {
    match event {
        Event::Changed(changed) => {
            layer.metrics.changes.heard(match &changed {
                Changed::Object { .. } => Heard::Object,
                Changed::Prefix { .. } => Heard::Prefix,
            });
            layer.invalidate(&written(changed));
        }
        Event::Unverified => {
            if !layer.others.is_unheard() {
                tracing::warn!("other gateways are not heard: what rests on that is validated");
            }
            layer.others.heard_since(NOT_YET);
        }
        Event::Verified => {
            layer.heard_again();
            // What could not be told may be now.
            layer.others.later.hurry(layer.now_ms());
        }
    }
}
