//! The log of the program: structured lines on standard error, for people or for machines.
//!
//! Our own crates write at the configured level; libraries only what they warn of, unless the
//! level is `trace`. A panic is an error line, too, so that it is not lost among others.

use std::io;

use forebay_gateway::config::{LogConfig, LogFormat};
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// Begins to write; what was logged before is lost.
pub(super) fn start(config: LogConfig) {
    let LogConfig { level, format } = config;
    let libraries = if level == Level::TRACE {
        Level::TRACE
    } else {
        Level::WARN
    };
    let targets = Targets::new()
        .with_default(LevelFilter::from_level(libraries.min(level)))
        .with_target("forebay", level);
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    // A second start in one process would be a fault of ours, and harmless.
    let _ = tracing_subscriber::registry()
        .with(layer.with_filter(targets))
        .try_init();
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(%panic, %backtrace, "panicked");
    }));
}
