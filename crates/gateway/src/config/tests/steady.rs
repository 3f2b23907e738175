//! Sets of endpoints and mirrors, as they are configured.

use forebay_mirror::MirrorSettings;

use super::*;

/// A mirror of three stores in memory, of which `mirror` says more.
fn mirror(mirror: &str) -> String {
    format!(
        "[stores.a]\ntype = \"memory\"\n[stores.b]\ntype = \"memory\"\n[stores.c]\n\
         type = \"memory\"\n[stores.j]\ntype = \"log\"\npath = \"j\"\n[[routes]]\nstore = \"m\"\n\
         [stores.m]\ntype = \"mirror\"\n{mirror}"
    )
}

const THREE: &str = "stores = [\"a\", \"b\", \"c\"]\njournal = \"j\"\n";

#[test]
fn each_fault_of_a_set_of_endpoints_names_key_value_and_remedy() {
    let s3 = |rest: &str| format!("[stores.a]\ntype = \"s3\"\n{rest}");
    let many: Vec<String> = (0..65).map(|n| format!("\"http://h{n}\"")).collect();
    let two = "endpoints = [\"http://x\", \"http://y\"]\n";
    let rows = [
        (
            s3("endpoint = \"http://x\"\nendpoints = [\"http://y\"]"),
            "stores.a.endpoint",
            "\"http://x\"",
            "one of endpoint and endpoints",
        ),
        (
            s3("endpoints = []"),
            "stores.a.endpoints",
            "0 endpoints",
            "1 to 64",
        ),
        (
            s3(&format!("endpoints = [{}]", many.join(", "))),
            "stores.a.endpoints",
            "65 endpoints",
            "1 to 64",
        ),
        (
            s3("endpoints = [\"http://x\", \"ftp://y\"]"),
            "stores.a.endpoints[1]",
            "\"ftp://y\"",
            "http://",
        ),
        (
            s3("endpoints = [\"http://x\", \"https://y\"]"),
            "stores.a.endpoints[1]",
            "\"https://y\"",
            "one scheme",
        ),
        (
            s3("endpoints = [\"http://x\", \"http://X:80/\"]"),
            "stores.a.endpoints[1]",
            "\"http://X:80/\"",
            "in the list already",
        ),
        (
            s3("endpoints = \"http://x\""),
            "stores.a.endpoints",
            "\"http://x\"",
            "a list",
        ),
        (
            s3(&format!("{two}balance = {{ slow_start = \"2h\" }}")),
            "stores.a.balance.slow_start",
            "\"2h\"",
            "in this range",
        ),
        (
            s3(&format!("{two}balance = {{ addresses_max = 0 }}")),
            "stores.a.balance.addresses_max",
            "0",
            "1 to 256",
        ),
        (
            s3(&format!("{two}health = {{ failures_max = 0 }}")),
            "stores.a.health.failures_max",
            "0",
            "1 to 1000",
        ),
        (
            s3(&format!("{two}health = {{ ejection = \"5s\" }}")),
            "stores.a.health.ejection_max",
            "4s",
            "at least as long as health.ejection",
        ),
        (
            s3(&format!("{two}limits = {{ requests_max = 0 }}")),
            "stores.a.limits.requests_max",
            "0",
            "1 to 65536",
        ),
        (
            s3(&format!(
                "{two}limits = {{ bytes_per_second_max = \"1MB/s\" }}"
            )),
            "stores.a.limits.bytes_per_second_max",
            "\"1MB/s\"",
            "such as \"100MiB\"",
        ),
        (
            s3(&format!("{two}hedge = {{ share = \"0.02\" }}")),
            "stores.a.hedge.share",
            "\"0.02\"",
            "\"2%\"",
        ),
        (
            s3(&format!("{two}hedge = {{ share = \"50%\" }}")),
            "stores.a.hedge.share",
            "\"50%\"",
            "0.01% to 49.99%",
        ),
        (
            s3(&format!("{two}hedge = {{ slowdown_max = 1 }}")),
            "stores.a.hedge.slowdown_max",
            "1",
            "2 to 1000",
        ),
        (
            s3(&format!("{two}hedge = {{ stall = \"31s\" }}")),
            "stores.a.hedge.stall",
            "31s",
            "no longer than timeouts.idle",
        ),
    ];
    let rows: Vec<_> = rows
        .iter()
        .map(|(text, a, b, c)| (&**text, *a, *b, *c))
        .collect();
    assert_one_fault_each(&rows);
}

