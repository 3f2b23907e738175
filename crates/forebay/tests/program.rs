//! The built program as an operator meets it: exit codes, files, signals, what it prints.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod server;

use std::{fs, io::Write, net::TcpListener, os::unix::fs::PermissionsExt};

use rustix::process::Signal;
use server::{Server, Tap, request, run, run_with};

/// A gateway that keeps nothing and asks nobody for a signature.
const OPEN_NULL: &str = r#"
    [server]
    listen = [{ address = "127.0.0.1:0", authentication = "off" }]
    [admin]
    listen = "127.0.0.1:0"
    [stores.nothing]
    type = "null"
"#;

#[test]
fn version_help_completions_and_manual_are_printed() {
    for (arguments, expected) in [
        (
            &["--version"][..],
            concat!("forebay ", env!("CARGO_PKG_VERSION")),
        ),
        (&["--help"], "Usage: forebay"),
        (&["serve", "--help"], "--origin <URL>"),
        (&["completions", "bash"], "complete -F _forebay"),
        (&["completions", "fish"], "complete -c forebay"),
        (&["man"], ".TH forebay 1"),
    ] {
        let output = run(arguments);
        assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
        assert!(
            output.stdout.contains(expected),
            "{arguments:?}: {}",
            output.stdout
        );
    }
}

#[test]
fn a_command_line_that_makes_no_sense_leaves_with_64() {
    for arguments in [
        &["bogus"][..],
        &["serve", "--bogus"],
        &["config"],
        &[],
        &["serve", "extra"],
    ] {
        let output = run(arguments);
        assert_eq!(output.code, 64, "{arguments:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{arguments:?}"
        );
    }
}

/// Goal: `serve` and `config check` tell every fault at once and leave with 64 before anything
/// listens or is made.
#[test]
fn a_faulty_config_leaves_with_64_and_all_its_faults() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("forebay.toml");
    let data = directory.path().join("data");
    fs::write(
        &file,
        "[server]\nthreads = 0\nlistne = []\n[memory]\nbudget = \"1\"\n",
    )
    .unwrap();
    let (file, data_text) = (file.to_str().unwrap(), data.to_str().unwrap());
    for command in [&["serve"][..], &["config", "check"], &["config", "show"]] {
        let arguments = [command, &["--config", file, "--data", data_text]].concat();
        let output = run(&arguments);
        assert_eq!(output.code, 64, "{command:?}: {}", output.stderr);
        for expected in [
            "3 faults",
            "server.threads = 0",
            "`listen`",
            "memory.budget = \"1\"",
        ] {
            assert!(
                output.stderr.contains(expected),
                "{command:?}: {}",
                output.stderr
            );
        }
        assert!(!data.exists(), "{command:?} made the data directory");
    }
    let output = run(&["config", "check", "--config", "/nowhere/forebay.toml"]);
    assert_eq!(output.code, 64);
    assert!(
        output
            .stderr
            .contains("--config = \"/nowhere/forebay.toml\""),
        "{}",
        output.stderr
    );
}

