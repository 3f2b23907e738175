//! Which server has which slot, learnt from the servers and kept up to date.
//!
//! One task, the tender, asks again whenever there is trouble (a connection lost, a redirect, a
//! master that is none any more) and now and then without; commands read the newest layout without
//! waiting. A single server has every slot for ever; with sentinels, the master that more than half
//! of them name has; a cluster says it itself.
//!
//! Sources: `CLUSTER SLOTS`, and the guidelines for Redis clients with sentinels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use forebay_telemetry::redis::RedisMetrics;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use redis::Value;
use tokio::{
    runtime::Handle,
    sync::Notify,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    connect::{ConnectError, Connection, Connector, Peer},
    facts::{Durability, Unfit},
    keys::{SLOTS, Slot},
    link::LinkMaker,
    node::{self, Node},
    settings::{Mode, RedisSettings, ServerAddress, SettingFault},
};

/// Time between questions for the layout of a cluster without trouble: redirects tell sooner.
const LEARN_INTERVAL: Duration = Duration::from_secs(10);
/// Least time between two questions, so that a server in trouble is not asked without end.
const LEARN_PAUSE: Duration = Duration::from_millis(50);

/// Why a store can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting can't be used.
    #[error(transparent)]
    Setting(#[from] SettingFault),
    /// A server may not keep what is acknowledged.
    #[error("Redis at {address} {unfit}")]
    Unfit {
        /// Which one.
        address: String,
        /// Why.
        unfit: Unfit,
    },
    /// A server can't be used now.
    #[error("no connection to Redis at {address}: {reason}")]
    Unreachable {
        /// Which one.
        address: String,
        /// Why.
        reason: String,
    },
    /// The sentinels or the cluster did not say where the data is.
    #[error("Redis at {address} does not say where the data is: {reason}")]
    NoLayout {
        /// Who was asked.
        address: String,
        /// What was found.
        reason: String,
    },
    /// What is kept under the prefix is of another kind.
    #[error("the prefix {prefix} in Redis holds {found}, not {expected}: use another prefix")]
    OtherFormat {
        /// The prefix.
        prefix: String,
        /// What it is.
        found: String,
        /// What it must be.
        expected: String,
    },
    /// The first commands failed.
    #[error("Redis did not answer the first commands: {0}")]
    First(forebay_store::Error),
}

/// Which server has which slot.
#[derive(Debug)]
struct Layout {
    nodes: Vec<Arc<Node>>,
    /// Place in `nodes` of each slot's server; `None`: nobody has it.
    slots: Vec<Option<u16>>,
}

/// The servers.
#[derive(Debug)]
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    tender: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    maker: LinkMaker,
    layout: ArcSwap<Layout>,
    /// When it was last confirmed where the data is.
    confirmed: Mutex<Instant>,
}

impl Fleet {
    /// Learns the layout and checks each server that is in it.
    pub(crate) async fn open(
        settings: &RedisSettings,
        metrics: &Arc<RedisMetrics>,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        if let Some(fault) = settings.check().into_iter().next() {
            return Err(fault.into());
        }
        let connector = Arc::new(Connector::new(settings, runtime.clone())?);
        let maker = LinkMaker {
            connector,
            metrics: Arc::clone(metrics),
            trouble: Arc::new(Notify::new()),
        };
        let mut sources = Sources::default();
        let found = sources.learn(&maker.connector, &[]).await?;
        let servers: BTreeSet<_> = found.iter().map(|(_, address)| address).collect();
        for address in servers {
            let checked = maker.connector.connect(address, Peer::Server, None).await;
            checked.map_err(|error| open_error(address, error))?;
        }
        let layout = Layout::new(&maker, &[], &found);
        let deadline = Instant::now() + settings.timeouts.connect;
        for node in &layout.nodes {
            node.ready(deadline)
                .await
                .map_err(|_| OpenError::Unreachable {
                    address: node.address.to_string(),
                    reason: "it did not take all connections in time".to_owned(),
                })?;
        }
        let shared = Arc::new(Shared {
            layout: ArcSwap::from_pointee(layout),
            maker,
            confirmed: Mutex::new(Instant::now()),
        });
        let tender = runtime.spawn(Arc::clone(&shared).tend(sources));
        Ok(Self { shared, tender })
    }

    pub(crate) fn settings(&self) -> &RedisSettings {
        self.shared.maker.connector.settings()
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.shared.maker.connector
    }

    pub(crate) fn metrics(&self) -> &Arc<RedisMetrics> {
        &self.shared.maker.metrics
    }

    /// The server that has a slot, as far as is known.
    pub(crate) fn node_of(&self, slot: Slot) -> Option<Arc<Node>> {
        let layout = self.shared.layout.load();
        let index = layout.slots[usize::from(slot.0)]?;
        layout.nodes.get(usize::from(index)).cloned()
    }

