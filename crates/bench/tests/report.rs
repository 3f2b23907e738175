//! Reports of synthetic runs: charts and tables as they were looked at, and what goes wrong.
//!
//! `FOREBAY_BLESS=1` writes the snapshots anew and leaves all pictures, light and dark, in
//! `target/tmp/report`: look at every one before the snapshots are kept.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod synthetic;

use std::{
    fs,
    path::{Path, PathBuf},
};

use forebay_bench::{
    chart::Theme,
    report::{self, Named, ReportArguments},
    results::{Measurement, Outcome, Run},
    table,
};
use synthetic::{FOREBAY, NGINX, ORIGIN};

fn before() -> Run {
    synthetic::sizes(&[&ORIGIN, &FOREBAY, &NGINX], 1)
}

fn after() -> Run {
    let faster = synthetic::Behaviour {
        base_us: FOREBAY.base_us * 0.7,
        ..FOREBAY
    };
    synthetic::sizes(&[&ORIGIN, &faster, &NGINX], 2)
}

fn snapshot_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/snapshots")
        .join(name)
}

/// Compares with the snapshot, or writes it when asked to.
fn check_snapshot(name: &str, text: &str) {
    let path = snapshot_path(name);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let kept = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; see the head of this file", path.display()));
    let differs = kept
        .lines()
        .zip(text.lines())
        .position(|(kept, now)| kept != now);
    assert!(
        kept == text,
        "{name} differs, first in line {:?}; look at it, then FOREBAY_BLESS=1",
        differs.map(|line| line + 1)
    );
}

fn written(runs: &[&Run], directory: &Path) -> Vec<PathBuf> {
    let write = |(index, run): (usize, &&Run)| {
        let path = directory.join(format!("{}.json", ["before", "after", "third"][index]));
        run.write(&path).unwrap();
        path
    };
    runs.iter().enumerate().map(write).collect()
}

fn report(arguments: &ReportArguments) -> anyhow::Result<String> {
    let mut out = Vec::new();
    report::run(arguments, &mut out)?;
    Ok(String::from_utf8(out)?)
}

#[test]
fn charts_are_as_they_were_looked_at() {
    let (before, after) = (before(), after());
    let named = |name, run| Named { name, run };
    let one = report::figures(&[named("run", &before)]);
    let two = report::figures(&[named("before", &before), named("after", &after)]);
    let clients = synthetic::clients(3);
    let blocks = synthetic::blocks(4);
    let of_clients = report::figures(&[named("run", &clients)]);
    let of_blocks = report::figures(&[named("run", &blocks)]);
    for (prefix, figures, names) in [
        (
            "sizes",
            &one,
            &[
                "get-50-at-once-requests-per-second",
                "get-50-at-once-bytes-per-second",
                "get-50-at-once-latency",
                "get-50-at-once-origin-bytes",
                "get-50-at-once-1-kib-percentiles",
                "get-50-at-once-1-kib-requests-over-time",
            ][..],
        ),
        (
            "two",
            &two,
            &[
                "get-50-at-once-latency",
                "get-50-at-once-requests-per-second",
            ],
        ),
        ("clients", &of_clients, &["get-1-kib-first-byte"]),
        (
            "blocks",
            &of_blocks,
            &["put-16-kib-16-at-once-requests-per-second"],
        ),
    ] {
        for name in names {
            let figure = figures
                .iter()
                .find(|figure| figure.name() == *name)
                .unwrap_or_else(|| panic!("{name} in {:?}", names_of(figures)));
            check_snapshot(&format!("{prefix}-{name}.svg"), &figure.svg(Theme::Light));
        }
    }
    let dark = one[0].svg(Theme::Dark);
    assert_ne!(dark, one[0].svg(Theme::Light));
    check_snapshot("sizes-dark.svg", &dark);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        leave_pictures();
    }
}

fn names_of(figures: &[report::Figure]) -> Vec<&str> {
    figures.iter().map(report::Figure::name).collect()
}

