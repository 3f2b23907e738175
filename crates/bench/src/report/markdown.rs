//! Runs as tables in GitHub's Markdown, for docs/benchmarks.md.

use std::fmt::Write;

use crate::{
    arrange::{self, Panel, Summary},
    compare::{self, Metric},
    results::{Outcome, Run, exact},
    shown, table,
};

use super::{Named, changes};

/// The figures that are given as ratios.
const COMPARED: [Metric; 3] = [Metric::RequestRate, Metric::P50, Metric::P99];

/// Every panel of every run as a table, under its machine and command.
pub fn markdown(runs: &[Named<'_>]) -> String {
    let mut text = String::new();
    // Writing to a text can't fail.
    for (index, of) in runs.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = write_run(of, runs.len() > 1, &mut text);
    }
    if let Some((first, later)) = runs.split_first() {
        for of in later {
            let _ = write_changes(first, of, &mut text);
        }
    }
    text
}

fn write_run(of: &Named<'_>, is_named: bool, out: &mut String) -> std::fmt::Result {
    let run = of.run;
    if is_named {
        writeln!(out, "### {}\n", escaped(of.name))?;
    }
    for panel in arrange::panels(&[run]) {
        write_panel(run, &panel, out)?;
    }
    let machine = &run.machine;
    writeln!(
        out,
        "`{}`, {}, on {}, {} cores, {}, {}.",
        run.command.join(" ").replace('`', "'"),
        run.started,
        escaped(table::some_or(&machine.cpu_model, "an unknown processor")),
        machine.cores,
        shown::bytes(exact(machine.memory_bytes)),
        escaped(&machine.kernel),
    )?;
    let servers: Vec<String> = run
        .endpoints
        .iter()
        .filter_map(|of| {
            Some(format!(
                "{} is {}",
                escaped(&of.label),
                escaped(of.server.as_ref()?)
            ))
        })
        .collect();
    if !servers.is_empty() {
        writeln!(out, "By their `Server` headers, {}.", servers.join(", "))?;
    }
    for warning in table::warnings(run) {
        writeln!(out, "\n**Warning:** {}", escaped(&warning))?;
    }
    if let Outcome::Interrupted { reason } = &run.outcome {
        writeln!(out, "\n**Not complete:** {}.", escaped(reason))?;
    }
    Ok(())
}

fn write_panel(run: &Run, panel: &Panel, out: &mut String) -> std::fmt::Result {
    let baseline = escaped(&run.endpoints[0].label);
    let has_ratios = run.endpoints.len() > 1;
    let rounds = run
        .endpoints
        .iter()
        .enumerate()
        .flat_map(|(index, _)| panel.cases.iter().map(move |case| (index, case)))
        .filter_map(|(index, case)| Summary::of(run, index, case))
        .map(|summary| summary.rounds)
        .max();
    let rounds = match rounds.unwrap_or(0) {
        1 => "one round".to_owned(),
        more => format!("{more} rounds"),
    };
    write!(out, "**{}**, {rounds}", escaped(&panel.title))?;
    if has_ratios {
        write!(
            out,
            "; ratios to {baseline}, round by round, *median (least–most)*"
        )?;
    }
    write!(
        out,
        "\n\n| {} | endpoint | requests/s | MiB/s | p50 | p99 |",
        panel.axis.name()
    )?;
    let mut dashes = "|---|---|---:|---:|---:|---:|".to_owned();
    if has_ratios {
        for metric in COMPARED {
            write!(out, " {} ratio |", metric.name())?;
            dashes.push_str("---:|");
        }
        out.push_str(" verdict |");
        dashes.push_str("---|");
    }
    writeln!(out, " errors |\n{dashes}---:|")?;
    for case in &panel.cases {
        for (index, endpoint) in run.endpoints.iter().enumerate() {
            let Some(summary) = Summary::of(run, index, case) else {
                continue;
            };
            let latency = |quantile| {
                let ns = summary.latency_ns.quantile_ns(quantile);
                ns.map_or_else(String::new, |ns| shown::duration(exact(ns)))
            };
            write!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                escaped(&panel.axis.label(case)),
                escaped(&endpoint.label),
                shown::count(summary.request_rate.1),
                shown::mebibytes(summary.byte_rate.1),
                latency(0.5),
                latency(0.99),
            )?;
            if has_ratios {
                write_ratios(run, case, index, out)?;
            }
            writeln!(out, " {} |", shown::count(exact(summary.error_count())))?;
        }
    }
    out.push('\n');
    Ok(())
}

fn write_ratios(
    run: &Run,
    case: &crate::results::Case,
    index: usize,
    out: &mut String,
) -> std::fmt::Result {
    if index == 0 {
        return write!(out, "{} |", " 1 |".repeat(COMPARED.len()));
    }
    let mut verdict = String::new();
    for metric in COMPARED {
        let comparison = compare::paired(run, case, metric, index, 0);
        let figures = comparison
            .as_ref()
            .map_or_else(String::new, compare::Comparison::figures);
        write!(out, " {figures} |")?;
        if metric == Metric::RequestRate {
            verdict = comparison.as_ref().map_or_else(String::new, changes::word);
        }
    }
    write!(out, " {verdict} |")
}

fn write_changes(first: &Named<'_>, later: &Named<'_>, out: &mut String) -> std::fmt::Result {
    let names = (escaped(later.name), escaped(first.name));
    writeln!(out, "\n### {} against {}\n", names.0, names.1)?;
    let heads = changes::COMPARED.map(Metric::name).join(" | ");
    writeln!(out, "| case | endpoint | {heads} |")?;
    writeln!(out, "|---|---|{}", "---|".repeat(changes::COMPARED.len()))?;
    for change in changes::changes(first.run, later.run) {
        let case = format!("{}, {}", change.panel, change.place);
        let case = case.trim_end_matches(", ");
        write!(out, "| {} | {} |", escaped(case), escaped(&change.label))?;
        for comparison in &change.comparisons {
            match comparison {
                Some(of) => write!(out, " {}, {} |", of.figures(), changes::word(of))?,
                None => out.push_str(" |"),
            }
        }
        out.push('\n');
    }
    writeln!(out, "\n{}", changes::CAVEAT)
}

/// A text that stays within its cell and means nothing to Markdown.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => escaped.extend(['\\', c]),
            '\n' | '\r' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
