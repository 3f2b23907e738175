//! Config files: the TOML, a line `--`, then variables of the environment, `NAME=value` a line.

use std::num::NonZeroUsize;

use forebay_gateway::config::{Config, File, Flags, Sources, Surroundings, check_users_file};

use crate::input::Input;

/// A secret that seeds hold; nothing that is told of a config may repeat it.
const SECRET: &str = "hush-hush-hush";

/// Any text is a config or a list of faults that can be told, without the secrets in it; what is
/// accepted hangs together, and is the same when read again.
pub fn check(data: &[u8]) {
    let mut input = Input(data);
    let Ok(text) = std::str::from_utf8(input.until(b"\n--\n")) else {
        return;
    };
    let file = File {
        path: "forebay.toml".to_owned(),
        text: text.to_owned(),
    };
    let lines = std::str::from_utf8(input.0).unwrap_or_default().lines();
    let variables = lines.filter_map(|line| line.split_once('='));
    let environment = variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let is_secret = data
        .windows(SECRET.len())
        .filter(|at| *at == SECRET.as_bytes())
        .count()
        == 1
        && text.contains(&format!("secret_key = \"{SECRET}\"\n"));
    let check_told = |told: &str| {
        assert!(!told.is_empty());
        assert!(!is_secret || !told.contains(SECRET), "{told}");
    };

    if let Err(faults) = check_users_file(&file) {
        assert!(!faults.is_empty());
        faults
            .iter()
            .for_each(|fault| check_told(&fault.to_string()));
    }
    let sources = Sources {
        file: Some(file),
        environment,
        flags: Flags::default(),
    };
    let surroundings = Surroundings {
        memory_bytes: 8 << 30,
        cores: NonZeroUsize::MIN,
        aws_region: None,
    };
    match Config::load(&sources, &surroundings) {
        Ok(config) => {
            check_told(&format!("{config:?}"));
            check_whole(&config);
            let again = Config::load(&sources, &surroundings).expect("it was right before");
            assert_eq!(again.entries, config.entries);
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            faults
                .iter()
                .for_each(|fault| check_told(&fault.to_string()));
        }
    }
}

fn check_whole(config: &Config) {
    assert!(!config.routes.is_empty() && !config.stores.is_empty());
    for route in &config.routes {
        assert!(config.stores.contains_key(&route.store), "{route:?}");
        assert!(!route.buckets.is_empty());
    }
    assert!(config.cache_bytes() <= 8 << 30, "more cache than memory");
    assert!(config.memory.budget_bytes > 0);
    for (index, entry) in config.entries.iter().enumerate() {
        let is_there = |other: &forebay_gateway::config::Entry| other.key == entry.key;
        assert!(
            !config.entries[..index].iter().any(is_there),
            "{} is there twice",
            entry.key
        );
    }
}
