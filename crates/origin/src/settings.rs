//! What an origin store is told: where the origin is, how to speak to it, what it may cost.
//!
//! Settings are data: the configuration makes them, [`OriginSettings::check`] finds every fault
//! without opening anything, and [`crate::OriginStore::new`] opens what they name. Durations are
//! [`Duration`]s, sizes are bytes. Each default states its reason.

mod steady;

use std::{path::PathBuf, time::Duration};

use forebay_s3::sigv4::Credentials;
use http::Uri;

pub use steady::{BalanceSettings, EndpointLimits, HealthSettings, HedgeSettings};

const KIB: usize = 1024;

/// An S3 service and how to use it.
#[derive(Debug, Clone)]
pub struct OriginSettings {
    /// Endpoints that share their data, at least one: `http://` or `https://`, host, and perhaps a
    /// port and a base path. Each address behind a name is one of its own.
    pub endpoints: Vec<Uri>,
    /// Region that requests are signed for.
    pub region: String,
    /// Service that requests are signed for; `s3` but for relatives such as `s3-outposts`.
    pub service: String,
    /// Where a request names its bucket.
    pub addressing: Addressing,
    /// Version of HTTP on the connections.
    pub protocol: Protocol,
    /// Who signs.
    pub credentials: CredentialsSource,
    /// What vouches for a payload for which the client sent no hash and no trailer.
    pub payload_signing: PayloadSigning,
    /// PEM file of the certificates to trust in place of the machine's own.
    pub ca_file: Option<PathBuf>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How many connections there may be, to each endpoint.
    pub pool: PoolSettings,
    /// How often a request is tried.
    pub retries: Retries,
    /// How an endpoint is chosen.
    pub balance: BalanceSettings,
    /// When an endpoint is left out.
    pub health: HealthSettings,
    /// What one endpoint is asked at most.
    pub limits: EndpointLimits,
    /// When a read is sent twice; `None` is never.
    pub hedge: Option<HedgeSettings>,
}

/// Where a request names its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Addressing {
    /// In the path, which every S3 service understands.
    #[default]
    Path,
    /// In the host name, as Amazon recommends. Connections go to the endpoint's own name all the
    /// same, so that all buckets share one pool and one certificate.
    VirtualHost,
}

/// Version of HTTP on the connections to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1: what S3 services speak, and the quickest for large bodies.
    #[default]
    Http1,
    /// HTTP/2, agreed by ALPN over TLS and known beforehand without: between gateways.
    Http2,
}

/// Who signs the requests to the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsSource {
    /// Nobody: requests are sent unsigned, to a public bucket or a closed network.
    Anonymous,
    /// These keys, for ever.
    Static(Credentials),
    /// Whatever the AWS chain finds: environment, profile files, web identity, container,
    /// instance; see [`crate::credentials`].
    Chain {
        /// Profile to read in place of `AWS_PROFILE` or `default`.
        profile: Option<String>,
    },
}

/// What vouches for a payload for which the client sent no hash and no trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PayloadSigning {
    /// [`PayloadSigning::Unsigned`] over TLS and to this machine, where nothing on the way can
    /// change a byte, unless the client signed its chunks; [`PayloadSigning::Chunks`] else.
    #[default]
    Auto,
    /// `UNSIGNED-PAYLOAD`; trailers that the client sent go unsigned as well.
    Unsigned,
    /// `STREAMING-AWS4-HMAC-SHA256-PAYLOAD`: each chunk is signed, trailers too. A SHA-256 of
    /// every byte, and a chunk of memory for each upload in flight.
    Chunks,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first packet to a connection ready for requests, TLS and HTTP/2 included.
    ///
    /// 3 s: one lost SYN is repeated after 1 s, a second one after 3 s.
    pub connect: Duration,
    /// From the last byte of the request to the first of the answer.
    ///
    /// 60 s, as AWS's own clients: completing a large multipart upload takes that long.
    pub first_byte: Duration,
    /// Without a byte in a body under way, while the origin is the one waited for.
    ///
    /// 30 s: far beyond any pause of a working origin, and short enough to free the connection.
    pub idle: Duration,
    /// One attempt of a request without a payload, from asking for a connection to the answer's
    /// headers. A payload's time depends on the client, so it is bound by `idle` and the deadline.
    ///
    /// 65 s: a connection and a first byte, each at its own limit, and 2 s of waiting in line.
    pub attempt: Duration,
}

