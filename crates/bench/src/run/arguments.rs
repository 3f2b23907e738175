//! The command line of `forebay bench run`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::values::{
    CredentialsArgument, EndpointArgument, Multiple, TapArgument, positive, size, time,
    time_or_none,
};
use crate::{quantity, workload::Shares};

/// Examples that `--help` ends with.
const EXAMPLES: &str = "\
Examples:
  What a gateway brings, against the origin that it stands in front of:
    forebay bench run get --endpoint gateway=http://localhost:9000 \\
      --endpoint origin=http://localhost:9100 --rounds 5 --out get.json

  One object over and over, as fast as it goes, unsigned:
    forebay bench run hot --endpoint http://localhost:9000 --anonymous --concurrency 50

  500 requests a second, whether the endpoint keeps up or not:
    forebay bench run get --endpoint http://localhost:9000 --rate 500 --duration 1m

  The tail against the load:
    forebay bench run clients --of get --clients 10,100,1000 --endpoint http://localhost:9000

Exit codes: 0 all was measured and every request succeeded; 1 something failed, or the run was cut
short, and what was measured is printed and written all the same; 64 the command line is wrong.";

/// Put load on S3 endpoints, side by side, and measure.
///
/// Several endpoints take turns within each round, so that what else happens on the machine meets
/// all of them. Objects that a workload reads are uploaded once, kept, and used again by the next
/// run. Nothing but the given endpoints is contacted.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct RunArguments {
    /// What to ask for.
    #[arg(value_enum)]
    pub workload: WorkloadName,
    /// Endpoint under test; more than one are compared. `redis://HOST` for get, hot, put and tier.
    #[arg(long = "endpoint", value_name = "[LABEL=]URL", required = true)]
    pub endpoints: Vec<EndpointArgument>,

    /// Connections, each with one request in flight [default: 16; tier, cold: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535),
        help_heading = "Load")]
    pub concurrency: Option<u32>,
    /// Open loop: requests due per second, over all connections; latency counts from when a request
    /// was due.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Time measured, of each endpoint in each round and case [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Load")]
    pub duration: Option<Duration>,
    /// Requests measured, in place of a duration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..),
        help_heading = "Load")]
    pub requests: Option<u64>,
    /// Time before it, not counted [default: a tenth of the duration, at most 5s].
    #[arg(long, value_name = "TIME", value_parser = time_or_none, help_heading = "Load")]
    pub warm_up: Option<Duration>,
    /// How often every endpoint has its turn [default: 1; with several endpoints 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000),
        help_heading = "Load")]
    pub rounds: Option<u32>,
    /// Threads that send; each takes a core when the endpoint is fast [default: half the cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024),
        help_heading = "Load")]
    pub threads: Option<u32>,
    /// Check each byte of each answer.
    #[arg(long, help_heading = "Load")]
    pub verify: bool,
    /// Read as a client does that has a copy: GET and HEAD carry the `ETag` that the object had,
    /// and 304 is the answer that counts.
    #[arg(long, help_heading = "Load")]
    pub if_none_match: bool,
    /// Seed of what is chosen by chance.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Size of objects, or several: a case for each [default: 1KiB,10KiB,100KiB,500KiB,1MiB;
    /// hot, head, delete, list, mixed: 1KiB; tier: 1KB to 100MB; cold: 64MiB].
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = size,
        help_heading = "Objects")]
    pub size: Vec<u64>,
    /// Objects of each size [default: 2500; cold: 10].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000),
        help_heading = "Objects")]
    pub objects: Option<u32>,
    /// Choose few objects (blocks: few blocks) often: the k-th in proportion to 1/k^EXPONENT.
    #[arg(long, value_name = "EXPONENT", value_parser = positive, conflicts_with = "trace",
        help_heading = "Objects")]
    pub zipf: Option<f64>,
    /// Choose objects as a file says: a key in each line, in turn; `KEY<tab>SIZE` uploads it.
    #[arg(long, value_name = "FILE", help_heading = "Objects")]
    pub trace: Option<PathBuf>,
    /// Bucket; the default one is made when it is not there.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_BUCKET, help_heading = "Objects")]
    pub bucket: String,
    /// Make the bucket when it is not there.
    #[arg(long, help_heading = "Objects")]
    pub create_bucket: bool,
    /// What all keys begin with; --cleanup deletes what is below.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "forebay-bench",
        help_heading = "Objects"
    )]
    pub prefix: String,
    /// Upload objects here, in place of the endpoints under test.
    #[arg(long, value_name = "[LABEL=]URL", help_heading = "Objects")]
    pub prepare_at: Option<EndpointArgument>,
    /// Upload nothing: the objects are there.
    #[arg(long, conflicts_with = "prepare_at", help_heading = "Objects")]
    pub no_prepare: bool,
    /// Delete everything below the prefix when the run is over.
    #[arg(long, help_heading = "Objects")]
    pub cleanup: bool,

    /// mixed: how often each operation comes.
    #[arg(
        long,
        value_name = "OP=WEIGHT,…",
        default_value = "get=45,head=30,put=15,delete=10",
        help_heading = "Workloads"
    )]
    pub shares: Shares,
    /// clients: the workload to measure at each count.
    #[arg(long, value_enum, default_value_t = WorkloadName::Get, value_name = "WORKLOAD",
        help_heading = "Workloads")]
    pub of: WorkloadName,
    /// clients: connections, a case for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,100,1000",
        value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = "Workloads")]
    pub clients: Vec<u32>,
    /// multipart, blocks: size of the large objects.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size,
        help_heading = "Workloads")]
    pub object_size: u64,
    /// multipart: size of a part.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = size,
        help_heading = "Workloads")]
    pub part_size: u64,
    /// multipart: parts of an upload in flight.
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Workloads")]
    pub parts_at_once: u32,
    /// blocks: sizes of reads and writes.
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4KiB,16KiB,64KiB",
        value_parser = size, help_heading = "Workloads")]
    pub block_size: Vec<u64>,
    /// blocks: whether they are read, written or, in turns, both.
    #[arg(
        long,
        value_enum,
        value_name = "ACCESS,…",
        value_delimiter = ',',
        default_value = "read,write",
        help_heading = "Workloads"
    )]
    pub block_access: Vec<BlockAccess>,
    /// blocks: requests in flight, a case for each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "4,16",
        value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = "Workloads")]
    pub in_flight: Vec<u32>,
    /// blocks: size of the cache that is measured.
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workloads")]
    pub cache_size: Option<u64>,
    /// blocks: what is read and written, in sizes of the cache.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1/2,1,2,8,64",
        help_heading = "Workloads"
    )]
    pub working_set: Vec<Multiple>,
    /// tier: objects of each size.
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Workloads")]
    pub runs: u32,

    /// Send no signature: to all, or to the endpoints of these labels.
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',', num_args = 0..=1,
        require_equals = true, default_missing_value = "", help_heading = "Access")]
    pub anonymous: Option<Vec<String>>,
    /// Id of the access key.
    #[arg(
        long,
        value_name = "ID",
        env = "AWS_ACCESS_KEY_ID",
        hide_env_values = true,
        help_heading = "Access"
    )]
    pub access_key: Option<String>,
    /// Its secret; better given in the environment.
    #[arg(
        long,
        value_name = "SECRET",
        env = "AWS_SECRET_ACCESS_KEY",
        hide_env_values = true,
        help_heading = "Access"
    )]
    pub secret_key: Option<String>,
    /// Token of temporary credentials.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "AWS_SESSION_TOKEN",
        hide_env_values = true,
        help_heading = "Access"
    )]
    pub session_token: Option<String>,
    /// Other credentials for one endpoint.
    #[arg(long, value_name = "LABEL=ID:SECRET", help_heading = "Access")]
    pub credentials: Vec<CredentialsArgument>,
    /// Region that signatures are for.
    #[arg(
        long,
        value_name = "NAME",
        env = "AWS_REGION",
        default_value = "us-east-1",
        help_heading = "Access"
    )]
    pub region: String,
    /// Take any certificate.
    #[arg(long, help_heading = "Access")]
    pub insecure: bool,
    /// How long to wait for a connection.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time,
        help_heading = "Access")]
    pub connect_timeout: Duration,
    /// How long an answer may be silent: no byte in either direction.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time,
        help_heading = "Access")]
    pub timeout: Duration,

    /// Also write the results as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Count the origin's traffic: the address (or a file) of the statistics of `forebay tap`, for
    /// all endpoints or for one.
    #[arg(long, value_name = "[LABEL=]URL", help_heading = "Output")]
    pub tap_stats: Vec<TapArgument>,
}

