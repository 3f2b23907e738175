//! A run as tables for a terminal: at most 100 columns, no colour, units in the heads.
//!
//! For each panel: what each endpoint did, then how each compares with the first one. Warnings come
//! last, where the eye is when the output ends.

use std::fmt::Write;

use crate::{
    arrange::{self, Panel, Summary},
    compare::{self, Comparison, Metric, Verdict},
    results::{Outcome, Run, Warning, exact},
    shown,
};

/// Longer labels are cut, so that a line keeps to 100 columns.
const LABEL_CHARS_MAX: usize = 14;

/// The figures that a terminal has room to compare.
const COMPARED: [Metric; 4] = [
    Metric::RequestRate,
    Metric::P50,
    Metric::P99,
    Metric::FirstByte,
];

/// What the marks of [`cell`] mean.
const LEGEND: &str = "median ratio (least–most) of the rounds; + better, - worse, = no difference \
    shown,\n? too few rounds for a verdict, ! too many errors\n";

/// Lines are at most this long.
const COLUMNS_MAX: usize = 100;

/// The run as text.
pub fn text(run: &Run) -> String {
    let mut text = String::new();
    // Writing to a text can't fail.
    let _ = write_run(run, &mut text);
    text
}

fn write_run(run: &Run, out: &mut String) -> std::fmt::Result {
    let machine = &run.machine;
    writeln!(
        out,
        "{}",
        wrapped(&format!("{}: {}", run.started, run.command.join(" ")))
    )?;
    writeln!(
        out,
        "{}; {}, {} cores, {}, {}",
        run.program,
        some_or(&machine.cpu_model, "unknown processor"),
        machine.cores,
        shown::bytes(exact(machine.memory_bytes)),
        machine.kernel,
    )?;
    for panel in arrange::panels(&[run]) {
        write_panel(run, &panel, out)?;
    }
    if run.measurements.is_empty() {
        out.push_str("\nNothing was measured.\n");
    }
    write_warnings(run, out)?;
    if let Outcome::Interrupted { reason } = &run.outcome {
        writeln!(
            out,
            "\nNot complete: {reason}. The figures are of what was measured."
        )?;
    }
    Ok(())
}

/// The text, or what stands for it when there is none.
pub(crate) fn some_or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

fn write_panel(run: &Run, panel: &Panel, out: &mut String) -> std::fmt::Result {
    let axis = match panel.axis {
        arrange::Axis::ObjectBytes => "size".to_owned(),
        arrange::Axis::Clients => "at once".to_owned(),
        arrange::Axis::Rate => "asked/s".to_owned(),
        arrange::Axis::Parameter(_) => cut(&panel.axis.name(), 8),
    };
    writeln!(out, "\n{}", panel.title)?;
    writeln!(
        out,
        "{axis:<8} {:<LABEL_CHARS_MAX$} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
        "endpoint", "req/s", "MiB/s", "p50", "p90", "p99", "p99.9", "max", "errors", "client",
    )?;
    for case in &panel.cases {
        for (index, endpoint) in run.endpoints.iter().enumerate() {
            let Some(summary) = Summary::of(run, index, case) else {
                continue;
            };
            let place = cut(&panel.axis.label(case), 8);
            let label = cut(&endpoint.label, LABEL_CHARS_MAX);
            write!(out, "{place:<8} {label:<LABEL_CHARS_MAX$} ")?;
            write_figures(&summary, out)?;
        }
    }
    out.push_str("client: cores that the load generator used\n");
    let before = out.len();
    for index in 1..run.endpoints.len() {
        write_comparison(run, panel, &axis, index, out)?;
    }
    if out.len() > before {
        out.push_str(LEGEND);
    }
    Ok(())
}

fn write_figures(summary: &Summary, out: &mut String) -> std::fmt::Result {
    write!(
        out,
        "{:>6} {:>6} ",
        shown::count(summary.request_rate.1),
        shown::mebibytes(summary.byte_rate.1)
    )?;
    for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
        let ns = summary.latency_ns.quantile_ns(quantile);
        let latency = ns.map_or_else(|| "-".to_owned(), |ns| shown::duration(exact(ns)));
        write!(out, "{latency:>7} ")?;
    }
    let errors = shown::count(exact(summary.error_count()));
    writeln!(out, "{errors:>6} {:>6.2}", summary.client_cores)
}

