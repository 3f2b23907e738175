//! A lean HTTP/1.1 client: what the load generator sends requests with.
//!
//! General clients allocate for each request, parse headers into maps and hand out bodies as
//! objects; at small sizes that is most of the work, and the figures would be the client's. Here a
//! request is a prepared head and a body that is made while it is sent; an answer is read into one
//! buffer that all connections of a thread share, and handed on where it lies. In the steady state
//! nothing is allocated, and memory doesn't grow with the size of objects or the count of clients.
//!
//! | module | does |
//! |---|---|
//! | [`address`] | what `--endpoint` names |
//! | [`connect`] | opens connections: name, TCP, TLS |
//! | [`connection`] | one request after another on one connection, reconnecting |
//! | [`answer`] | reads answers from pieces: head, then a body of known length or in chunks |
//! | [`redis`] | the same for the protocol of Redis |
//!
//! Everything is for current-thread runtimes: what connections share is behind `Rc`.
//!
//! Not here: what requests say ([`crate::sign`]), when they are sent ([`crate::load`]).
//!
//! Sources: RFC 9112 (HTTP/1.1); the RESP specification.

pub(crate) mod address;
pub(crate) mod answer;
pub(crate) mod chunks;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod redis;
pub(crate) mod timer;

pub use address::Address;
pub(crate) use address::Scheme;
pub(crate) use answer::{Head, Sink};
pub(crate) use connect::Connector;
pub(crate) use connection::{Body, Connection, Exchanged, Outgoing, SharedBuffers};

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// The name has no address.
    #[error("its name can't be resolved")]
    UnknownHost,
    /// Nobody listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// No connection within the connect timeout.
    #[error("no connection within the timeout")]
    ConnectTimeout,
    /// No route, no free port, no file descriptor: the machine says which.
    #[error("no connection: {0}")]
    ConnectFailed(std::io::ErrorKind),
    /// The certificate or the protocol is not as it should be.
    #[error("no TLS: {0}")]
    Tls(TlsFault),
    /// Nothing was received or sent for as long as the timeout.
    #[error("no byte came or went within the timeout")]
    Timeout,
    /// The peer cut the connection.
    #[error("the connection was reset")]
    ConnectionReset,
    /// The peer closed the connection before the answer was whole.
    #[error("the connection was closed before the answer was whole")]
    ShortBody,
    /// Not HTTP/1.1 (or not RESP).
    #[error("the answer is malformed: {0}")]
    MalformedAnswer(&'static str),
}

/// What was wrong with TLS, as far as it calls for different remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TlsFault {
    /// Not signed by anyone that this machine trusts, for another name, or out of date.
    #[error("the certificate is not trusted (--insecure takes any)")]
    Certificate,
    /// Anything else.
    #[error("the handshake failed")]
    Handshake,
}

impl WireError {
    /// The name under which results count it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UnknownHost => "UnknownHost",
            Self::ConnectionRefused => "ConnectionRefused",
            Self::ConnectTimeout => "ConnectTimeout",
            Self::ConnectFailed(_) => "ConnectFailed",
            Self::Tls(TlsFault::Certificate) => "UntrustedCertificate",
            Self::Tls(TlsFault::Handshake) => "TlsFailed",
            Self::Timeout => "Timeout",
            Self::ConnectionReset => "ConnectionReset",
            Self::ShortBody => "ShortBody",
            Self::MalformedAnswer(_) => "MalformedAnswer",
        }
    }

    /// Whether it says that a kept connection had ended meanwhile, as servers may end them at any
    /// time: the request is then sent once more, on a new one.
    pub(crate) fn may_be_idle_close(self) -> bool {
        matches!(self, Self::ConnectionReset | Self::ShortBody)
    }
}