#[test]
fn a_check_reads_the_files_that_the_config_names() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("forebay.toml");
    let policy = directory.path().join("policy.json");
    let text = format!(
        "[users.a]\naccess_key = \"KEY\"\nsecret_key_env = \"A_SECRET\"\n\
         policies = [{{ file = {policy:?} }}]\n"
    );
    fs::write(&file, text).unwrap();
    let check = |variables: &[(&str, &str)]| {
        run_with(
            &["config", "check", "--config", file.to_str().unwrap()],
            variables,
        )
    };
    let output = check(&[]);
    assert_eq!(output.code, 64);
    for expected in ["users.a.secret_key_env", "users.a.policies[0]"] {
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
    fs::write(
        &policy,
        r#"{"Version":"2012-10-17","Statement":[{"Effect":"Maybe"}]}"#,
    )
    .unwrap();
    let output = check(&[("A_SECRET", "s")]);
    assert_eq!(output.code, 64);
    assert!(output.stderr.contains("Statement[0]"), "{}", output.stderr);
    let allowed = r#"{"Version":"2012-10-17","Statement":[
        {"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#;
    fs::write(&policy, allowed).unwrap();
    let output = check(&[("A_SECRET", "s")]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    assert!(output.stdout.starts_with("ok: "), "{}", output.stdout);
}

/// Goal: what lies outside of the config is looked at in the same run, faults or not.
#[test]
fn faults_of_the_config_and_of_what_it_names_come_together() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name);
    fs::write(place("policy.json"), "{}").unwrap();
    let users = "[users.c]\naccess_key = \"KEY-C\"\nsecret_key_env = \"UNSET_C\"\ncolour = 1\n";
    fs::write(place("users.toml"), users).unwrap();
    let text = format!(
        "users_file = {:?}\n[server]\nthreads = 0\n\
         [users.a]\nsecret_key_env = \"UNSET_A\"\npolicies = [{{ file = {:?} }}]\n\
         [[bucket_policies]]\nbucket = \"b\"\npolicy = {{ file = {:?} }}\n\
         [stores.s]\ntype = \"s3\"\ncredentials = \"keys\"\naccess_key = \"KEY-S\"\n\
         secret_key_file = {:?}\n",
        place("users.toml"),
        place("nowhere.json"),
        place("policy.json"),
        place("nowhere"),
    );
    fs::write(place("forebay.toml"), &text).unwrap();
    let config = place("forebay.toml");
    let config = config.to_str().unwrap();
    let data = place("data");
    for command in [
        &["config", "check"][..],
        &["serve", "--data", data.to_str().unwrap()],
    ] {
        let arguments = [command, &["--config", config]].concat();
        let output = run_with(&arguments, &[("FOREBAY_ROOT_ACCESS_KEY", "HALF")]);
        assert_eq!(output.code, 64, "{}", output.stderr);
        for expected in [
            "server.threads = 0",
            "users.a.access_key = (not set)",
            "users.a.secret_key_env = \"UNSET_A\"",
            "users.a.policies[0] = ",
            "bucket_policies[0].policy = ",
            "stores.s.endpoint = (not set)",
            "stores.s.secret_key_file = ",
            "users.toml: users.c.colour",
            "users.toml: users.c.secret_key_env = \"UNSET_C\"",
            "FOREBAY_ROOT_ACCESS_KEY = \"HALF\"",
        ] {
            let count = output.stderr.matches(expected).count();
            assert_eq!(count, 1, "{expected}: {}", output.stderr);
        }
        assert!(!data.exists(), "something was made");
    }
}

#[test]
fn show_tells_the_source_of_each_value_and_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("forebay.toml");
    let text = "[log]\nlevel = \"warn\"\n[users.a]\naccess_key = \"KEY\"\n\
                secret_key = \"hunter2\"\npolicies = [\"admin\"]\n";
    fs::write(&file, text).unwrap();
    let arguments = [
        "config",
        "show",
        "--config",
        file.to_str().unwrap(),
        "--listen",
        "127.0.0.1:7",
    ];
    let output = run_with(&arguments, &[("FOREBAY_MEMORY__BUDGET", "64MiB")]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    for line in [
        "server.listen[0].address = \"127.0.0.1:7\"  # --listen",
        "memory.budget = \"64MiB\"  # FOREBAY_MEMORY__BUDGET",
        "log.level = \"warn\"  # file",
        "log.format = \"text\"  # default",
        "users.a.secret_key = \"***\"  # file",
    ] {
        assert!(
            output.stdout.lines().any(|shown| shown == line),
            "{line}\n{}",
            output.stdout
        );
    }
    assert!(!output.stdout.contains("hunter2"));
}

#[test]
fn schema_and_example_describe_the_same_file() {
    let schema: serde_json::Value =
        serde_json::from_str(&run(&["config", "schema"]).stdout).unwrap();
    assert_eq!(schema["properties"]["stores"]["type"], "object");
    let example = run(&["config", "example"]).stdout;
    assert!(example.contains("[[routes]]") && example.contains("[users.alice]"));
}

