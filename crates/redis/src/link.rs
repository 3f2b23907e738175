//! One place for a connection: keeps one open, sends commands on it, and knows what was sent.
//!
//! Each link has a keeper, a task that connects, waits for the end, and connects again with
//! growing, jittered pauses. Commands never connect by themselves, so a server that is gone costs
//! one attempt at a time, however many commands wait.
//!
//! What matters most here is the line between *not sent* and *unanswered*: the first may be tried
//! again by anyone, the second has an outcome that only reading tells. A command that was handed to
//! a connection counts as sent, even if the connection ended before a byte of it left.

use std::{sync::Arc, time::Duration};

use forebay_telemetry::redis::RedisMetrics;
use redis::{Pipeline, Value};
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    connect::{ConnectError, Connection, Connector, Peer},
    settings::ServerAddress,
};

/// First pause after a failed attempt to connect; doubles up to the limit of the settings.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);

/// A place for a connection; dropping it ends the connection and its keeper.
#[derive(Debug)]
pub(crate) struct Link {
    state: watch::Receiver<LinkState>,
    pending: Semaphore,
    command_timeout: Duration,
    keeper: JoinHandle<()>,
}

/// Whether there is a connection.
#[derive(Debug, Clone)]
pub(crate) enum LinkState {
    Connecting,
    Up(Arc<Connection>),
    /// There is none, for this reason.
    Down(Arc<str>),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nothing was sent.
    NotSent(Arc<str>),
    /// Nothing was sent: as many commands as may be are waiting.
    Busy,
    /// It was sent, or may have been.
    Unanswered,
    /// It was done where it was sent to; too few replicas have said that they have it.
    NotReplicated,
}

/// What links are made with.
#[derive(Debug, Clone)]
pub(crate) struct LinkMaker {
    pub(crate) connector: Arc<Connector>,
    pub(crate) metrics: Arc<RedisMetrics>,
    /// Told whenever a connection ends or can't be made: the layout may have changed.
    pub(crate) trouble: Arc<Notify>,
}

impl LinkMaker {
    pub(crate) fn link(&self, address: &ServerAddress) -> Link {
        let (sender, state) = watch::channel(LinkState::Connecting);
        let keeper = Keeper {
            maker: self.clone(),
            address: address.clone(),
            state: sender,
        };
        let settings = self.connector.settings();
        Link {
            state,
            pending: Semaphore::new(settings.pool.pending_max),
            command_timeout: settings.timeouts.command,
            keeper: self.connector.runtime().spawn(keeper.run()),
        }
    }
}

impl Link {
    /// Sends commands once there is a connection, which may take until `deadline`, and returns
    /// their answers, errors of the server among them.
    ///
    /// # Cancel safety
    /// A dropped future may have sent its commands.
    pub(crate) async fn exchange(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, NoAnswer> {
        let _permit = self.pending.try_acquire().map_err(|_| NoAnswer::Busy)?;
        let connection = self.connection(deadline).await?;
        let mut sender = connection.sender();
        let sending = sender.send_packed_commands(commands, 0, commands.len());
        match timeout(self.command_timeout, sending).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => {
                tracing::debug!(%error, "command unanswered");
                connection.give_up();
                Err(NoAnswer::Unanswered)
            }
            // Whatever holds the answer up holds up all that is sent after it.
            Err(_) => {
                connection.give_up();
                Err(NoAnswer::Unanswered)
            }
        }
    }

    /// The connection, once there is one.
    pub(crate) async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, NoAnswer> {
        let usable = |state: &LinkState| match state {
            LinkState::Up(connection) => (!connection.has_ended()).then(|| connection.clone()),
            LinkState::Connecting | LinkState::Down(_) => None,
        };
        if let Some(connection) = usable(&self.state.borrow()) {
            return Ok(connection);
        }
        let mut state = self.state.clone();
        let waiting = state.wait_for(|state| usable(state).is_some());
        let found = match timeout_at(deadline, waiting).await {
            Ok(Ok(state)) => usable(&state),
            Ok(Err(_)) | Err(_) => None,
        };
        found.ok_or_else(|| NoAnswer::NotSent(self.reason()))
    }

    /// The connection, if there is one now.
    pub(crate) fn current(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            LinkState::Up(connection) => Some(connection.clone()),
            LinkState::Connecting | LinkState::Down(_) => None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match &*self.state.borrow() {
            LinkState::Up(connection) => !connection.has_ended(),
            LinkState::Connecting | LinkState::Down(_) => false,
        }
    }

    fn reason(&self) -> Arc<str> {
        match &*self.state.borrow() {
            LinkState::Connecting => "it has not been reached yet".into(),
            LinkState::Up(_) => "the connection has just ended".into(),
            LinkState::Down(reason) => reason.clone(),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

struct Keeper {
    maker: LinkMaker,
    address: ServerAddress,
    state: watch::Sender<LinkState>,
}

impl Keeper {
    async fn run(self) {
        let metrics = Arc::clone(&self.maker.metrics);
        let backoff_max = self.maker.connector.settings().timeouts.backoff_max;
        let mut backoff = BACKOFF_FIRST;
        loop {
            match self
                .maker
                .connector
                .connect(&self.address, Peer::Server, None)
                .await
            {
                Ok(connection) => {
                    metrics.connects.inc();
                    backoff = BACKOFF_FIRST;
                    let open = Open::new(&metrics);
                    let connection = Arc::new(connection);
                    self.state
                        .send_replace(LinkState::Up(Arc::clone(&connection)));
                    connection.ended().await;
                    drop(open);
                    metrics.connections_lost.inc();
                    tracing::debug!(server = %self.address, "connection ended");
                    self.state
                        .send_replace(LinkState::Down("the connection ended".into()));
                }
                Err(error) => {
                    metrics.connects_failed.inc();
                    self.tell(&error);
                    let pause = backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
                    self.maker.trouble.notify_one();
                    tokio::time::sleep(pause).await;
                    backoff = (backoff * 2).min(backoff_max);
                }
            }
            self.maker.trouble.notify_one();
        }
    }

    /// Says why there is no connection, in the log where that is news.
    fn tell(&self, error: &ConnectError) {
        let reason: Arc<str> = error.to_string().into();
        if let ConnectError::Unfit(_) = error {
            self.maker.metrics.servers_refused.inc();
        }
        let is_news = match &*self.state.borrow() {
            LinkState::Down(known) => *known != reason,
            LinkState::Connecting | LinkState::Up(_) => true,
        };
        if is_news {
            tracing::warn!(server = %self.address, %reason, "no connection to Redis");
        }
        self.state.send_replace(LinkState::Down(reason));
    }
}

/// Counts a connection for as long as it is open, also when its keeper is dropped.
struct Open(Arc<RedisMetrics>);

impl Open {
    fn new(metrics: &Arc<RedisMetrics>) -> Self {
        metrics.connections.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}
