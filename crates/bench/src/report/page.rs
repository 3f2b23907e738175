//! One page that needs nothing else: style and charts are within, and its policy forbids the rest.

use std::fmt::Write;

use crate::{
    arrange::{self, Panel, Summary},
    chart::{Theme, escaped},
    compare::{self, Comparison, Metric},
    results::{Outcome, Run, exact},
    shown, table,
};

use super::{Figure, Named, changes, figures};

const CSS: &str = include_str!("page.css");

/// The page of some runs.
pub fn page(runs: &[Named<'_>]) -> String {
    let mut page = String::new();
    // Writing to a text can't fail.
    let _ = write_page(runs, &mut page);
    page
}

fn write_page(runs: &[Named<'_>], out: &mut String) -> std::fmt::Result {
    let names: Vec<&str> = runs.iter().map(|of| of.name).collect();
    let title = escaped(&format!("Forebay bench: {}", names.join(", ")));
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}{CSS}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        Theme::page_css()
    )?;
    for of in runs {
        write_notes(of, runs.len() > 1, out)?;
    }
    if let Some((first, later)) = runs.split_first() {
        for of in later {
            write_changes(first, of, out)?;
        }
    }
    let all: Vec<&Run> = runs.iter().map(|of| of.run).collect();
    let figures = figures(runs);
    for panel in arrange::panels(&all) {
        writeln!(out, "<h2>{}</h2>", escaped(&panel.title))?;
        for of in runs {
            write_figures_table(of, &panel, runs.len() > 1, out)?;
            write_ratios(of, &panel, out)?;
        }
        write_charts(&panel, &figures, out)?;
    }
    writeln!(out, "<h2>Machine and commands</h2>")?;
    for of in runs {
        write_origins(of, out)?;
    }
    out.push_str("</body>\n</html>\n");
    Ok(())
}

/// What to know before any figure is read.
fn write_notes(of: &Named<'_>, is_named: bool, out: &mut String) -> std::fmt::Result {
    let run = of.run;
    let name = if is_named {
        format!("{}: ", of.name)
    } else {
        String::new()
    };
    writeln!(
        out,
        "<p class=\"muted\">{}workload {}, {}, {}</p>",
        escaped(&name),
        escaped(&run.workload.name),
        escaped(&run.started),
        escaped(&run.program),
    )?;
    if let Outcome::Interrupted { reason } = &run.outcome {
        let reason = escaped(reason);
        writeln!(
            out,
            "<p class=\"warning\">{}Not complete: {reason}.</p>",
            escaped(&name)
        )?;
    }
    for warning in table::warnings(run) {
        let warning = escaped(&format!("{name}{warning}"));
        writeln!(out, "<p class=\"warning\">{warning}</p>")?;
    }
    for (code, count) in table::errors(run) {
        let errors = escaped(&format!("{name}{count} errors: {code}"));
        writeln!(out, "<p class=\"warning\">{errors}</p>")?;
    }
    Ok(())
}

fn write_changes(first: &Named<'_>, later: &Named<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "<h2>What changed from {} to {}</h2>",
        escaped(first.name),
        escaped(later.name)
    )?;
    let changes = changes::changes(first.run, later.run);
    if changes.is_empty() {
        return writeln!(out, "<p>They have no endpoint and case in common.</p>");
    }
    out.push_str(
        "<div class=\"scroll\"><table><tr><th class=\"left\">case<th class=\"left\">endpoint",
    );
    for metric in changes::COMPARED {
        write!(out, "<th>{}", metric.name())?;
    }
    for change in &changes {
        let case = format!("{}, {}", change.panel, change.place);
        write!(
            out,
            "\n<tr><td class=\"left\">{}<td class=\"left\">{}",
            escaped(case.trim_end_matches(", ")),
            escaped(&change.label)
        )?;
        for comparison in &change.comparisons {
            write_comparison(comparison.as_ref(), out)?;
        }
    }
    writeln!(
        out,
        "\n</table></div>\n<p class=\"muted\">{}</p>",
        escaped(changes::CAVEAT)
    )
}

/// A cell with a ratio, its spread and what may be said of it.
fn write_comparison(comparison: Option<&Comparison>, out: &mut String) -> std::fmt::Result {
    let Some(comparison) = comparison else {
        return write!(out, "<td>");
    };
    let word = changes::word(comparison);
    let class = match comparison.is_better() {
        Some(true) => "better",
        Some(false) => "worse",
        None => "muted",
    };
    write!(
        out,
        "<td>{}<br><span class=\"{class}\">{}</span>",
        comparison.figures(),
        escaped(&word)
    )
}

