//! What gateways tell each other, over one sharded channel of Redis.
//!
//! Whoever tells publishes at the server that has the channel's slot, and every listener is
//! subscribed there; the server answers once it has handed the message to all of them. So a
//! listener may trust what it keeps for as long as it is subscribed *at the server where others
//! publish*. Its own task makes sure of that: it asks that server a question about the slot every
//! `ping`, and with sentinels looks whether most of them still name it. Without a good answer
//! within `silence_max`, or when the connection ends, listeners are told [`Event::Unverified`]: no
//! later than `ping` + `silence_max` after the first change that they may have missed.
//!
//! A listener that does not read in time loses its changes, and is told `Unverified`, then
//! `Verified` once it has read what was before.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use forebay_store::{
    Error,
    changes::{Changed, Changes, Event},
};
use parking_lot::Mutex;
use redis::{Pipeline, PushInfo, PushKind, Value};
use tokio::{
    sync::{
        Notify,
        mpsc::{self, OwnedPermit, Receiver, Sender},
    },
    task::JoinHandle,
    time::timeout,
};

use crate::{
    connect::{Connection, Peer},
    fleet::Fleet,
    keys::{HOME, Keys},
    message,
    node::Lane,
    send::{Effect, Sending},
    settings::ServerAddress,
};

/// Events that a listener may be behind.
///
/// 4096: some hundred kilobytes, and a second of many writers.
const EVENTS_MAX: usize = 4096;
/// First pause after a failed attempt to listen; doubles up to the limit of the settings.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);

/// Tells and hears changes; dropping it ends its connection.
#[derive(Debug)]
pub struct RedisChanges {
    fleet: Arc<Fleet>,
    keys: Arc<Keys>,
    /// Tells messages of this gateway from those of others.
    gateway: String,
    hub: Arc<Mutex<Hub>>,
    ear: JoinHandle<()>,
}

impl RedisChanges {
    pub(crate) fn new(fleet: &Arc<Fleet>, keys: &Arc<Keys>, gateway: String) -> Self {
        let hub = Arc::new(Mutex::new(Hub::default()));
        let ear = Ear {
            fleet: Arc::clone(fleet),
            keys: Arc::clone(keys),
            gateway: gateway.clone(),
            hub: Arc::clone(&hub),
        };
        let ear = fleet.connector().runtime().spawn(ear.run());
        Self {
            fleet: Arc::clone(fleet),
            keys: Arc::clone(keys),
            gateway,
            hub,
            ear,
        }
    }
}

impl Drop for RedisChanges {
    fn drop(&mut self) {
        self.ear.abort();
    }
}

#[async_trait]
impl Changes for RedisChanges {
    async fn tell(&self, changed: Changed) -> Result<(), Error> {
        let mut command = Pipeline::with_capacity(1);
        let message = message::write(&self.gateway, &changed);
        command
            .cmd("SPUBLISH")
            .arg(self.keys.changes())
            .arg(message);
        let sending = Sending {
            slot: self.keys.slot(HOME),
            lane: Lane::Small,
            effect: Effect::Repeatable,
            seconds: &self.fleet.metrics().seconds.tell,
        };
        self.fleet.send(sending, &command).await?;
        self.fleet.metrics().changes_told.inc();
        Ok(())
    }

    fn listen(&self) -> Receiver<Event> {
        self.hub.lock().listen()
    }
}

/// Everyone here who listens.
#[derive(Debug, Default)]
struct Hub {
    is_verified: bool,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    events: Sender<Event>,
    /// Room that is kept for [`Event::Unverified`], so that it is told however far behind a
    /// listener is; `None` while it has been told.
    room: Option<OwnedPermit<Event>>,
}

impl Hub {
    fn listen(&mut self) -> Receiver<Event> {
        // Beside the events, the first `Unverified` and the room for another.
        let (events, receiver) = mpsc::channel(EVENTS_MAX + 2);
        let _ = events.try_send(Event::Unverified);
        let mut listener = Listener { events, room: None };
        if self.is_verified {
            listener.verify();
        }
        self.listeners.push(listener);
        receiver
    }

    /// Tells every listener of a change; returns whether one of them was too far behind.
    fn tell(&mut self, changed: &Changed) {
        self.listeners
            .retain(|listener| !listener.events.is_closed());
        for listener in &mut self.listeners {
            let is_verified = listener.room.is_some();
            let event = Event::Changed(changed.clone());
            if is_verified && listener.events.try_send(event).is_err() {
                listener.unverify();
            }
        }
    }

    /// Changes are heard from now on, by whoever has room.
    fn verify(&mut self) {
        self.is_verified = true;
        for listener in &mut self.listeners {
            listener.verify();
        }
    }

    fn unverify(&mut self) {
        self.is_verified = false;
        for listener in &mut self.listeners {
            listener.unverify();
        }
    }
}

impl Listener {
    fn verify(&mut self) {
        if self.room.is_some() {
            return;
        }
        // `Verified` itself, and room for the `Unverified` after it.
        let room = self.events.clone().try_reserve_owned();
        if let Ok(room) = room
            && self.events.try_send(Event::Verified).is_ok()
        {
            self.room = Some(room);
        }
    }

