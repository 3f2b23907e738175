//! `forebay config …`: what a config says, what is wrong with it, what it may say.

use std::fmt::Write;

use anyhow::Result;
use forebay_gateway::config;

use crate::{
    arguments::{ConfigCommand, SourceArguments},
    print_out,
    serve::ConfigSources,
};

/// Runs one of the commands.
pub(crate) fn run(command: ConfigCommand) -> Result<()> {
    match command {
        ConfigCommand::Check(sources) => check(&sources),
        ConfigCommand::Show(sources) => show(&sources),
        ConfigCommand::Schema => print_out(format!("{}\n", config::schema_text()).as_bytes()),
        ConfigCommand::Example => print_out(config::EXAMPLE.as_bytes()),
    }
}

fn check(sources: &SourceArguments) -> Result<()> {
    let config = ConfigSources::read(sources)?.load_whole()?;
    let mut text = String::new();
    for warning in &config.warnings {
        writeln!(text, "note: {warning}")?;
    }
    writeln!(text, "ok: {} values", config.entries.len())?;
    print_out(text.as_bytes())
}

fn show(sources: &SourceArguments) -> Result<()> {
    let config = ConfigSources::read(sources)?.load()?;
    let mut text = String::new();
    for entry in &config.entries {
        writeln!(text, "{entry}")?;
    }
    print_out(text.as_bytes())
}
