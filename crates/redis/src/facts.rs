//! What a server says of itself, and whether it may keep what Forebay acknowledges.
//!
//! Asked on every new connection, before any other command: after a failover the new master may be
//! set up otherwise than the old one. Pure but for the two questions, which `connect` asks.

use crate::settings::{Promise, Volatile};

/// How safe an acknowledged write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// It may be gone when a server restarts.
    Volatile,
    /// It survives the end of the server's process, and with `appendfsync always` of its machine;
    /// with `everysec` the last second, two while its disk is busy, may be lost with the machine.
    HotLocal,
    /// So many replicas as asked for have it as well: it survives the loss of a machine, and a
    /// failover to any of them.
    HotReplicated,
}

/// When a server's log of writes reaches its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogSync {
    /// Before a write is answered.
    Always,
    /// Once a second.
    EverySecond,
    /// When its operating system likes.
    Never,
    /// It did not say: `CONFIG` is denied, as managed services do. Taken for once a second.
    Unknown,
}

/// What a server may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Master,
    Replica,
    /// It has not read its data yet.
    Loading,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) role: Role,
    pub(crate) is_cluster: bool,
    pub(crate) has_log: bool,
    pub(crate) log_sync: LogSync,
    /// `None` where it did not say.
    pub(crate) eviction: Option<String>,
    /// Major and minor number.
    pub(crate) version: (u32, u32),
}

/// Why a server is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Its writes would be gone after a restart.
    #[error(
        "keeps no log of its writes (appendonly no): set `appendonly yes`, or allow_volatile = true"
    )]
    NoLog,
    /// Its log reaches the disk at nobody knows what time.
    #[error(
        "does not sync its log (appendfsync no): set `appendfsync everysec` or `always`, or \
         allow_volatile = true"
    )]
    NeverSynced,
    /// It would throw away what was acknowledged when it is full.
    #[error("evicts what was acknowledged (maxmemory-policy {0}): set `noeviction`")]
    Evicts(String),
    /// It lacks commands that are needed.
    #[error("is version {0}.{1}; 7.0 or later is needed")]
    Old(u32, u32),
    /// It is a node of a cluster, or is none, other than the settings say.
    #[error("is {0}: set mode accordingly")]
    OtherMode(&'static str),
}

