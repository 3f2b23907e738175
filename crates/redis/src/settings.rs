//! What a Redis store is told: where the servers are, how to speak to them, what must be durable.
//!
//! Settings are data: the configuration makes them, [`RedisSettings::check`] finds every fault
//! without opening anything, and [`crate::RedisStore::open`] opens what they name. Each default
//! states its reason.

use std::{fmt, path::PathBuf, time::Duration};

/// Bytes of a prefix: it is part of every key.
const PREFIX_BYTES_MAX: usize = 64;
/// Redis's own port, and Sentinel's.
const PORT_DEFAULT: u16 = 6379;
const SENTINEL_PORT_DEFAULT: u16 = 26379;

/// A Redis or Valkey deployment and how to use it.
#[derive(Debug, Clone)]
pub struct RedisSettings {
    /// How the servers make one store.
    pub mode: Mode,
    /// Servers, or sentinels, or some nodes of a cluster; at least one.
    pub servers: Vec<ServerAddress>,
    /// Whether and how connections are encrypted.
    pub security: Security,
    /// Who Forebay is to the servers; `None` where they ask nobody.
    pub login: Option<Login>,
    /// Who it is to the sentinels.
    pub sentinel_login: Option<Login>,
    /// Number of the database; a cluster has 0 alone.
    pub database: u32,
    /// Begins every key, between `{fb:` and the shard: stores with different prefixes do not meet.
    pub prefix: String,
    /// What must be durable before a write is acknowledged.
    pub promise: Promise,
    /// How many connections there are, and what may wait for them.
    pub pool: PoolSettings,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// How the servers make one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// One server, at the first address.
    Single,
    /// The master that most of the sentinels name.
    Sentinel {
        /// Name of the master there.
        master: String,
    },
    /// A cluster.
    Cluster,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerAddress {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Whether and how connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// Not at all.
    Plain,
    /// TLS 1.2 or 1.3; the server's certificate is verified against its name.
    Tls {
        /// PEM file of the certificates to trust in place of the machine's own.
        ca_file: Option<PathBuf>,
    },
}

/// Who Forebay is to a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// A user of its access list; `None` is the default user.
    pub username: Option<String>,
    /// The user's password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .field("password", &"***")
            .finish()
    }
}

/// What must be durable before a write is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Replicas that must have a write as well. With Redis 7.2 and later they must have synced it
    /// to their disks (`WAITAOF`), before that they must have received it (`WAIT`).
    ///
    /// 0: most deployments of one server have none.
    pub replicas_min: u32,
    /// What becomes of servers that keep no log of their writes.
    pub volatile: Volatile,
}

/// What becomes of servers that keep no log of their writes (`appendonly no`, or `appendfsync no`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Volatile {
    /// They are refused.
    #[default]
    Refused,
    /// They are used, and nothing that they hold is called durable.
    Allowed,
}

/// How many connections there are, and what may wait for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// Connections to each server for commands of small size, each with many in flight.
    ///
    /// 4: one thread of Redis is not made faster by more, but a large answer on one holds up
    /// what is behind it on that one alone.
    pub connections: usize,
    /// Connections to each server for chunks of large payloads.
    ///
    /// 2: a chunk takes 0.1 ms on loopback and a few on a network; a guess.
    pub blob_connections: usize,
    /// Commands in flight or waiting on one connection; more are told `SlowDown`.
    ///
    /// 1024: half a second of work at 2,000 commands a second.
    pub pending_max: usize,
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first packet to a connection whose server was checked.
    ///
    /// 2 s: one lost SYN is repeated after 1 s.
    pub connect: Duration,
    /// From a command to its answer; after it the connection is given up.
    ///
    /// 2 s: a rewrite of the append-only file or a slow disk may hold a server up for a second.
    pub command: Duration,
    /// Replicas may take so long to have a write; after it its outcome is unknown.
    ///
    /// 1 s: far beyond the round trip to a replica that keeps up.
    pub replicate: Duration,
    /// A command that had no effect (no connection, a server that loads or has just lost its
    /// place) is tried again for so long, and is then `Unavailable`.
    ///
    /// 500 ms: bridges a cluster's redirects and a quick restart; the tier writes through after it.
    pub retry: Duration,
    /// Longest time between attempts to connect.
    ///
    /// 2 s: a server that is back is used within as much.
    pub backoff_max: Duration,
    /// Time between questions to the server that sends changes of other gateways.
    ///
    /// 500 ms: see `silence_max`.
    pub ping: Duration,
    /// No answer to such a question for so long means that changes may be missed: a gateway that
    /// is cut off stops trusting what it keeps after `ping` and this.
    ///
    /// 1 s: with `ping`, what is kept is stale for 1.5 s at most after a cut.
    pub silence_max: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            command: Duration::from_secs(2),
            replicate: Duration::from_secs(1),
            retry: Duration::from_millis(500),
            backoff_max: Duration::from_secs(2),
            ping: Duration::from_millis(500),
            silence_max: Duration::from_secs(1),
        }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections: 4,
            blob_connections: 2,
            pending_max: 1024,
        }
    }
}

