//! One server: its links, and the writes that wait for its replicas.
//!
//! `WAIT` holds up all that follows on its connection, so writes that must be on replicas are sent
//! in groups: whatever has come while the group before was waiting is sent at once, with one
//! `WAIT` behind it. Two groups take turns, so that one is sent while the other waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::{Cmd, Pipeline, Value};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    facts::Durability,
    link::{Link, LinkMaker, NoAnswer},
    settings::ServerAddress,
};

/// Writes of one group.
///
/// 128: at 256 KiB each, 32 MiB; at 1 KiB, a group every few hundred microseconds.
const GROUP_MAX: usize = 128;
/// Groups under way at once, each on a link of its own.
const GROUPS_MAX: usize = 2;

/// A server.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: ServerAddress,
    links: Vec<Link>,
    blob_links: Vec<Link>,
    turn: AtomicUsize,
    groups: Option<Groups>,
}

/// For what commands are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Small ones.
    Small,
    /// Chunks of large payloads.
    Blob,
    /// One command whose effect must be as durable as promised when it is answered.
    Durable,
}

impl Node {
    pub(crate) fn new(maker: &LinkMaker, address: &ServerAddress) -> Self {
        let settings = maker.connector.settings();
        let links = |count| (0..count).map(|_| maker.link(address)).collect();
        let groups = (settings.promise.replicas_min > 0).then(|| Groups::new(maker, address));
        Self {
            address: address.clone(),
            links: links(settings.pool.connections),
            blob_links: links(settings.pool.blob_connections),
            turn: AtomicUsize::new(0),
            groups,
        }
    }

    /// Sends commands and returns their answers.
    pub(crate) async fn exchange(
        &self,
        lane: Lane,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, NoAnswer> {
        let links = match (lane, &self.groups) {
            (Lane::Durable, Some(groups)) => {
                return groups.exchange(commands.clone(), deadline).await;
            }
            (Lane::Durable | Lane::Small, _) => &self.links,
            (Lane::Blob, _) => &self.blob_links,
        };
        // One that is open, beginning with the one whose turn it is: after a failure they come back
        // one by one.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % links.len();
        let (before, after) = links.split_at(turn);
        let open = after.iter().chain(before).find(|link| link.is_open());
        let link = open.unwrap_or(&links[turn]);
        link.exchange(commands, deadline).await
    }

    /// Waits until it can be asked.
    pub(crate) async fn ready(&self, deadline: Instant) -> Result<(), NoAnswer> {
        for link in self.links.iter().chain(&self.blob_links) {
            link.connection(deadline).await?;
        }
        Ok(())
    }

    /// How safe writes are, as the server said when it was last connected to.
    pub(crate) fn durability(&self) -> Option<Durability> {
        let current = self.links.iter().find_map(Link::current)?;
        Some(current.durability)
    }
}

/// Writes that wait for replicas.
#[derive(Debug)]
struct Groups {
    queue: mpsc::Sender<Waiting>,
    sender: JoinHandle<()>,
}

/// A write, and who waits for its answer.
#[derive(Debug)]
struct Waiting {
    commands: Pipeline,
    deadline: Instant,
    answer: oneshot::Sender<Result<Vec<Value>, NoAnswer>>,
}

impl Groups {
    fn new(maker: &LinkMaker, address: &ServerAddress) -> Self {
        let settings = maker.connector.settings();
        let (queue, waiting) = mpsc::channel(settings.pool.pending_max);
        let links = (0..GROUPS_MAX).map(|_| maker.link(address)).collect();
        let sender = GroupSender {
            links,
            replicas_min: settings.promise.replicas_min,
            timeout: settings.timeouts.replicate,
        };
        let sender = maker.connector.runtime().spawn(sender.run(waiting));
        Self { queue, sender }
    }

    async fn exchange(
        &self,
        commands: Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Value>, NoAnswer> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            commands,
            deadline,
            answer,
        };
        self.queue.try_send(waiting).map_err(|_| NoAnswer::Busy)?;
        answered.await.unwrap_or(Err(NoAnswer::Unanswered))
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

struct GroupSender {
    links: Vec<Link>,
    replicas_min: u32,
    timeout: Duration,
}

impl GroupSender {
    async fn run(self, mut waiting: mpsc::Receiver<Waiting>) {
        let this = &self;
        let mut free: Vec<usize> = (0..this.links.len()).collect();
        let mut under_way = FuturesUnordered::new();
        loop {
            let mut group = Vec::new();
            tokio::select! {
                Some(link_index) = under_way.next(), if !under_way.is_empty() => {
                    free.push(link_index);
                }
                count = waiting.recv_many(&mut group, GROUP_MAX), if !free.is_empty() => {
                    if count == 0 {
                        break;
                    }
                    let link_index = free.pop().expect("it was asked for a free one");
                    under_way.push(async move {
                        this.send(&this.links[link_index], group).await;
                        link_index
                    });
                }
            }
        }
        while under_way.next().await.is_some() {}
    }

