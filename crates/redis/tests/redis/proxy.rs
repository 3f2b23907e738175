//! A relay before a server, which can be told to cut or to hold what passes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
    task::JoinHandle,
};

/// What a relay does to a command that holds some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It does not reach the server.
    Request,
    /// The server gets it, and its answer does not reach the client.
    Answer,
}

#[derive(Debug, Default)]
struct Plan {
    cut: Option<(Vec<u8>, Cut)>,
}

pub(crate) struct Proxy {
    pub(crate) port: u16,
    plan: Arc<Mutex<Plan>>,
    held: watch::Sender<bool>,
    all: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let plan: Arc<Mutex<Plan>> = Arc::default();
        let (held, watched) = watch::channel(false);
        let all = Arc::new(Notify::new());
        let task = tokio::spawn(accept(
            listener,
            server_port,
            Arc::clone(&plan),
            watched,
            Arc::clone(&all),
        ));
        Self {
            port,
            plan,
            held,
            all,
            task,
        }
    }

    /// Cuts the connection of the next command that holds these bytes.
    pub(crate) fn cut(&self, bytes: &str, cut: Cut) {
        self.plan.lock().cut = Some((bytes.as_bytes().to_vec(), cut));
    }

    /// Passes nothing on, either way, and keeps all connections open.
    pub(crate) fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Passes on what was held.
    pub(crate) fn let_go(&self) {
        self.held.send_replace(false);
    }

    /// Cuts all connections.
    pub(crate) fn cut_all(&self) {
        self.all.notify_waiters();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server_port: u16,
    plan: Arc<Mutex<Plan>>,
    held: watch::Receiver<bool>,
    all: Arc<Notify>,
) {
    let mut relays = tokio::task::JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
            continue;
        };
        let (plan, held, all) = (Arc::clone(&plan), held.clone(), Arc::clone(&all));
        relays.spawn(async move {
            let relay = Relay {
                plan,
                held,
                answers: Mutex::new(Answers::Pass),
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                () = relay.requests(from_client, to_server) => {}
                () = relay.answers(from_server, to_client) => {}
                () = all.notified() => {}
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Pass,
    Cut,
}

struct Relay {
    plan: Arc<Mutex<Plan>>,
    held: watch::Receiver<bool>,
    answers: Mutex<Answers>,
}

impl Relay {
    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            self.pass().await;
            match self.planned(&bytes[..count]) {
                Some(Cut::Request) => return,
                Some(Cut::Answer) => *self.answers.lock() = Answers::Cut,
                None => {}
            }
            if to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    async fn answers(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut bytes = vec![0; 1 << 20];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            self.pass().await;
            let answers = *self.answers.lock();
            if answers == Answers::Cut || to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    async fn pass(&self) {
        let mut held = self.held.clone();
        let _ = held.wait_for(|held| !held).await;
    }

    fn planned(&self, bytes: &[u8]) -> Option<Cut> {
        let mut plan = self.plan.lock();
        let (marker, cut) = plan.cut.as_ref()?;
        let cut = *cut;
        let holds = bytes
            .windows(marker.len())
            .any(|window| window == marker.as_slice());
        if holds {
            plan.cut = None;
        }
        holds.then_some(cut)
    }
}
