//! `forebay cost`: the bills of a workload, and what to set.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    Workload,
    metrics::Counted,
    prices::{BUILT_IN, Prices, Sources},
    print::{self, Bill, Report},
};
use crate::{
    fault::{Fault, FaultyInput},
    quantity::{
        SHARE_ALLOWED, SIZE_ALLOWED, Share, TIME_ALLOWED, parse_size, parse_time, show_time,
    },
};

/// How long a gateway may take to tell its metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
/// Metrics beyond this are none.
const METRICS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The examples of `--help`; a test runs each that needs nothing else.
pub(super) const EXAMPLES: &str = "\
Examples:
  Ten million objects of 100 KB a month, each read five times, mostly in its first hour:
    forebay cost --objects 10000000 --size 100KB --kept 30d --gets 50000000 --hot-gets 1h=80%
  A gateway's own workload of the last day, read from its admin address:
    forebay cost --metrics http://127.0.0.1:9001/metrics --over 1d --kept 30d
  With prices of your own:
    forebay cost --print-prices > prices.toml
    forebay cost --objects 1000000 --size 1MB --prices prices.toml
    forebay cost --objects 1000000 --size 1MB --set 'redis.node=0.862 USD per hour' \\
        --set redis.memory=52.82GiB
  The published comparison, a million objects of 1 MB for a week: $11.15 in S3, $314.63 in Redis,
  $101.15 and $404.63 with $90.00 to move the bytes out. Its month has 28 days for S3 and 730 hours
  for the one Redis node, its GB has 10^9 bytes, and each object is written and read once:
    forebay cost --objects 1000000 --size 1MB --kept 7d --leaving 100% --redis-nodes 1 \\
        --set month=28d --set redis.rented_min=730h \\
        --set 's3.storage=0.023 USD per GB-month' --set 'transfer.out=0.09 USD per GB'

Bills are for one period (--over). Exit codes: 0 told, 1 failed, 64 a flag or a price that can't be
understood.";

/// Tell what a workload costs in S3, in Redis and in Forebay's tier, and what to set.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CostArguments {
    /// Objects written in the period.
    #[arg(long, value_name = "N", required_unless_present_any = ["metrics", "print_prices"])]
    pub objects: Option<u64>,
    /// Size of an object, in the mean.
    #[arg(long, value_name = "SIZE", value_parser = size,
        required_unless_present_any = ["metrics", "print_prices"])]
    pub size: Option<u64>,
    /// How long an object is kept.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    pub kept: Duration,
    /// The period: in it the objects are written evenly [default: as long as they are kept].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub over: Option<Duration>,
    /// Requests that write [default: one an object].
    #[arg(long, value_name = "N")]
    pub puts: Option<u64>,
    /// Requests that read [default: one an object].
    #[arg(long, value_name = "N")]
    pub gets: Option<u64>,
    /// Requests that list [default: none].
    #[arg(long, value_name = "N")]
    pub lists: Option<u64>,
    /// Share of the bytes read that leaves the region.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    pub leaving: Share,
    /// Share of reads that come up to an age; may be given for several ages [default: 1h=80%].
    #[arg(long, value_name = "AGE=SHARE", value_parser = share_by_age)]
    pub hot_gets: Vec<(Duration, Share)>,
    /// Share of objects deleted or overwritten while hot: the tier never writes them to S3. What
    /// they take in S3 counts as if they were kept.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = share)]
    pub short_lived: Share,
    /// Age at which the tier's bill moves objects to S3 [default: as recommended].
    #[arg(long, value_name = "TIME", value_parser = time_or_none)]
    pub demote_after: Option<Duration>,
    /// Redis nodes for all objects [default: as many as hold them].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub redis_nodes: Option<u64>,
    /// Take objects, sizes and requests from a gateway's metrics: an http URL, a file, or - for
    /// standard input. Flags given beside it outrank it.
    #[arg(long, value_name = "URL|FILE", requires = "over")]
    pub metrics: Option<String>,
    /// Price book; keys that it leaves out keep the built-in prices.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// Set one key of the price book; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the built-in price book and leave.
    #[arg(long)]
    pub print_prices: bool,
    /// Tell it all as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Writes the bills to `out`.
///
/// # Errors
/// Prices or flags that make no sense, as [`FaultyInput`]; metrics or a price book that can't be
/// read.
pub fn run(arguments: &CostArguments, out: &mut dyn Write) -> Result<()> {
    if arguments.print_prices {
        return Ok(out.write_all(BUILT_IN.as_bytes())?);
    }
    let book = match &arguments.prices {
        Some(path) => Some((path.display().to_string(), read_file(path)?)),
        None => None,
    };
    let prices = Prices::load(Sources {
        book: book
            .as_ref()
            .map(|(name, text)| (name.as_str(), text.as_str())),
        changes: &arguments.set,
    })?;
    let counted = match &arguments.metrics {
        Some(place) => {
            let text = read_metrics(place)?;
            let counted = Counted::read(&text);
            Some(counted.with_context(|| format!("{place} has no forebay_requests_total"))?)
        }
        None => None,
    };
    let workload = workload(arguments, counted)?;
    let report = Report::make(&workload, arguments.demote_after, &prices)?;
    let bill = Bill {
        workload: &workload,
        prices: &prices,
        report: &report,
        assumes_ages: arguments.hot_gets.is_empty(),
    };
    if arguments.json {
        print::json(&bill, out)
    } else {
        print::text(&bill, out)
    }
}