    fn unverify(&mut self) {
        if let Some(room) = self.room.take() {
            room.send(Event::Unverified);
        }
    }
}

/// Why listening ended.
type Reason = String;

/// Listens to the other gateways.
struct Ear {
    fleet: Arc<Fleet>,
    keys: Arc<Keys>,
    gateway: String,
    hub: Arc<Mutex<Hub>>,
}

impl Ear {
    async fn run(self) {
        let metrics = Arc::clone(self.fleet.metrics());
        let backoff_max = self.fleet.settings().timeouts.backoff_max;
        let mut backoff = BACKOFF_FIRST;
        loop {
            let (reason, was_verified) = self.listen().await;
            self.silence();
            if was_verified {
                tracing::warn!(%reason, "changes of other gateways may be missed");
                metrics.changes_unverified.inc();
                backoff = BACKOFF_FIRST;
            } else {
                tracing::debug!(%reason, "not listening to other gateways");
            }
            self.fleet.trouble();
            tokio::time::sleep(backoff.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            backoff = (backoff * 2).min(backoff_max);
        }
    }

    fn silence(&self) {
        self.hub.lock().unverify();
        self.fleet.metrics().changes_verified.set(0);
    }

    /// Listens until there is a reason not to; says whether it heard anything meanwhile.
    async fn listen(&self) -> (Reason, bool) {
        let slot = self.keys.slot(HOME);
        let Some(node) = self.fleet.node_of(slot) else {
            return ("nobody has the channel".to_owned(), false);
        };
        let doubt = Arc::new(Notify::new());
        let connection = match self.subscribe(&node.address, &doubt).await {
            Ok(connection) => connection,
            Err(reason) => return (reason, false),
        };
        // What is published elsewhere is not heard here, so both must be the same server.
        if let Err(reason) = self.ask(&connection, &node.address).await {
            return (reason, false);
        }
        if !self.verify(&connection) {
            return ("the connection ended".to_owned(), false);
        }
        tracing::debug!(server = %node.address, "listening to other gateways");
        let interval = self.fleet.settings().timeouts.ping;
        loop {
            tokio::select! {
                () = connection.ended() => return ("the connection ended".to_owned(), true),
                () = doubt.notified() => return ("the channel moved".to_owned(), true),
                () = tokio::time::sleep(interval) => {}
            }
            if let Err(reason) = self.ask(&connection, &node.address).await {
                return (reason, true);
            }
            // Who was too far behind is told again once it has read.
            self.verify(&connection);
        }
    }

    /// Says that changes are heard, unless the connection has ended: then its end was told before
    /// the lock was taken, or is told after it is free again.
    fn verify(&self, connection: &Connection) -> bool {
        let mut hub = self.hub.lock();
        if connection.has_ended() {
            return false;
        }
        hub.verify();
        self.fleet.metrics().changes_verified.set(1);
        true
    }

    async fn subscribe(
        &self,
        address: &ServerAddress,
        doubt: &Arc<Notify>,
    ) -> Result<Connection, Reason> {
        let (hub, doubt) = (Arc::clone(&self.hub), Arc::clone(doubt));
        let (gateway, metrics) = (self.gateway.clone(), Arc::clone(self.fleet.metrics()));
        let on_push = move |push: PushInfo| match push.kind {
            PushKind::SMessage => match push.data.get(1).map(message::read) {
                Some(Some((from, _))) if from == gateway => {}
                Some(Some((_, changed))) => {
                    metrics.changes_heard.inc();
                    hub.lock().tell(&changed);
                }
                // Whatever it was, it was a change.
                Some(None) | None => doubt.notify_one(),
            },
            // Told at once: the task that waits for the end may not run for a while.
            PushKind::Disconnection => hub.lock().unverify(),
            PushKind::SUnsubscribe => doubt.notify_one(),
            _ => {}
        };
        let connector = self.fleet.connector();
        let connection = connector
            .connect(address, Peer::Server, Some(Arc::new(on_push)))
            .await
            .map_err(|error| error.to_string())?;
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(self.keys.changes());
        self.answer(&connection, &subscribe).await?;
        Ok(connection)
    }

    /// Makes sure that the channel is still at this server, and that it answers.
    async fn ask(&self, connection: &Connection, address: &ServerAddress) -> Result<(), Reason> {
        let mut question = redis::cmd("EXISTS");
        question.arg(self.keys.format());
        self.answer(connection, &question).await?;
        if self.fleet.is_confirmed(self.keys.slot(HOME), address) {
            Ok(())
        } else {
            Err("it is not known to be the master any more".to_owned())
        }
    }

    async fn answer(&self, connection: &Connection, command: &redis::Cmd) -> Result<(), Reason> {
        let mut sender = connection.sender();
        let silence_max = self.fleet.settings().timeouts.silence_max;
        match timeout(silence_max, sender.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(error))) => Err(error.to_string()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it is silent".to_owned()),
        }
    }
}
