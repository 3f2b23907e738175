//! Waits for the end of a job, shows how far it is, and cancels it on ctrl-C.
//!
//! Signals are caught before the job is ordered, so that none leaves it running unseen.

use std::{io::IsTerminal, time::Duration};

use anyhow::{Context, Result};
use forebay_gateway::admin::messages::{JobState, JobStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    client::{self, Client, Method},
    show::bytes,
};

/// Pause between two looks at a job: a person sees it move.
const PAUSE: Duration = Duration::from_millis(200);

/// Catches ctrl-C from now on.
pub(super) fn interrupts() -> Result<Signal> {
    signal(SignalKind::interrupt()).context("catch signals")
}

/// Looks at a job until it has ended.
pub(super) async fn to_the_end(
    client: &Client,
    job: JobStatus,
    mut interrupts: Signal,
) -> Result<JobStatus> {
    if job.state != JobState::Running {
        return Ok(job);
    }
    let bar = bar();
    let path = format!("/jobs/{}", job.id);
    let mut job = job;
    while job.state == JobState::Running {
        draw(&bar, &job);
        let method = tokio::select! {
            () = tokio::time::sleep(PAUSE) => Method::GET,
            _ = interrupts.recv() => Method::DELETE,
        };
        job = client::read(&client.ask(method, &path, None).await?)?;
    }
    bar.finish_and_clear();
    Ok(job)
}

fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} objects, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn draw(bar: &ProgressBar, job: &JobStatus) {
    if let Some(total) = job.total {
        bar.set_length(total);
    }
    bar.set_position(job.done);
    let left = left_seconds(job).map(|left| format!(", {left} s left"));
    let (bytes, left) = (bytes(job.bytes), left.unwrap_or_default());
    bar.set_message(format!("{bytes}, {} failed{left}", job.failed));
}

/// How long it takes at the pace so far.
fn left_seconds(job: &JobStatus) -> Option<u64> {
    let left = job.total?.checked_sub(job.done)?;
    let done = std::num::NonZeroU64::new(job.done)?;
    let elapsed_ms = Duration::from_secs_f64(job.seconds).as_millis();
    let left_ms = elapsed_ms * u128::from(left) / u128::from(done.get());
    u64::try_from(left_ms / 1000).ok()
}
