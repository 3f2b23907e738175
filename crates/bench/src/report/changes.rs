//! What changed between runs: every later run against the first, where label and case are the same.

use std::fmt::Write;

use crate::{
    arrange,
    compare::{self, Comparison, Metric, Sample},
    results::{Case, Run},
    table,
};

use super::Named;

/// How one endpoint in one case differs between two runs.
pub(super) struct Change {
    pub(super) panel: String,
    pub(super) place: String,
    pub(super) label: String,
    /// For each of [`COMPARED`], what the later run is of the first.
    pub(super) comparisons: Vec<Option<Comparison>>,
}

/// The figures that tables of changes have room for.
pub(super) const COMPARED: [Metric; 4] = [
    Metric::RequestRate,
    Metric::P50,
    Metric::P99,
    Metric::FirstByte,
];

/// What to know when reading changes.
pub(super) const CAVEAT: &str = "Runs are made at different times: what else changed on the \
    machine or at the endpoints counts as well. Every round of one is set against every round of \
    the other; a verdict needs about four rounds each.";

/// Changes from the first run to a later one.
pub(super) fn changes(first: &Run, later: &Run) -> Vec<Change> {
    let mut changes = Vec::new();
    for panel in arrange::panels(&[first, later]) {
        for case in &panel.cases {
            for (index, endpoint) in later.endpoints.iter().enumerate() {
                let same = first
                    .endpoints
                    .iter()
                    .position(|of| of.label == endpoint.label);
                let Some(same) = same else { continue };
                let comparisons: Vec<_> = COMPARED
                    .iter()
                    .map(|metric| {
                        let later = samples(later, index, case, *metric);
                        compare::between(*metric, &later, &samples(first, same, case, *metric))
                    })
                    .collect();
                if comparisons.iter().any(Option::is_some) {
                    changes.push(Change {
                        panel: panel.title.clone(),
                        place: panel.axis.phrase(case),
                        label: endpoint.label.clone(),
                        comparisons,
                    });
                }
            }
        }
    }
    changes
}

fn samples(run: &Run, endpoint: usize, case: &Case, metric: Metric) -> Vec<Sample> {
    arrange::rounds(run, endpoint, case)
        .filter_map(|measurement| Sample::of(measurement, metric))
        .collect()
}

/// The word for a comparison: `better`, `worse`, `no difference shown`, …
pub(super) fn word(comparison: &Comparison) -> String {
    match comparison.is_better() {
        Some(true) => "better".to_owned(),
        Some(false) => "worse".to_owned(),
        None => comparison.verdict.to_string(),
    }
}

/// Changes as lines for a terminal; empty for a single run.
pub(super) fn text(runs: &[Named<'_>]) -> String {
    let mut text = String::new();
    let Some((first, later)) = runs.split_first() else {
        return text;
    };
    for of in later {
        // Writing to a text can't fail.
        let _ = write_changes(first, of, &mut text);
    }
    text
}

fn write_changes(first: &Named<'_>, later: &Named<'_>, out: &mut String) -> std::fmt::Result {
    let changes = changes(first.run, later.run);
    writeln!(out, "\n{} / {}", later.name, first.name)?;
    if changes.is_empty() {
        return writeln!(out, "They have no endpoint and case in common.");
    }
    let mut panel = "";
    for change in &changes {
        if panel != change.panel {
            panel = &change.panel;
            writeln!(out, "\n{panel}")?;
        }
        for comparison in change.comparisons.iter().flatten() {
            writeln!(
                out,
                "{:<18} {:<16} {:<15} {:<20} {}",
                change.place,
                change.label,
                comparison.metric.name(),
                comparison.figures(),
                word(comparison)
            )?;
        }
    }
    writeln!(out, "\n{}", table::wrapped(CAVEAT))
}
