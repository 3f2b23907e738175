//! Opens connections: name, TCP, TLS.
//!
//! Names are resolved once, at the start of a run, so that no figure holds a name server's time.
//! Connections begin with the addresses in turn, so that a service of several is loaded evenly; one
//! that fails is passed over for the next.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Address, Scheme, TlsFault, WireError, redis};

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// For a connection, TLS included.
    pub(crate) connect: Duration,
    /// For any byte to come or go while a request is under way.
    pub(crate) silence: Duration,
}

/// Whose certificates are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those that this machine trusts.
    Machine,
    /// Any: for self-signed test servers.
    Anyone,
}

/// Opens connections to one endpoint.
pub(crate) struct Connector {
    addresses: Vec<SocketAddr>,
    next: AtomicUsize,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeouts: Timeouts,
    scheme: Scheme,
    login: Vec<Vec<u8>>,
}

/// An open connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// Resolves the name and makes ready for TLS where the address wants it.
    ///
    /// # Errors
    /// [`WireError::UnknownHost`], and [`WireError::Tls`] for a name no certificate can hold.
    pub(crate) fn new(
        address: &Address,
        trust: Trust,
        timeouts: Timeouts,
    ) -> Result<Self, WireError> {
        let addresses: Vec<_> = (&*address.host, address.port)
            .to_socket_addrs()
            .map_err(|_| WireError::UnknownHost)?
            .collect();
        if addresses.is_empty() {
            return Err(WireError::UnknownHost);
        }
        let tls = match address.scheme {
            Scheme::Http | Scheme::Redis => None,
            Scheme::Https => {
                let name = ServerName::try_from(address.host.to_string())
                    .map_err(|_| WireError::Tls(TlsFault::Certificate))?;
                Some((TlsConnector::from(Arc::new(client_config(trust))), name))
            }
        };
        Ok(Self {
            addresses,
            next: AtomicUsize::new(0),
            tls,
            timeouts,
            scheme: address.scheme,
            login: redis::login(address),
        })
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// What is said first on each connection.
    pub(crate) fn login(&self) -> &[Vec<u8>] {
        &self.login
    }

    /// Opens a connection within the connect timeout.
    pub(crate) async fn connect(&self) -> Result<Stream, WireError> {
        let deadline = Instant::now() + self.timeouts.connect;
        let tcp = self.connect_tcp(deadline).await?;
        let Some((connector, name)) = &self.tls else {
            return Ok(Stream::Plain(tcp));
        };
        match timeout_at(deadline, connector.connect(name.clone(), tcp)).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(WireError::Tls(tls_fault(&error))),
            Err(_) => Err(WireError::ConnectTimeout),
        }
    }

    async fn connect_tcp(&self, deadline: Instant) -> Result<TcpStream, WireError> {
        let count = self.addresses.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut fault = WireError::UnknownHost;
        for turn in 0..count {
            let address = self.addresses[first.wrapping_add(turn) % count];
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(count - turn).unwrap_or(u32::MAX);
            match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => {
                    // A request is one write; waiting to fill a packet would only delay it.
                    return match tcp.set_nodelay(true) {
                        Ok(()) => Ok(tcp),
                        Err(error) => Err(connect_error(&error)),
                    };
                }
                Ok(Err(error)) => fault = connect_error(&error),
                Err(_) => fault = WireError::ConnectTimeout,
            }
        }
        Err(fault)
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("addresses", &self.addresses)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, into),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, into),
        }
    }

    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, bytes),
        }
    }

    /// Sends what TLS still holds back.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }
}

fn connect_error(error: &io::Error) -> WireError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => WireError::ConnectionRefused,
        io::ErrorKind::TimedOut => WireError::ConnectTimeout,
        io::ErrorKind::ConnectionReset => WireError::ConnectionReset,
        other => WireError::ConnectFailed(other),
    }
}

fn tls_fault(error: &io::Error) -> TlsFault {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => TlsFault::Certificate,
        _ => TlsFault::Handshake,
    }
}

fn client_config(trust: Trust) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider supports TLS 1.2 and 1.3");
    let mut config = match trust {
        Trust::Machine => {
            let mut roots = RootCertStore::empty();
            // Without any, each handshake says that the certificate is not trusted.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(TrustsAnyone::new(&provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// Checks that the peer holds the key of its certificate, and not whose certificate it is.
#[derive(Debug)]
struct TrustsAnyone(WebPkiSupportedAlgorithms);

impl TrustsAnyone {
    fn new(provider: &CryptoProvider) -> Self {
        Self(provider.signature_verification_algorithms)
    }
}

impl ServerCertVerifier for TrustsAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
