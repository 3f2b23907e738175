//! The command line of `forebay admin`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use forebay_gateway::admin::messages::Change;

use super::names;

/// See into a running gateway, and change what its caches hold.
#[derive(Debug, Args)]
pub(crate) struct AdminArguments {
    #[command(flatten)]
    pub(super) server: ServerArguments,
    #[command(subcommand)]
    pub(super) command: AdminCommand,
}

/// Which gateway, and how its answers are shown.
#[derive(Debug, Args)]
pub(super) struct ServerArguments {
    /// Its admin listener.
    #[arg(
        long,
        value_name = "URL",
        env = "FOREBAY_ADMIN",
        default_value = "http://127.0.0.1:9001",
        global = true
    )]
    pub(super) admin: http::Uri,
    /// File with the token that its `admin.token` asks for; else `FOREBAY_ADMIN_TOKEN` counts.
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) token_file: Option<PathBuf>,
    /// Print what the API answers, one JSON document, for scripts.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// What about.
#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// Caches: what they hold, purge, warm.
    Cache {
        #[command(subcommand)]
        command: CacheCommand,
    },
    /// Tiers: what cold stores lack, and when they get it.
    Tier {
        #[command(subcommand)]
        command: TierCommand,
    },
    /// Logs among the stores.
    Log {
        #[command(subcommand)]
        command: LogCommand,
    },
    /// S3 services: how their endpoints stand; take one out, and back.
    Origin {
        #[command(subcommand)]
        command: OriginCommand,
    },
    /// Mirrors: how their members stand, compare, repair.
    Mirror {
        #[command(subcommand)]
        command: MirrorCommand,
    },
    /// Changes under way, and the last that have ended.
    Jobs(JobsArguments),
}

/// What to do with tiers.
#[derive(Debug, Subcommand)]
pub(super) enum TierCommand {
    /// How every tier stands.
    Status,
    /// Objects and deletes that cold stores lack, the oldest first.
    List(DirtyArguments),
    /// Move what is dirty now.
    Flush {
        /// Wait until it is moved.
        #[arg(long)]
        wait: bool,
    },
    /// Take nothing new and move everything; wait until it is.
    Drain,
    /// Take new objects again after a drain.
    Resume,
    /// Objects that can't be moved, as somebody else has written their keys.
    Conflicts(CountArguments),
    /// Let our objects replace what somebody else wrote.
    Retry(ObjectArguments),
    /// Give our objects up for what somebody else wrote.
    Discard(DiscardArguments),
}

/// What to do with S3 services.
#[derive(Debug, Subcommand)]
pub(super) enum OriginCommand {
    /// How every endpoint stands.
    Status {
        /// Name of a store; all of them without.
        store: Option<String>,
    },
    /// Send an endpoint nothing more, until `restore`; what is under way there goes on.
    Eject(EndpointArguments),
    /// Use an endpoint again, whoever took it out.
    Restore(EndpointArguments),
    /// Send an endpoint nothing more, until `restore`, and close its connections.
    Drain {
        #[command(flatten)]
        endpoint: EndpointArguments,
        /// Wait until nothing is under way there.
        #[arg(long)]
        wait: bool,
    },
}

/// Which endpoint.
#[derive(Debug, Args)]
pub(super) struct EndpointArguments {
    /// Name of its store.
    pub(super) store: String,
    /// The endpoint, as `status` names it.
    pub(super) endpoint: String,
}

/// What to do with mirrors.
#[derive(Debug, Subcommand)]
pub(super) enum MirrorCommand {
    /// How every member stands.
    Status,
    /// Compare the members; leaves with 1 when they differ.
    Verify(MirrorArguments),
    /// Compare the members, and make them equal.
    Repair(RepairArguments),
}

/// What of a mirror.
#[derive(Debug, Args)]
pub(super) struct MirrorArguments {
    /// Name of a store; all mirrors without.
    pub(super) store: Option<String>,
    /// One bucket alone.
    #[arg(long, value_name = "BUCKET")]
    pub(super) bucket: Option<String>,
    /// Keys of it that begin so.
    #[arg(long, value_name = "PREFIX", requires = "bucket")]
    pub(super) prefix: Option<String>,
    /// Compare all that is known of each key, tags and metadata too, not only what listings tell.
    #[arg(long)]
    pub(super) full: bool,
    /// Do not wait for the end: `forebay admin jobs` tells how far it is.
    #[arg(long)]
    pub(super) detach: bool,
}

/// How to make members equal.
#[derive(Debug, Args)]
pub(super) struct RepairArguments {
    #[command(flatten)]
    pub(super) mirror: MirrorArguments,
    /// Delete what more than half of the members lack, in place of restoring it.
    #[arg(long)]
    pub(super) delete: bool,
}

/// What to do with logs.
#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// How every log stands.
    Stats,
    /// Read and check everything that is kept; leaves with 1 when something is damaged.
    Verify,
    /// Give back what deleted and overwritten objects take.
    Compact,
}

/// How many.
#[derive(Debug, Args)]
pub(super) struct CountArguments {
    /// Objects shown.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(super) count: u16,
}

