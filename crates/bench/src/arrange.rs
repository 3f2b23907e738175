//! Orders what was measured for people: which cases belong into one table or chart, and along
//! which axis they differ.
//!
//! A panel is one table, or one set of charts: cases that differ in one dimension only. The
//! dimension is the first of size, clients, rate and parameters that has more than one value among
//! the cases of an operation; the others split its cases into panels.

use crate::{
    compare,
    results::{Case, Histogram, Load, Measurement, Run, exact},
    shown,
};

/// What the cases of a panel differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Axis {
    /// Size of the objects.
    ObjectBytes,
    /// Clients, or requests at once.
    Clients,
    /// Requests per second asked for.
    Rate,
    /// A parameter of the workload.
    Parameter(String),
}

/// Cases that differ in one dimension only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    /// What they have in common: `GET, 50 at once`.
    pub(crate) title: String,
    /// What they differ in.
    pub(crate) axis: Axis,
    /// In the order of the axis.
    pub(crate) cases: Vec<Case>,
}

impl Axis {
    /// Its name, with its unit.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::ObjectBytes => "object size".to_owned(),
            Self::Clients => "requests at once".to_owned(),
            Self::Rate => "requests/s asked".to_owned(),
            Self::Parameter(name) => name.replace('_', " "),
        }
    }

    /// Where a case is on this axis: a number to order by, and what to call it.
    pub(crate) fn place(&self, case: &Case) -> Option<(f64, String)> {
        match self {
            Self::ObjectBytes => {
                let size = case.object_bytes?;
                Some((exact(size), shown::object_size(size)))
            }
            Self::Clients => {
                let count = match case.load {
                    Load::Closed { concurrency } => concurrency,
                    Load::Open { .. } => case.clients,
                };
                Some((f64::from(count), count.to_string()))
            }
            Self::Rate => match case.load {
                Load::Open { rate } => Some((rate, shown::count(rate))),
                Load::Closed { .. } => None,
            },
            Self::Parameter(name) => {
                let text = case.parameters.get(name)?;
                Some((leading_number(text), text.clone()))
            }
        }
    }

    /// Where a case is, in words that need no axis beside them.
    pub(crate) fn phrase(&self, case: &Case) -> String {
        let label = self.label(case);
        match self {
            Self::ObjectBytes => label,
            Self::Clients => format!("{label} at once"),
            Self::Rate => format!("{label}/s asked"),
            Self::Parameter(_) => format!("{} {label}", self.name()),
        }
    }

    /// The label of a case on this axis.
    pub(crate) fn label(&self, case: &Case) -> String {
        self.place(case)
            .map_or_else(String::new, |(_, label)| label)
    }
}

/// The panels of some runs, in the order in which their cases were first measured.
pub(crate) fn panels(runs: &[&Run]) -> Vec<Panel> {
    let mut cases: Vec<Case> = Vec::new();
    for measurement in runs.iter().flat_map(|run| &run.measurements) {
        if !cases.contains(&measurement.case) {
            cases.push(measurement.case.clone());
        }
    }
    let mut panels: Vec<Panel> = Vec::new();
    for case in &cases {
        let axis = axis_of(&cases, &case.operation);
        let title = title(case, &axis);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.cases.push(case.clone()),
            None => panels.push(Panel {
                title,
                axis,
                cases: vec![case.clone()],
            }),
        }
    }
    for panel in &mut panels {
        let place = |case: &Case| panel.axis.place(case).map_or(0.0, |(number, _)| number);
        panel.cases.sort_by(|a, b| place(a).total_cmp(&place(b)));
    }
    panels
}

/// The first dimension in which the cases of an operation differ.
fn axis_of(cases: &[Case], operation: &str) -> Axis {
    let cases: Vec<&Case> = cases
        .iter()
        .filter(|case| case.operation == operation)
        .collect();
    let names = cases
        .iter()
        .flat_map(|case| case.parameters.keys().cloned());
    let axes = [Axis::ObjectBytes, Axis::Clients, Axis::Rate]
        .into_iter()
        .chain(names.map(Axis::Parameter));
    for axis in axes {
        let mut labels: Vec<String> = cases.iter().map(|case| axis.label(case)).collect();
        labels.sort_unstable();
        labels.dedup();
        if labels.len() > 1 {
            return axis;
        }
    }
    Axis::ObjectBytes
}

/// What a case is, but for its place on the axis.
fn title(case: &Case, axis: &Axis) -> String {
    let operation = match case.operation.as_str() {
        known @ ("get" | "head" | "put" | "delete" | "list") => known.to_uppercase(),
        other => other.to_owned(),
    };
    let mut parts = vec![operation];
    if *axis != Axis::ObjectBytes
        && let Some(size) = case.object_bytes
    {
        parts.push(shown::object_size(size));
    }
    match case.load {
        Load::Closed { .. } if *axis == Axis::Clients => {}
        Load::Open { .. } if *axis == Axis::Rate => parts.push("open loop".to_owned()),
        load @ (Load::Closed { .. } | Load::Open { .. }) => parts.push(load.to_string()),
    }
    for (name, value) in &case.parameters {
        if *axis != Axis::Parameter(name.clone()) {
            parts.push(format!("{} {value}", name.replace('_', " ")));
        }
    }
    parts.join(", ")
}

