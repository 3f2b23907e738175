//! Pictures and tables of run files: `forebay report`.
//!
//! Reads run files, writes what was asked for and nothing else: a page, charts, CSV, Markdown, or
//! tables for the terminal when nothing was asked for. Everything is computed from the run files,
//! so a report can be made again, elsewhere and later.
//!
//! Files are written whole or not at all; the first that can't be written ends the command.

mod changes;
mod figures;
mod markdown;
mod page;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    chart::{self, Theme},
    export,
    results::{self, Run},
    table,
};

pub use figures::{Figure, figures};
pub use markdown::markdown;
pub use page::page;

/// Shows runs as a page, charts, tables or CSV, and what changed between them.
///
/// With nothing asked for, prints tables. Several runs are compared with the first: name them in
/// the order in which they were made.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay report run.json\n  \
    forebay report before.json after.json -o report.html\n  \
    forebay report run.json --charts docs/figures --markdown > docs/table.md\n\n\
    Exit codes: 0 done, 1 a run can't be read or a file can't be written, 64 usage.")]
pub struct ReportArguments {
    /// Run files, as `forebay bench run` writes them.
    #[arg(value_name = "RUN", required_unless_present = "schema")]
    pub runs: Vec<PathBuf>,
    /// Write one self-contained page.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write each chart as SVG and as PNG.
    #[arg(long, value_name = "DIR")]
    pub charts: Option<PathBuf>,
    /// Write each chart as SVG.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Write each chart as PNG.
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,
    /// Draw the charts in files on a dark ground; the page follows its reader's settings.
    #[arg(long)]
    pub dark: bool,
    /// Write every measurement as a line of CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print tables in GitHub's Markdown.
    #[arg(long)]
    pub markdown: bool,
    /// Print the JSON schema of run files.
    #[arg(long)]
    pub schema: bool,
}

/// A run and what to call it.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Short and unique, such as the name of its file.
    pub name: &'a str,
    /// The run.
    pub run: &'a Run,
}

/// Does what `forebay report` was asked for; what it prints goes to `out`.
///
/// # Errors
/// When a run file can't be read or isn't one, or a file can't be written; the error names it.
pub fn run(arguments: &ReportArguments, out: &mut dyn Write) -> Result<()> {
    if arguments.schema {
        writeln!(out, "{}", results::schema_text())?;
    }
    let mut runs = Vec::new();
    for path in &arguments.runs {
        let run = Run::read(path).with_context(|| format!("read {}", path.display()))?;
        runs.push((path, run));
    }
    if runs.is_empty() {
        return Ok(());
    }
    let titles = names(&arguments.runs);
    let named: Vec<Named<'_>> = titles
        .iter()
        .zip(&runs)
        .map(|(name, (_, run))| Named { name, run })
        .collect();
    if let Some(path) = &arguments.csv {
        let runs: Vec<(&str, &Run)> = named.iter().map(|of| (of.name, of.run)).collect();
        write(path, |out| export::print_csv(&runs, out))?;
    }
    write_charts(arguments, &named)?;
    if let Some(path) = &arguments.output {
        let page = page(&named);
        write(path, |out| out.write_all(page.as_bytes()))?;
    }
    if arguments.markdown {
        out.write_all(markdown(&named).as_bytes())?;
    }
    if !arguments.asks_for_output() {
        for (index, of) in named.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            out.write_all(table::text(of.run).as_bytes())?;
        }
        out.write_all(changes::text(&named).as_bytes())?;
    }
    Ok(())
}

impl ReportArguments {
    fn asks_for_output(&self) -> bool {
        let files = [&self.output, &self.charts, &self.svg, &self.png, &self.csv];
        self.markdown || self.schema || files.iter().any(|file| file.is_some())
    }
}

fn write_charts(arguments: &ReportArguments, runs: &[Named<'_>]) -> Result<()> {
    let svg = arguments
        .svg
        .iter()
        .chain(&arguments.charts)
        .map(|dir| (dir, "svg"));
    let png = arguments
        .png
        .iter()
        .chain(&arguments.charts)
        .map(|dir| (dir, "png"));
    let theme = if arguments.dark {
        Theme::Dark
    } else {
        Theme::Light
    };
    for (directory, kind) in svg.chain(png) {
        fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
        for figure in figures(runs) {
            let path = directory.join(format!("{}.{kind}", figure.name()));
            let svg = figure.svg(theme);
            let bytes = if kind == "svg" {
                svg.into_bytes()
            } else {
                chart::png(&svg).with_context(|| format!("draw {}", path.display()))?
            };
            write(&path, |out| out.write_all(&bytes))?;
        }
    }
    Ok(())
}

fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    results::write_whole(path, fill).with_context(|| format!("write {}", path.display()))
}

/// What to call the runs: their files' names, or their whole paths when those are not unique.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| {
        path.file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    };
    let stems: Vec<String> = paths.iter().map(stem).collect();
    if stems.iter().collect::<BTreeSet<_>>().len() == stems.len() {
        return stems;
    }
    let place = |(index, path): (usize, &PathBuf)| format!("{} {}", index + 1, path.display());
    paths.iter().enumerate().map(place).collect()
}