    /// The server that a redirect named; one that is not known yet joins the layout.
    pub(crate) fn node_at(&self, address: &ServerAddress) -> Arc<Node> {
        let known = || node::find(&self.shared.layout.load().nodes, address);
        if let Some(node) = known() {
            return node;
        }
        let node = Arc::new(Node::new(&self.shared.maker, address));
        self.shared.layout.rcu(|layout| {
            let mut nodes = layout.nodes.clone();
            if node::find(&nodes, address).is_none() {
                nodes.push(Arc::clone(&node));
            }
            Layout {
                nodes,
                slots: layout.slots.clone(),
            }
        });
        known().unwrap_or(node)
    }

    /// Has the layout asked for soon.
    pub(crate) fn trouble(&self) {
        self.shared.maker.trouble.notify_one();
    }

    /// Whether it is certain enough, at this moment, that a server is the one with the data.
    pub(crate) fn is_confirmed(&self, slot: Slot, address: &ServerAddress) -> bool {
        let is_it = self
            .node_of(slot)
            .is_some_and(|node| node.address == *address);
        let settings = self.settings();
        match settings.mode {
            // A cluster's node itself says when it has lost the others, or a slot.
            Mode::Single | Mode::Cluster => is_it,
            Mode::Sentinel { .. } => {
                let age = self.shared.confirmed.lock().elapsed();
                is_it && age < settings.timeouts.silence_max
            }
        }
    }

    /// How safe writes are: as safe as on the least safe of the servers in use.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let layout = self.shared.layout.load();
        let used = layout.slots.iter().flatten().collect::<BTreeSet<_>>();
        used.into_iter()
            .filter_map(|index| layout.nodes.get(usize::from(*index))?.durability())
            .min()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tender.abort();
    }
}

fn open_error(address: &ServerAddress, error: ConnectError) -> OpenError {
    let address = address.to_string();
    match error {
        ConnectError::Unfit(unfit) => OpenError::Unfit { address, unfit },
        error => OpenError::Unreachable {
            address,
            reason: error.to_string(),
        },
    }
}

/// Runs of slots, from and to and including, and who has them.
type Found = Vec<((u16, u16), ServerAddress)>;

impl Layout {
    fn new(maker: &LinkMaker, known: &[Arc<Node>], found: &Found) -> Self {
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut slots = vec![None; usize::from(SLOTS)];
        for ((from, to), address) in found {
            let index = nodes.iter().position(|node| node.address == *address);
            let index = index.unwrap_or_else(|| {
                let node = node::find(known, address);
                nodes.push(node.unwrap_or_else(|| Arc::new(Node::new(maker, address))));
                nodes.len() - 1
            });
            let index = u16::try_from(index).expect("a cluster has at most as many as slots");
            for slot in &mut slots[usize::from(*from)..=usize::from((*to).min(SLOTS - 1))] {
                *slot = Some(index);
            }
        }
        Self { nodes, slots }
    }

    fn found(&self) -> BTreeMap<ServerAddress, usize> {
        let mut counts = BTreeMap::new();
        for index in self.slots.iter().flatten() {
            let address = self.nodes[usize::from(*index)].address.clone();
            *counts.entry(address).or_default() += 1;
        }
        counts
    }
}

impl Shared {
    async fn tend(self: Arc<Self>, mut sources: Sources) {
        let settings = self.maker.connector.settings();
        let interval = match settings.mode {
            Mode::Single => return,
            Mode::Sentinel { .. } => settings.timeouts.ping,
            Mode::Cluster => LEARN_INTERVAL,
        };
        loop {
            let _ = timeout(interval, self.maker.trouble.notified()).await;
            let known = self.layout.load_full();
            match sources.learn(&self.maker.connector, &known.nodes).await {
                Ok(found) => {
                    *self.confirmed.lock() = Instant::now();
                    let layout = Layout::new(&self.maker, &known.nodes, &found);
                    if layout.slots != known.slots || layout.nodes.len() != known.nodes.len() {
                        tracing::info!(servers = ?layout.found(), "layout of Redis changed");
                    }
                    self.layout.store(Arc::new(layout));
                }
                Err(error) => tracing::debug!(%error, "layout of Redis unknown"),
            }
            tokio::time::sleep(LEARN_PAUSE).await;
        }
    }
}

/// Who is asked for the layout, over connections that are kept.
#[derive(Default)]
struct Sources {
    open: BTreeMap<ServerAddress, Connection>,
}

