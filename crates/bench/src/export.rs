//! Runs as CSV: one line for each measurement, for spreadsheets and scripts.
//!
//! RFC 4180, with a head line; times in microseconds, empty where nothing was measured. Histograms
//! and series are in the run file only.

use std::io;

use crate::results::{Load, Measurement, Run, exact};

/// The quantiles that have a column.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p75", 0.75),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p999", 0.999),
    ("max", 1.0),
];

/// Prints runs, each under its name.
///
/// # Errors
/// Those of `out`.
pub fn print_csv(runs: &[(&str, &Run)], out: &mut dyn io::Write) -> io::Result<()> {
    let mut head = [
        "run",
        "started",
        "endpoint",
        "url",
        "round",
        "operation",
        "object_bytes",
        "clients",
        "loop",
        "concurrency",
        "rate_asked",
        "parameters",
        "seconds",
        "requests",
        "bytes",
        "errors",
        "requests_per_second",
        "bytes_per_second",
    ]
    .map(str::to_owned)
    .to_vec();
    head.extend(QUANTILES.map(|(name, _)| format!("latency_{name}_us")));
    head.extend(["first_byte_p50_us", "first_byte_p99_us"].map(str::to_owned));
    head.extend(
        [
            "client_cpu_seconds",
            "client_threads",
            "client_limited",
            "origin_requests",
            "origin_bytes",
        ]
        .map(str::to_owned),
    );
    print_line(&head, out)?;
    for (name, run) in runs {
        for measurement in &run.measurements {
            print_line(&line(name, run, measurement), out)?;
        }
    }
    Ok(())
}

fn line(name: &str, run: &Run, measurement: &Measurement) -> Vec<String> {
    let case = &measurement.case;
    let endpoint = &run.endpoints[measurement.endpoint];
    let (kind, concurrency, rate) = match case.load {
        Load::Closed { concurrency } => ("closed", concurrency.to_string(), String::new()),
        Load::Open { rate } => ("open", String::new(), rate.to_string()),
    };
    let parameters: Vec<String> = case
        .parameters
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let us = |ns: Option<u64>| {
        ns.map(|ns| format!("{:.1}", exact(ns) / 1000.0))
            .unwrap_or_default()
    };
    let mut cells = vec![
        name.to_owned(),
        run.started.clone(),
        endpoint.label.clone(),
        endpoint.url.clone(),
        measurement.round.to_string(),
        case.operation.clone(),
        case.object_bytes
            .map(|size| size.to_string())
            .unwrap_or_default(),
        case.clients.to_string(),
        kind.to_owned(),
        concurrency,
        rate,
        parameters.join(";"),
        format!("{:.3}", measurement.seconds),
        measurement.requests.to_string(),
        measurement.bytes.to_string(),
        measurement.error_count().to_string(),
        format!("{:.3}", measurement.requests_per_second()),
        format!("{:.0}", measurement.bytes_per_second()),
    ];
    cells.extend(QUANTILES.map(|(_, q)| us(measurement.latency_ns.quantile_ns(q))));
    cells.extend([0.5, 0.99].map(|q| us(measurement.first_byte_ns.quantile_ns(q))));
    let origin = measurement.origin;
    cells.extend([
        format!("{:.3}", measurement.client.cpu_seconds),
        measurement.client.threads.to_string(),
        measurement.client.limited.is_some().to_string(),
        origin
            .map(|origin| origin.requests.to_string())
            .unwrap_or_default(),
        origin
            .map(|origin| origin.bytes.to_string())
            .unwrap_or_default(),
    ]);
    cells
}

fn print_line(cells: &[String], out: &mut dyn io::Write) -> io::Result<()> {
    let quoted: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    write!(out, "{}\r\n", quoted.join(","))
}

/// A cell in quotes where it needs them.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_stay_one_cell() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
