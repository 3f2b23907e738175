//! The run file: what survives it, what is refused, what never enters it.

use std::time::Duration;

use super::*;

fn case() -> Case {
    Case {
        operation: "get".to_owned(),
        object_bytes: Some(1024),
        clients: 50,
        load: Load::Closed { concurrency: 50 },
        parameters: BTreeMap::from([("working_set".to_owned(), "4x".to_owned())]),
    }
}

fn run() -> Run {
    let workload = Workload {
        name: "get".to_owned(),
        parameters: BTreeMap::from([("objects".to_owned(), "2500".to_owned())]),
    };
    let endpoints = vec![
        Endpoint::new("origin", "http://127.0.0.1:7070/"),
        Endpoint::new("forebay", "http://127.0.0.1:9000/"),
    ];
    let mut run = Run::new(
        "forebay 0.1.0".to_owned(),
        1_795_260_600_000,
        Machine::default(),
        workload,
        endpoints,
    );
    run.rounds = 1;
    let mut measurement = Measurement::new(1, 0, case());
    measurement.seconds = 10.0;
    measurement.requests = 3;
    measurement.bytes = 3 * 1024;
    measurement.errors.insert("SlowDown".to_owned(), 2);
    measurement.origin = Some(OriginTraffic {
        requests: 1,
        bytes: 1500,
    });
    measurement.client = ClientCost {
        cpu_seconds: 0.5,
        threads: 2,
        limited: None,
    };
    for us in [31, 42, 99_000] {
        measurement.latency_ns.record(Duration::from_micros(us));
        measurement
            .first_byte_ns
            .record(Duration::from_micros(us / 2));
    }
    measurement.series.push(Second {
        requests: 3,
        bytes: 3072,
        ..Second::default()
    });
    run.measurements.push(measurement.clone());
    measurement.case.load = Load::Open { rate: 0.5 };
    measurement.first_byte_ns = Histogram::new();
    measurement.origin = None;
    run.measurements.push(measurement);
    run
}