/// How many connections there may be, and how long they are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Connections open at once, over all threads; further requests wait.
    ///
    /// 1024: the usual limit of file descriptors leaves as many for clients.
    pub connections_max: usize,
    /// Connections kept open without a request, over all threads.
    ///
    /// 256: as many as a busy gateway of a few cores uses from one second to the next.
    pub idle_connections_max: usize,
    /// Time without a request after which a connection is not used any more.
    ///
    /// 15 s: a guess below what servers keep (nginx: 75 s), so that a request rarely meets a
    /// connection that is being closed.
    pub idle_timeout: Duration,
    /// Time a request waits for a connection when all are in use; then it is told `SlowDown`.
    ///
    /// 2 s: a full pool that does not move for longer is no burst but too much load.
    pub wait_max: Duration,
    /// Requests in flight on one HTTP/2 connection.
    ///
    /// 100: the least that RFC 9113 §6.5.2 recommends a server to allow.
    pub streams_max: usize,
    /// Buffer of one connection in each direction.
    ///
    /// 16 KiB: 350 uploads at once peak at 54–57 MB of resident memory, with 32 KiB at 61–63 MB,
    /// and long bodies do not pass through it; at least 8 KiB, which hyper needs.
    pub buffer_bytes_max: usize,
}

/// How often a request is tried, by the rules of `retry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retries {
    /// Attempts of one request, the first included.
    ///
    /// 3: what AWS's clients do. Each client retries by itself, too.
    pub attempts_max: u32,
    /// Upper bound of the random pause before the second attempt; doubled for each further one.
    ///
    /// 50 ms: about one answer of an S3 service.
    pub backoff: Duration,
}

/// Why an origin store could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The endpoint is no address of a service.
    #[error("endpoint {endpoint:?} {fault}; expected http://host[:port] or https://host[:port]")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A number is outside its range.
    #[error("{key} is {value}; allowed: {allowed}")]
    OutOfRange {
        /// Path of the setting.
        key: &'static str,
        /// As given.
        value: String,
        /// Allowed range.
        allowed: &'static str,
    },
    /// The CA file can't be read.
    #[error("read CA certificates from {path}: {fault}")]
    CaFile {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The endpoint is `https` and there is nothing to trust.
    #[error(
        "this machine has no root certificates; install ca-certificates, or name a file of \
         certificates to trust"
    )]
    NoRoots,
    /// The keys can't be used.
    #[error(transparent)]
    Credentials(#[from] crate::credentials::CredentialsError),
}

impl OriginSettings {
    /// An origin at `endpoint`, everything else as by default, with credentials from the chain.
    pub fn new(endpoint: Uri) -> Self {
        Self {
            endpoints: vec![endpoint],
            region: "us-east-1".to_owned(),
            service: "s3".to_owned(),
            addressing: Addressing::default(),
            protocol: Protocol::default(),
            credentials: CredentialsSource::Chain { profile: None },
            payload_signing: PayloadSigning::default(),
            ca_file: None,
            timeouts: Timeouts::default(),
            pool: PoolSettings::default(),
            retries: Retries::default(),
            balance: BalanceSettings::default(),
            health: HealthSettings::default(),
            limits: EndpointLimits::default(),
            hedge: None,
        }
    }

