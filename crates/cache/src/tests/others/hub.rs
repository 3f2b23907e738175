//! A hub in memory, by which the gateways of a test tell each other what changed: one place for
//! each. A change is told once all who hear have taken it, which no engine waits for, so that what
//! is tested does not depend on who has its turn first.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;
use forebay_store::{
    Error,
    changes::{Changed, Changes, Event},
};
use parking_lot::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Events that a place may be behind, beside the one that says so.
pub(in crate::tests) const EVENTS_MAX: usize = 8;

/// What becomes of telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tests) enum Telling {
    Works,
    Fails,
    Hangs,
}

/// See the module.
#[derive(Default)]
pub(in crate::tests) struct Hub {
    places: Mutex<Vec<Heard>>,
    told: Mutex<Vec<Changed>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

struct Heard {
    events: Option<Sender<Event>>,
    hears: bool,
    telling: Telling,
}

/// One gateway's place at a hub.
pub(in crate::tests) struct Place {
    hub: Arc<Hub>,
    index: usize,
}

impl Hub {
    /// A new place, which neither hears nor tells before it joins.
    pub(in crate::tests) fn place(self: &Arc<Self>) -> Arc<Place> {
        let mut places = self.places.lock();
        places.push(Heard {
            events: None,
            hears: false,
            telling: Telling::Fails,
        });
        Arc::new(Place {
            hub: Arc::clone(self),
            index: places.len() - 1,
        })
    }

    /// From now on a place hears and tells.
    pub(in crate::tests) fn join(&self, index: usize) {
        let place = &mut self.places.lock()[index];
        (place.hears, place.telling) = (true, Telling::Works);
        place.send(Event::Verified);
    }

    /// A place neither hears nor tells.
    pub(in crate::tests) fn cut(&self, index: usize) {
        let place = &mut self.places.lock()[index];
        (place.hears, place.telling) = (false, Telling::Fails);
        place.send(Event::Unverified);
    }

    /// What becomes of what a place tells.
    pub(in crate::tests) fn telling(&self, index: usize, telling: Telling) {
        self.places.lock()[index].telling = telling;
    }

    /// What was told since the last call, by anybody.
    pub(in crate::tests) fn take_told(&self) -> Vec<Changed> {
        std::mem::take(&mut *self.told.lock())
    }

    /// How many were told at the same time.
    pub(in crate::tests) fn most_at_once(&self) -> usize {
        self.most_at_once.load(SeqCst)
    }

    /// Whether anything is being told.
    pub(in crate::tests) fn is_telling(&self) -> bool {
        self.at_once.load(SeqCst) > 0
    }

    /// Tells all places but one, of which any that has no room is told so.
    pub(in crate::tests) fn pass_on(&self, from: usize, changed: &Changed) {
        self.told.lock().push(changed.clone());
        for (index, place) in self.places.lock().iter_mut().enumerate() {
            if index == from || !place.hears {
                continue;
            }
            if place
                .events
                .as_ref()
                .is_some_and(|events| events.capacity() <= 1)
            {
                place.hears = false;
                place.send(Event::Unverified);
            } else {
                place.send(Event::Changed(changed.clone()));
            }
        }
    }

    /// Waits until all that was told has been heard.
    pub(in crate::tests) async fn heard(&self) {
        let is_heard = |place: &Heard| {
            let mut events = place.events.iter();
            events.all(|events| events.capacity() == events.max_capacity())
        };
        while !self.places.lock().iter().all(is_heard) {
            tokio::task::yield_now().await;
        }
    }
}

impl Heard {
    fn send(&self, event: Event) {
        if let Some(events) = &self.events {
            events.try_send(event).unwrap();
        }
    }
}

#[async_trait]
impl Changes for Place {
    async fn tell(&self, changed: Changed) -> Result<(), Error> {
        let at_once = self.hub.at_once.fetch_add(1, SeqCst) + 1;
        self.hub.most_at_once.fetch_max(at_once, SeqCst);
        tokio::task::yield_now().await;
        let telling = self.hub.places.lock()[self.index].telling;
        if telling == Telling::Hangs {
            std::future::pending::<()>().await;
        }
        let told = if telling == Telling::Fails {
            let reason = "there is no way to the others".into();
            Err(Error::Unavailable { reason })
        } else {
            self.hub.pass_on(self.index, &changed);
            self.hub.heard().await;
            Ok(())
        };
        self.hub.at_once.fetch_sub(1, SeqCst);
        told
    }

    fn listen(&self) -> Receiver<Event> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 1);
        events.try_send(Event::Unverified).unwrap();
        self.hub.places.lock()[self.index].events = Some(events);
        receiver
    }
}