impl RunArguments {
    /// How often every endpoint has its turn: fewer than five allow no verdict (`compare`).
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
            .unwrap_or(if self.endpoints.len() > 1 { 5 } else { 1 })
    }

    /// Threads that send; the endpoint may need the other cores.
    pub(crate) fn threads(&self) -> u32 {
        self.threads.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            u32::try_from(cores / 2).unwrap_or(u32::MAX).max(1)
        })
    }

    /// What shapes the workload, as the run file keeps it.
    pub(crate) fn parameters(&self) -> BTreeMap<String, String> {
        let mut parameters = BTreeMap::new();
        let mut put = |name: &str, value: Option<String>| {
            parameters.extend(value.map(|value| (name.to_owned(), value)));
        };
        let sizes = |sizes: &[u64]| {
            let sizes: Vec<_> = sizes
                .iter()
                .map(|size| quantity::show_size(*size))
                .collect();
            (!sizes.is_empty()).then(|| sizes.join(","))
        };
        put("concurrency", self.concurrency.map(|n| n.to_string()));
        put("rate", self.rate.map(|n| n.to_string()));
        put("duration", self.duration.map(quantity::show_time));
        put("requests", self.requests.map(|n| n.to_string()));
        put("warm_up", self.warm_up.map(quantity::show_time));
        put("threads", Some(self.threads().to_string()));
        put("verify", Some(self.verify.to_string()));
        put(
            "if_none_match",
            self.if_none_match.then(|| true.to_string()),
        );
        put("seed", Some(self.seed.to_string()));
        put("size", sizes(&self.size));
        put("objects", self.objects.map(|n| n.to_string()));
        put("zipf", self.zipf.map(|n| n.to_string()));
        put(
            "trace",
            self.trace.as_ref().map(|path| path.display().to_string()),
        );
        put("timeout", Some(quantity::show_time(self.timeout)));
        put("signed", Some(self.anonymous.is_none().to_string()));
        let name = self.workload;
        let of = |wanted: &[WorkloadName]| wanted.contains(&name);
        if of(&[WorkloadName::Mixed]) {
            put("shares", Some(self.shares.to_string()));
        }
        if of(&[WorkloadName::Clients]) {
            put("of", Some(self.of.name().to_owned()));
        }
        if of(&[WorkloadName::Multipart]) {
            put("part_size", sizes(&[self.part_size]));
            put("parts_at_once", Some(self.parts_at_once.to_string()));
        }
        if of(&[WorkloadName::Multipart, WorkloadName::Blocks]) {
            put("object_size", sizes(&[self.object_size]));
        }
        if of(&[WorkloadName::Blocks]) {
            put("cache_size", self.cache_size.map(quantity::show_size));
        }
        if of(&[WorkloadName::Tier]) {
            put("runs", Some(self.runs.to_string()));
        }
        parameters
    }
}

/// What is done with blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BlockAccess {
    /// Read ranges of large objects
    Read,
    /// Write small objects
    Write,
}

/// The bucket that needs no leave to be made.
pub(crate) const DEFAULT_BUCKET: &str = "forebay-bench";

/// What to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WorkloadName {
    /// Read random objects
    Get,
    /// Read one object over and over
    Hot,
    /// Ask for the heads of random objects
    Head,
    /// Write objects
    Put,
    /// Delete objects, which are written before
    Delete,
    /// List folders of 100 objects
    List,
    /// Several operations by --shares
    Mixed,
    /// Upload in parts
    Multipart,
    /// One workload at several counts of clients
    Clients,
    /// Read random blocks of large objects, then write small ones, by the size of a cache
    Blocks,
    /// PUT, GET, DELETE by size, emptied before each
    Tier,
    /// Read objects that were never read before
    Cold,
}

impl WorkloadName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Hot => "hot",
            Self::Head => "head",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Mixed => "mixed",
            Self::Multipart => "multipart",
            Self::Clients => "clients",
            Self::Blocks => "blocks",
            Self::Tier => "tier",
            Self::Cold => "cold",
        }
    }
}
