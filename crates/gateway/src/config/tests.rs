//! The configuration as its users meet it: whole texts in, a config or all of its faults out.

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use serde_json::Value as Json;

use forebay_cache::{Coherence, Keep, KeptSettings, Lasting, Matching, Place, Policy, StaleUse};
use forebay_origin::Addressing;
use forebay_s3::policy::PolicyKind;

mod steady;

use super::{value::MIB, *};
use crate::settings::Authentication;

const GIB: u64 = 1024 * MIB;

fn surroundings() -> Surroundings {
    Surroundings {
        memory_bytes: 4 * GIB,
        cores: NonZeroUsize::new(2).unwrap(),
        aws_region: None,
    }
}

fn file(text: &str) -> Sources {
    let file = File {
        path: "forebay.toml".to_owned(),
        text: text.to_owned(),
    };
    Sources {
        file: Some(file),
        ..Sources::default()
    }
}

fn load(text: &str) -> Result<Config, Vec<Fault>> {
    Config::load(&file(text), &surroundings())
}

fn entry<'a>(config: &'a Config, key: &str) -> &'a Entry {
    config
        .entries
        .iter()
        .find(|entry| entry.key == key)
        .unwrap_or_else(|| panic!("no {key}"))
}

#[test]
fn nothing_at_all_is_a_working_config() {
    let config = Config::load(&Sources::default(), &surroundings()).unwrap();
    assert_eq!(
        config.settings.listeners[0].address.to_string(),
        "127.0.0.1:9000"
    );
    assert_eq!(
        config.settings.listeners[0].authentication,
        Authentication::Required
    );
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9001");
    assert!(matches!(&config.stores["default"],
        StoreConfig::Fs(fs) if fs.root.as_os_str() == "./forebay-data"));
    assert_eq!(config.routes[0].buckets, ["*"]);
    assert_eq!(config.cache_bytes(), GIB);
    assert_eq!(config.settings.threads.get(), 2);
    assert_eq!(config.settings.regions, ["us-east-1"]);
    assert!(config.settings.access_log.is_none() && config.warnings.is_empty());
    assert!(
        config
            .entries
            .iter()
            .all(|entry| entry.source == Source::Default)
    );
}

