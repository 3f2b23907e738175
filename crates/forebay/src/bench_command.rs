//! `forebay bench`: runs what the library has, prints what was wrong with the command line.

use std::{
    io::{IsTerminal as _, Write, stderr, stdout},
    process::ExitCode,
};

use forebay_bench::{fault::FaultyInput, run};

use crate::{EXIT_USAGE, arguments::BenchCommand};

/// Runs it; the table goes to standard output.
pub(crate) fn run(command: &BenchCommand) -> anyhow::Result<ExitCode> {
    let BenchCommand::Run(arguments) = command;
    let shown = std::env::args().collect();
    let notes = if stderr().is_terminal() {
        run::Notes::Terminal
    } else {
        run::Notes::Lines(Box::new(stderr()))
    };
    match run::run(arguments, shown, &mut stdout().lock(), notes) {
        Ok(run::Ending::Complete) => Ok(ExitCode::SUCCESS),
        Ok(run::Ending::Partial) => Ok(ExitCode::FAILURE),
        Err(error) => match error.downcast::<FaultyInput>() {
            Ok(faulty) => {
                let _ = writeln!(stderr(), "forebay: {faulty}");
                Ok(EXIT_USAGE.into())
            }
            Err(error) => Err(error),
        },
    }
}
