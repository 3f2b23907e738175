//! What the gateway is told before it starts: typed, already checked, without a source.
//!
//! The configuration makes these values and [`crate::Gateway::start`] takes them; nothing here is
//! read from files or checked again. Sizes are bytes, times are [`Duration`]s. What can be
//! exchanged while the gateway runs (users, policies, certificates) is not here but in
//! [`crate::users`] and behind [`crate::Running`].

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, time::Duration};

use forebay_store::Identity;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The largest body of one PUT or part: what S3 allows.
pub const PUT_BYTES_MAX: u64 = 5 * 1024 * MIB as u64;

/// How the gateway listens, what it is called and what it bounds.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What it calls itself in `Cache-Status`; a token of RFC 8941.
    pub name: String,
    /// Where it listens; at least one.
    pub listeners: Vec<Listener>,
    /// Domains under which a bucket may be a host name, such as `s3.example.com`.
    pub domains: Vec<String>,
    /// Regions that requests may be signed for, the first being the gateway's own; any when empty.
    pub regions: Vec<String>,
    /// Threads that serve requests, each with its own runtime and listening sockets.
    pub threads: NonZeroUsize,
    /// Bounds.
    pub limits: Limits,
    /// Where a line for each request goes, if anywhere.
    pub access_log: Option<AccessLogSettings>,
}

/// One address to listen on.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Address and port; port 0 takes a free one, the same for all threads.
    pub address: SocketAddr,
    /// Certificate and key, when it speaks TLS.
    pub tls: Option<TlsPaths>,
    /// Whether requests must prove who sends them.
    pub authentication: Authentication,
}

/// Files of a TLS listener, PEM; read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPaths {
    /// Certificate chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Whether a listener checks signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// A signature is checked, and a request without one is anonymous.
    Required,
    /// For closed networks: no signature is looked at, and every request comes from `identity`,
    /// whose policies still decide.
    Off {
        /// Who everybody is.
        identity: Identity,
    },
}

/// Bounds on what clients may take, each with a stated behaviour when it is reached.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of request line and headers: `RequestHeaderSectionTooLarge`, and above
    /// [`READ_BUFFER_BYTES`] a bare 431.
    pub header_bytes_max: usize,
    /// Headers of a request: a bare 431.
    pub header_count_max: usize,
    /// Open connections: further ones wait to be accepted.
    pub connections_max: usize,
    /// Requests in flight on one HTTP/2 connection.
    pub streams_max: u32,
    /// From the connection's start, or from the first byte of a request, to the end of its
    /// headers (TLS handshake included): the connection is cut.
    pub header_timeout: Duration,
    /// Between requests of one connection: it is closed.
    pub idle_timeout: Duration,
    /// The window in which a body under way, in either direction, must move by
    /// [`Limits::rate_bytes_min`] bytes a second: `RequestTimeout` for an upload, a cut for a
    /// download.
    pub stall_timeout: Duration,
    /// Slowest pace of a body, bytes a second.
    pub rate_bytes_min: u64,
    /// From a request's headers to its answer's: 503. A body adds the time that it takes at the
    /// slowest pace.
    pub request_timeout: Duration,
    /// Silence of a store that works on what S3 itself answers late (a completed upload, a copy):
    /// the head of the answer leaves, and white space each time that it has passed again.
    pub silence_max: Duration,
}

/// Most bytes that one HTTP/1 connection reads ahead, and so the size of a body's pieces.
///
/// 32 KiB: 350 uploads at once, with two such buffers each, hold 22 MiB, well inside the 60 MB
/// that the whole process may take then.
pub const READ_BUFFER_BYTES: usize = 32 * KIB;

impl Default for Limits {
    fn default() -> Self {
        Self {
            // S3 allows 8 KiB of headers; a presigned URL with a session token comes on top.
            header_bytes_max: 16 * KIB,
            header_count_max: 100,
            connections_max: 10_000,
            // What RFC 9113 §6.5.2 recommends as the least, with room.
            streams_max: 256,
            header_timeout: Duration::from_secs(10),
            // A little more than the 60 s that load balancers keep idle connections.
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            rate_bytes_min: 256,
            request_timeout: Duration::from_mins(5),
            // Long enough that almost every answer still has its own status and headers, and short
            // beside what clients wait for a byte: 60 s (botocore 1.43), and 20 s at less than a
            // byte a second (stalled stream protection of the SDK for Rust).
            silence_max: Duration::from_secs(5),
        }
    }
}

/// The access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Form of a line.
    pub format: AccessLogFormat,
    /// Where lines go.
    pub output: AccessLogOutput,
}

/// Form of a line of the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object a line.
    Json,
    /// The format of Amazon S3 server access logs.
    Aws,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogOutput {
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}