/// Goal: every kind of fault names its key, its value and a remedy.
#[test]
fn each_fault_names_key_value_and_remedy() {
    let rows: &[(&str, &str, &str, &str)] = &[
        (
            "[memory]\nbudget = \"64\"",
            "memory.budget",
            "\"64\"",
            "with its unit",
        ),
        (
            "[memory]\nbudget = \"1KiB\"",
            "memory.budget",
            "\"1KiB\"",
            "in this range",
        ),
        (
            "[memory]\nbudget = 64",
            "memory.budget",
            "64",
            "budget = \"256MiB\"",
        ),
        (
            "[server]\nthreads = 0",
            "server.threads",
            "0",
            "in this range",
        ),
        (
            "[server]\nthreads = -1",
            "server.threads",
            "-1",
            "in this range",
        ),
        (
            "[server]\nthreads = \"two\"",
            "server.threads",
            "\"two\"",
            "threads = 4",
        ),
        (
            "[server]\nlisten = []",
            "server.listen",
            "[]",
            "name an address",
        ),
        (
            "[server]\nlisten = [\"localhost\"]",
            "server.listen[0].address",
            "\"localhost\"",
            "numbers",
        ),
        (
            "[server]\nlisten = [9000]",
            "server.listen[0]",
            "9000",
            "a text or a table",
        ),
        (
            "[server]\nlisten = [{}]",
            "server.listen[0].address",
            "(not set)",
            "address =",
        ),
        (
            "[server]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
            "server.listen[1]",
            "\"127.0.0.1:1\"",
            "remove one",
        ),
        (
            "[server]\nlisten = [{ address = \"0.0.0.0:1\", authentication = \"off\" }]",
            "server.listen[0].authentication",
            "\"off\"",
            "allow_unauthenticated = true",
        ),
        (
            "[server]\nlisten = [{ address = \"127.0.0.1:1\", authentication = \"no\" }]",
            "server.listen[0].authentication",
            "\"no\"",
            "one of these words",
        ),
        (
            "[server]\nlisten = [{ address = \"127.0.0.1:1\", user = \"a\" }]",
            "server.listen[0].user",
            "…",
            "remove the key",
        ),
        (
            "[server]\nlisten = [{ address = \"127.0.0.1:1\", tls = { key = \"k\" } }]",
            "server.listen[0].tls.certificate",
            "(not set)",
            "both certificate and key",
        ),
        (
            "[server]\ndomains = [\"S3:9000\"]",
            "server.domains",
            "\"S3:9000\"",
            "s3.example.com",
        ),
        (
            "[server]\nname = \"my cache\"",
            "server.name",
            "\"my cache\"",
            "edge-1",
        ),
        (
            "[server]\nlistne = []",
            "server.listne",
            "…",
            "did you mean `listen`?",
        ),
        (
            "[sever]\nlisten = []",
            "sever",
            "{ … }",
            "did you mean `server`?",
        ),
        (
            "[log]\nlevel = \"loud\"",
            "log.level",
            "\"loud\"",
            "one of these words",
        ),
        (
            "[admin]\nlisten = \"9001\"",
            "admin.listen",
            "\"9001\"",
            "in numbers",
        ),
        (
            "[admin]\nlisten = \"0.0.0.0:9001\"",
            "admin.token",
            "(not set)",
            "admin.token_file, or listen on 127.0.0.1",
        ),
        (
            "[admin]\ntoken = \"short\"",
            "admin.token",
            "***",
            "openssl rand",
        ),
        (
            "[admin]\ntoken_file = \"a\"\ntoken_env = \"B\"",
            "admin.token",
            "(several)",
            "keep the one",
        ),
        (
            "[stores.a]\ntype = \"swift\"",
            "stores.a.type",
            "\"swift\"",
            "in this version",
        ),
        (
            "[stores.a]\npath = \"x\"",
            "stores.a.type",
            "(not set)",
            "choose one of these",
        ),
        ("[stores]\na = 1", "stores.a", "1", "type ="),
        (
            "[stores.a]\ntype = \"s3\"",
            "stores.a.endpoint",
            "(not set)",
            "endpoint =",
        ),
        (
            "[stores.a]\ntype = \"s3\"\nendpoint = \"ftp://x\"",
            "stores.a.endpoint",
            "\"ftp://x\"",
            "write it as in",
        ),
        (
            "[stores.a]\ntype = \"fs\"\nendpoint = \"x\"",
            "stores.a.endpoint",
            "\"x\"",
            "type = \"s3\", which it belongs to",
        ),
        (
            "[stores.a]\ntype = \"s3\"\nendpoint = \"http://x\"\naccess_key = \"AKI\"",
            "stores.a.access_key",
            "…",
            "credentials = \"keys\"",
        ),
        (
            "[stores.a]\ntype = \"s3\"\nendpoint = \"http://x\"\ncredentials = \"keys\"\n\
             secret_key = \"s\"",
            "stores.a.access_key",
            "(not set)",
            "public half",
        ),
        (
            "[stores.a]\ntype = \"s3\"\nendpoint = \"http://x\"\ncredentials = \"none\"\n\
             profile = \"p\"",
            "stores.a.profile",
            "\"p\"",
            "remove the profile",
        ),
        (
            "[stores.a]\ntype = \"s3\"\nendpoint = \"http://x\"\ntimeouts = { connect = \"2h\" }",
            "stores.a.timeouts.connect",
            "\"2h\"",
            "in this range",
        ),
        ("routes = []", "routes", "[]", "at least one route"),
        (
            "[[routes]]\nstore = \"nowhere\"",
            "routes[0].store",
            "\"nowhere\"",
            "[stores.NAME]",
        ),
        (
            "[[routes]]\nbuckets = [\"*\"]",
            "routes[0].store",
            "(not set)",
            "store = NAME",
        ),
        (
            "[[routes]]\nstore = \"default\"\nbuckets = [\"a/b\"]",
            "routes[0].buckets",
            "[\"a/b\"]",
            "logs-*",
        ),
        (
            "[[routes]]\nstore = \"default\"\n[[routes]]\nstore = \"default\"\n\
             buckets = [\"logs-*\"]",
            "routes[1].buckets",
            "\"logs-*\"",
            "move this route before",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"shape\" }]",
            "routes[0].layers[0].type",
            "\"shape\"",
            "in this version",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\" }, { type = \"cache\" }]",
            "routes[0].layers[1]",
            "\"cache\"",
            "remove one",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", volume = { path = \"/x\" } }]",
            "routes[0].layers[0].volume",
            "{ … }",
            "not available in this version",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", memory = \"8GiB\" }]",
            "routes[0].layers[0].memory",
            "\"8GiB\"",
            "write a size",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", page = \"100KiB\" }]",
            "routes[0].layers[0].page",
            "\"100KiB\"",
            "write 128KiB",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", memory = \"8MiB\", page = \"2MiB\" }]",
            "routes[0].layers[0].page",
            "\"2MiB\"",
            "smaller",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", coherence = { mode = \"lax\" } }]",
            "routes[0].layers[0].coherence.mode",
            "\"lax\"",
            "in this version",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             coherence = { mode = \"strict\", stale_if_error = \"5m\" } }]",
            "routes[0].layers[0].coherence.stale_if_error",
            "\"5m\"",
            "mode = \"bounded\", which it belongs to",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             coherence = { mode = \"exclusive\", stale_while_revalidate = \"5s\" } }]",
            "routes[0].layers[0].coherence.stale_while_revalidate",
            "\"5s\"",
            "remove it",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", coherence = { mode = \"immutable\", ttl = \"5s\" } }]",
            "routes[0].layers[0].coherence.ttl",
            "\"5s\"",
            "no such key with mode = \"immutable\"",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             coherence = { mode = \"bounded\", stale_if_error = \"8d\" } }]",
            "routes[0].layers[0].coherence.stale_if_error",
            "\"8d\"",
            "0s to 7d",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             rules = [{ keep = \"never\" }] }]",
            "routes[0].layers[0].rules[0].keep",
            "\"never\"",
            "choose one of these words",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             rules = [{ keys = [] }] }]",
            "routes[0].layers[0].rules[0].keys",
            "[]",
            "leave the key out",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             rules = [{ size_min = \"2MiB\", size_max = \"1MiB\" }] }]",
            "routes[0].layers[0].rules[0].size_min",
            "\"2MiB\"",
            "no object has such a size",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             rules = [{ keep = \"no\" }, { prefix = \"a\" }] }]",
            "routes[0].layers[0].rules[1].keys",
            "rule 1",
            "move it to the end",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             rules = [{ place = \"disk\" }] }]",
            "routes[0].layers[0].rules[0].place",
            "\"disk\"",
            "give the cache a disk",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             disk = { size = \"1GiB\" } }]",
            "routes[0].layers[0].disk.path",
            "(not set)",
            "name a folder",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             disk = { path = \"/x\" } }]",
            "routes[0].layers[0].disk.size",
            "(not set)",
            "say how much",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             disk = { path = \"/x\", size = \"5MiB\" } }]",
            "routes[0].layers[0].disk.size",
            "\"5MiB\"",
            "choose a value in this range",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             disk = { path = \"/x\", size = \"1GiB\", written_per_day_max = \"1MiB\" } }]",
            "routes[0].layers[0].disk.written_per_day_max",
            "\"1MiB\"",
            "choose a value in this range",
        ),
        (
            "[[routes]]\nbuckets = [\"a\"]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             memory = \"8MiB\", page = \"64KiB\", disk = { path = \"/x\", size = \"1GiB\" } }]\n\
             [[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             memory = \"8MiB\", page = \"64KiB\", disk = { path = \"/x\", size = \"1GiB\" } }]",
            "routes[1].layers[0].disk.path",
            "\"/x\"",
            "routes[0].layers[0].disk.path has it already",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", coherence = { mode = \"bounded\", tti = \"2m\" } }]",
            "routes[0].layers[0].coherence.tti",
            "\"2m\"",
            "leave it out",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", list_objects = \"on\" }]",
            "routes[0].layers[0].list_objects",
            "\"on\"",
            "{ ttl = \"10s\" }",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", list_buckets = { tti = \"5s\" } }]",
            "routes[0].layers[0].list_buckets.ttl",
            "(not set)",
            "write ttl",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", head_bucket = { ttl = \"5s\", tti = \"6s\" } }]",
            "routes[0].layers[0].head_bucket.tti",
            "\"6s\"",
            "at most ttl",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", \
             coherence = { mode = \"strict\" }, list_objects_v2 = { ttl = \"5s\" } }]",
            "routes[0].layers[0].list_objects_v2",
            "{ … }",
            "choose another mode",
        ),
        (
            "[[routes]]\nstore = \"default\"\n\
             layers = [{ type = \"cache\", negative_ttl = \"2s\" }]",
            "routes[0].layers[0].negative_ttl",
            "\"2s\"",
            "0s to 1s choose a value in this range, such as 1s",
        ),
        (
            "[[routes]]\nstore = \"default\"\nlayers = [{ type = \"cache\", memory = \"100%\" }]",
            "routes[*].layers[*].memory",
            "4GiB of caches and 256MiB of memory.budget",
            "less memory",
        ),
        (
            "[users.a]\nsecret_key = \"s\"",
            "users.a.access_key",
            "(not set)",
            "public half",
        ),
        (
            "[users.a]\naccess_key = \"AKI\"",
            "users.a.secret_key",
            "(not set)",
            "exactly one",
        ),
        (
            "[users.a]\naccess_key = \"AKI\"\nsecret_key = \"s\"\nsecret_key_env = \"S\"",
            "users.a.secret_key",
            "(several)",
            "keep the one",
        ),
        (
            "[users.a]\naccess_key = \"A/B\"\nsecret_key = \"s\"",
            "users.a.access_key",
            "\"A/B\"",
            "letters and digits",
        ),
        (
            "[users.a]\naccess_key = \"AKI\"\nsecret_key = \"s\"\npolicies = [\"king\"]",
            "users.a.policies[0]",
            "\"king\"",
            "ready-made",
        ),
        (
            "[users.a]\naccess_key = \"AKI\"\nsecret_key = \"s\"\npolicies = [{}]",
            "users.a.policies[0]",
            "{ … }",
            "file",
        ),
        (
            "[users]\na = { access_key = \"AKI\", secret_key = \"s\" }\n\
             b = { access_key = \"AKI\", secret_key = \"t\" }",
            "users.b.access_key",
            "\"AKI\"",
            "user a has it",
        ),
        (
            "[[bucket_policies]]\npolicy = \"public-read\"",
            "bucket_policies[0].bucket",
            "(not set)",
            "pattern",
        ),
        (
            "[[bucket_policies]]\nbucket = \"b\"",
            "bucket_policies[0].policy",
            "(not set)",
            "public-read",
        ),
        (
            "[stores.a]\ntype = \"log\"",
            "stores.a.path",
            "(not set)",
            "name a folder",
        ),
        (
            "[stores.a]\ntype = \"redis\"",
            "stores.a.urls",
            "[]",
            "at least one server",
        ),
        (
            "[stores.a]\ntype = \"redis\"\nurls = [\"redis://me:secret@h\"]",
            "stores.a.urls",
            "a login",
            "secret_key_file",
        ),
        (
            "[stores.a]\ntype = \"redis\"\nurls = [\"redis://h\"]\nmode = \"sentinel\"",
            "stores.a.master",
            "(not set)",
            "name the master",
        ),
        (
            "[stores.a]\ntype = \"redis\"\nurls = [\"redis://h\"]\n\
             timeouts = { replicate = \"3s\" }",
            "stores.a.timeouts.replicate",
            "3s",
            "shorter than command",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[[routes]]\nstore = \"a\"\nlayers = [{ type = \"tier\" }]",
            "routes[0].layers[0].hot",
            "(not set)",
            "type \"log\" or \"redis\"",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[stores.b]\ntype = \"memory\"\n[[routes]]\nstore = \"a\"\n\
             layers = [{ type = \"tier\", hot = \"b\" }]",
            "routes[0].layers[0].hot",
            "\"b\"",
            "type \"log\" or \"redis\"",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[stores.b]\ntype = \"log\"\npath = \"b\"\n[[routes]]\n\
             store = \"a\"\nlayers = [{ type = \"tier\", hot = \"b\" }, { type = \"cache\" }]",
            "routes[0].layers[1]",
            "\"cache\"",
            "name the cache first",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[[routes]]\nstore = \"a\"\nchanges = \"a\"",
            "routes[0].changes",
            "\"a\"",
            "type \"redis\"",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[stores.b]\ntype = \"null\"\n[[routes]]\nstore = \"a\"\n\
             layers = [{ type = \"tier\", hot = \"b\" }]",
            "routes[0].layers[0].hot",
            "\"b\"",
            "type \"log\" or \"redis\"",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[stores.b]\ntype = \"log\"\n[[routes]]\nstore = \"a\"\n\
             layers = [{ type = \"tier\", hot = \"b\" }]",
            "stores.b.path",
            "(not set)",
            "name a folder",
        ),
        (
            "[stores.a]\ntype = \"fs\"\n[stores.b]\ntype = \"redis\"\n[[routes]]\nstore = \"a\"\n\
             changes = \"b\"\nlayers = [{ type = \"cache\" }]",
            "stores.b.urls",
            "[]",
            "at least one server",
        ),
        ("[server\n", "forebay.toml:1", "", "config example"),
    ];
    assert_one_fault_each(rows);
}

/// Each text has one fault: of this key, with these words in its value and in its advice.
fn assert_one_fault_each(rows: &[(&str, &str, &str, &str)]) {
    for (text, key, value, remedy) in rows {
        let faults = load(text).expect_err(text);
        let fault = faults.iter().find(|fault| fault.key == *key);
        let fault = fault.unwrap_or_else(|| panic!("{text}\nhas no fault {key}: {faults:#?}"));
        assert!(fault.value.contains(value), "{text}\n{fault}");
        let advice = format!("{} {}", fault.allowed, fault.remedy);
        assert!(advice.contains(remedy), "{text}\n{fault}");
        assert_eq!(
            faults.len(),
            1,
            "{text}\none mistake is one fault: {faults:#?}"
        );
    }
}

#[test]
fn all_faults_come_at_once() {
    let text = r#"
        users_flie = "x"
        [server]
        threads = "many"
        drain_timeout = "5"
        [memory]
        budget = "lots"
        [stores.a]
        type = "s3"
        endpoint = "nowhere at all"
        [[routes]]
        store = "b"
        layers = [{ type = "mirror" }, 7, { type = "cache", page = "3MiB", volume = {} }]
    "#;
    let keys: Vec<String> = load(text)
        .unwrap_err()
        .into_iter()
        .map(|fault| fault.key)
        .collect();
    let keys: BTreeSet<&str> = keys.iter().map(String::as_str).collect();
    let expected = BTreeSet::from([
        "users_flie",
        "server.threads",
        "server.drain_timeout",
        "memory.budget",
        "stores.a.endpoint",
        "routes[0].store",
        "routes[0].layers[0].type",
        "routes[0].layers[1]",
        "routes[0].layers[2].page",
        "routes[0].layers[2].volume",
    ]);
    assert_eq!(keys, expected);
}

#[test]
fn a_flag_outranks_a_variable_outranks_the_file_outranks_the_default() {
    let text = "[server]\nlisten = [\"127.0.0.1:1\"]\ndata_dir = \"file\"\ndrain_timeout = \"9s\"";
    let mut sources = file(text);
    let source_of = |sources: &Sources, key: &str| {
        let config = Config::load(sources, &surroundings()).unwrap();
        let found = entry(&config, key);
        (found.value.clone(), found.source.to_string())
    };
    let pair = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(
        source_of(&sources, "server.data_dir"),
        pair("\"file\"", "file")
    );
    sources.environment = vec![
        ("FOREBAY_SERVER__DATA_DIR".into(), "variable".into()),
        (
            "FOREBAY_SERVER__LISTEN".into(),
            "127.0.0.1:2, 127.0.0.1:3".into(),
        ),
        (
            "FOREBAY_ROOT_ACCESS_KEY".into(),
            "no key of the config".into(),
        ),
        ("PATH".into(), "/bin".into()),
    ];
    assert_eq!(
        source_of(&sources, "server.data_dir"),
        pair("\"variable\"", "FOREBAY_SERVER__DATA_DIR")
    );
    assert_eq!(
        source_of(&sources, "server.listen[1].address"),
        pair("\"127.0.0.1:3\"", "FOREBAY_SERVER__LISTEN")
    );
    sources.flags = Flags {
        listen: Some("127.0.0.1:4".into()),
        admin_listen: Some("127.0.0.1:5".into()),
        data: Some("flag".into()),
        origins: Vec::new(),
    };
    assert_eq!(
        source_of(&sources, "server.data_dir"),
        pair("\"flag\"", "--data")
    );
    assert_eq!(
        source_of(&sources, "server.listen[0].address"),
        pair("\"127.0.0.1:4\"", "--listen")
    );
    assert_eq!(
        source_of(&sources, "admin.listen"),
        pair("\"127.0.0.1:5\"", "--admin-listen")
    );
    assert_eq!(
        source_of(&sources, "server.drain_timeout"),
        pair("\"9s\"", "file")
    );
    assert_eq!(
        source_of(&sources, "memory.wait_max"),
        pair("\"5s\"", "default")
    );
    assert_eq!(
        source_of(&sources, "stores.default.path"),
        pair("\"flag\"", "default")
    );
}

#[test]
fn variables_are_read_as_their_keys_want() {
    let environment = [
        ("FOREBAY_SERVER__THREADS", "3"),
        ("FOREBAY_SERVER__REGIONS", "eu-west-1"),
        ("FOREBAY_STORES__COLD__TYPE", "s3"),
        ("FOREBAY_STORES__COLD__ENDPOINT", "http://127.0.0.1:7"),
        ("FOREBAY_STORES__COLD__POOL__CONNECTIONS_MAX", "17"),
        ("FOREBAY_ROUTES", "[{ store = \"cold\" }]"),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .to_vec();
    let sources = Sources {
        environment,
        ..Sources::default()
    };
    let config = Config::load(&sources, &surroundings()).unwrap();
    assert_eq!(config.settings.threads.get(), 3);
    assert_eq!(config.settings.regions, ["eu-west-1"]);
    assert_eq!(config.routes[0].store, "cold");
    let StoreConfig::S3(cold) = &config.stores["cold"] else {
        panic!("{:?}", config.stores)
    };
    assert_eq!(cold.settings.endpoints[0], "http://127.0.0.1:7");
    assert_eq!(cold.settings.pool.connections_max, 17);
    assert_eq!(cold.settings.region, "us-east-1");
}

#[test]
fn a_fault_of_a_variable_names_the_variable() {
    for (name, text, key) in [
        ("FOREBAY_SERVER__THREADS", "many", "FOREBAY_SERVER__THREADS"),
        (
            "FOREBAY_SERVER__LISTNE",
            "x",
            "server.listne (set by FOREBAY_SERVER__LISTNE)",
        ),
        (
            "FOREBAY_SERVER__THREADS",
            "0",
            "server.threads (set by FOREBAY_SERVER__THREADS)",
        ),
    ] {
        let environment = vec![(name.to_owned(), text.to_owned())];
        let sources = Sources {
            environment,
            ..Sources::default()
        };
        let faults = Config::load(&sources, &surroundings()).unwrap_err();
        assert_eq!(
            faults.iter().map(|f| f.key.as_str()).collect::<Vec<_>>(),
            [key],
            "{name}"
        );
    }
}

#[test]
fn an_origin_flag_is_a_store_with_a_cache_and_excludes_others() {
    let mut sources = Sources::default();
    sources.flags.origins = vec!["https://s3.eu-central-1.amazonaws.com".to_owned()];
    let config = Config::load(&sources, &surroundings()).unwrap();
    let StoreConfig::S3(origin) = &config.stores["default"] else {
        panic!("{:?}", config.stores)
    };
    assert_eq!(origin.settings.region, "eu-central-1");
    assert_eq!(origin.credentials, CredentialsConfig::Aws { profile: None });
    assert_eq!(config.routes[0].layers.len(), 1);
    let source = entry(&config, "stores.default.endpoint").source.to_string();
    assert_eq!(source, "--origin");

    for stores in [
        "[stores.a]\ntype = \"null\"",
        "[stores.default]\ntype = \"null\"",
        "[stores.default]\nendpoint = \"http://127.0.0.1:7\"",
        "[stores.default]\ncredentials = \"none\"\n[stores.a]\ntype = \"null\"",
    ] {
        sources.file = file(stores).file;
        let faults = Config::load(&sources, &surroundings()).unwrap_err();
        assert!(faults[0].key.starts_with("--origin"), "{faults:?}");
    }

    sources.file = file("[[routes]]\nstore = \"default\"").file;
    let config = Config::load(&sources, &surroundings()).unwrap();
    assert!(
        config.routes[0].layers.is_empty(),
        "a route of the file has the layers it names"
    );
}

#[test]
fn the_store_of_an_origin_flag_takes_the_rest_from_variables_and_the_file() {
    let sources = Sources {
        file: file("[stores.default]\naddressing = \"virtual\"").file,
        environment: vec![(
            "FOREBAY_STORES__DEFAULT__CREDENTIALS".to_owned(),
            "none".to_owned(),
        )],
        flags: Flags {
            origins: vec!["https://s3.eu-west-1.amazonaws.com".to_owned()],
            ..Flags::default()
        },
    };
    let config = Config::load(&sources, &surroundings()).unwrap();
    let StoreConfig::S3(origin) = &config.stores["default"] else {
        panic!("{:?}", config.stores)
    };
    assert_eq!(origin.credentials, CredentialsConfig::None);
    assert_eq!(origin.settings.addressing, Addressing::VirtualHost);
    for (key, source) in [
        ("credentials", "FOREBAY_STORES__DEFAULT__CREDENTIALS"),
        ("addressing", "file"),
        ("endpoint", "--origin"),
    ] {
        let entry = entry(&config, &format!("stores.default.{key}"));
        assert_eq!(entry.source.to_string(), source, "{key}");
    }
}

#[test]
fn no_secret_is_ever_shown() {
    let text = r#"
        [users.alice]
        access_key = "AKIA1"
        secret_key = "hunter2"
        policies = ["admin"]
        [stores.cold]
        type = "s3"
        endpoint = "http://127.0.0.1:7"
        credentials = "keys"
        access_key = "AKIA2"
        secret_key = "hunter2"
    "#;
    let config = load(text).unwrap();
    let shown: Vec<String> = config.entries.iter().map(ToString::to_string).collect();
    assert!(
        shown.contains(&"users.alice.secret_key = \"***\"  # file".to_owned()),
        "{shown:#?}"
    );
    assert!(!format!("{config:?} {shown:?}").contains("hunter2"));

    // Faults around secrets, and lines that do not even parse.
    for text in [
        "[users.alice]\naccess_key = \"A\"\nsecret_key = \"hunter2\"\nsecret_key_file = \"x\"",
        "[users.alice]\nsecretkey = \"hunter2\"",
        "[users.alice]\nsecret_key = hunter2",
        "[users.alice]\nsecret_key = [\"hunter2\"]",
        "[stores.c]\ntype = \"s3\"\nendpoint = \"http://x\"\nsecret_key = \"hunter2\"",
    ] {
        let faults = load(text).unwrap_err();
        assert!(!format!("{faults:?}").contains("hunter2"), "{faults:?}");
    }
}

#[test]
fn authentication_off_is_quiet_on_loopback_and_warns_elsewhere() {
    let listen = |address: &str| {
        format!(
            "[server]\nlisten = [{{ address = \"{address}\", authentication = \"off\", \
             allow_unauthenticated = true }}]"
        )
    };
    for (address, warnings) in [("127.0.0.1:1", 0), ("[::1]:1", 0), ("10.0.0.1:1", 1)] {
        let config = load(&listen(address)).unwrap();
        assert_eq!(
            config.warnings.len(),
            warnings,
            "{address}: {:?}",
            config.warnings
        );
        let identity = forebay_store::Identity::User("root".into());
        assert_eq!(
            config.settings.listeners[0].authentication,
            Authentication::Off { identity }
        );
    }
}

#[test]
fn the_region_of_an_origin_is_found_where_it_can_be() {
    for (endpoint, environment, region) in [
        (
            "https://s3.eu-west-3.amazonaws.com",
            Some("us-west-1"),
            "eu-west-3",
        ),
        (
            "https://s3.dualstack.eu-west-3.amazonaws.com",
            None,
            "eu-west-3",
        ),
        ("https://s3.amazonaws.com", None, "us-east-1"),
        ("http://127.0.0.1:9", Some("us-west-1"), "us-west-1"),
        ("http://127.0.0.1:9", None, "us-east-1"),
    ] {
        let mut sources = Sources::default();
        sources.flags.origins = vec![endpoint.to_owned()];
        let aws_region = environment.map(str::to_owned);
        let config = Config::load(
            &sources,
            &Surroundings {
                aws_region,
                ..surroundings()
            },
        )
        .unwrap();
        let StoreConfig::S3(origin) = &config.stores["default"] else {
            panic!()
        };
        assert_eq!(origin.settings.region, region, "{endpoint} {environment:?}");
    }
}

#[test]
fn a_tiny_machine_has_a_working_default() {
    for mib in [32, 64, 256, 1024] {
        let tiny = Surroundings {
            memory_bytes: mib * MIB,
            ..surroundings()
        };
        let config = Config::load(&Sources::default(), &tiny).expect("default config");
        assert!(
            config.cache_bytes() + config.memory.budget_bytes <= mib * MIB,
            "{mib} MiB"
        );
    }
}

#[test]
fn coherence_reaches_the_cache() {
    let cache = |coherence: &str| {
        let text = format!(
            "[[routes]]\nstore = \"default\"\nlayers = [{{ type = \"cache\", \
             memory = \"1GiB\", page = \"64KiB\", coherence = {coherence} }}]"
        );
        let config = load(&text).unwrap();
        let cache = config.routes[0].layers[0].cache().unwrap().clone();
        (
            cache.capacity_bytes,
            cache.page_bytes.get(),
            cache.coherence,
        )
    };
    let (ttl, tti) = (Duration::from_secs(5), Some(Duration::from_secs(1)));
    let mut stale = StaleUse::default();
    let bounded = Coherence::Bounded { ttl, tti, stale };
    let text = "{ mode = \"bounded\", ttl = \"5s\", tti = \"1s\" }";
    assert_eq!(cache(text), (GIB, 64 * 1024, bounded), "off unless set");
    (stale.while_revalidate, stale.if_error) = (Duration::from_secs(7), Duration::from_mins(9));
    let text = "{ mode = \"bounded\", ttl = \"5s\", tti = \"1s\", \
                stale_while_revalidate = \"7s\", stale_if_error = \"9m\" }";
    let bounded = Coherence::Bounded { ttl, tti, stale };
    assert_eq!(cache(text), (GIB, 64 * 1024, bounded));
    for mode in [
        Coherence::Strict,
        Coherence::Exclusive,
        Coherence::Immutable,
    ] {
        let text = format!("{{ mode = \"{}\" }}", mode.mode().name());
        assert_eq!(cache(&text), (GIB, 64 * 1024, mode));
    }
}

#[test]
fn how_long_listings_are_kept_reaches_the_cache() {
    let kept = |keys: &str| {
        let text =
            format!("[[routes]]\nstore = \"default\"\n[[routes.layers]]\ntype = \"cache\"\n{keys}");
        let config = load(&text).unwrap();
        let cache = config.routes[0].layers[0].cache().unwrap().clone();
        cache.kept
    };
    assert_eq!(kept(""), KeptSettings::default(), "usual unless set");
    let text = "list_objects = \"usual\"\nlist_objects_v2 = { ttl = \"10s\", tti = \"5s\" }\n\
                list_object_versions = { ttl = \"1m\" }\nhead_bucket = \"off\"\n\
                list_buckets = { ttl = \"500ms\" }\nnegative_ttl = \"0s\"";
    let lasting = |ttl, tti| Lasting::For { ttl, tti };
    let expected = KeptSettings {
        list_objects: Lasting::Usual,
        list_objects_v2: lasting(Duration::from_secs(10), Some(Duration::from_secs(5))),
        list_object_versions: lasting(Duration::from_mins(1), None),
        head_bucket: Lasting::Off,
        list_buckets: lasting(Duration::from_millis(500), None),
        negative_ttl: Duration::ZERO,
    };
    assert_eq!(kept(text), expected);
}

#[test]
fn rules_reach_the_cache_and_inherit_what_they_do_not_say() {
    let text = "[[routes]]\nstore = \"default\"\n[[routes.layers]]\ntype = \"cache\"\n\
                page = \"128KiB\"\ncoherence = { mode = \"exclusive\" }\n\
                [[routes.layers.rules]]\nbuckets = [\"a-*\"]\nprefix = \"p/\"\nkeys = [\"*.x\"]\n\
                size_max = \"1MiB\"\ncontent_types = [\"Video/*\"]\nkeep = \"pinned\"\n\
                place = \"memory\"\n[[routes.layers.rules]]\npage = \"64KiB\"\n\
                coherence = { mode = \"strict\" }";
    let config = load(text).unwrap();
    let cache = config.routes[0].layers[0].cache().unwrap().clone();
    let [first, second] = &cache.rules[..] else {
        panic!("{:?}", cache.rules);
    };
    let matching = Matching {
        buckets: vec!["a-*".to_owned()],
        prefix: Some("p/".to_owned()),
        keys: vec!["*.x".to_owned()],
        size_bytes: Some(0..=1024 * 1024),
        content_types: vec!["video/*".to_owned()],
    };
    assert_eq!(first.matching, matching);
    let policy = Policy {
        keep: Keep::Pinned,
        place: Place::Memory,
        ..cache.policy()
    };
    assert_eq!(first.policy, policy);
    assert_eq!(policy.coherence, Coherence::Exclusive);
    assert_eq!(policy.page_bytes.get(), 128 * 1024);
    assert_eq!(second.matching, Matching::default());
    assert_eq!(second.policy.coherence, Coherence::Strict);
    assert_eq!(second.policy.page_bytes.get(), 64 * 1024);
}

#[test]
fn a_users_file_holds_users_and_bucket_policies_only() {
    let check = |text: &str| {
        check_users_file(&File {
            path: "users.toml".to_owned(),
            text: text.to_owned(),
        })
    };
    let text = "[users.a]\naccess_key = \"AKI\"\nsecret_key_env = \"S\"\npolicies = [\"admin\"]\n\
                [[bucket_policies]]\nbucket = \"b\"\npolicy = \"public-read\"";
    let access = check(text).unwrap();
    assert_eq!(access.users[0].name, "a");
    assert_eq!(access.bucket_policies[0].bucket, "b");
    for text in ["[server]\nthreads = 1", "[users.a]\naccess_key = \"AKI\""] {
        let faults = check(text).unwrap_err();
        assert!(!faults.is_empty(), "{text}");
    }
}

#[test]
fn what_lies_outside_is_named_though_the_config_is_wrong() {
    let text = r#"
        users_file = "users.toml"
        [server]
        threads = 0
        [users.a]
        secret_key_file = "a.secret"
        policies = [1, { file = "a.json" }]
        [stores.s]
        type = "s3"
        credentials = "keys"
        secret_key_env = "S_SECRET"
        [[bucket_policies]]
        policy = { file = "b.json" }
    "#;
    let Judged { config, outside } = Config::judge(&file(text), &surroundings());
    assert!(config.is_err());
    let secret = |key: &str, source| Outside::Secret {
        key: key.to_owned(),
        source,
    };
    let policy = |path: &str, key: &str, kind| Outside::Policy {
        source: PolicySource::File {
            path: path.into(),
            key: key.to_owned(),
        },
        kind,
    };
    let expected = [
        Outside::UsersFile("users.toml".into()),
        secret("users.a", SecretSource::File("a.secret".into())),
        // The first policy of the list was cut out, and this is still the second.
        policy("a.json", "users.a.policies[1]", PolicyKind::Identity),
        policy("b.json", "bucket_policies[0].policy", PolicyKind::Bucket),
        secret("stores.s", SecretSource::Environment("S_SECRET".into())),
    ];
    assert_eq!(outside, expected);
}

/// The example with its examples in use.
fn whole_example() -> String {
    let used = |line: &'static str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        _ => line,
    };
    EXAMPLE.lines().map(used).collect::<Vec<_>>().join("\n")
}

/// What is printed can be used as it is, and changes nothing.
#[test]
fn the_example_as_it_is_sets_the_defaults() {
    let values = |config: &Config| -> BTreeSet<(String, String)> {
        let pairs = config.entries.iter();
        pairs.map(|e| (e.key.clone(), e.value.clone())).collect()
    };
    let defaults = Config::load(&Sources::default(), &surroundings()).unwrap();
    assert_eq!(values(&load(EXAMPLE).unwrap()), values(&defaults));
}

/// Goal: the example is complete and true: it passes, it shows every key there is, and what its
/// comments call the default is the default.
#[test]
fn the_example_is_complete_and_true() {
    let config = load(&whole_example()).expect("the example passes");
    let mut missing = Vec::new();
    each_key(shape::config_schema(), "", &mut |path, key| {
        let is_there = EXAMPLE.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim_start().starts_with('='))
                || line.contains(&format!("{{ {key} ="))
                || line.contains(&format!(", {key} ="))
                || line.starts_with('[') && line.contains(key)
        });
        if !is_there {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "the example does not show {missing:?}");

    let defaults = Config::load(&Sources::default(), &surroundings()).unwrap();
    for (key, twin) in [
        ("server.name", "server.name"),
        ("server.data_dir", "server.data_dir"),
        ("server.regions", "server.regions"),
        ("server.drain_timeout", "server.drain_timeout"),
        ("server.listen[0].address", "server.listen[0].address"),
        (
            "server.listen[0].authentication",
            "server.listen[0].authentication",
        ),
        ("admin.listen", "admin.listen"),
        ("routes[0].layers[0].memory", "routes[0].layers[0].memory"),
        ("routes[0].layers[0].page", "routes[0].layers[0].page"),
        (
            "routes[0].layers[0].client_directives",
            "routes[0].layers[0].client_directives",
        ),
        (
            "routes[0].layers[0].origin_directives",
            "routes[0].layers[0].origin_directives",
        ),
        (
            "routes[0].layers[0].coherence.ttl",
            "routes[0].layers[0].coherence.ttl",
        ),
        ("stores.local.durability", "stores.default.durability"),
        ("stores.local.records", "stores.default.records"),
    ] {
        assert_eq!(
            entry(&config, key).value,
            entry(&defaults, twin).value,
            "{key}"
        );
    }
    for section in ["server.limits.", "memory.", "log."] {
        for entry_of_default in defaults
            .entries
            .iter()
            .filter(|e| e.key.starts_with(section))
        {
            let shown = entry(&config, &entry_of_default.key);
            assert_eq!(shown.value, entry_of_default.value, "{}", shown.key);
        }
    }
    let plain = load(
        "[stores.amazon]\ntype = \"s3\"\nendpoint = \"http://x\"\n\
         [stores.garage]\ntype = \"s3\"\nendpoints = [\"http://x\", \"http://y\"]\n\
         [stores.hot]\ntype = \"log\"\npath = \"x\"\n\
         [stores.berlin]\ntype = \"memory\"\n[stores.paris]\ntype = \"memory\"\n\
         [stores.rome]\ntype = \"memory\"\n\
         [stores.everywhere]\ntype = \"mirror\"\nstores = [\"berlin\", \"paris\", \"rome\"]\n\
         journal = \"hot\"\n[[routes]]\nstore = \"everywhere\"",
    );
    let plain = plain.unwrap();
    for section in [
        "amazon.timeouts.",
        "amazon.pool.",
        "amazon.retries.",
        "garage.balance.",
        "garage.health.",
        "garage.limits.",
        "garage.hedge.",
        "everywhere.",
    ] {
        let section = format!("stores.{section}");
        let of_section = plain.entries.iter().filter(|e| e.key.starts_with(&section));
        for entry_of_default in of_section.filter(|e| e.value != "(not set)") {
            let shown = entry(&config, &entry_of_default.key);
            assert_eq!(shown.value, entry_of_default.value, "{}", shown.key);
        }
    }
}

/// Goal: `config show` can't forget a key.
#[test]
fn every_key_of_the_schema_is_shown_when_it_is_set() {
    let config = load(&whole_example()).unwrap();
    let shown: BTreeSet<String> = config
        .entries
        .iter()
        .map(|entry| generic(&entry.key))
        .collect();
    let mut missing = Vec::new();
    each_key(shape::config_schema(), "", &mut |path, _| {
        let is_leaf_shown = shown.contains(path)
            || shown
                .iter()
                .any(|known| known.starts_with(&format!("{path}.")))
            || shown
                .iter()
                .any(|known| known.starts_with(&format!("{path}[")));
        // A policy's document is shown as one value, and one secret in three is set at a time.
        let is_inside_policy = matches!(path.rsplit('.').next(), Some("json" | "file"));
        let is_secret = path.contains("secret_key") || path.starts_with("admin.token");
        if !is_leaf_shown && !is_inside_policy && !is_secret {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "not shown: {missing:?}");
}

/// `stores.cold.pool` and `routes[3].layers[0]` without what is special to one config.
fn generic(key: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in key.split('.') {
        let is_name = matches!(parts.last().map(String::as_str), Some("stores" | "users"));
        let part = if is_name {
            "*"
        } else {
            part.split('[').next().unwrap()
        };
        parts.push(part.to_owned());
    }
    parts.join(".")
}

/// Calls `visit` with the generic path and the name of every key of a schema.
fn each_key(schema: &Json, path: &str, visit: &mut dyn FnMut(&str, &str)) {
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = shape::join(path, key);
        visit(&at, key);
        each_key(inner, &at, visit);
    }
    if schema["additionalProperties"].is_object() {
        each_key(&schema["additionalProperties"], &format!("{path}.*"), visit);
    }
    if schema["items"].is_object() {
        each_key(&schema["items"], path, visit);
    }
    for choice in ["anyOf", "oneOf"]
        .iter()
        .filter_map(|word| schema[*word].as_array())
        .flatten()
    {
        each_key(choice, path, visit);
    }
}
