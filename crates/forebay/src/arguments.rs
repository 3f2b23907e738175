//! The command line, in one place: help, completions and the manual page come from here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A caching gateway between S3 clients and any object store.
#[derive(Debug, Parser)]
#[command(name = "forebay", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway until SIGTERM or SIGINT.
    ///
    /// Without a config it keeps objects in ./forebay-data, behind a cache of a quarter of the
    /// memory. SIGTERM and SIGINT let requests in progress finish; a second one ends at once.
    /// SIGHUP reads users, bucket policies and certificates again.
    Serve(SourceArguments),
    /// Check, show or describe the configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    Admin(Box<crate::admin_command::AdminArguments>),
    Tap(Box<forebay_bench::tap::command::TapArguments>),
    Cost(Box<forebay_bench::cost::command::CostArguments>),
    /// Measure S3 endpoints, several side by side.
    Bench {
        #[command(subcommand)]
        command: BenchCommand,
    },
    Report(Box<forebay_bench::report::ReportArguments>),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`.
    Man,
}

/// How to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Run(Box<forebay_bench::run::RunArguments>),
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Tell everything that is wrong, and leave with 64 if anything is.
    ///
    /// The files that the config names are read as well: secrets, policies, users.
    Check(SourceArguments),
    /// Print every value in force and where it comes from; secrets as ***.
    Show(SourceArguments),
    /// Print the JSON schema of the config file.
    Schema,
    /// Print a complete config file with comments.
    Example,
}

/// Where a config comes from. A flag outranks a `FOREBAY_SECTION__KEY` variable, which outranks
/// the file, which outranks the default.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SourceArguments {
    /// Config file; `forebay config example` prints one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Stand in front of this S3 service, with credentials from the AWS environment or profile.
    ///
    /// Given several times, these are endpoints that share their data, each of which can answer
    /// for all.
    ///
    /// What else its store needs comes from `FOREBAY_STORES__DEFAULT__…` variables:
    /// `FOREBAY_STORES__DEFAULT__CREDENTIALS=none` for public buckets, where nothing is signed.
    #[arg(long, value_name = "URL")]
    pub(crate) origin: Vec<String>,
    /// Directory of the objects (without --origin) and of the root credentials.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Address for clients, in place of those of the config.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Address for health, metrics and the admin API.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) admin_listen: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
