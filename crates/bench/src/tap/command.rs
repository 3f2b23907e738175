//! `forebay tap`: a tap as a program of its own.
//!
//! Runs until SIGTERM or SIGINT, then tells what passed; a second signal ends it at once.

use std::{io::Write, net::SocketAddr, path::PathBuf};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use super::{Counts, FaultTexts, Faults, Settings, Tap, control::Status};

const EXAMPLES: &str = "\
Examples:
  Count what a gateway asks of its origin:
    forebay tap --listen 127.0.0.1:9100 --to 127.0.0.1:9200 --stats 127.0.0.1:9101
    curl http://127.0.0.1:9101/
  A store 20 ms away, with 2 ms of jitter, on a line of 100 MB/s:
    forebay tap --listen 127.0.0.1:9100 --to 127.0.0.1:9200 \\
        --delay 20ms --jitter 2ms --bandwidth-total 100MB
  A store that is busy or breaks off now and then, the same way every time:
    forebay tap --listen 127.0.0.1:9100 --to 127.0.0.1:9200 \\
        --busy 5% --reset-body 1% --seed 7 --after 10s --for 30s
  Change all faults while it runs; {} ends them:
    curl -X PUT http://127.0.0.1:9101/faults -d '{\"stall\": \"10%\", \"stall_for\": \"5s\"}'

What is not HTTP/1.1 (TLS, HTTP/2, an upgraded connection) passes opaquely: its bytes are counted
and its bandwidth is limited, and nothing else is done to it. The delay holds back first bytes of
answers, not handshakes. Exit codes: 0 stopped, 1 failed, 64 a flag that can't be understood.";

/// Relay TCP connections; count their requests and bytes; make the line long, narrow, unreliable.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TapArguments {
    /// Address for clients; port 0 takes a free one, which is printed.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Server to relay to.
    #[arg(long, value_name = "HOST:PORT", value_parser = server)]
    pub to: String,
    /// Address that tells the counts (GET /) and takes faults (PUT /faults).
    #[arg(long, value_name = "ADDRESS")]
    pub stats: Option<SocketAddr>,
    /// Write the totals to this file at the end, as JSON.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What the faults follow from; drawn and printed unless given.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Threads.
    #[arg(long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// Connections at a time; more wait to be accepted.
    #[arg(long, value_name = "N", default_value = "4096",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,
    /// Bytes of a head; a connection with a longer one passes opaquely.
    #[arg(long, value_name = "BYTES", default_value = "65536",
        value_parser = clap::value_parser!(u32).range(1024..=131_072))]
    pub head_bytes_max: u32,
    /// What is added to the line.
    #[command(flatten)]
    pub faults: FaultTexts,
}

/// Runs a tap until a signal; tells people on `notes` where it listens and, at the end, what
/// passed.
///
/// # Errors
/// A fault of the flags as [`crate::fault::FaultyInput`]; an address that can't be listened on; an
/// output file that can't be written.
pub fn run(arguments: TapArguments, notes: &mut dyn Write) -> Result<()> {
    let TapArguments {
        listen,
        to,
        stats,
        out,
        seed,
        threads,
        connections_max,
        head_bytes_max,
        faults: texts,
    } = arguments;
    let settings = Settings {
        listen,
        to,
        stats,
        seed: seed.unwrap_or_else(|| fastrand::u32(..).into()),
        faults: Faults::check(&texts, "the flags of the tap")?,
        connections_max: connections_max as usize,
        head_bytes_max: head_bytes_max as usize,
    };
    // The file is opened first: a run of an hour should not end with a path that was wrong.
    let out = match out {
        Some(path) => {
            let file = std::fs::File::create(&path);
            Some(file.with_context(|| format!("create {}", path.display()))?)
        }
        None => None,
    };
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    }
    .worker_threads(usize::from(threads))
    .enable_all()
    .build()
    .context("start runtime")?;
    let (to, seed) = (settings.to.clone(), settings.seed);
    let counts = runtime.block_on(serve(settings, texts, notes))?;
    let status = Status {
        to: &to,
        seed,
        counts,
    };
    if let Some(mut file) = out {
        serde_json::to_writer_pretty(&mut file, &status).context("write totals")?;
        writeln!(file).context("write totals")?;
    }
    tell_totals(&status.counts, notes)
}

async fn serve(settings: Settings, texts: FaultTexts, notes: &mut dyn Write) -> Result<Counts> {
    let mut terminate = signal(SignalKind::terminate()).context("catch signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("catch signals")?;
    let (to, seed, listen) = (settings.to.clone(), settings.seed, settings.listen);
    let starting = Tap::start(settings).await;
    let tap = starting.with_context(|| format!("start tap on {listen}"))?;
    *tap.shared.texts.write() = texts;
    writeln!(notes, "tap: {} -> {to}, seed {seed}", tap.address())?;
    if let Some(address) = tap.stats_address() {
        writeln!(notes, "tap: counts at http://{address}/")?;
    }
    notes.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    let shared = std::sync::Arc::clone(&tap.shared);
    tokio::select! {
        counts = tap.stop() => Ok(counts),
        _ = terminate.recv() => Ok(shared.counters.read()),
        _ = interrupt.recv() => Ok(shared.counters.read()),
    }
}

fn tell_totals(counts: &Counts, notes: &mut dyn Write) -> Result<()> {
    let by_status: Vec<_> = counts
        .responses
        .iter()
        .map(|(status, count)| format!("{count} x {status}"))
        .collect();
    writeln!(
        notes,
        "tap: {} requests on {} connections; answers: {}; {} bytes to the client \
        ({} of bodies), {} to the server ({} of bodies)",
        counts.requests,
        counts.connections,
        if by_status.is_empty() {
            "none".to_owned()
        } else {
            by_status.join(", ")
        },
        counts.bytes_to_client,
        counts.body_bytes_to_client,
        counts.bytes_to_server,
        counts.body_bytes_to_server,
    )?;
    let faults = &counts.faults;
    let struck = [
        ("slow", faults.slow),
        ("stall", faults.stall),
        ("busy", faults.busy),
        ("reset_request", faults.reset_request),
        ("reset_answer", faults.reset_answer),
        ("reset_body", faults.reset_body),
    ];
    for (kind, count) in struck.into_iter().filter(|(_, count)| *count > 0) {
        writeln!(notes, "tap: {count} x {kind}")?;
    }
    Ok(())
}

/// Reads `host:port`, also with `http://` before it.
fn server(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if has_port && !address.contains('/') {
        Ok(address.to_owned())
    } else {
        Err("a host and a port, such as 127.0.0.1:9200".to_owned())
    }
}