#[test]
fn each_fault_of_a_mirror_names_key_value_and_remedy() {
    let rows = [
        (
            "journal = \"j\"",
            "stores.m.stores",
            "(not set)",
            "[stores.NAME]",
        ),
        (
            "stores = [\"a\"]\njournal = \"j\"",
            "stores.m.stores",
            "1 stores",
            "2 to 16",
        ),
        (
            "stores = [\"a\", \"b\", \"a\"]\njournal = \"j\"",
            "stores.m.stores[2]",
            "\"a\"",
            "in the list already",
        ),
        (
            "stores = [\"a\", \"x\"]\njournal = \"j\"",
            "stores.m.stores[1]",
            "\"x\"",
            "add a [stores.NAME]",
        ),
        (
            "stores = [\"a\", \"m\"]\njournal = \"j\"",
            "stores.m.stores[1]",
            "\"m\"",
            "no member of itself",
        ),
        (
            "stores = [\"a\", \"n\"]\njournal = \"j\"\n[stores.n]\ntype = \"mirror\"\n\
             stores = [\"a\", \"b\"]\njournal = \"j\"",
            "stores.m.stores[1]",
            "\"n\"",
            "no mirrors",
        ),
        (
            "stores = [\"a\", \"z\"]\njournal = \"j\"\n[stores.z]\ntype = \"null\"",
            "stores.m.stores[1]",
            "\"z\"",
            "keeps nothing",
        ),
        (
            "stores = [\"a\", \"z\"]\njournal = \"j\"\n[stores.z]\ntype = \"log\"",
            "stores.z.path",
            "(not set)",
            "name a folder",
        ),
        (
            "stores = [\"a\", \"b\"]",
            "stores.m.journal",
            "(not set)",
            "type \"log\"",
        ),
        (
            "stores = [\"a\", \"b\"]\njournal = \"x\"",
            "stores.m.journal",
            "\"x\"",
            "the name of a store",
        ),
        (
            "stores = [\"a\", \"b\"]\njournal = \"f\"\n[stores.f]\ntype = \"fs\"",
            "stores.m.journal",
            "\"f\"",
            "type \"log\" or \"redis\"",
        ),
        (
            "stores = [\"a\", \"j\"]\njournal = \"j\"",
            "stores.m.journal",
            "\"j\"",
            "another store than the members",
        ),
        (
            "stores = [\"a\", \"b\"]\njournal = \"j\"\nspace = \"a b\"",
            "stores.m.space",
            "\"a b\"",
            "letters, digits",
        ),
        (
            "stores = [\"a\", \"b\"]\njournal = \"j\"\nspace = \"s\"\n[stores.n]\n\
             type = \"mirror\"\nstores = [\"a\", \"b\"]\njournal = \"j\"\nspace = \"s\"",
            "stores.n.space",
            "\"s\"",
            "stores.m has it",
        ),
        (
            "stores = [\"a\", \"b\", \"c\"]\njournal = \"j\"\nwrites_min = 4",
            "stores.m.writes_min",
            "4",
            "1 to 3",
        ),
        (
            "stores = [\"a\", \"b\", \"c\"]\njournal = \"j\"\nrepairs_max = 0",
            "stores.m.repairs_max",
            "0",
            "1 to 1024",
        ),
        (
            "stores = [\"a\", \"b\", \"c\"]\njournal = \"j\"\n\
             repair_bytes_per_second_max = \"1KiB\"",
            "stores.m.repair_bytes_per_second_max",
            "\"1KiB\"",
            "64KiB",
        ),
    ];
    let texts = rows.map(|(text, a, b, c)| (mirror(text), a, b, c));
    let rows: Vec<_> = texts
        .iter()
        .map(|(text, a, b, c)| (&**text, *a, *b, *c))
        .collect();
    assert_one_fault_each(&rows);
}

