//! Opens connections: TCP, TLS, HTTP.
//!
//! Called by [`crate::pool`] when no open connection is free. Names are resolved before
//! ([`crate::set`]): each address behind one is an endpoint of its own.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use forebay_telemetry::origin::OriginMetrics;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::{
    address::Address,
    dial::Dial,
    settings::{OriginSettings, Protocol, SettingsError},
    stream::{Open, Socket, Stream},
    upload::Outgoing,
};

/// Flow-control window of an HTTP/2 stream: what one slow reader may hold in memory.
const H2_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// hyper's PING on a busy HTTP/2 connection, which finds a dead peer as keepalive does.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
const H2_PING_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type H1Sender = http1::SendRequest<Outgoing>;
pub(crate) type H1Connection = http1::Connection<TokioIo<Stream>, Outgoing>;
pub(crate) type H2Sender = http2::SendRequest<Outgoing>;

/// Opens connections to one address.
#[derive(Debug)]
pub(crate) struct Connector {
    peer: SocketAddr,
    dial: Arc<dyn Dial>,
    protocol: Protocol,
    tls: Option<Arc<Tls>>,
    timeout: Duration,
    streams_max: usize,
    buffer_bytes_max: usize,
    open_count: Arc<AtomicUsize>,
    metrics: Arc<OriginMetrics>,
}

/// How one name's connections are encrypted.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// Why there is no connection: nothing was sent on it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("the origin refused the connection")]
    Refused(#[source] std::io::Error),
    #[error("the origin did not accept a connection in time")]
    TimedOut,
    #[error("no TLS with the origin: {0}")]
    Tls(#[source] std::io::Error),
    #[error("the origin does not speak HTTP/2")]
    NoHttp2,
    #[error("no HTTP with the origin")]
    Http(#[source] hyper::Error),
}

/// An open connection.
pub(crate) enum Connected {
    /// Driven by whoever uses it.
    Http1(H1Sender, Box<H1Connection>),
    /// Driven by its own task, which ends with the connection.
    Http2(H2Sender, JoinHandle<()>),
}

impl Connector {
    pub(crate) fn new(
        settings: &OriginSettings,
        tls: Option<Arc<Tls>>,
        (peer, dial): (SocketAddr, Arc<dyn Dial>),
        metrics: &Arc<OriginMetrics>,
    ) -> Self {
        Self {
            peer,
            dial,
            protocol: settings.protocol,
            tls,
            timeout: settings.timeouts.connect,
            streams_max: settings.pool.streams_max,
            buffer_bytes_max: settings.pool.buffer_bytes_max,
            open_count: Arc::default(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Sockets open at this moment.
    pub(crate) fn open_count(&self) -> usize {
        self.open_count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Opens a connection within the connect timeout.
    pub(crate) async fn connect(&self) -> Result<Connected, ConnectError> {
        let connected = tokio::time::timeout(self.timeout, self.connect_now()).await;
        let connected = connected.unwrap_or(Err(ConnectError::TimedOut));
        match &connected {
            Ok(_) => self.metrics.connections_opened.inc(),
            Err(_) => self.metrics.connect_errors.inc(),
        };
        connected
    }

    async fn connect_now(&self) -> Result<Connected, ConnectError> {
        let dialled = self.dial.dial(self.peer).await;
        let tcp = dialled.map_err(ConnectError::Refused)?;
        let socket = Socket::new(tcp, Open::new(&self.open_count, &self.metrics));
        let stream = match &self.tls {
            None => Stream::Plain(socket),
            Some(tls) => {
                let connecting = tls.connector.connect(tls.name.clone(), socket);
                let stream = connecting.await.map_err(ConnectError::Tls)?;
                if self.protocol == Protocol::Http2 && stream.get_ref().1.alpn_protocol().is_none()
                {
                    return Err(ConnectError::NoHttp2);
                }
                Stream::Tls(Box::new(stream))
            }
        };
        match self.protocol {
            Protocol::Http1 => self.begin_http1(stream).await,
            Protocol::Http2 => self.begin_http2(stream).await,
        }
    }

    /// Speaks HTTP/1.1 on a stream; ready at once.
    pub(crate) async fn begin_http1(&self, stream: Stream) -> Result<Connected, ConnectError> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(self.buffer_bytes_max)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectError::Http)?;
        Ok(Connected::Http1(sender, Box::new(connection)))
    }

    async fn begin_http2(&self, stream: Stream) -> Result<Connected, ConnectError> {
        // A window for every stream: a slow reader never holds up the others, and the connection
        // never holds more than this.
        let streams = u32::try_from(self.streams_max).unwrap_or(u32::MAX);
        let window_bytes = H2_STREAM_WINDOW_BYTES
            .saturating_mul(streams)
            .min(i32::MAX as u32);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(H2_STREAM_WINDOW_BYTES)
            .initial_connection_window_size(window_bytes)
            .max_send_buf_size(self.buffer_bytes_max)
            .keep_alive_interval(H2_PING_INTERVAL)
            .keep_alive_timeout(H2_PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(ConnectError::Http)?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the origin ended");
            }
        });
        Ok(Connected::Http2(sender, driver))
    }
}

impl Tls {
    pub(crate) fn new(settings: &OriginSettings, address: &Address) -> Result<Self, SettingsError> {
        let roots = match &settings.ca_file {
            Some(path) => roots_of_file(path)?,
            None => roots_of_machine()?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = match settings.protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
        };
        let name = ServerName::try_from(address.host().to_owned()).map_err(|_| {
            SettingsError::Endpoint {
                endpoint: address.host().to_owned(),
                fault: "has a host that no certificate can name",
            }
        })?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn roots_of_file(path: &std::path::Path) -> Result<RootCertStore, SettingsError> {
    let fault = |fault: String| SettingsError::CaFile {
        path: path.to_owned(),
        fault,
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| fault(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| fault(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| fault(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fault("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

fn roots_of_machine() -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    // A machine's store often holds an old certificate that can't be read; the others count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        Err(SettingsError::NoRoots)
    } else {
        Ok(roots)
    }
}