/// Goal: the root key is made once, shown once, and kept where only its owner can read it.
#[test]
fn root_credentials_are_made_once_shown_once_and_kept_secret() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let arguments = ["--data", data.to_str().unwrap()];
    let mut first = Server::start(&arguments, &[]);
    let kept = data.join(".forebay-root-credentials");
    let text = fs::read_to_string(&kept).unwrap();
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.trim_start_matches([' ', '=']).to_owned()
    };
    let (access_key, secret_key) = (value("aws_access_key_id"), value("aws_secret_access_key"));
    assert_eq!(
        fs::metadata(&kept).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(first.stop(), 0);
    let shown = first.printed();
    assert_eq!(shown.matches(&secret_key).count(), 1, "{shown}");
    assert!(
        shown.contains(&access_key) && shown.contains("aws s3"),
        "{shown}"
    );

    let mut second = Server::start(&arguments, &[]);
    assert_eq!(second.stop(), 0);
    let shown = second.printed();
    assert!(
        shown.contains(&access_key) && !shown.contains(&secret_key),
        "{shown}"
    );
    assert_eq!(fs::read_to_string(&kept).unwrap(), text);
}

#[test]
fn a_root_key_of_the_environment_is_neither_kept_nor_shown() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let variables = [
        ("FOREBAY_ROOT_ACCESS_KEY", "OWNKEY"),
        ("FOREBAY_ROOT_SECRET_KEY", "hunter2"),
    ];
    let mut server = Server::start(&["--data", data.to_str().unwrap()], &variables);
    assert_eq!(server.stop(), 0);
    assert!(!data.join(".forebay-root-credentials").exists());
    let shown = server.printed();
    assert!(
        shown.contains("OWNKEY") && !shown.contains("hunter2"),
        "{shown}"
    );

    let half = run_with(&["serve"], &[("FOREBAY_ROOT_ACCESS_KEY", "OWNKEY")]);
    assert_eq!(half.code, 64);
    assert!(
        half.stderr.contains("FOREBAY_ROOT_SECRET_KEY"),
        "{}",
        half.stderr
    );
}

#[test]
fn an_address_in_use_is_a_failure_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--admin-listen"] {
        let other = if flag == "--listen" {
            "--admin-listen"
        } else {
            "--listen"
        };
        let data = directory.path().to_str().unwrap();
        let output = run(&[
            "serve",
            "--data",
            data,
            flag,
            &address,
            other,
            "127.0.0.1:0",
        ]);
        assert_eq!(output.code, 1, "{}", output.stderr);
        let last = output.stderr.lines().last().unwrap();
        assert!(
            last.starts_with("forebay: ") && last.contains(&address),
            "{}",
            output.stderr
        );
        assert!(last.contains("in use"), "{last}");
    }
}

#[test]
fn health_and_metrics_are_served_apart_from_clients() {
    let mut server = Server::with_config(OPEN_NULL);
    let (status, _) = server.admin("/health/live");
    assert_eq!(status, 200);
    assert_eq!(server.admin("/health/ready"), (200, "ready\n".to_owned()));
    assert_eq!(request(server.address, "PUT /bucket/key", "hello").0, 200);
    let (status, page) = server.admin("/metrics");
    assert_eq!(status, 200);
    let line = "forebay_requests_total{operation=\"PutObject\",status=\"2xx\"} 1";
    assert!(page.contains(line) && page.ends_with("# EOF\n"), "{page}");
    assert_ne!(
        request(server.address, "GET /metrics", "").1.lines().last(),
        Some("# EOF")
    );
    assert_eq!(server.stop(), 0);
}

#[test]
fn an_origin_without_credentials_is_told_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap();
    let arguments = ["--data", home, "--origin", "http://127.0.0.1:9"];
    // Without the last one, machines of a cloud would find some.
    let variables = [("HOME", home), ("AWS_EC2_METADATA_DISABLED", "true")];
    let mut gateway = Server::start(&arguments, &variables);
    gateway.wait_for_line("no credentials for the origin");
    let told = gateway.printed();
    let told = told.lines().find(|line| line.contains("no credentials"));
    for expected in [
        "WARN",
        "127.0.0.1:9",
        "cause=\"no keys in",
        "remedy=\"set AWS_",
    ] {
        assert!(told.unwrap().contains(expected), "{expected}: {told:?}");
    }
    assert_eq!(gateway.stop(), 0);
}