impl Facts {
    /// Reads the answers to `INFO server replication persistence memory cluster` and, where it is
    /// allowed, `CONFIG GET appendfsync`.
    pub(crate) fn read(info: &str, appendfsync: Option<&str>) -> Self {
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
        };
        let mut version = field("redis_version")
            .unwrap_or_default()
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        Self {
            role: match (field("loading"), field("role")) {
                (Some("1"), _) => Role::Loading,
                (_, Some("master")) => Role::Master,
                (_, _) => Role::Replica,
            },
            is_cluster: field("cluster_enabled") == Some("1"),
            has_log: field("aof_enabled") == Some("1"),
            log_sync: match appendfsync {
                Some("always") => LogSync::Always,
                Some("everysec") => LogSync::EverySecond,
                Some("no") => LogSync::Never,
                _ => LogSync::Unknown,
            },
            eviction: field("maxmemory_policy").map(str::to_owned),
            version: (version.next().unwrap_or(0), version.next().unwrap_or(0)),
        }
    }

    /// Whether a server may be used, and how safe writes are on it.
    pub(crate) fn judge(&self, promise: &Promise, cluster: bool) -> Result<Durability, Unfit> {
        if self.version < (7, 0) {
            return Err(Unfit::Old(self.version.0, self.version.1));
        }
        match (self.is_cluster, cluster) {
            (true, false) => return Err(Unfit::OtherMode("a node of a cluster")),
            (false, true) => return Err(Unfit::OtherMode("no node of a cluster")),
            (true, true) | (false, false) => {}
        }
        // Eviction takes whole shards away, not only what is old: no setting allows it.
        if let Some(policy) = self
            .eviction
            .as_deref()
            .filter(|policy| *policy != "noeviction")
        {
            return Err(Unfit::Evicts(policy.to_owned()));
        }
        let unfit = match (self.has_log, self.log_sync) {
            (false, _) => Some(Unfit::NoLog),
            (true, LogSync::Never) => Some(Unfit::NeverSynced),
            (true, LogSync::Always | LogSync::EverySecond | LogSync::Unknown) => None,
        };
        match (unfit, promise.volatile) {
            (Some(unfit), Volatile::Refused) => Err(unfit),
            (Some(_), Volatile::Allowed) => Ok(Durability::Volatile),
            (None, _) if promise.replicas_min > 0 => Ok(Durability::HotReplicated),
            (None, _) => Ok(Durability::HotLocal),
        }
    }

    /// Whether replicas can be asked for what they have synced, not only for what they received.
    pub(crate) fn has_waitaof(&self) -> bool {
        self.version >= (7, 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\n\r\n# Replication\r\nrole:master\r\n\
        # Persistence\r\nloading:0\r\naof_enabled:1\r\n# Memory\r\nmaxmemory_policy:noeviction\r\n\
        # Cluster\r\ncluster_enabled:0\r\n";

    fn judged(change: impl FnOnce(&mut Facts), promise: &Promise) -> Result<Durability, Unfit> {
        let mut facts = Facts::read(INFO, Some("always"));
        change(&mut facts);
        facts.judge(promise, false)
    }

    #[test]
    fn a_server_is_read_from_its_own_words() {
        let facts = Facts::read(INFO, Some("everysec"));
        assert_eq!(facts.role, Role::Master);
        assert!(facts.has_log && !facts.is_cluster);
        assert_eq!(facts.log_sync, LogSync::EverySecond);
        assert_eq!((facts.version, facts.has_waitaof()), ((7, 0), false));
        assert_eq!(Facts::read(INFO, None).log_sync, LogSync::Unknown);
        let role = |from, to| Facts::read(&INFO.replace(from, to), None).role;
        assert_eq!(role("role:master", "role:slave"), Role::Replica);
        assert_eq!(role("loading:0", "loading:1"), Role::Loading);
    }

    #[test]
    fn servers_that_forget_are_refused_unless_that_is_allowed() {
        let (strict, mut lax) = (Promise::default(), Promise::default());
        lax.volatile = Volatile::Allowed;
        assert_eq!(judged(|_| {}, &strict), Ok(Durability::HotLocal));
        assert_eq!(judged(|f| f.has_log = false, &strict), Err(Unfit::NoLog));
        assert_eq!(
            judged(|f| f.has_log = false, &lax),
            Ok(Durability::Volatile)
        );
        let never = |f: &mut Facts| f.log_sync = LogSync::Never;
        assert_eq!(judged(never, &strict), Err(Unfit::NeverSynced));
        assert_eq!(judged(never, &lax), Ok(Durability::Volatile));
        let replicated = Promise {
            replicas_min: 1,
            ..Promise::default()
        };
        assert_eq!(judged(|_| {}, &replicated), Ok(Durability::HotReplicated));
    }

    #[test]
    fn servers_that_evict_are_refused_always() {
        let lax = Promise {
            volatile: Volatile::Allowed,
            ..Promise::default()
        };
        let evicts = |f: &mut Facts| f.eviction = Some("allkeys-lru".to_owned());
        assert_eq!(
            judged(evicts, &lax),
            Err(Unfit::Evicts("allkeys-lru".to_owned()))
        );
    }

    #[test]
    fn old_servers_and_those_of_another_mode_are_refused() {
        let promise = Promise::default();
        assert_eq!(
            judged(|f| f.version = (6, 2), &promise),
            Err(Unfit::Old(6, 2))
        );
        assert!(matches!(
            judged(|f| f.is_cluster = true, &promise),
            Err(Unfit::OtherMode(_))
        ));
    }
}