fn workload(arguments: &CostArguments, counted: Option<Counted>) -> Result<Workload> {
    let counts = counted.unwrap_or_default();
    let objects = arguments.objects.unwrap_or(counts.objects);
    let size_bytes = match arguments.size {
        Some(bytes) => bytes,
        None => counts.written_bytes.checked_div(objects).unwrap_or(0),
    };
    let mut reads_by_age = arguments.hot_gets.clone();
    if reads_by_age.is_empty() {
        reads_by_age.push(DEFAULT_HOT_GETS);
    }
    reads_by_age.sort();
    let faults = faults_of(objects, size_bytes, &reads_by_age);
    if !faults.is_empty() {
        let input = "the workload".to_owned();
        bail!(FaultyInput { input, faults });
    }
    let gets = match (arguments.gets, counted) {
        (Some(gets), _) => gets,
        (None, Some(counts)) => counts.gets,
        (None, None) => objects,
    };
    let or_counted = |flag: Option<u64>, counted_as: u64, default: u64| {
        flag.unwrap_or(counted.map_or(default, |_| counted_as))
    };
    let read_bytes = match (counted, arguments.gets, arguments.size) {
        (Some(counts), None, None) => counts.read_bytes,
        _ => gets.saturating_mul(size_bytes),
    };
    Ok(Workload {
        objects,
        size_bytes,
        kept: arguments.kept,
        over: arguments.over.unwrap_or(arguments.kept),
        puts: or_counted(arguments.puts, counts.puts, objects),
        gets,
        lists: or_counted(arguments.lists, counts.lists, 0),
        read_bytes,
        leaving: arguments.leaving,
        reads_by_age,
        short_lived: arguments.short_lived,
        redis_nodes: arguments.redis_nodes,
    })
}

/// What keeps these from being a workload.
fn faults_of(objects: u64, size_bytes: u64, reads_by_age: &[(Duration, Share)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut refuse = |key: &str, value: &str, allowed: &str, remedy: &str| {
        faults.push(Fault {
            key: key.to_owned(),
            value: value.to_owned(),
            allowed: allowed.to_owned(),
            remedy: remedy.to_owned(),
        });
    };
    if objects == 0 {
        let remedy = "say how many are written; metrics that count none can't tell what is read";
        refuse("--objects", "0", "1 or more", remedy);
    } else if size_bytes == 0 {
        refuse("--size", "0B", "1B or more", "say how large an object is");
    }
    if !reads_by_age.is_sorted_by(|(age, share), (later, more)| age < later && share <= more) {
        let ages = reads_by_age.iter();
        let ages = ages.map(|(age, share)| format!("{}={share}", show_time(*age)));
        let value = ages.collect::<Vec<_>>().join(", ");
        let remedy = "give each age once, and no smaller share for a later one";
        refuse(
            "--hot-gets",
            &value,
            "shares that grow with the age",
            remedy,
        );
    }
    faults
}

/// A guess for want of a measurement: the tier's own default age, and four reads in five.
const DEFAULT_HOT_GETS: (Duration, Share) = (Duration::from_hours(1), Share::FOUR_FIFTHS);

fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn read_metrics(place: &str) -> Result<String> {
    if place == "-" {
        let mut text = String::new();
        let mut input = std::io::stdin().take(METRICS_BYTES_MAX);
        input.read_to_string(&mut text).context("read metrics")?;
        return Ok(text);
    }
    if place.starts_with("https://") {
        bail!("read {place}: only http is spoken here; try `curl URL | forebay cost --metrics -`");
    }
    match place.strip_prefix("http://") {
        Some(rest) => fetch(rest).with_context(|| format!("read {place}")),
        None => read_file(Path::new(place)),
    }
}

/// Fetches `host:port/path`; the end of the connection is the end of the text.
fn fetch(rest: &str) -> Result<String> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
    let with_port = match authority.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
        _ => format!("{authority}:80"),
    };
    let address = with_port
        .to_socket_addrs()?
        .next()
        .context("no such host")?;
    let mut server = TcpStream::connect_timeout(&address, METRICS_TIMEOUT)?;
    server.set_read_timeout(Some(METRICS_TIMEOUT))?;
    let ask = format!("GET /{path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    server.write_all(ask.as_bytes())?;
    let mut answer = Vec::new();
    server.take(METRICS_BYTES_MAX).read_to_end(&mut answer)?;
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_bytes) = head.parse(&answer)? else {
        bail!("the answer has no end of its head");
    };
    match head.code {
        Some(200) => Ok(String::from_utf8_lossy(&answer[head_bytes..]).into_owned()),
        status => bail!("the answer's status is {}", status.unwrap_or_default()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| SIZE_ALLOWED.to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    time_or_none(text).and_then(|time| match time.as_secs() {
        0 => Err("a second or more".to_owned()),
        _ => Ok(time),
    })
}

fn time_or_none(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .map(|time| Duration::from_secs(time.as_secs()))
        .ok_or_else(|| TIME_ALLOWED.to_owned())
}

fn share(text: &str) -> Result<Share, String> {
    Share::parse(text).ok_or_else(|| SHARE_ALLOWED.to_owned())
}

fn share_by_age(text: &str) -> Result<(Duration, Share), String> {
    let (age, part) = text
        .split_once('=')
        .ok_or_else(|| "an age and a share, such as 1h=80%".to_owned())?;
    Ok((time(age)?, share(part)?))
}