/// Goal: `--origin` puts a cache in front of an S3 service, with the keys of the AWS environment.
/// Method: the service is another gateway, on a directory, that checks signatures.
#[test]
fn an_origin_is_cached_and_gets_signed_requests() {
    let keys = [
        ("FOREBAY_ROOT_ACCESS_KEY", "OWNKEY"),
        ("FOREBAY_ROOT_SECRET_KEY", "hunter2"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut origin = Server::start(&["--data", directory.path().to_str().unwrap()], &keys);
    let open = r#"
        [server]
        listen = [{ address = "127.0.0.1:0", authentication = "off" }]
        [admin]
        listen = "127.0.0.1:0"
    "#;
    let url = format!("http://{}", origin.address);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "OWNKEY"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
    ];
    let mut gateway = Server::with_config_and(open, &["--origin", &url], &keys);
    assert_eq!(request(gateway.address, "PUT /bucket", "").0, 200);
    assert_eq!(request(gateway.address, "PUT /bucket/key", "hello").0, 200);
    let read = || request(gateway.address, "GET /bucket/key", "");
    assert_eq!(read(), (200, "hello".to_owned()));
    // The answer may be there before its page is in place.
    gateway.wait_for_metric("forebay_cache_stored_total{route=\"0\"} 1");
    for _ in 0..2 {
        assert_eq!(read(), (200, "hello".to_owned()));
    }
    assert_eq!(
        request(origin.address, "GET /bucket/key", "").0,
        403,
        "the origin wants keys"
    );
    assert_eq!(
        fs::read(directory.path().join("bucket/key")).unwrap(),
        b"hello"
    );
    let page = gateway.admin("/metrics").1;
    assert!(
        page.contains("forebay_cache_outcomes_total{outcome=\"hit\"} 2\n"),
        "{page}"
    );
    assert!(page.contains("forebay_origin_requests_total{"), "{page}");
    assert_eq!((gateway.stop(), origin.stop()), (0, 0));
}

/// Goal: SIGTERM lets a request finish, tells load balancers, and takes no new connections.
/// Method: an upload of which half is sent when the signal comes.
#[test]
fn sigterm_drains() {
    let mut server = Server::with_config(OPEN_NULL);
    let mut upload = server.begin_upload("/bucket/key", 10);
    upload.write_all(b"01234").unwrap();
    server.wait_for_metric("forebay_requests_in_flight 1");
    server.signal(Signal::TERM);
    server.wait_for_line("draining");
    assert_eq!(server.admin("/health/ready").0, 503);
    assert_eq!(server.admin("/health/live").0, 200);
    server.wait_until_refused();
    upload.write_all(b"56789").unwrap();
    assert_eq!(server::read_answer(upload).0, 200);
    assert_eq!(server.wait(), 0);
    assert!(server.printed().contains("stopped"));
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    let mut server = Server::with_config(OPEN_NULL);
    let mut upload = server.begin_upload("/bucket/key", 10);
    upload.write_all(b"01234").unwrap();
    server.wait_for_metric("forebay_requests_in_flight 1");
    server.signal(Signal::INT);
    server.wait_for_line("draining");
    server.signal(Signal::INT);
    assert_eq!(server.wait(), 0);
    assert!(
        server.printed().contains("second signal"),
        "{}",
        server.printed()
    );
}

/// Goal: SIGHUP takes over users and bucket policies as a whole, and nothing of a bad file.
#[test]
fn sighup_reloads_policies_whole_or_not_at_all() {
    let closed = r#"
        [server]
        listen = ["127.0.0.1:0"]
        [admin]
        listen = "127.0.0.1:0"
        [stores.nothing]
        type = "null"
        [users.a]
        access_key = "KEY"
        secret_key = "hunter2"
        policies = ["admin"]
    "#;
    let open =
        format!("{closed}\n[[bucket_policies]]\nbucket = \"open\"\npolicy = \"public-read\"");
    let broken =
        format!("{open}\n[[bucket_policies]]\nbucket = \"shut\"\npolicy = \"public-reed\"");
    let moved = open.replace(
        "[stores.nothing]",
        "[memory]\nbudget = \"32MiB\"\n[stores.nothing]",
    );
    let mut server = Server::with_config(closed);
    let status = |server: &Server, bucket: &str| {
        request(server.address, &format!("GET /{bucket}/key"), "").0
    };
    assert_eq!(status(&server, "open"), 403);

    server.reload(&open, "reloaded");
    assert_eq!(
        (status(&server, "open"), status(&server, "shut")),
        (200, 403)
    );

    server.reload(&broken, "reload refused");
    assert_eq!(status(&server, "open"), 200, "the old policies stay");
    assert!(
        server.printed().contains("public-reed"),
        "{}",
        server.printed()
    );

    server.reload("[server", "reload refused");
    assert_eq!(status(&server, "open"), 200);

    server.reload(&moved, "need a restart");
    assert!(
        server.printed().contains("memory.budget"),
        "{}",
        server.printed()
    );

    server.reload(closed, "reloaded");
    assert_eq!(
        status(&server, "open"),
        403,
        "what is gone from the file is gone"
    );
    assert_eq!(server.stop(), 0);
    assert!(!server.printed().contains("hunter2"));
}

#[test]
fn the_log_can_be_json() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut server = Server::start(&["--data", data], &[("FOREBAY_LOG__FORMAT", "json")]);
    assert_eq!(server.stop(), 0);
    let printed = server.printed();
    let lines: Vec<serde_json::Value> = printed
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let messages: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["message"].as_str())
        .collect();
    assert_eq!(messages, ["started", "draining", "stopped"], "{printed}");
    assert_eq!(lines[0]["level"], "INFO");
}