impl Default for Promise {
    fn default() -> Self {
        Self {
            replicas_min: 0,
            volatile: Volatile::Refused,
        }
    }
}

/// A setting that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {fault}")]
pub struct SettingFault {
    /// Its name, as in the configuration.
    pub key: &'static str,
    /// What it says; never a secret.
    pub value: String,
    /// What is wrong, and what to do.
    pub fault: &'static str,
}

impl RedisSettings {
    /// One server that asks nobody who they are, and defaults.
    pub fn single(host: impl Into<String>, port: u16) -> Self {
        Self {
            mode: Mode::Single,
            servers: vec![ServerAddress {
                host: host.into(),
                port,
            }],
            security: Security::Plain,
            login: None,
            sentinel_login: None,
            database: 0,
            prefix: "forebay".to_owned(),
            promise: Promise::default(),
            pool: PoolSettings::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// Takes servers, encryption, login and database from URLs:
    /// `redis[s]://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, alike in all but host and port.
    ///
    /// # Errors
    /// What can't be read, without its password.
    pub fn with_urls(mut self, urls: &[String]) -> Result<Self, SettingFault> {
        let sentinels = matches!(self.mode, Mode::Sentinel { .. });
        let mut read = Vec::with_capacity(urls.len());
        for url in urls {
            let parts = UrlParts::parse(url, sentinels).map_err(|fault| SettingFault {
                key: "urls",
                value: without_login(url),
                fault,
            })?;
            read.push(parts);
        }
        let alike = |a: &UrlParts, b: &UrlParts| {
            (a.tls, &a.login, a.database) == (b.tls, &b.login, b.database)
        };
        if let Some(other) = read.iter().position(|parts| !alike(parts, &read[0])) {
            return Err(SettingFault {
                key: "urls",
                value: without_login(&urls[other]),
                fault: "differs from the first in more than host and port",
            });
        }
        if let Some(first) = read.first() {
            match (&self.security, first.tls) {
                (Security::Plain, true) => self.security = Security::Tls { ca_file: None },
                (Security::Tls { .. }, false) => self.security = Security::Plain,
                (Security::Plain, false) | (Security::Tls { .. }, true) => {}
            }
            if let Some(login) = &first.login {
                self.login = Some(login.clone());
            }
            self.database = first.database.unwrap_or(self.database);
        }
        self.servers = read.into_iter().map(|parts| parts.address).collect();
        Ok(self)
    }

    /// Every fault.
    pub fn check(&self) -> Vec<SettingFault> {
        let mut faults = Vec::new();
        let mut fault = |key, value: String, fault| faults.push(SettingFault { key, value, fault });
        if self.servers.is_empty() {
            fault("urls", "[]".to_owned(), "name at least one server");
        }
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if self.prefix.is_empty()
            || self.prefix.len() > PREFIX_BYTES_MAX
            || !self.prefix.bytes().all(fits)
        {
            let allowed = "use 1 to 64 letters, digits, dots, dashes and underscores";
            fault("prefix", self.prefix.clone(), allowed);
        }
        if self.mode == Mode::Cluster && self.database != 0 {
            let database = self.database.to_string();
            fault("database", database, "a cluster has database 0 alone");
        }
        if self.mode == Mode::Single && self.servers.len() > 1 {
            let count = format!("{} addresses", self.servers.len());
            let remedy = "one server has one address; set mode to sentinel or cluster";
            fault("urls", count, remedy);
        }
        for (key, count) in [
            ("connections", self.pool.connections),
            ("blob_connections", self.pool.blob_connections),
            ("pending_max", self.pool.pending_max),
        ] {
            if count == 0 || count > 65_536 {
                fault(key, count.to_string(), "use 1 to 65536");
            }
        }
        for (key, time) in [
            ("connect_timeout", self.timeouts.connect),
            ("command_timeout", self.timeouts.command),
            ("replicate_timeout", self.timeouts.replicate),
            ("backoff_max", self.timeouts.backoff_max),
            ("ping_interval", self.timeouts.ping),
            ("silence_max", self.timeouts.silence_max),
        ] {
            if time < Duration::from_millis(1) || time > Duration::from_mins(5) {
                fault(key, format!("{time:?}"), "use 1ms to 5m");
            }
        }
        if self.timeouts.replicate >= self.timeouts.command {
            let value = format!("{:?}", self.timeouts.replicate);
            let remedy = "must be shorter than command_timeout, which includes it";
            fault("replicate_timeout", value, remedy);
        }
        faults
    }
}

/// What a URL says.
#[derive(Debug)]
struct UrlParts {
    address: ServerAddress,
    tls: bool,
    login: Option<Login>,
    database: Option<u32>,
}

impl UrlParts {
    fn parse(url: &str, sentinel: bool) -> Result<Self, &'static str> {
        let (tls, rest) = if let Some(rest) = url.strip_prefix("redis://") {
            (false, rest)
        } else if let Some(rest) = url.strip_prefix("rediss://") {
            (true, rest)
        } else {
            return Err("must begin with redis:// or rediss://");
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((login, place)) => (Some(Self::login(login)?), place),
        };
        let database = match path {
            "" => None,
            number => Some(number.parse().map_err(|_| "its database is no number")?),
        };
        let (host, port) = if let Some(rest) = place.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or("its address has no `]`")?;
            (host, port.strip_prefix(':'))
        } else {
            match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            }
        };
        if host.is_empty() {
            return Err("has no host");
        }
        let default = if sentinel {
            SENTINEL_PORT_DEFAULT
        } else {
            PORT_DEFAULT
        };
        let port = match port {
            None => default,
            Some(port) => port.parse().map_err(|_| "its port is no number to 65535")?,
        };
        let address = ServerAddress {
            host: host.to_owned(),
            port,
        };
        Ok(Self {
            address,
            tls,
            login,
            database,
        })
    }

    fn login(text: &str) -> Result<Login, &'static str> {
        let (username, password) = text
            .split_once(':')
            .ok_or("its login has no `:` between user and password")?;
        let username = percent_decoded(username)?;
        Ok(Login {
            username: (!username.is_empty()).then_some(username),
            password: percent_decoded(password)?,
        })
    }
}