impl Sources {
    async fn learn(
        &mut self,
        connector: &Connector,
        known: &[Arc<Node>],
    ) -> Result<Found, OpenError> {
        let settings = connector.settings();
        match &settings.mode {
            Mode::Single => Ok(vec![((0, SLOTS - 1), settings.servers[0].clone())]),
            Mode::Sentinel { master } => self.ask_sentinels(connector, master).await,
            Mode::Cluster => self.ask_cluster(connector, known).await,
        }
    }

    /// The address that more than half of the sentinels name: one that is cut off from the others
    /// keeps naming the master that they have replaced.
    async fn ask_sentinels(
        &mut self,
        connector: &Connector,
        master: &str,
    ) -> Result<Found, OpenError> {
        let sentinels = &connector.settings().servers;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let mut asking: FuturesUnordered<_> = sentinels
            .iter()
            .map(|sentinel| {
                let open = self.open.remove(sentinel);
                let asking = ask(connector, sentinel, Peer::Sentinel, &question, open);
                async move { (sentinel, asking.await) }
            })
            .collect();
        let mut votes: BTreeMap<ServerAddress, usize> = BTreeMap::new();
        let mut reason = "they do not agree".to_owned();
        // One that hangs must not keep the others from being heard.
        while let Some((sentinel, answer)) = asking.next().await {
            match answer {
                Ok((answer, connection)) => {
                    self.open.insert(sentinel.clone(), connection);
                    let Some(address) = master_address(&answer) else {
                        reason = format!("{sentinel} knows no master {master}");
                        continue;
                    };
                    let count = votes.entry(address.clone()).or_default();
                    *count += 1;
                    if *count * 2 > sentinels.len() {
                        return Ok(vec![((0, SLOTS - 1), address)]);
                    }
                }
                Err(error) => reason = format!("{sentinel}: {error}"),
            }
        }
        Err(OpenError::NoLayout {
            address: sentinels[0].to_string(),
            reason,
        })
    }

    async fn ask_cluster(
        &mut self,
        connector: &Connector,
        known: &[Arc<Node>],
    ) -> Result<Found, OpenError> {
        let mut addresses: Vec<ServerAddress> =
            known.iter().map(|node| node.address.clone()).collect();
        addresses.extend(connector.settings().servers.iter().cloned());
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut reason = "nobody was asked".to_owned();
        for address in &addresses {
            // Replicas know the layout as well, so nothing is checked here.
            let open = self.open.remove(address);
            match ask(connector, address, Peer::Guide, &question, open).await {
                Ok((answer, connection)) => {
                    self.open.insert(address.clone(), connection);
                    match slots(&answer, address) {
                        found if found.is_empty() => reason = format!("{address} knows no slots"),
                        found => return Ok(found),
                    }
                }
                Err(error) => reason = format!("{address}: {error}"),
            }
        }
        Err(OpenError::NoLayout {
            address: addresses[0].to_string(),
            reason,
        })
    }
}

/// Asks one question, over `open` where that is still of use.
async fn ask(
    connector: &Connector,
    address: &ServerAddress,
    peer: Peer,
    question: &redis::Cmd,
    open: Option<Connection>,
) -> Result<(Value, Connection), String> {
    let connection = if let Some(open) = open.filter(|open| !open.has_ended()) {
        open
    } else {
        let connected = connector.connect(address, peer, None).await;
        connected.map_err(|error| error.to_string())?
    };
    let mut sender = connection.sender();
    let asking = sender.send_packed_command(question);
    match timeout(connector.settings().timeouts.connect, asking).await {
        Ok(Ok(Value::ServerError(error))) => Err(error.to_string()),
        Ok(Ok(answer)) => Ok((answer, connection)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.open.keys()).finish()
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// Reads `[host, port]`.
fn master_address(answer: &Value) -> Option<ServerAddress> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let (host, port) = (text(parts.first()?)?, text(parts.get(1)?)?);
    Some(ServerAddress {
        host,
        port: port.parse().ok()?,
    })
}

/// Reads `[[from, to, [host, port, …], …], …]`; an empty host is that of who answers.
fn slots(answer: &Value, from: &ServerAddress) -> Found {
    let Value::Array(runs) = answer else {
        return Vec::new();
    };
    let read = |run: &Value| {
        let Value::Array(parts) = run else {
            return None;
        };
        let (Value::Int(first), Value::Int(last), Value::Array(master)) =
            (parts.first()?, parts.get(1)?, parts.get(2)?)
        else {
            return None;
        };
        let host = master
            .first()
            .and_then(text)
            .filter(|host| !host.is_empty() && host != "?");
        let Value::Int(port) = master.get(1)? else {
            return None;
        };
        let address = ServerAddress {
            host: host.unwrap_or_else(|| from.host.clone()),
            port: u16::try_from(*port).ok()?,
        };
        Some((
            (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?),
            address,
        ))
    };
    runs.iter().filter_map(read).collect()
}
