//! `forebay bench run`: puts load on endpoints, side by side, and measures.
//!
//! [`run`] is the whole command: reads the arguments into cases, looks at the endpoints, sees to it
//! that the objects are there, measures case by case, round by round, endpoint after endpoint,
//! and hands the run to the tables and to the run file. Whatever ends it early (a signal, an
//! endpoint that died) leaves what was measured until then, printed and written.
//!
//! | exit code | means |
//! |---|---|
//! | 0 | all was measured and every request succeeded |
//! | 1 | something failed, or the run was cut short |
//! | 64 | the command line is wrong |
//!
//! Nothing but the given endpoints is contacted.

pub mod arguments;
mod cases;
mod endpoints;
mod measuring;
mod progress;
mod tap_stats;
pub mod values;

#[cfg(test)]
mod tests;

use std::{
    fs,
    io::{self, Write},
};

use anyhow::Context as _;
use forebay_store::Clock;

use crate::{
    fault::{Fault, FaultyInput},
    results::{Machine, Outcome, Run, Workload, redacted},
    table,
};
pub use crate::{wire::Address, workload::Shares};
pub use arguments::RunArguments;
use arguments::WorkloadName;
use cases::Trace;
use endpoints::Endpoints;
use measuring::Measuring;
use progress::Progress;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All was measured and every request succeeded.
    Complete,
    /// Some requests failed, or the run was cut short; what was measured has been printed.
    Partial,
}

/// Where progress is shown.
pub enum Notes {
    /// On the terminal that standard error is, as a line that changes.
    Terminal,
    /// As lines.
    Lines(Box<dyn Write + Send>),
}

/// Runs the command: tables go to `out`, progress to `notes`.
///
/// `command` is the command line, for the run file.
///
/// # Errors
/// [`FaultyInput`] when the arguments make no sense together; anything else when nothing could be
/// measured, or the run file could not be written.
pub fn run(
    arguments: &RunArguments,
    command: Vec<String>,
    out: &mut dyn Write,
    notes: Notes,
) -> anyhow::Result<Ending> {
    check(arguments)?;
    let clock = Clock::system();
    let trace = read_trace(arguments)?;
    let groups = cases::cases(arguments, trace.as_ref());
    if let Some(path) = &arguments.out {
        // Better now than after an hour of measuring.
        try_writing(path).with_context(|| format!("write {}", path.display()))?;
    }
    let mut endpoints = Endpoints::open(arguments)?;
    let progress = Progress::start(notes).context("watch for signals")?;
    let mut run = new_run(arguments, command, &endpoints, &clock);
    run.outcome = match measure(arguments, &groups, &mut endpoints, &progress, &mut run) {
        Ok(()) => Outcome::Complete,
        Err(error) if run.measurements.is_empty() && !progress.is_stopped() => return Err(error),
        Err(error) => Outcome::Interrupted {
            reason: format!("{error:#}"),
        },
    };
    let outcome = progress.finish(&run.outcome);
    run.outcome = outcome;
    end(arguments, &run, out)
}

fn measure(
    arguments: &RunArguments,
    groups: &[cases::Group],
    endpoints: &mut Endpoints,
    progress: &Progress,
    run: &mut Run,
) -> anyhow::Result<()> {
    endpoints.look(arguments, groups, run)?;
    let mut measuring = Measuring::new(arguments, endpoints, progress);
    let measured = measuring.all(groups, run);
    let cleaned = measuring.clean_up(arguments);
    measured.and(cleaned)
}

/// Writes and prints what there is.
fn end(arguments: &RunArguments, run: &Run, out: &mut dyn Write) -> anyhow::Result<Ending> {
    print(out, &table::text(run)).context("print the results")?;
    if let Some(path) = &arguments.out {
        run.write(path)
            .with_context(|| format!("write {}", path.display()))?;
    }
    let has_errors = run
        .measurements
        .iter()
        .any(|measurement| measurement.error_count() > 0 || measurement.requests == 0);
    if has_errors || run.outcome != Outcome::Complete {
        return Ok(Ending::Partial);
    }
    Ok(Ending::Complete)
}

/// Prints; a reader that has seen enough (`| head`) is no failure.
fn print(out: &mut dyn Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn new_run(
    arguments: &RunArguments,
    command: Vec<String>,
    endpoints: &Endpoints,
    clock: &Clock,
) -> Run {
    let name = arguments.workload.name().to_owned();
    let workload = Workload {
        name,
        parameters: arguments.parameters(),
    };
    let program = format!("forebay {}", env!("CARGO_PKG_VERSION"));
    let started_millis = clock.unix_seconds().saturating_mul(1000);
    let mut run = Run::new(
        program,
        started_millis,
        Machine::this(),
        workload,
        endpoints.shown(),
    );
    run.command = redacted(command);
    run.rounds = arguments.rounds();
    run
}

/// Whether a file can be made there; what is there already stays as it is.
fn try_writing(path: &std::path::Path) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".partial");
    fs::File::create(&beside)?;
    fs::remove_file(&beside)?;
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(())
}

fn read_trace(arguments: &RunArguments) -> anyhow::Result<Option<Trace>> {
    let Some(path) = &arguments.trace else {
        return Ok(None);
    };
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let parsed = Trace::parse(&arguments.bucket, &text);
    Ok(Some(parsed.map_err(|fault| {
        anyhow::anyhow!("the trace {}: {fault}", path.display())
    })?))
}

/// What no single argument can know: whether they make sense together.
fn check(arguments: &RunArguments) -> Result<(), FaultyInput> {
    let mut faults = Vec::new();
    let mut fault = |key: &str, value: String, allowed: &str, remedy: &str| {
        faults.push(Fault {
            key: key.to_owned(),
            value,
            allowed: allowed.to_owned(),
            remedy: remedy.to_owned(),
        });
    };
    let is_blocks = arguments.workload == WorkloadName::Blocks;
    if is_blocks && arguments.cache_size.is_none() {
        fault(
            "--cache-size",
            "not given".to_owned(),
            "the size of the cache that is measured, such as 256MiB",
            "give the size that the gateway's cache is configured with",
        );
    }
    let is_nested = matches!(
        arguments.of,
        WorkloadName::Clients | WorkloadName::Blocks | WorkloadName::Tier
    );
    if arguments.workload == WorkloadName::Clients && is_nested {
        fault(
            "--of",
            arguments.of.name().to_owned(),
            "a workload with one operation, such as get, hot or put",
            "name another workload",
        );
    }
    if let Err(bucket_fault) = forebay_s3::bucket::BucketName::parse(&arguments.bucket) {
        fault(
            "--bucket",
            arguments.bucket.clone(),
            "3 to 63 of a-z, 0-9, dot and hyphen",
            &bucket_fault.to_string(),
        );
    }
    if arguments.prefix.is_empty() || arguments.prefix.len() > 512 {
        fault(
            "--prefix",
            format!("{:?}", arguments.prefix),
            "1 to 512 characters",
            "what is below it may be deleted, so it must not be everything",
        );
    }
    endpoints::check(arguments, &mut fault);
    if faults.is_empty() {
        return Ok(());
    }
    Err(FaultyInput {
        input: "the command line".to_owned(),
        faults,
    })
}