fn write_comparison(
    run: &Run,
    panel: &Panel,
    axis: &str,
    index: usize,
    out: &mut String,
) -> std::fmt::Result {
    let lines: Vec<(String, Vec<String>)> = panel
        .cases
        .iter()
        .filter_map(|case| {
            let of = |metric| compare::paired(run, case, metric, index, 0);
            of(Metric::RequestRate)?;
            let cells = COMPARED.map(|metric| of(metric).map_or_else(String::new, |c| cell(&c)));
            Some((panel.axis.label(case), cells.to_vec()))
        })
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    let (a, b) = (&run.endpoints[index].label, &run.endpoints[0].label);
    writeln!(out, "\n{} / {}", cut(a, 40), cut(b, 40))?;
    let heads = COMPARED.map(Metric::name);
    write!(out, "{axis:<8}")?;
    for head in heads {
        write!(out, " {head:<21}")?;
    }
    out.truncate(out.trim_end().len());
    for (place, cells) in lines {
        write!(out, "\n{:<8}", cut(&place, 8))?;
        for cell in cells {
            write!(out, " {cell:<21}")?;
        }
        out.truncate(out.trim_end().len());
    }
    writeln!(out)
}

/// A ratio with its spread and a mark for the verdict.
fn cell(comparison: &Comparison) -> String {
    let mark = match (comparison.is_better(), comparison.verdict) {
        (Some(true), _) => '+',
        (Some(false), _) => '-',
        (None, Verdict::TooFewRounds) => '?',
        (None, Verdict::Failures(_)) => '!',
        (None, Verdict::Higher | Verdict::Lower | Verdict::NoDifference) => '=',
    };
    format!("{mark} {}", comparison.figures())
}

fn write_warnings(run: &Run, out: &mut String) -> std::fmt::Result {
    let errors = errors(run);
    if !errors.is_empty() {
        out.push('\n');
    }
    for (code, count) in errors {
        writeln!(out, "Errors: {count}x {code}")?;
    }
    for warning in warnings(run) {
        writeln!(out, "\n{}", wrapped(&format!("Warning: {warning}")))?;
    }
    Ok(())
}

/// Every warning of a run, alike ones once with all cases that they are about.
pub(crate) fn warnings(run: &Run) -> Vec<String> {
    let mut alike: Vec<(&Warning, Vec<String>)> = Vec::new();
    for warning in &run.warnings {
        alike.push((warning, Vec::new()));
    }
    for measurement in &run.measurements {
        let Some(warning) = &measurement.client.limited else {
            continue;
        };
        let case = &measurement.case;
        let size = case
            .object_bytes
            .map(shown::object_size)
            .unwrap_or_default();
        let label = &run.endpoints[measurement.endpoint].label;
        let place = format!("{label}, {} {size}, {}", case.operation, case.load);
        let is_alike = |of: &Warning| of.cause == warning.cause && of.remedy == warning.remedy;
        match alike
            .iter_mut()
            .find(|(of, places)| !places.is_empty() && is_alike(of))
        {
            Some((_, places)) if places.contains(&place) => {}
            Some((_, places)) => places.push(place),
            None => alike.push((warning, vec![place])),
        }
    }
    let text = |(warning, places): (&Warning, Vec<String>)| {
        if places.is_empty() {
            return warning.to_string();
        }
        format!("{warning}. Seen with {}", places.join("; "))
    };
    alike.into_iter().map(text).collect()
}

/// Errors of a run by endpoint and code.
pub(crate) fn errors(run: &Run) -> std::collections::BTreeMap<String, u64> {
    let mut errors = std::collections::BTreeMap::new();
    for measurement in &run.measurements {
        let label = &run.endpoints[measurement.endpoint].label;
        for (code, count) in &measurement.errors {
            *errors.entry(format!("{code} from {label}")).or_default() += count;
        }
    }
    errors
}

/// A text in lines that fit, those after the first indented. A word that is longer stays whole.
pub(crate) fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    let mut columns = 0;
    for word in text.split(' ') {
        let chars = word.chars().count();
        if columns > 0 && columns + 1 + chars > COLUMNS_MAX {
            wrapped.push_str("\n  ");
            columns = 2;
        } else if columns > 0 {
            wrapped.push(' ');
            columns += 1;
        }
        wrapped.push_str(word);
        columns += chars;
    }
    wrapped
}

/// A text of at most `chars_max` characters.
fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(chars_max - 1).collect();
    format!("{kept}…")
}
