//! Bills to the cent.

use std::time::Duration;

use clap::Parser;
use serde_json::Value;

use super::{
    Advice, Hot, Money, Prices, Workload,
    advice::BreakEven,
    command::{CostArguments, EXAMPLES, run},
    prices::Sources,
};
use crate::quantity::Share;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: CostArguments,
}

fn told(command: &[&str]) -> String {
    let command = ["forebay"].iter().chain(command);
    let program = Program::try_parse_from(command).unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    run(&program.arguments, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn told_as_json(command: &[&str]) -> Value {
    let command: Vec<_> = command.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&told(&command)).unwrap()
}

/// The commands of the help text's examples, as a shell would split them.
fn examples() -> Vec<Vec<String>> {
    let joined = EXAMPLES.replace("\\\n", " ");
    let commands = joined
        .lines()
        .filter_map(|line| line.trim().strip_prefix("forebay cost "));
    commands
        .map(|command| {
            let words = command.split('\'').enumerate().flat_map(|(index, piece)| {
                let is_quoted = index % 2 == 1;
                let words: Vec<_> = if is_quoted {
                    vec![piece.to_owned()]
                } else {
                    piece.split_whitespace().map(str::to_owned).collect()
                };
                words
            });
            words.collect()
        })
        .collect()
}

fn prices(changes: &[&str]) -> Prices {
    let changes: Vec<_> = changes.iter().map(|change| (*change).to_owned()).collect();
    Prices::load(Sources {
        book: None,
        changes: &changes,
    })
    .unwrap()
}

/// A million objects of 1 MB, a week, each read once.
fn workload() -> Workload {
    let week = Duration::from_hours(7 * 24);
    Workload {
        objects: 1_000_000,
        size_bytes: 1_000_000,
        kept: week,
        over: week,
        puts: 1_000_000,
        gets: 1_000_000,
        lists: 0,
        read_bytes: 1_000_000_000_000,
        leaving: Share::WHOLE,
        reads_by_age: vec![(Duration::from_hours(1), Share::parse("80%").unwrap())],
        short_lived: Share::NONE,
        redis_nodes: None,
    }
}

const PUBLISHED: [&str; 4] = [
    "month=28d",
    "redis.rented_min=730h",
    "s3.storage=0.023 USD per GB-month",
    "transfer.out=0.09 USD per GB",
];

#[test]
fn the_published_totals_come_out_to_the_cent() {
    let prices = prices(&PUBLISHED);
    let workload = Workload {
        redis_nodes: Some(1),
        ..workload()
    };
    let s3 = workload.in_s3(&prices).unwrap();
    // 1,000,000 PUT at 0.005 and GET at 0.0004 per 1000; 1000 GB for a quarter of a month at 0.023.
    assert_eq!(
        (s3.requests.to_string(), s3.storage.to_string()),
        ("5.40".into(), "5.75".into())
    );
    assert_eq!(s3.total().to_string(), "11.15");
    assert_eq!(s3.transfer.to_string(), "90.00");
    assert_eq!(s3.total_with_transfer().to_string(), "101.15");
    let redis = workload.in_redis(&prices).unwrap();
    // One node at 0.431 for the 730 hours of a month.
    assert_eq!(redis.total().to_string(), "314.63");
    assert_eq!(redis.total_with_transfer().to_string(), "404.63");
}

#[test]
fn every_example_of_the_help_runs_and_the_last_is_the_published_one() {
    let examples = examples();
    assert_eq!(examples.len(), 6, "{examples:?}");
    for example in &examples {
        let needs_more = ["--metrics", "--prices", ">"];
        if example
            .iter()
            .any(|word| needs_more.contains(&word.as_str()))
        {
            continue;
        }
        let command: Vec<_> = example.iter().map(String::as_str).collect();
        let text = told(&command);
        assert!(text.contains("all in S3"), "{example:?}");
        if Some(example) == examples.last() {
            for total in ["11.15", "101.15", "314.63", "404.63", "90.00"] {
                assert!(
                    text.split_whitespace().any(|word| word == total),
                    "{total} in {text}"
                );
            }
        }
    }
}

#[test]
fn s3_express_is_priced_as_its_publisher_does() {
    // The example of the S3 FAQ: 10 GB for 30 days, a million writes and nine million reads of
    // 10 KB each. It tells $2.58, each line rounded to the cent.
    let month = Duration::from_hours(24 * 30);
    let workload = Workload {
        objects: 1_000_000,
        size_bytes: 10 * 1024,
        kept: month,
        over: month,
        gets: 9_000_000,
        read_bytes: 9_000_000 * 10 * 1024,
        leaving: Share::NONE,
        ..workload()
    };
    let express = workload.in_express(&prices(&["month=30d"])).unwrap();
    // 1.13 + 0.27 + 0.03 + 0.05
    assert_eq!(express.requests.to_string(), "1.48");
    // 9.54 GiB of them: 1.10 for all ten.
    assert_eq!(express.storage.to_string(), "1.05");
}

#[test]
fn nodes_come_whole_and_as_many_as_hold_the_objects() {
    let prices = prices(&[]);
    let redis = workload().in_redis(&prices).unwrap();
    // 10^12 bytes in nodes of 26.32 GiB, three quarters of each: 47.2.
    assert_eq!(redis.redis_nodes, 48);
    assert_eq!(redis.total().to_string(), "3475.58");
    let tier = workload()
        .in_tier(Hot::Redis, Duration::from_hours(1), &prices)
        .unwrap();
    // An hour's objects are 5.95 GB.
    assert_eq!(tier.redis_nodes, 1);
    assert_eq!(tier.nodes.to_string(), "72.41");
}

#[test]
fn a_tier_without_time_costs_what_s3_costs() {
    let prices = prices(&[]);
    let s3 = workload().in_s3(&prices).unwrap();
    for hot in Hot::ALL {
        let tier = workload().in_tier(hot, Duration::ZERO, &prices).unwrap();
        assert_eq!(
            tier.total_with_transfer(),
            s3.total_with_transfer(),
            "{hot:?}"
        );
    }
    let gateway = self::prices(&["gateway.node=0.1 USD per hour"]);
    let tier = workload()
        .in_tier(Hot::Disk, Duration::ZERO, &gateway)
        .unwrap();
    assert_eq!((tier.total() - s3.total()).to_string(), "16.80");
}

#[test]
fn young_reads_and_short_lives_are_what_a_tier_saves() {
    let prices = prices(&[]);
    let hour = Duration::from_hours(1);
    let workload = Workload {
        gets: 10_000_000,
        short_lived: Share::parse("25%").unwrap(),
        ..workload()
    };
    let s3 = workload.in_s3(&prices).unwrap();
    let tier = workload.in_tier(Hot::Disk, hour, &prices).unwrap();
    // A quarter of 5.00 for PUT, four fifths of 4.00 for GET.
    assert_eq!((s3.requests - tier.requests).to_string(), "4.45");
    // 10^12 byte-hours: 0.08 - 0.023 USD per GiB and 730 hours.
    assert_eq!((tier.storage - s3.storage).to_string(), "0.07");
}

#[test]
fn reads_rise_evenly_between_the_ages_that_are_given() {
    let prices = prices(&[]);
    let cold_reads = |age_minutes| {
        let age = Duration::from_mins(age_minutes);
        let tier = workload().in_tier(Hot::Disk, age, &prices).unwrap();
        let puts = prices.s3.put.of(1_000_000).unwrap();
        (tier.requests - puts).with_decimals(3)
    };
    assert_eq!(cold_reads(30), "0.240");
    assert_eq!(cold_reads(60), "0.080");
    // Half of the way from an hour to a week.
    assert_eq!(cold_reads(60 + 167 * 30), "0.040");
}

/// Goal: the break-even size is the size at which a tier neither saves nor costs.
/// Method: judge the workload again with objects of that size, and of one byte more.
#[test]
fn at_the_break_even_size_and_age_saving_and_cost_are_equal() {
    let prices = prices(&[]);
    for hot in Hot::ALL {
        let workload = Workload {
            gets: 20_000_000,
            ..workload()
        };
        let advice = Advice::find(&workload, hot, &prices).unwrap();
        let BreakEven::UpTo(size) = advice.break_even_size else {
            panic!("{advice:?}");
        };
        let saved = |size_bytes| {
            let workload = Workload {
                size_bytes,
                ..workload.clone()
            };
            Advice::find(&workload, hot, &prices).unwrap().saved
        };
        assert!(saved(size) >= Money::ZERO, "{hot:?} {size}");
        assert!(saved(size + 1) < Money::ZERO, "{hot:?} {size}");
        assert!(advice.max_object_size.is_power_of_two());
        assert!((size / 2 + 1..=size).contains(&advice.max_object_size));
        let pays = workload.size_bytes <= size;
        assert_eq!(advice.demote_after, advice.judged_age, "{hot:?}");
        if let BreakEven::UpTo(age) = advice.break_even_age {
            assert_eq!(age > advice.judged_age, pays, "{hot:?} {age:?}");
        }
    }
}

#[test]
fn where_nothing_is_rented_the_advice_saves_what_the_bills_differ_by() {
    let prices = prices(&[]);
    let workload = Workload {
        short_lived: Share::parse("10%").unwrap(),
        gets: 20_000_000,
        ..workload()
    };
    let s3 = workload.in_s3(&prices).unwrap();
    for hot in [Hot::Disk, Hot::Express] {
        let advice = Advice::find(&workload, hot, &prices).unwrap();
        let tier = workload.in_tier(hot, advice.judged_age, &prices).unwrap();
        let difference = s3.total() - tier.total();
        // Each line of a bill is rounded to the picodollar.
        assert_eq!(
            advice.saved.with_decimals(9),
            difference.with_decimals(9),
            "{hot:?}"
        );
    }
}

#[test]
fn of_several_ages_the_one_that_saves_most_is_advised() {
    let prices = prices(&[]);
    let share = |text| Share::parse(text).unwrap();
    let day = Duration::from_hours(24);
    let mut workload = Workload {
        gets: 50_000_000,
        reads_by_age: vec![(Duration::from_hours(1), share("40%")), (day, share("95%"))],
        ..workload()
    };
    assert_eq!(
        Advice::find(&workload, Hot::Disk, &prices)
            .unwrap()
            .demote_after,
        day
    );
    // In Redis a day of objects is too dear.
    let advice = Advice::find(&workload, Hot::Redis, &prices).unwrap();
    assert_eq!(advice.judged_age, Duration::from_hours(1));
    workload.gets = 0;
    let advice = Advice::find(&workload, Hot::Disk, &prices).unwrap();
    assert_eq!(advice.break_even_size, BreakEven::Never);
    assert_eq!(
        (advice.max_object_size, advice.demote_after),
        (0, Duration::ZERO)
    );
}

#[test]
fn json_tells_the_same_as_the_text() {
    let command = ["--objects", "1000", "--size", "1MiB", "--kept", "730h"];
    let json = told_as_json(&command);
    assert_eq!(json["version"], 1);
    assert_eq!(json["workload"]["gets"], 1000);
    // 1000 MiB for a month at 0.023 a GiB, and 0.0054 of requests.
    assert_eq!(json["statements"][0]["total_usd"], "0.027861");
    assert_eq!(json["statements"].as_array().unwrap().len(), 6);
    assert!(told(&command).contains("0.03"));
}

#[test]
fn metrics_of_a_file_become_a_workload_and_flags_outrank_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics");
    let text = "forebay_requests_total{operation=\"PutObject\",status=\"2xx\"} 50\n\
        forebay_requests_total{operation=\"GetObject\",status=\"2xx\"} 500\n\
        forebay_request_body_bytes_total 5000000\nforebay_response_body_bytes_total 40000000\n";
    std::fs::write(&path, text).unwrap();
    let command = ["--metrics", path.to_str().unwrap(), "--over", "1h"];
    let workload = &told_as_json(&command)["workload"];
    assert_eq!(workload["objects"], 50);
    assert_eq!(workload["size_bytes"], 100_000);
    assert_eq!(workload["read_bytes"], 40_000_000);
    let command: Vec<_> = command.into_iter().chain(["--gets", "7"]).collect();
    let workload = &told_as_json(&command)["workload"];
    assert_eq!(
        (&workload["gets"], &workload["puts"]),
        (&7.into(), &50.into())
    );
}

#[test]
fn a_workload_that_makes_no_sense_tells_all_that_is_wrong() {
    let command = [
        "forebay",
        "--objects",
        "0",
        "--size",
        "1MB",
        "--hot-gets",
        "1h=80%",
    ];
    let command = command.into_iter().chain(["--hot-gets", "1d=50%"]);
    let program = Program::try_parse_from(command).ok().unwrap();
    let error = run(&program.arguments, &mut Vec::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("2 faults in the workload"), "{text}");
    let huge = [
        "forebay",
        "--objects",
        "18446744073709551615",
        "--size",
        "1000000TB",
    ];
    let program = Program::try_parse_from(huge).ok().unwrap();
    let error = run(&program.arguments, &mut Vec::new()).unwrap_err();
    assert!(
        error.to_string().contains("too large to be priced"),
        "{error}"
    );
}