fn percent_decoded(text: &str) -> Result<String, &'static str> {
    let fault = "its login has a `%` that is no percent-encoding of UTF-8";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(fault)?;
        let digits = std::str::from_utf8(digits).map_err(|_| fault)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| fault)?);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| fault)
}

/// A URL for people, without who asks.
fn without_login(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://***@{place}"),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(urls: &[&str]) -> Result<RedisSettings, SettingFault> {
        let urls: Vec<String> = urls.iter().map(ToString::to_string).collect();
        RedisSettings::single("", 0).with_urls(&urls)
    }

    #[test]
    fn urls_name_servers_logins_and_databases() {
        let one = urls(&["redis://cache.example"]).unwrap();
        assert_eq!(one.servers[0].to_string(), "cache.example:6379");
        assert_eq!(
            (one.security, one.login, one.database),
            (Security::Plain, None, 0)
        );

        let one = urls(&["rediss://fore%40bay:s%3Acret@[::1]:7000/3"]).unwrap();
        assert_eq!(one.servers[0].to_string(), "[::1]:7000");
        assert_eq!(one.security, Security::Tls { ca_file: None });
        assert_eq!(one.database, 3);
        let login = one.login.unwrap();
        assert_eq!(login.username.as_deref(), Some("fore@bay"));
        assert_eq!(login.password, "s:cret");
        assert!(!format!("{login:?}").contains("cret"));
    }

    #[test]
    fn what_is_no_url_is_named_without_its_password() {
        for (url, fault) in [
            ("http://h", "must begin with redis:// or rediss://"),
            ("redis://", "has no host"),
            ("redis://h:99999", "its port is no number to 65535"),
            ("redis://h/x", "its database is no number"),
            (
                "redis://secret@h",
                "its login has no `:` between user and password",
            ),
        ] {
            let told = urls(&[url]).unwrap_err();
            assert_eq!(told.fault, fault, "{url}");
            assert!(!told.to_string().contains("secret"), "{told}");
        }
        assert!(urls(&["redis://a", "rediss://b"]).is_err());
    }

    #[test]
    fn every_fault_is_told() {
        let mut settings = RedisSettings::single("h", 1);
        assert_eq!(settings.check(), []);
        settings.mode = Mode::Cluster;
        settings.database = 2;
        settings.prefix = "a{b}".to_owned();
        settings.pool.pending_max = 0;
        settings.timeouts.replicate = settings.timeouts.command;
        let keys: Vec<_> = settings.check().iter().map(|fault| fault.key).collect();
        assert_eq!(
            keys,
            ["prefix", "database", "pending_max", "replicate_timeout"]
        );
    }
}