    /// Every number outside its range; opens nothing.
    pub fn check(&self) -> Vec<SettingsError> {
        let Self {
            timeouts,
            pool,
            retries,
            ..
        } = self;
        let Timeouts {
            connect,
            first_byte,
            idle,
            attempt,
        } = timeouts;
        let times = [
            ("timeouts.connect", connect),
            ("timeouts.first_byte", first_byte),
            ("timeouts.idle", idle),
            ("timeouts.attempt", attempt),
            ("pool.idle_timeout", &pool.idle_timeout),
            ("balance.resolve_interval", &self.balance.resolve_interval),
            ("health.ejection", &self.health.ejection),
            ("health.ejection_max", &self.health.ejection_max),
            ("health.probe_timeout", &self.health.probe_timeout),
        ];
        let times = times
            .into_iter()
            .filter(|(_, time)| time.is_zero())
            .map(|(key, time)| SettingsError::OutOfRange {
                key,
                value: format!("{time:?}"),
                allowed: "more than 0",
            });
        let counts = [
            (
                "endpoints",
                self.endpoints.len(),
                1..=ENDPOINTS_LIMIT,
                "1 to 64",
            ),
            (
                "limits.requests_max",
                self.limits.requests_max,
                1..=CONNECTIONS_LIMIT,
                "1 to 65536",
            ),
            (
                "balance.addresses_max",
                self.balance.addresses_max,
                1..=ENDPOINTS_LIMIT,
                "1 to 64",
            ),
            (
                "health.failures_max",
                self.health.failures_max as usize,
                1..=FAILURES_LIMIT,
                "1 to 1000",
            ),
            (
                "pool.connections_max",
                pool.connections_max,
                1..=CONNECTIONS_LIMIT,
                "1 to 65536",
            ),
            (
                "pool.streams_max",
                pool.streams_max,
                1..=STREAMS_LIMIT,
                "1 to 1024",
            ),
            (
                "pool.buffer_bytes_max",
                pool.buffer_bytes_max,
                BUFFER_LIMITS,
                "8 KiB to 4 MiB",
            ),
            (
                "retries.attempts_max",
                retries.attempts_max as usize,
                1..=10,
                "1 to 10",
            ),
        ];
        let counts = counts
            .into_iter()
            .filter(|(_, count, allowed, _)| !allowed.contains(count));
        let counts = counts.map(|(key, count, _, allowed)| SettingsError::OutOfRange {
            key,
            value: count.to_string(),
            allowed,
        });
        let rate = self
            .limits
            .bytes_per_second_max
            .filter(|bytes| *bytes < RATE_MIN);
        let rate = rate.map(|bytes| SettingsError::OutOfRange {
            key: "limits.bytes_per_second_max",
            value: bytes.to_string(),
            allowed: "at least 1024",
        });
        let twice = self
            .endpoints
            .iter()
            .enumerate()
            .filter(|(index, endpoint)| self.endpoints[..*index].contains(endpoint));
        let twice = twice.map(|(_, endpoint)| SettingsError::Endpoint {
            endpoint: endpoint.to_string(),
            fault: "is named twice",
        });
        let hedge = self.hedge.iter().flat_map(HedgeSettings::faults);
        let faults = times.chain(counts).chain(rate).chain(twice);
        faults.chain(hedge).collect()
    }
}

/// Far more than share one service's data.
const ENDPOINTS_LIMIT: usize = 64;
/// With less a single answer would take minutes.
const RATE_MIN: u64 = 1024;
/// Beyond it nothing would ever be left out.
const FAILURES_LIMIT: usize = 1000;
/// As many as there are ports to come from.
const CONNECTIONS_LIMIT: usize = 65_536;
/// Far beyond what one connection carries well; keeps the product with the above in range.
const STREAMS_LIMIT: usize = 1024;
/// hyper refuses less; more is no quicker and multiplies with the connections.
const BUFFER_LIMITS: std::ops::RangeInclusive<usize> = 8 * KIB..=4096 * KIB;

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            first_byte: Duration::from_mins(1),
            idle: Duration::from_secs(30),
            attempt: Duration::from_secs(65),
        }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            idle_connections_max: 256,
            idle_timeout: Duration::from_secs(15),
            wait_max: Duration::from_secs(2),
            streams_max: 100,
            buffer_bytes_max: 16 * KIB,
        }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts_max: 3,
            backoff: Duration::from_millis(50),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range_and_every_fault_is_told_at_once() {
        let mut settings = OriginSettings::new(Uri::from_static("http://127.0.0.1:9"));
        assert!(settings.check().is_empty());
        settings.timeouts.idle = Duration::ZERO;
        settings.pool.connections_max = 0;
        settings.pool.buffer_bytes_max = 4096;
        settings.retries.attempts_max = 11;
        settings.limits.bytes_per_second_max = Some(1);
        settings.endpoints.push(settings.endpoints[0].clone());
        let faults: Vec<String> = settings.check().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 6, "{faults:?}");
        assert!(
            faults[0].contains("timeouts.idle is 0ns; allowed: more than 0"),
            "{faults:?}"
        );
        assert!(faults[5].contains("is named twice"), "{faults:?}");
        assert!(
            faults[3].contains("attempts_max is 11; allowed: 1 to 10"),
            "{faults:?}"
        );
    }
}