    async fn send(&self, link: &Link, group: Vec<Waiting>) {
        // Who no longer waits must not be sent: nobody would know that it happened.
        let (group, _): (Vec<_>, Vec<_>) = group
            .into_iter()
            .partition(|waiting| !waiting.answer.is_closed());
        let Some(deadline) = group.iter().map(|waiting| waiting.deadline).min() else {
            return;
        };
        let answers = match link.connection(deadline).await {
            Ok(connection) => {
                let mut commands = Pipeline::new();
                for waiting in &group {
                    for command in waiting.commands.cmd_iter() {
                        commands.add_command(command.clone());
                    }
                }
                commands.add_command(self.wait(connection.has_waitaof));
                link.exchange(&commands, deadline).await
            }
            Err(no_answer) => Err(no_answer),
        };
        self.answer(group, answers);
    }

    fn wait(&self, has_waitaof: bool) -> Cmd {
        let timeout_ms = u64::try_from(self.timeout.as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        let mut wait = if has_waitaof {
            let mut wait = redis::cmd("WAITAOF");
            // The server's own log is synced as its own settings say.
            wait.arg(0);
            wait
        } else {
            redis::cmd("WAIT")
        };
        wait.arg(self.replicas_min).arg(timeout_ms);
        wait
    }

    fn answer(&self, group: Vec<Waiting>, answers: Result<Vec<Value>, NoAnswer>) {
        let (mut answers, is_replicated) = match answers {
            Err(no_answer) => {
                for waiting in group {
                    let _ = waiting.answer.send(Err(no_answer.clone()));
                }
                return;
            }
            Ok(mut answers) => {
                let replicas = answers.pop().as_ref().map_or(0, replicas);
                (
                    answers.into_iter(),
                    replicas >= i64::from(self.replicas_min),
                )
            }
        };
        for waiting in group {
            let own: Vec<Value> = answers.by_ref().take(waiting.commands.len()).collect();
            // What a server refused had no effect, so there is nothing for a replica to have.
            let refused = own
                .iter()
                .any(|answer| matches!(answer, Value::ServerError(_)));
            let answer = if is_replicated || refused {
                Ok(own)
            } else {
                Err(NoAnswer::NotReplicated)
            };
            let _ = waiting.answer.send(answer);
        }
    }
}

/// How many replicas have all that was sent before: `WAIT` says a number, `WAITAOF` two, of which
/// the second counts replicas.
fn replicas(answer: &Value) -> i64 {
    match answer {
        Value::Int(count) => *count,
        Value::Array(counts) => counts.get(1).map_or(0, replicas),
        _ => 0,
    }
}

/// Keeps the servers that are known, so that a new layout reuses their connections.
pub(crate) fn find(nodes: &[Arc<Node>], address: &ServerAddress) -> Option<Arc<Node>> {
    nodes.iter().find(|node| node.address == *address).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_waits_answer_replicas_are_counted() {
        assert_eq!(replicas(&Value::Int(2)), 2);
        // The server itself, then its replicas.
        assert_eq!(
            replicas(&Value::Array(vec![Value::Int(1), Value::Int(0)])),
            0
        );
        assert_eq!(
            replicas(&Value::Array(vec![Value::Int(0), Value::Int(3)])),
            3
        );
        assert_eq!(replicas(&Value::Nil), 0);
    }

    #[test]
    fn replicas_are_asked_for_what_is_on_their_disks_where_that_can_be_asked() {
        let sender = GroupSender {
            links: Vec::new(),
            replicas_min: 2,
            timeout: Duration::from_millis(1500),
        };
        let text = |has_waitaof| {
            let packed = sender.wait(has_waitaof).get_packed_command();
            String::from_utf8(packed)
                .unwrap()
                .split("\r\n")
                .skip(2)
                .step_by(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(text(true), "WAITAOF 0 2 1500");
        assert_eq!(text(false), "WAIT 2 1500");
    }
}