/// Which objects that are dirty.
#[derive(Debug, Args)]
pub(super) struct DirtyArguments {
    /// All of them, a BUCKET, or those that begin with BUCKET/PREFIX.
    #[arg(value_name = "BUCKET[/PREFIX]")]
    pub(super) place: Option<String>,
    #[command(flatten)]
    pub(super) count: CountArguments,
}

/// Objects to give up.
#[derive(Debug, Args)]
pub(super) struct DiscardArguments {
    #[command(flatten)]
    pub(super) objects: ObjectArguments,
    /// Says that it is meant: the objects are lost.
    #[arg(long)]
    pub(super) yes: bool,
}

/// What to do with caches.
#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// Counts of every cache.
    Stats,
    /// The objects that answer most often, or take most memory.
    Top(TopArguments),
    /// What is known of one object; leaves with 1 when nothing is stored.
    Lookup {
        /// BUCKET/KEY
        object: String,
    },
    /// Remove objects from caches: the next read of each asks the origin.
    #[command(after_help = "Examples:\n  \
        forebay admin cache purge photos/2026/cat.jpg\n  \
        forebay admin cache purge --prefix photos/2026/ --bucket drafts\n  \
        find-changed | forebay admin cache purge --list -")]
    Purge(SelectionArguments),
    /// Keep objects even when others need the room, within the quota of pins.
    Pin(ObjectArguments),
    /// End what `pin` began.
    Unpin(ObjectArguments),
    /// Read objects into their caches; what is fresh there is not read again.
    #[command(after_help = "Examples:\n  \
        forebay admin cache warm --prefix models/llama/ --concurrency 16\n  \
        forebay admin cache warm --list tonight.txt --detach\n\n\
        Ctrl-C cancels; what was read stays.")]
    Warm(WarmArguments),
    /// Make every cache empty.
    Flush {
        /// Says that it is meant.
        #[arg(long)]
        yes: bool,
    },
}

/// Which objects lead.
#[derive(Debug, Args)]
pub(super) struct TopArguments {
    /// Objects shown.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value = "20",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(super) count: u16,
    /// What they are ranked by.
    #[arg(long, default_value = "hits")]
    pub(super) by: TopOrder,
}

/// What objects are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TopOrder {
    /// How often they have answered; answers within a second count once.
    Hits,
    /// The memory they take.
    Bytes,
}

/// Objects by name.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct ObjectArguments {
    /// Objects, as BUCKET/KEY.
    #[arg(value_name = "BUCKET/KEY")]
    pub(super) objects: Vec<String>,
    /// File with one BUCKET/KEY a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) list: Option<PathBuf>,
}

/// Objects by name or by what their names begin with.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct PlaceArguments {
    /// Objects, as BUCKET/KEY.
    #[arg(value_name = "BUCKET/KEY")]
    pub(super) objects: Vec<String>,
    /// Objects whose names begin so.
    #[arg(long = "prefix", value_name = "BUCKET/PREFIX")]
    pub(super) prefixes: Vec<String>,
    /// All objects of a bucket.
    #[arg(long = "bucket", value_name = "BUCKET")]
    pub(super) buckets: Vec<String>,
    /// File with one BUCKET/KEY a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) list: Option<PathBuf>,
}

/// Any objects.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct SelectionArguments {
    /// Objects, as BUCKET/KEY.
    #[arg(value_name = "BUCKET/KEY")]
    objects: Vec<String>,
    /// Objects whose names begin so.
    #[arg(long = "prefix", value_name = "BUCKET/PREFIX")]
    prefixes: Vec<String>,
    /// All objects of a bucket.
    #[arg(long = "bucket", value_name = "BUCKET")]
    buckets: Vec<String>,
    /// File with one BUCKET/KEY a line; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,
    /// All objects of all caches.
    #[arg(long)]
    all: bool,
}

/// What to read, and how.
#[derive(Debug, Args)]
pub(super) struct WarmArguments {
    #[command(flatten)]
    pub(super) selection: PlaceArguments,
    /// Objects read at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) concurrency: Option<u32>,
    /// Do not wait for the end: `forebay admin jobs` tells how far it is.
    #[arg(long)]
    pub(super) detach: bool,
}

/// Which job.
#[derive(Debug, Args)]
pub(super) struct JobsArguments {
    /// Its number; all without.
    pub(super) id: Option<u64>,
    /// Stop it; what it has done stays.
    #[arg(long, requires = "id")]
    pub(super) cancel: bool,
}

impl ObjectArguments {
    pub(super) fn change(&self) -> anyhow::Result<Change> {
        names::change(&self.objects, self.list.as_deref())
    }
}

impl PlaceArguments {
    pub(super) fn change(&self) -> anyhow::Result<Change> {
        Ok(Change {
            prefixes: names::plain(&self.prefixes),
            buckets: names::plain(&self.buckets),
            ..names::change(&self.objects, self.list.as_deref())?
        })
    }
}

impl SelectionArguments {
    pub(super) fn change(&self) -> anyhow::Result<Change> {
        Ok(Change {
            prefixes: names::plain(&self.prefixes),
            buckets: names::plain(&self.buckets),
            all: self.all,
            ..names::change(&self.objects, self.list.as_deref())?
        })
    }
}
