//! Opens connections: name, TCP, TLS, login, and the question whether the server is fit.
//!
//! Called by the keeper of each place for a connection ([`crate::link`]), by the questions to
//! sentinels and by the listener for changes. Nothing of the store is sent on a connection that was
//! not checked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError,
    Value, aio::MultiplexedConnection,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    runtime::Handle,
    sync::Notify,
    task::JoinHandle,
};
use tokio_rustls::TlsConnector;

use crate::{
    facts::{Durability, Facts, Role, Unfit},
    settings::{Login, Mode, RedisSettings, Security, ServerAddress, SettingFault},
};

/// Idle time before TCP asks whether the peer is still there, and between its questions: a dead
/// peer is noticed within a minute, and sooner by the timeout of a command.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_COUNT: u32 = 4;

/// Why there is no connection: nothing was sent on it but questions.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("its name can't be resolved")]
    Resolve(#[source] std::io::Error),
    #[error("it refused the connection")]
    Refused(#[source] std::io::Error),
    #[error("it did not accept a connection in time")]
    TimedOut,
    #[error("no TLS: {0}")]
    Tls(#[source] std::io::Error),
    #[error("it did not answer as Redis does, or denied the login: {0}")]
    Login(RedisError),
    #[error("it is a replica")]
    Replica,
    #[error("it loads its data")]
    Loading,
    #[error("it {0}")]
    Unfit(Unfit),
}

/// Opens connections.
pub(crate) struct Connector {
    settings: RedisSettings,
    tls: Option<TlsConnector>,
    /// Where the tasks of connections run, whoever asks for one.
    runtime: Handle,
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A server that is to keep data: it is checked.
    Server,
    /// One that is only asked where the data is.
    Guide,
    /// A sentinel.
    Sentinel,
}

/// Receives what a server sends unasked; called on the connection's task, so it must not block.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// An open connection; dropping it ends it.
pub(crate) struct Connection {
    sender: MultiplexedConnection,
    state: Arc<State>,
    driver: JoinHandle<()>,
    pub(crate) durability: Durability,
    pub(crate) has_waitaof: bool,
}

#[derive(Debug, Default)]
struct State {
    ended: AtomicBool,
    end: Notify,
}

impl State {
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end.notify_waiters();
    }
}

impl Connection {
    /// What commands are sent with; clones share the connection.
    pub(crate) fn sender(&self) -> MultiplexedConnection {
        self.sender.clone()
    }

    /// Whether nothing can be sent any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.ended.load(Ordering::Acquire)
    }

    /// Has it replaced: it is of no use, though it may look well.
    pub(crate) fn give_up(&self) {
        self.state.end();
    }

    /// Returns when it has ended, or was given up.
    pub(crate) async fn ended(&self) {
        let end = self.state.end.notified();
        tokio::pin!(end);
        end.as_mut().enable();
        if !self.has_ended() {
            end.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.state.end();
        self.driver.abort();
    }
}

impl Connector {
    pub(crate) fn new(settings: &RedisSettings, runtime: Handle) -> Result<Self, SettingFault> {
        let tls = match &settings.security {
            Security::Plain => None,
            Security::Tls { ca_file } => Some(tls_connector(ca_file.as_deref())?),
        };
        Ok(Self {
            settings: settings.clone(),
            tls,
            runtime,
        })
    }

    pub(crate) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Opens a connection within the connect timeout, and checks a server.
    pub(crate) async fn connect(
        &self,
        address: &ServerAddress,
        peer: Peer,
        on_push: Option<OnPush>,
    ) -> Result<Connection, ConnectError> {
        let connecting = async {
            let mut connection = self.open(address, peer, on_push).await?;
            if peer == Peer::Server {
                self.check(&mut connection).await?;
            }
            Ok(connection)
        };
        let timeout = self.settings.timeouts.connect;
        let connected = tokio::time::timeout(timeout, connecting).await;
        connected.unwrap_or(Err(ConnectError::TimedOut))
    }

    async fn open(
        &self,
        address: &ServerAddress,
        peer: Peer,
        on_push: Option<OnPush>,
    ) -> Result<Connection, ConnectError> {
        let tcp = connect_tcp(address).await?;
        match &self.tls {
            None => self.begin(tcp, peer, on_push).await,
            Some(tls) => {
                let name = ServerName::try_from(address.host.clone())
                    .map_err(|error| ConnectError::Tls(std::io::Error::other(error)))?;
                let stream = tls.connect(name, tcp).await.map_err(ConnectError::Tls)?;
                self.begin(stream, peer, on_push).await
            }
        }
    }

    async fn begin<S>(
        &self,
        stream: S,
        peer: Peer,
        on_push: Option<OnPush>,
    ) -> Result<Connection, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let state = Arc::new(State::default());
        let watched = Arc::clone(&state);
        let push = move |info: PushInfo| {
            // Before anyone is told, so that who is told and looks finds it ended.
            if info.kind == PushKind::Disconnection {
                watched.end();
            }
            if let Some(on_push) = &on_push {
                on_push(info);
            }
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.settings.pool.pending_max)
            .set_push_sender(push);
        let info = self.login(peer);
        let (sender, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(ConnectError::Login)?;
        let watched = Arc::clone(&state);
        let driver = self.runtime.spawn(async move {
            driver.await;
            watched.end();
        });
        Ok(Connection {
            sender,
            state,
            driver,
            durability: Durability::Volatile,
            has_waitaof: false,
        })
    }

    fn login(&self, peer: Peer) -> RedisConnectionInfo {
        let (login, database) = match peer {
            Peer::Server | Peer::Guide => (&self.settings.login, self.settings.database),
            Peer::Sentinel => (&self.settings.sentinel_login, 0),
        };
        let mut info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(i64::from(database))
            .set_skip_set_lib_name();
        if let Some(Login { username, password }) = login {
            info = info.set_password(password);
            if let Some(username) = username {
                info = info.set_username(username);
            }
        }
        info
    }

    async fn check(&self, connection: &mut Connection) -> Result<(), ConnectError> {
        let mut questions = redis::Pipeline::new();
        questions
            .cmd("INFO")
            .arg(&["server", "replication", "persistence", "memory", "cluster"]);
        questions.cmd("CONFIG").arg("GET").arg("appendfsync");
        let answers = connection
            .sender()
            .send_packed_commands(&questions, 0, 2)
            .await
            .map_err(ConnectError::Login)?;
        let info = match answers.first() {
            Some(Value::ServerError(error)) if error.code() == "LOADING" => {
                return Err(ConnectError::Loading);
            }
            Some(Value::ServerError(error)) => {
                return Err(ConnectError::Login(error.clone().into()));
            }
            Some(answer) => text(answer),
            None => String::new(),
        };
        let facts = Facts::read(&info, answers.get(1).and_then(appendfsync).as_deref());
        match facts.role {
            Role::Loading => return Err(ConnectError::Loading),
            Role::Replica => return Err(ConnectError::Replica),
            Role::Master => {}
        }
        let cluster = self.settings.mode == Mode::Cluster;
        let judged = facts.judge(&self.settings.promise, cluster);
        connection.durability = judged.map_err(ConnectError::Unfit)?;
        connection.has_waitaof = facts.has_waitaof() && facts.has_log;
        Ok(())
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// The value of `appendfsync` in an answer to `CONFIG GET`, which denied ones have not.
fn appendfsync(answer: &Value) -> Option<String> {
    match answer {
        Value::Map(pairs) => pairs.first().map(|(_, value)| text(value)),
        Value::Array(items) => items.get(1).map(text),
        _ => None,
    }
}

async fn connect_tcp(address: &ServerAddress) -> Result<TcpStream, ConnectError> {
    let found = tokio::net::lookup_host((address.host.as_str(), address.port))
        .await
        .map_err(ConnectError::Resolve)?;
    let mut last = ConnectError::Resolve(std::io::ErrorKind::NotFound.into());
    for address in found {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                // An option that can't be set costs speed, not correctness.
                let _ = tcp.set_nodelay(true);
                let _ = keep_alive(&tcp);
                return Ok(tcp);
            }
            Err(error) => last = ConnectError::Refused(error),
        }
    }
    Err(last)
}

fn keep_alive(tcp: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_tcp_keepidle(tcp, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(tcp, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(tcp, KEEPALIVE_COUNT)?;
    sockopt::set_socket_keepalive(tcp, true)
}

fn tls_connector(ca_file: Option<&std::path::Path>) -> Result<TlsConnector, SettingFault> {
    let mut roots = RootCertStore::empty();
    let fault = |fault| SettingFault {
        key: "ca_file",
        value: ca_file.map_or_else(|| "none".to_owned(), |path| path.display().to_string()),
        fault,
    };
    match ca_file {
        Some(path) => {
            let unreadable = "is no readable PEM file of certificates";
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|_| fault(unreadable))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|_| fault(unreadable))?;
                roots.add(certificate).map_err(|_| fault(unreadable))?;
            }
        }
        None => {
            // A machine's store often holds an old certificate that can't be read.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(fault("there is no certificate to trust: name a ca_file"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