fn printed(run: &Run) -> String {
    let mut text = Vec::new();
    run.print(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_run_survives_its_file() {
    let mut run = run();
    assert_eq!(Run::parse(printed(&run).as_bytes()).unwrap(), run);
    run.measurements.clear();
    run.outcome = Outcome::Interrupted {
        reason: "interrupted by SIGINT".to_owned(),
    };
    assert_eq!(Run::parse(printed(&run).as_bytes()).unwrap(), run);
}

/// Goal: what version 1 wrote stays readable, whatever becomes of the program.
#[test]
fn the_first_version_still_opens() {
    let kept = include_bytes!("../../tests/fixtures/forebay-bench-1.json");
    assert_eq!(Run::parse(kept).unwrap(), run());
    assert_eq!(
        printed(&run()).as_bytes(),
        kept,
        "and is what is written today"
    );
}

#[test]
fn other_versions_and_other_files_are_refused_by_name() {
    let text = printed(&run());
    for (from, to, expected) in [
        (
            "forebay-bench/1",
            "forebay-bench/2",
            "its format is \"forebay-bench/2\"",
        ),
        (
            "forebay-bench/1",
            "forebay-bench/0",
            "its format is \"forebay-bench/0\"",
        ),
        (
            "forebay-bench/1",
            "k6/1",
            "not a run file of `forebay bench`: its schema is \"k6/1\"",
        ),
        (
            "\"schema\"",
            "\"scheme\"",
            "not a run file of `forebay bench`: missing field",
        ),
        (
            "\"rounds\"",
            "\"round_count\"",
            "not a valid forebay-bench/1 file: missing field",
        ),
        (
            "\"endpoint\":1",
            "\"endpoint\":2",
            "measurement 0: there is no endpoint 2",
        ),
        (
            "\"seconds\":10.0",
            "\"seconds\":-1.0",
            "measurement 0: seconds is -1",
        ),
        (
            "\"label\": \"forebay\"",
            "\"label\": \"origin\"",
            "two endpoints are labelled",
        ),
        (
            "\"rate\":0.5",
            "\"rate\":0.0",
            "measurement 1: case.load.rate is 0",
        ),
        (
            "[[30976,1]",
            "[[30977,1]",
            "30977 ns is where no bucket begins",
        ),
        (
            "[[30976,1],[41984,1]",
            "[[41984,1],[30976,1]",
            "bucket 30976 ns is out of order",
        ),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = Run::parse(text.replace(from, to).as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
    let cut = &text.as_bytes()[..text.len() / 2];
    assert!(Run::parse(cut).unwrap_err().to_string().contains("EOF"));
}

#[test]
fn fields_that_a_later_program_adds_are_passed_over() {
    let text = printed(&run()).replacen("\"rounds\"", "\"weather\": \"fair\",\n  \"rounds\"", 1);
    assert_eq!(Run::parse(text.as_bytes()).unwrap(), run());
}

#[test]
fn merging_what_was_read_is_merging_what_was_measured() {
    let (mut one, mut other) = (Histogram::new(), Histogram::new());
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..10_000 {
        one.record_ns(random.u64(1..10_000_000_000));
        other.record_ns(random.u64(1..50_000));
    }
    let read = |histogram: &Histogram| -> Histogram {
        serde_json::from_str(&serde_json::to_string(histogram).unwrap()).unwrap()
    };
    let mut from_files = read(&one);
    from_files.merge(&read(&other));
    one.merge(&other);
    assert_eq!(from_files, one);
    assert_eq!(from_files.count(), 20_000);
    for quantile in [0.0, 0.5, 0.999, 1.0] {
        assert_eq!(from_files.quantile_ns(quantile), one.quantile_ns(quantile));
    }
}

#[test]
fn quantiles_are_within_four_tenths_of_a_percent() {
    for ns in [1, 127, 20_031, 999_999, 3_141_592_653, 3_599_999_999_999] {
        let mut histogram = Histogram::new();
        histogram.record_ns(ns);
        let (read, true_ns) = (exact(histogram.quantile_ns(0.5).unwrap()), exact(ns));
        assert!((read - true_ns).abs() <= true_ns * 0.004, "{ns}: {read}");
    }
    assert_eq!(Histogram::new().quantile_ns(0.5), None);
}

#[test]
fn what_is_longer_than_an_hour_counts_as_an_hour() {
    let mut histogram = Histogram::new();
    histogram.record(Duration::from_secs(1_000_000));
    let text = serde_json::to_string(&histogram).unwrap();
    assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), histogram);
    assert!(histogram.max_ns().unwrap() > 3_590 * 1_000_000_000);
}

#[test]
fn no_secret_of_a_command_line_is_kept() {
    let arguments = [
        "forebay",
        "--secret-key",
        "hunter2",
        "--session-token=hunter2",
        "--endpoint",
        "a=http://key:hunter2@host:9000/bucket?X-Amz-Signature=hunter2",
        "--endpoint=https://hunter2@host",
        "--size=1KiB",
    ];
    let shown = redacted(arguments.map(str::to_owned));
    assert_eq!(
        shown,
        [
            "forebay",
            "--secret-key",
            "***",
            "--session-token=***",
            "--endpoint",
            "a=http://host:9000/bucket",
            "--endpoint=https://host",
            "--size=1KiB",
        ]
    );
    let endpoint = Endpoint::new("a", "https://k:hunter2@s3.example.com/?x=hunter2");
    assert_eq!(endpoint.url, "https://s3.example.com/");
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.json");
    run().write(&path).unwrap();
    assert_eq!(Run::read(&path).unwrap(), run());
    let error = write_whole(&path, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(Run::read(&path).unwrap(), run(), "the old file stays");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn the_schema_names_every_field() {
    let schema: serde_json::Value = serde_json::from_str(&schema_text()).unwrap();
    let text = schema.to_string();
    let run: serde_json::Value = serde_json::from_str(&printed(&run())).unwrap();
    for name in run.as_object().unwrap().keys() {
        assert!(schema["properties"][name].is_object(), "{name}");
    }
    for name in run["measurements"][0].as_object().unwrap().keys() {
        assert!(text.contains(&format!("\"{name}\"")), "{name}");
    }
}
