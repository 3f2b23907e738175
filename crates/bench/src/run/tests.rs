//! The whole command, against scripted servers.

use std::{net::TcpListener, path::Path, time::Duration};

use clap::Parser;

use super::{Ending, Notes, RunArguments, run};
use crate::{
    fault::FaultyInput,
    results::{Outcome, Run},
    scripted::{AT_ONCE, Reply, Seen, Server},
};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: RunArguments,
}

const KEYS: [&str; 2] = ["--access-key=AKID", "--secret-key=hush"];

/// Runs the command line; gives how it ended, and what it printed.
fn bench(line: &[&str]) -> anyhow::Result<(Ending, String)> {
    let words = ["bench"]
        .into_iter()
        .chain(line.iter().copied())
        .chain(KEYS);
    let arguments = Line::try_parse_from(words)?.arguments;
    let mut out = Vec::new();
    let command = line.iter().map(|word| (*word).to_owned()).collect();
    let ending = run(
        &arguments,
        command,
        &mut out,
        Notes::Lines(Box::new(std::io::sink())),
    )?;
    Ok((ending, String::from_utf8(out)?))
}

fn read(path: &Path) -> Run {
    Run::read(path).unwrap()
}

fn endpoint(server: &Server) -> String {
    format!("--endpoint={}", server.url())
}

#[test]
fn every_workload_runs_whole_and_leaves_a_run_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(|_| AT_ONCE);
    let url = endpoint(&server);
    let file = directory.path().join("run.json");
    let out = format!("--out={}", file.display());
    for (name, flags, cases) in [
        ("get", &["--size=1KiB,2KiB", "--zipf=0.9"][..], 2),
        ("hot", &[], 1),
        ("head", &[], 1),
        ("put", &["--size=1KiB"], 1),
        ("delete", &[], 1),
        ("list", &[], 1),
        ("mixed", &[], 1),
        ("multipart", &["--object-size=10KiB", "--part-size=4KiB"], 1),
        ("clients", &["--of=hot", "--clients=2,4"], 2),
        (
            "blocks",
            &["--cache-size=64KiB", "--working-set=1/2,2", "--in-flight=2"],
            12,
        ),
        (
            "blocks",
            &[
                "--cache-size=64KiB",
                "--working-set=1",
                "--in-flight=2",
                "--block-access=read",
                "--zipf=0.99",
            ],
            3,
        ),
        ("tier", &["--size=1KB,5KB", "--runs=3"], 6),
        ("cold", &["--size=3KiB"], 1),
    ] {
        let fixed = [name, &url, &out, "--requests=20", "--objects=8", "--verify"];
        let line: Vec<_> = fixed.into_iter().chain(flags.iter().copied()).collect();
        let (ending, text) = bench(&line).unwrap();
        assert_eq!(ending, Ending::Complete, "{name}: {text}");
        let run = read(&file);
        assert_eq!(run.outcome, Outcome::Complete, "{name}");
        let whole = run.measurements.iter();
        let whole = whole.filter(|one| !one.case.parameters.contains_key("within"));
        assert_eq!(whole.clone().count(), cases, "{name}");
        assert!(whole.clone().all(|one| one.requests > 0), "{name}");
        assert_eq!(run.endpoints[0].server.as_deref(), Some("scripted"));
    }
    assert!(server.seen().iter().all(|seen| seen.is_signed));
}

#[test]
fn what_is_there_is_used_again_and_cleaning_up_spares_the_rest() {
    let server = Server::start(|_| AT_ONCE);
    let url = endpoint(&server);
    let puts = || {
        server
            .seen()
            .iter()
            .filter(|seen| seen.method == "PUT")
            .count()
    };
    let line = ["get", &url, "--size=1KiB", "--objects=8", "--requests=5"];
    bench(&line).unwrap();
    assert_eq!(puts(), 8);
    bench(&line).unwrap();
    assert_eq!(puts(), 8, "nothing is uploaded twice");
    server.put("/forebay-bench/forebay-bench-other", vec![1]);
    bench(&[&line[..], &["--cleanup"]].concat()).unwrap();
    assert_eq!(server.paths(), ["/forebay-bench/forebay-bench-other"]);
}

/// Goal: the ratio of two endpoints is that of their delays, and the table says so.
/// Method: one answers at once, the other after 60 ms: whatever a busy machine adds to the first,
/// the second is slower in each round.
#[test]
fn two_endpoints_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let fast = Server::start(|_| AT_ONCE);
    let slow = Server::start(|_| Reply::After(Duration::from_millis(60)));
    let line = [
        "hot",
        &format!("--endpoint=fast={}", fast.url()),
        &format!("--endpoint=slow={}", slow.url()),
        "--requests=6",
        "--concurrency=2",
        "--rounds=5",
        &format!("--out={}", file.display()),
    ];
    let (ending, text) = bench(&line).unwrap();
    assert_eq!(ending, Ending::Complete);
    assert!(text.contains("slow / fast"), "{text}");
    let run = read(&file);
    let order: Vec<_> = run
        .measurements
        .iter()
        .map(|one| (one.round, one.endpoint))
        .collect();
    let turns: Vec<_> = (0..5).flat_map(|round| [(round, 0), (round, 1)]).collect();
    assert_eq!(order, turns, "they take turns");
    for one in run.measurements.iter().filter(|one| one.endpoint == 1) {
        assert!(one.latency_ns.min_ns().unwrap() >= 59_000_000);
        assert_eq!(one.requests, 6);
    }
}