#[test]
fn a_tap_relays_until_sigterm_and_then_tells_its_totals() {
    let directory = tempfile::tempdir().unwrap();
    let totals = directory.path().join("totals.json");
    let origin = Server::with_config(OPEN_NULL);
    let flags = [
        "--listen",
        "127.0.0.1:0",
        "--to",
        &origin.address.to_string(),
        "--out",
        totals.to_str().unwrap(),
        "--seed",
        "7",
    ];
    let mut tap = Tap::start(&flags);
    let (status, body) = request(tap.address, "PUT /bucket/key", "hello");
    assert_eq!(status, 200, "{body}");
    assert_eq!(tap.stop(), 0);
    let totals = fs::read_to_string(totals).unwrap();
    let totals: serde_json::Value = serde_json::from_str(&totals).unwrap();
    assert_eq!(totals["requests"], 1);
    assert_eq!(totals["seed"], 7);
    assert_eq!(totals["responses"]["200"], 1);
    assert_eq!(totals["body_bytes_to_server"], "hello".len());
}

#[test]
fn costs_are_told_and_what_is_wrong_with_them_leaves_with_64() {
    let workload = ["cost", "--objects", "1000000", "--size", "1MB"];
    let told = run(&workload);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stdout.contains("all in Redis"), "{}", told.stdout);
    for flags in [
        &["--set", "s3.put=1 EUR"][..],
        &["--set", "s3.pit=1 USD per request"],
        &["--size", "1"],
        &["--hot-gets", "1h=80%", "--hot-gets", "1h=90%"],
    ] {
        let output = run(&[&workload[..], flags].concat());
        assert_eq!(output.code, 64, "{flags:?}: {}", output.stderr);
        assert!(output.stdout.is_empty(), "{flags:?}");
    }
    let missing = run(&["cost", "--metrics", "/nowhere", "--over", "1d"]);
    assert_eq!(missing.code, 1, "{}", missing.stderr);
    let tap = ["tap", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:1"];
    let faulty = run(&[&tap[..], &["--busy", "x"]].concat());
    assert_eq!(faulty.code, 64, "{}", faulty.stderr);
    assert!(faulty.stderr.contains("busy = \"x\""), "{}", faulty.stderr);
}