fn write_figures_table(
    of: &Named<'_>,
    panel: &Panel,
    is_named: bool,
    out: &mut String,
) -> std::fmt::Result {
    let run = of.run;
    let mut rows = String::new();
    for case in &panel.cases {
        for (index, endpoint) in run.endpoints.iter().enumerate() {
            let Some(summary) = Summary::of(run, index, case) else {
                continue;
            };
            write!(
                rows,
                "\n<tr><td class=\"left\">{}<td class=\"left\">{}",
                escaped(&panel.axis.label(case)),
                escaped(&endpoint.label)
            )?;
            write_figures(&summary, &mut rows)?;
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let name = if is_named {
        format!("{}: ", of.name)
    } else {
        String::new()
    };
    writeln!(
        out,
        "<div class=\"scroll\"><table><caption>{}rates are medians of the rounds, latencies of all \
         rounds together</caption><tr><th class=\"left\">{}<th class=\"left\">endpoint\
         <th>requests/s<th>MiB/s<th>p50<th>p90<th>p99<th>p99.9<th>max<th>errors\
         <th>client cores<th>origin bytes/object{rows}\n</table></div>",
        escaped(&name),
        escaped(&panel.axis.name())
    )
}

fn write_figures(summary: &Summary, out: &mut String) -> std::fmt::Result {
    write!(
        out,
        "<td>{}<td>{}",
        shown::count(summary.request_rate.1),
        shown::mebibytes(summary.byte_rate.1)
    )?;
    for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
        let ns = summary.latency_ns.quantile_ns(quantile);
        write!(
            out,
            "<td>{}",
            ns.map_or_else(String::new, |ns| shown::duration(exact(ns)))
        )?;
    }
    write!(
        out,
        "<td>{}<td>{:.2}<td>{}",
        shown::count(exact(summary.error_count())),
        summary.client_cores,
        summary
            .origin_bytes
            .map_or_else(String::new, |(_, median, _)| shown::bytes(median))
    )
}

/// Every endpoint against the first one, round by round.
fn write_ratios(of: &Named<'_>, panel: &Panel, out: &mut String) -> std::fmt::Result {
    let run = of.run;
    for index in 1..run.endpoints.len() {
        let labels = (&run.endpoints[index].label, &run.endpoints[0].label);
        let mut rows = String::new();
        for case in &panel.cases {
            let compared = |metric| compare::paired(run, case, metric, index, 0);
            let Some(rate) = compared(Metric::RequestRate) else {
                continue;
            };
            write!(
                rows,
                "\n<tr><td class=\"left\">{}",
                escaped(&panel.axis.label(case))
            )?;
            for metric in Metric::ALL {
                write_comparison(compared(metric).as_ref(), &mut rows)?;
            }
            let sentence = rate.sentence(labels.0, labels.1);
            write!(rows, "<td class=\"left\">{}", escaped(&sentence))?;
        }
        if rows.is_empty() {
            continue;
        }
        write!(
            out,
            "<div class=\"scroll\"><table><caption>{} against {}: median ratio (least–most) of the \
             rounds</caption><tr><th class=\"left\">{}",
            escaped(labels.0),
            escaped(labels.1),
            escaped(&panel.axis.name())
        )?;
        for metric in Metric::ALL {
            write!(out, "<th>{}", metric.name())?;
        }
        writeln!(
            out,
            "<th class=\"left\">by requests/s{rows}\n</table></div>"
        )?;
    }
    Ok(())
}

/// Charts of the panel at once, those of single cases behind a fold.
fn write_charts(panel: &Panel, figures: &[Figure], out: &mut String) -> std::fmt::Result {
    let of_panel = || {
        figures
            .iter()
            .filter(|figure| figure.panel() == panel.title)
    };
    for figure in of_panel().filter(|figure| !figure.is_of_case()) {
        writeln!(out, "<figure>\n{}</figure>", figure.svg(Theme::Page))?;
    }
    if of_panel().any(Figure::is_of_case) {
        writeln!(
            out,
            "<details open><summary>Percentiles and seconds, case by case</summary>"
        )?;
        for figure in of_panel().filter(|figure| figure.is_of_case()) {
            writeln!(out, "<figure>\n{}</figure>", figure.svg(Theme::Page))?;
        }
        writeln!(out, "</details>")?;
    }
    Ok(())
}

/// Where the figures come from.
fn write_origins(of: &Named<'_>, out: &mut String) -> std::fmt::Result {
    let run = of.run;
    let machine = &run.machine;
    let parameters: Vec<String> = run
        .workload
        .parameters
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let machine = format!(
        "{}, {} cores, {}, {}",
        table::some_or(&machine.cpu_model, "unknown processor"),
        machine.cores,
        shown::bytes(exact(machine.memory_bytes)),
        machine.kernel
    );
    writeln!(
        out,
        "<h3>{}</h3>\n<pre>{}</pre>\n<dl>",
        escaped(of.name),
        escaped(&run.command.join(" "))
    )?;
    let rows = [
        ("machine", machine),
        ("program", run.program.clone()),
        ("started", run.started.clone()),
        (
            "workload",
            format!("{}; {}", run.workload.name, parameters.join(", ")),
        ),
        ("rounds", run.rounds.to_string()),
    ];
    for (name, value) in rows {
        let value = escaped(value.trim_end_matches("; "));
        writeln!(out, "<dt>{name}</dt><dd>{value}</dd>")?;
    }
    for endpoint in &run.endpoints {
        let server = endpoint
            .server
            .as_ref()
            .map(|server| format!(" ({server})"));
        writeln!(
            out,
            "<dt>{}</dt><dd>{}</dd>",
            escaped(&endpoint.label),
            escaped(&format!("{}{}", endpoint.url, server.unwrap_or_default()))
        )?;
    }
    writeln!(out, "</dl>")
}