#[test]
fn a_flipped_byte_fails_the_run() {
    let flip = |seen: &Seen| match (&*seen.method, seen.path.matches('/').count()) {
        ("GET", 2..) if seen.number == 9 => Reply::Flipped,
        _ => AT_ONCE,
    };
    let server = Server::start(flip);
    let line = [
        "hot",
        &endpoint(&server),
        "--requests=20",
        "--verify",
        "--concurrency=1",
    ];
    let (ending, text) = bench(&line).unwrap();
    assert_eq!(ending, Ending::Partial);
    assert!(text.contains("WrongBytes"), "{text}");
}

#[test]
fn what_is_known_is_asked_for_with_its_tag_and_304_counts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let server = Server::start(|_| AT_ONCE);
    let line = [
        "get",
        &endpoint(&server),
        "--size=1KiB",
        "--objects=3",
        "--requests=50",
        "--concurrency=1",
        "--if-none-match",
        &format!("--out={}", file.display()),
    ];
    let (ending, text) = bench(&line).unwrap();
    assert_eq!(ending, Ending::Complete, "{text}");
    let one = &read(&file).measurements[0];
    assert_eq!(one.requests, 50);
    assert_eq!(one.bytes, 3 * 1024, "each object came once");
    let seen = server.seen();
    let reads = seen
        .iter()
        .filter(|seen| seen.method == "GET" && seen.path.ends_with(char::is_numeric));
    let conditional = reads.filter(|seen| seen.known_tag.is_some()).count();
    assert_eq!(conditional, 47);
}

#[test]
fn an_endpoint_that_ignores_the_condition_fails_the_run() {
    // A range makes the scripted server answer without a look at the condition.
    let server = Server::start(|_| AT_ONCE);
    let line = [
        "blocks",
        &endpoint(&server),
        "--cache-size=8KiB",
        "--working-set=1",
        "--block-size=4KiB",
        "--block-access=read",
        "--in-flight=1",
        "--requests=10",
        "--if-none-match",
    ];
    let (ending, text) = bench(&line).unwrap();
    assert_eq!(ending, Ending::Partial);
    assert!(text.contains("ConditionIgnored"), "{text}");
}

#[test]
fn what_can_not_be_measured_is_told_plainly() {
    let refused = |status, code| Server::start(move |_| Reply::Error(status, code));
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    for (server, message) in [
        (
            refused(403, "InvalidAccessKeyId"),
            "InvalidAccessKeyId; look at --access-key",
        ),
        (
            refused(403, "SignatureDoesNotMatch"),
            "SignatureDoesNotMatch; look at --access-key",
        ),
        (
            refused(404, "NoSuchBucket"),
            "NoSuchBucket; --create-bucket makes it",
        ),
        (
            Server::start(|_| Reply::Silence),
            "no byte came or went within the timeout",
        ),
    ] {
        let line = [
            "hot",
            &endpoint(&server),
            "--bucket=mine",
            "--timeout=200ms",
        ];
        let error = bench(&line).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains(message), "{text}");
        assert!(text.contains(&server.url()), "{text}");
    }
    let error = bench(&["hot", &format!("--endpoint=http://{gone}")]).unwrap_err();
    assert!(format!("{error:#}").contains("refused"), "{error:#}");
}

#[test]
fn a_certificate_that_nobody_trusts_is_taken_only_when_told() {
    let server = Server::start_tls(|_| AT_ONCE);
    let line = [
        "get",
        &endpoint(&server),
        "--size=100KiB",
        "--objects=4",
        "--requests=20",
    ];
    let error = bench(&line).unwrap_err();
    assert!(
        format!("{error:#}").contains("the certificate is not trusted"),
        "{error:#}"
    );
    let (ending, text) = bench(&[&line[..], &["--insecure", "--verify"]].concat()).unwrap();
    assert_eq!(ending, Ending::Complete, "{text}");
}

#[test]
fn an_endpoint_that_falls_silent_leaves_what_was_measured() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let server = Server::start(|seen| {
        if seen.number < 20 {
            AT_ONCE
        } else {
            Reply::Silence
        }
    });
    let line = [
        "hot",
        &endpoint(&server),
        "--requests=1000000",
        "--timeout=100ms",
        &format!("--out={}", file.display()),
    ];
    let (ending, _) = bench(&line).unwrap();
    assert_eq!(ending, Ending::Partial);
    let one = &read(&file).measurements[0];
    assert!(one.requests >= 10, "{}", one.requests);
    assert!(one.errors.contains_key("Timeout"), "{:?}", one.errors);
}

#[test]
fn a_run_file_that_can_not_be_written_is_told_before_anything_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(|_| AT_ONCE);
    for place in [
        directory.path().join("absent/run.json"),
        directory.path().to_owned(),
    ] {
        let out = format!("--out={}", place.display());
        let error = bench(&["hot", &endpoint(&server), &out]).unwrap_err();
        assert!(format!("{error:#}").starts_with("write "), "{error:#}");
    }
    assert!(server.seen().is_empty());
}

#[test]
fn arguments_that_make_no_sense_together_are_all_told() {
    let line = [
        "blocks",
        "--endpoint=a=http://localhost:1",
        "--endpoint=a=redis://localhost",
        "--bucket=x",
        "--anonymous=b",
    ];
    let error = bench(&line).unwrap_err();
    let faults = error.downcast::<FaultyInput>().unwrap().faults;
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    let expected = [
        "--cache-size",
        "--bucket",
        "--endpoint",
        "--anonymous, --credentials, --tap-stats",
        "--endpoint",
    ];
    assert_eq!(keys, expected);
}