#[test]
fn every_figure_has_a_name_of_its_own() {
    let before = before();
    let figures = report::figures(&[Named {
        name: "run",
        run: &before,
    }]);
    let mut names = names_of(&figures);
    assert_eq!(names.len(), 5 + 5 * 3, "{names:?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), figures.len());
}

#[test]
fn tables_fit_a_terminal_and_are_as_they_were() {
    let mut clients = synthetic::clients(3);
    clients.outcome = Outcome::Interrupted {
        reason: "interrupted by SIGINT".to_owned(),
    };
    for (name, run) in [
        ("sizes", before()),
        ("clients", clients),
        ("blocks", synthetic::blocks(4)),
    ] {
        let text = table::text(&run);
        let long = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(long, None);
        check_snapshot(&format!("{name}-table.txt"), &text);
    }
}

#[test]
fn a_run_without_answers_still_has_a_report() {
    let mut run = synthetic::clients(3);
    for measurement in &mut run.measurements {
        *measurement = Measurement::new(measurement.endpoint, 0, measurement.case.clone());
        measurement.errors.insert("AccessDenied".to_owned(), 5);
    }
    let mut empty = run.clone();
    empty.measurements.clear();
    for (run, expected) in [
        (run, "15x AccessDenied from forebay"),
        (empty, "Nothing was measured"),
    ] {
        assert!(
            table::text(&run).contains(expected),
            "{}",
            table::text(&run)
        );
        let named = [Named {
            name: "run",
            run: &run,
        }];
        let page = report::page(&named) + &report::markdown(&named);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}

#[test]
fn markdown_changes_and_csv_are_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let runs = written(&[&before(), &after()], directory.path());
    let csv = directory.path().join("runs.csv");
    let markdown = report(&ReportArguments {
        runs: runs.clone(),
        markdown: true,
        csv: Some(csv.clone()),
        ..ReportArguments::default()
    });
    let arguments = ReportArguments {
        runs: runs.clone(),
        ..ReportArguments::default()
    };
    let tables = report(&arguments).unwrap();
    let (_, changes) = tables.split_once("after / before").unwrap();
    assert!(
        changes.lines().all(|line| line.chars().count() <= 100),
        "{changes}"
    );
    check_snapshot("two-changes.txt", changes);
    check_snapshot("two.md", &markdown.unwrap());
    let csv = fs::read_to_string(csv).unwrap();
    let columns: Vec<usize> = csv
        .split("\r\n")
        .map(|line| line.split(',').count())
        .collect();
    assert_eq!(columns.len(), 1 + 2 * 75 + 1, "head, measurements, end");
    assert!(
        columns[..151].iter().all(|count| *count == columns[0]),
        "{columns:?}"
    );
    check_snapshot(
        "two-head.csv",
        &csv.lines().take(4).collect::<Vec<_>>().join("\n"),
    );
}

#[test]
fn the_page_stands_alone() {
    let (before, mut after) = (before(), after());
    after.endpoints[1].server = Some("</td><script>alert(1)</script>".to_owned());
    let runs = [("before", &before), ("after", &after)].map(|(name, run)| Named { name, run });
    let page = report::page(&runs);
    for forbidden in [
        "<script", "<link", "<img", "<iframe", " src=", "url(", "@import", "<a ",
    ] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for expected in [
        "default-src 'none'",
        "prefers-color-scheme:dark",
        "What changed from before to after",
        "&lt;script&gt;",
        "AMD EPYC 7571",
        "forebay bench run get",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    let hex = page.matches("fill=\"#").count();
    assert_eq!(
        hex, 0,
        "every colour of the page follows the reader's scheme"
    );
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
}

#[test]
fn charts_are_written_as_svg_and_png() {
    let directory = tempfile::tempdir().unwrap();
    let mut run = synthetic::clients(3);
    run.measurements.truncate(2);
    let charts = directory.path().join("charts");
    let arguments = ReportArguments {
        runs: written(&[&run], directory.path()),
        charts: Some(charts.clone()),
        dark: true,
        ..ReportArguments::default()
    };
    assert_eq!(report(&arguments).unwrap(), "");
    for (name, head) in [
        ("get-10-at-once-latency.svg", &b"<svg"[..]),
        ("get-10-at-once-latency.png", b"\x89PNG"),
    ] {
        let bytes = fs::read(charts.join(name)).unwrap();
        assert!(bytes.starts_with(head), "{name}");
    }
    let count = fs::read_dir(&charts).unwrap().count();
    assert_eq!(
        count,
        2 * 8,
        "latency, first byte, two rates, origin; three of the one case"
    );
}

/// Leaves every picture of every run, light and dark.
fn leave_pictures() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    fs::create_dir_all(&directory).unwrap();
    let runs = written(&[&before(), &after(), &synthetic::clients(3)], &directory);
    let blocks = directory.join("blocks.json");
    synthetic::blocks(4).write(&blocks).unwrap();
    for (name, runs, dark) in [
        ("light", runs[..1].to_vec(), false),
        ("dark", runs[..1].to_vec(), true),
        ("two", runs[..2].to_vec(), false),
        ("clients", runs[2..].to_vec(), false),
        ("blocks", vec![blocks], true),
    ] {
        report(&ReportArguments {
            runs,
            charts: Some(directory.join(name)),
            dark,
            output: Some(directory.join(format!("{name}.html"))),
            ..ReportArguments::default()
        })
        .unwrap();
    }
}

#[test]
fn what_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.json");
    for (text, expected) in [
        (
            Some("{\"schema\":\"forebay-bench/9\"}"),
            "its format is \"forebay-bench/9\"",
        ),
        (Some("not json"), "not a run file of `forebay bench`"),
        (None, "No such file"),
    ] {
        match text {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let runs = vec![path.clone()];
        let error = report(&ReportArguments {
            runs,
            ..ReportArguments::default()
        })
        .unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with(&format!("read {}: ", path.display())),
            "{error}"
        );
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let runs = written(&[&synthetic::clients(3)], directory.path());
    // By way of a link, so that a program that renames over it harms no device.
    let full = directory.path().join("full");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let a_file = directory.path().join("a-file");
    fs::write(&a_file, "in the way").unwrap();
    let arguments = |change: fn(&mut ReportArguments, PathBuf), path: &Path| {
        let mut arguments = ReportArguments {
            runs: runs.clone(),
            ..ReportArguments::default()
        };
        change(&mut arguments, path.to_owned());
        arguments
    };
    for (change, path, expected) in [
        (
            (|a, path| a.output = Some(path)) as fn(&mut ReportArguments, PathBuf),
            full.clone(),
            "/full: No space left on device",
        ),
        (|a, path| a.csv = Some(path), full.clone(), "No space left"),
        (
            |a, path| a.output = Some(path),
            a_file.join("report.html"),
            "Not a directory",
        ),
        (|a, path| a.charts = Some(path), a_file.clone(), "make "),
    ] {
        let error = format!("{:#}", report(&arguments(change, &path)).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}