/// The number that a text begins with, `1/2` as well, or 0.
fn leading_number(text: &str) -> f64 {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (first, rest) = text.split_at(text.find(|c| !is_number(c)).unwrap_or(text.len()));
    let first = first.parse().unwrap_or(0.0);
    let Some(rest) = rest.strip_prefix('/') else {
        return first;
    };
    let below = &rest[..rest.find(|c| !is_number(c)).unwrap_or(rest.len())];
    below.parse().map_or(first, |below: f64| first / below)
}

/// All rounds of one case on one endpoint, put together.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Summary {
    /// Rounds that measured it.
    pub(crate) rounds: usize,
    /// Requests per second: least, median and most of the rounds.
    pub(crate) request_rate: (f64, f64, f64),
    /// Bytes per second, likewise.
    pub(crate) byte_rate: (f64, f64, f64),
    /// Latencies of all rounds.
    pub(crate) latency_ns: Histogram,
    /// Times to the first byte of all rounds.
    pub(crate) first_byte_ns: Histogram,
    /// Requests that succeeded, and that failed, in all rounds.
    pub(crate) requests: u64,
    /// Requests that failed, by code.
    pub(crate) errors: std::collections::BTreeMap<String, u64>,
    /// Cores that the load generator kept busy.
    pub(crate) client_cores: f64,
    /// Bytes from the origin per request, likewise, of the rounds that a relay counted.
    pub(crate) origin_bytes: Option<(f64, f64, f64)>,
}

impl Summary {
    /// All rounds of a case on an endpoint; `None` when there are none.
    pub(crate) fn of(run: &Run, endpoint: usize, case: &Case) -> Option<Self> {
        let rounds: Vec<&Measurement> = rounds(run, endpoint, case).collect();
        let mut summary = Self {
            rounds: rounds.len(),
            request_rate: spread(rounds.iter().map(|m| m.requests_per_second()))?,
            byte_rate: spread(rounds.iter().map(|m| m.bytes_per_second()))?,
            latency_ns: Histogram::new(),
            first_byte_ns: Histogram::new(),
            requests: 0,
            errors: std::collections::BTreeMap::new(),
            client_cores: 0.0,
            origin_bytes: spread(rounds.iter().filter_map(|m| m.origin_bytes_per_request())),
        };
        let (mut seconds, mut cpu_seconds) = (0.0, 0.0);
        for round in rounds {
            summary.latency_ns.merge(&round.latency_ns);
            summary.first_byte_ns.merge(&round.first_byte_ns);
            summary.requests += round.requests;
            for (code, count) in &round.errors {
                *summary.errors.entry(code.clone()).or_default() += count;
            }
            seconds += round.seconds;
            cpu_seconds += round.client.cpu_seconds;
        }
        if seconds > 0.0 {
            summary.client_cores = cpu_seconds / seconds;
        }
        Some(summary)
    }

    /// Requests that failed.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The rounds of a case on an endpoint.
pub(crate) fn rounds<'a>(
    run: &'a Run,
    endpoint: usize,
    case: &'a Case,
) -> impl Iterator<Item = &'a Measurement> {
    run.measurements
        .iter()
        .filter(move |m| m.endpoint == endpoint && m.case == *case)
}

/// Least, median and most; `None` of nothing.
fn spread(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64, f64)> {
    let median = compare::median(values.clone())?;
    let least = values.clone().fold(f64::INFINITY, f64::min);
    Some((least, median, values.fold(f64::NEG_INFINITY, f64::max)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn case(object_bytes: u64, concurrency: u32, working_set: &str) -> Case {
        Case {
            operation: "get".to_owned(),
            object_bytes: Some(object_bytes),
            clients: concurrency,
            load: Load::Closed { concurrency },
            parameters: BTreeMap::from([("working_set".to_owned(), working_set.to_owned())]),
        }
    }

    #[test]
    fn the_first_dimension_that_varies_is_the_axis() {
        for (cases, axis, label) in [
            (
                vec![case(1, 1, "1x"), case(2, 2, "2x")],
                Axis::ObjectBytes,
                "1 B",
            ),
            (vec![case(1, 1, "1x"), case(1, 2, "2x")], Axis::Clients, "1"),
            (
                vec![case(1, 1, "1/2x"), case(1, 1, "4x")],
                Axis::Parameter("working_set".to_owned()),
                "1/2x",
            ),
            (vec![case(1, 1, "1x")], Axis::ObjectBytes, "1 B"),
        ] {
            assert_eq!(axis_of(&cases, "get"), axis);
            assert_eq!(axis.label(&cases[0]), label);
        }
        assert!((leading_number("1/2x") - 0.5).abs() < 1e-9);
        assert!((leading_number("64x") - 64.0).abs() < 1e-9);
    }

    #[test]
    fn titles_tell_what_the_axis_does_not() {
        let case = case(1024, 50, "4x");
        assert_eq!(Axis::Clients.phrase(&case), "50 at once");
        for (axis, expected) in [
            (Axis::ObjectBytes, "GET, 50 at once, working set 4x"),
            (Axis::Clients, "GET, 1 KiB, working set 4x"),
            (
                Axis::Parameter("working_set".to_owned()),
                "GET, 1 KiB, 50 at once",
            ),
        ] {
            assert_eq!(title(&case, &axis), expected);
        }
    }
}