#[test]
fn reads_are_hedged_where_there_are_several_endpoints() {
    for (text, is_hedged) in [
        ("endpoint = \"http://x\"", false),
        ("endpoints = [\"http://x\"]", false),
        ("endpoints = [\"http://x\", \"http://y\"]", true),
        (
            "endpoints = [\"http://x\", \"http://y\"]\nhedge = { enabled = false }",
            false,
        ),
        ("endpoint = \"http://x\"\nhedge = { enabled = true }", true),
    ] {
        let config = load(&format!("[stores.a]\ntype = \"s3\"\n{text}")).unwrap();
        let StoreConfig::S3(origin) = &config.stores["a"] else {
            panic!("{:?}", config.stores)
        };
        assert_eq!(origin.settings.hedge.is_some(), is_hedged, "{text}");
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
    let text = "[stores.a]\ntype = \"s3\"\nendpoint = \"http://x\"\nhedge = { share = \"1%\" }";
    let warnings = load(text).unwrap().warnings;
    assert!(
        warnings[0].starts_with("stores.a.hedge.enabled"),
        "{warnings:?}"
    );
}

#[test]
fn what_is_said_of_endpoints_reaches_the_origin() {
    let text = r#"
        [stores.a]
        type = "s3"
        endpoints = ["http://x:1", "http://y:2"]
        balance = { slow_start = "0s", resolve_interval = "1s", addresses_max = 3 }
        health = { failures_max = 2, ejection = "100ms", probe_timeout = "50ms" }
        limits = { requests_max = 7, bytes_per_second_max = "1MiB" }
        [stores.a.hedge]
        share = "1.5%"
        control_share = "0%"
        delay_min = "3ms"
        samples_min = 50
        failures_share_max = "20%"
        slowdown_max = 4
        stall = "1s"
    "#;
    let config = load(text).unwrap();
    let StoreConfig::S3(origin) = &config.stores["a"] else {
        panic!("{:?}", config.stores)
    };
    let settings = &origin.settings;
    assert_eq!(settings.endpoints, ["http://x:1", "http://y:2"]);
    assert_eq!(settings.balance.slow_start, Duration::ZERO);
    assert_eq!(settings.balance.addresses_max, 3);
    assert_eq!(settings.health.failures_max, 2);
    assert_eq!(settings.health.probe_timeout, Duration::from_millis(50));
    assert_eq!(settings.limits.requests_max, 7);
    assert_eq!(settings.limits.bytes_per_second_max, Some(MIB));
    let hedge = settings.hedge.as_ref().unwrap();
    assert_eq!(
        (hedge.share, hedge.control_share, hedge.failures_share_max),
        (0.015, 0.0, 0.2)
    );
    assert_eq!((hedge.samples_min, hedge.slowdown_max), (50, 4.0));
    assert_eq!(hedge.stall, Duration::from_secs(1));
}

#[test]
fn origin_flags_make_a_set_of_endpoints() {
    let mut sources = Sources::default();
    sources.flags.origins = ["http://x:1", "http://y:2"].map(str::to_owned).to_vec();
    let config = Config::load(&sources, &surroundings()).unwrap();
    let StoreConfig::S3(origin) = &config.stores["default"] else {
        panic!("{:?}", config.stores)
    };
    assert_eq!(origin.settings.endpoints, ["http://x:1", "http://y:2"]);
    assert!(origin.settings.hedge.is_some());
    let shown = entry(&config, "stores.default.endpoints");
    assert_eq!(shown.source.to_string(), "--origin");

    sources.file = file("[stores.default]\nendpoints = [\"http://z\"]").file;
    let faults = Config::load(&sources, &surroundings()).unwrap_err();
    assert!(faults[0].key.starts_with("--origin"), "{faults:?}");
}

#[test]
fn a_mirror_is_what_it_is_told_to_be() {
    let config = load(&mirror(THREE)).unwrap();
    let found = config.stores["m"].mirror().unwrap();
    assert_eq!(found.members, ["a", "b", "c"]);
    assert_eq!((&*found.journal, found.space.as_str()), ("j", "mirror-m"));
    assert_eq!(found.settings, MirrorSettings::default());
    assert_eq!(entry(&config, "stores.m.writes_min").value, "2");

    let said = "space = \"s\"\nwrites_min = 3\nbehind_max = 10\nrepairs_max = 2\n\
                repair_bytes_per_second_max = \"1MiB\"\nretry_interval = \"100ms\"\n\
                attempt_timeout = \"2s\"\n";
    let config = load(&mirror(&format!("{THREE}{said}"))).unwrap();
    let found = config.stores["m"].mirror().unwrap();
    assert_eq!(found.space.as_str(), "s");
    let expected = MirrorSettings {
        writes_min: Some(3),
        behind_max: 10,
        repairs_max: 2,
        repair_bytes_per_second_max: Some(MIB),
        attempt_timeout: Duration::from_secs(2),
        retry_interval: Duration::from_millis(100),
    };
    assert_eq!(found.settings, expected);
}

/// What is allowed, and perhaps not meant: a write in a minority, a journal that is forgotten, a
/// route past the mirror.
#[test]
fn a_mirror_that_may_lose_writes_is_warned_of() {
    let of = |text: String| -> Vec<String> {
        let warnings = load(&text).unwrap().warnings.into_iter();
        warnings
            .filter(|warning| !warning.contains("type: objects"))
            .collect()
    };
    assert_eq!(of(mirror(THREE)), [""; 0]);
    let minority = of(mirror(&format!("{THREE}writes_min = 1")));
    assert!(
        minority[0].starts_with("stores.m.writes_min: "),
        "{minority:?}"
    );
    let two = of(mirror(
        "stores = [\"a\", \"b\"]\njournal = \"j\"\nwrites_min = 1",
    ));
    assert!(two[0].contains("1 of 2"), "{two:?}");
    let forgotten = of(mirror("stores = [\"a\", \"b\"]\njournal = \"c\""));
    assert!(
        forgotten[0].starts_with("stores.m.journal: "),
        "{forgotten:?}"
    );
    let past = of(
        mirror(&format!("{THREE}[[routes]]\nstore = \"b\"")).replacen(
            "[[routes]]\nstore",
            "[[routes]]\nbuckets = [\"m\"]\nstore",
            1,
        ),
    );
    assert!(past[0].starts_with("routes[1].store: "), "{past:?}");
}
