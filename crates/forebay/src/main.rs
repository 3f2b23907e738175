//! The program: command line, start, signals, end. All that it does is in the library crates.
//!
//! | command | does | exit code |
//! |---|---|---|
//! | `serve` | runs the gateway until SIGTERM or SIGINT | 0 drained, 1 failed, 64 bad config |
//! | `config check` | tells every fault of a config | 0 none, 64 some |
//! | `config show` | prints every value in force and its source | 0, 64 |
//! | `config schema`, `config example` | print what a config may hold | 0 |
//! | `admin …` | asks and changes a running gateway | 0, 1 failed or not stored, 64 bad flags |
//! | `tap` | relays and counts until SIGTERM or SIGINT | 0 stopped, 1 failed, 64 bad flags |
//! | `cost` | tells what a workload costs | 0, 1, 64 bad flags or prices |
//! | `bench run` | measures S3 endpoints | 0, 1 some requests failed or cut short, 64 |
//! | `report` | shows runs as tables, charts and a page | 0, 1 a file can't be read or written |
//! | `completions`, `man` | print files for the shell and for `man` | 0 |
//!
//! A command line that can't be understood leaves with 64 as well (`EX_USAGE` of sysexits.h).

mod admin_command;
mod arguments;
mod bench_command;
mod code;
mod config_command;
mod machine;
mod serve;

use std::{io::Write, process::ExitCode};

use clap::{CommandFactory, Parser};
use forebay_bench::{cost, fault::FaultyInput, report, tap};
use forebay_gateway::config::Fault;

use arguments::{Arguments, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `EX_USAGE`: the command line or the config is wrong, so that trying again is of no use.
const EXIT_USAGE: u8 = 64;

/// Has freed memory go back to the system at once, not ten milliseconds later: what a burst of
/// uploads leaves is used by the next one anyway, and a burst holds a sixth less (350 PUTs of 1 MiB
/// at once: 52–54 MB of resident memory against 64). No cost was seen in CPU per request.
#[expect(unsafe_code, reason = "an option of the allocator is set by a C call")]
fn tune_allocator() {
    /// `mi_option_purge_delay` of mimalloc.h, milliseconds, which the binding does not name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: the call stores a number in a table of the allocator; it must not run beside another
    // thread, and it is the first thing that `main` does.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) }
}

fn main() -> ExitCode {
    tune_allocator();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version come this way, too; nowhere to go with a closed terminal.
            let _ = error.print();
            return if error.use_stderr() {
                EXIT_USAGE.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let result = match arguments.command {
        Command::Serve(sources) => serve::serve(&sources),
        Command::Config { command } => config_command::run(command),
        Command::Admin(arguments) => match admin_command::run(&arguments) {
            Ok(ending) => return ending,
            Err(error) => Err(error),
        },
        Command::Tap(arguments) => tap::command::run(*arguments, &mut std::io::stderr()),
        Command::Cost(arguments) => print_with(|out| cost::command::run(&arguments, out)),
        Command::Bench { command } => match bench_command::run(&command) {
            Ok(ending) => return ending,
            Err(error) => Err(error),
        },
        Command::Report(arguments) => print_with(|out| report::run(&arguments, out)),
        Command::Completions { shell } => print_completions(shell),
        Command::Man => print_manual(),
    };
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    match error.downcast::<FaultyConfig>() {
        Ok(FaultyConfig(faults)) => {
            let _ = write!(std::io::stderr(), "{}", printed(&faults));
            EXIT_USAGE.into()
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "forebay: {error:#}");
            match error.downcast_ref::<FaultyInput>() {
                Some(_) => EXIT_USAGE.into(),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// A config that can't be used, with all that is wrong.
#[derive(Debug)]
struct FaultyConfig(Vec<Fault>);

impl std::fmt::Display for FaultyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printed(&self.0))
    }
}

impl std::error::Error for FaultyConfig {}

fn printed(faults: &[Fault]) -> String {
    let count = match faults.len() {
        1 => "1 fault".to_owned(),
        more => format!("{more} faults"),
    };
    let mut text = format!("forebay: the config has {count}\n");
    for fault in faults {
        // Writing to a text can't fail.
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!("\n{fault}\n"));
    }
    text
}

fn print_completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "forebay", &mut script);
    print_out(&script)
}

fn print_manual() -> anyhow::Result<()> {
    let mut pages = Vec::new();
    let command = Arguments::command();
    clap_mangen::Man::new(command.clone()).render(&mut pages)?;
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        let name = format!("forebay {}", inner.get_name());
        let inner = inner.clone().bin_name(name);
        let man = clap_mangen::Man::new(inner);
        man.render_synopsis_section(&mut pages)?;
        man.render_options_section(&mut pages)?;
    }
    print_out(&pages)
}

/// Prints what `write` writes, once it has written all of it.
fn print_with(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    print_out(&text)
}

/// Prints to standard output; a reader that has seen enough (`| head`) is no failure.
fn print_out(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}
