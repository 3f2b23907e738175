//! Which requests are struck, and by what.

use super::*;

fn faults(texts: &[(&str, &str)]) -> Faults {
    let json = texts
        .iter()
        .map(|(k, v)| (*k, *v))
        .collect::<std::collections::BTreeMap<_, _>>();
    let json = serde_json::to_string(&json).unwrap();
    Faults::check(&serde_json::from_str(&json).unwrap(), "a test").unwrap()
}

fn place(number: u64) -> Place {
    Place {
        number,
        requests: number,
        elapsed: Duration::from_millis(number),
    }
}

#[test]
fn everything_wrong_is_told_at_once_with_its_remedy() {
    let texts = FaultTexts {
        delay: Some("20".to_owned()),
        jitter_shape: Some("gaussian".to_owned()),
        bandwidth: Some("12B".to_owned()),
        busy: Some("120%".to_owned()),
        after: Some("soon".to_owned()),
        slow_for: Some("2h".to_owned()),
        workers: Some("0".to_owned()),
        ..FaultTexts::default()
    };
    let faulty = Faults::check(&texts, "the command line").unwrap_err();
    let keys: Vec<_> = faulty.faults.iter().map(|f| f.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "delay",
            "jitter_shape",
            "bandwidth",
            "workers",
            "slow_for",
            "busy",
            "after"
        ]
    );
    assert!(faulty.faults.iter().all(|f| !f.remedy.is_empty()));

    let texts = FaultTexts {
        after: Some("100".to_owned()),
        during: Some("1s".to_owned()),
        ..FaultTexts::default()
    };
    let faulty = Faults::check(&texts, "the command line").unwrap_err();
    assert_eq!(faulty.faults[0].key, "for");
}

#[test]
fn a_seed_gives_each_request_the_same_plan_again() {
    let faults = faults(&[("jitter", "10ms"), ("busy", "30%"), ("stall", "30%")]);
    let plans = |seed| {
        (0..200)
            .map(|n| faults.plan(seed, place(n)))
            .collect::<Vec<_>>()
    };
    assert_eq!(plans(7), plans(7));
    assert_ne!(plans(7), plans(8));
}

#[test]
fn shares_strike_about_as_often_as_they_say() {
    let faults = faults(&[("busy", "10%"), ("slow", "50%")]);
    let plans: Vec<_> = (0..10_000).map(|n| faults.plan(1, place(n))).collect();
    let busy = plans.iter().filter(|p| p.end == Ending::Busy).count();
    let slow = plans.iter().filter(|p| p.is_slow).count();
    assert!((900..1100).contains(&busy), "{busy}");
    assert!((4800..5200).contains(&slow), "{slow}");
}

#[test]
fn who_is_slow_follows_from_seed_and_number_and_other_seeds_strike_others() {
    let faults = faults(&[("slow", "1%"), ("slow_for", "1s")]);
    let slow = |seed: u64| -> std::collections::BTreeSet<u64> {
        // From the last to the first: what came before a request does not count.
        let is_slow = |n: &u64| faults.plan(seed, place(*n)).hold == Duration::from_secs(1);
        (0..100_000).rev().filter(is_slow).collect()
    };
    let (first, second) = (slow(1), slow(2));
    assert!((900..1100).contains(&first.len()), "{}", first.len());
    assert!((900..1100).contains(&second.len()), "{}", second.len());
    assert_eq!(first, slow(1));
    // Ten by chance; neighbouring seeds that struck alike would make endpoints fail together.
    let both = first.intersection(&second).count();
    assert!(both < 40, "{both}");
}

#[test]
fn one_share_does_not_move_what_another_strikes() {
    let stalled = |faults: &Faults| -> Vec<u64> {
        (0..500)
            .filter(|n| faults.plan(1, place(*n)).stall.is_some())
            .collect()
    };
    let alone = stalled(&faults(&[("stall", "5%")]));
    let beside = stalled(&faults(&[
        ("stall", "5%"),
        ("slow", "40%"),
        ("jitter", "1ms"),
    ]));
    assert_eq!(alone, beside);
}

#[test]
fn jitter_keeps_to_its_bounds() {
    for (shape, most) in [("uniform", 10), ("exponential", 100)] {
        let faults = faults(&[("jitter", "10ms"), ("jitter_shape", shape)]);
        let holds: Vec<_> = (0..5_000).map(|n| faults.plan(3, place(n)).hold).collect();
        assert!(holds.iter().all(|h| *h <= Duration::from_millis(most)));
        let mean = holds.iter().sum::<Duration>() / 5_000;
        let expected = if most == 10 { 5_000 } else { 10_000 };
        assert!(
            mean.as_micros().abs_diff(expected) < 500,
            "{shape}: {mean:?}"
        );
    }
}

#[test]
fn a_window_confines_faults_but_not_the_line() {
    let by_number = faults(&[
        ("busy", "100%"),
        ("delay", "1ms"),
        ("after", "10"),
        ("for", "5"),
    ]);
    let by_time = faults(&[
        ("busy", "100%"),
        ("delay", "1ms"),
        ("after", "10ms"),
        ("for", "5ms"),
    ]);
    for faults in [by_number, by_time] {
        let busy: Vec<_> = (0..30)
            .filter(|n| faults.plan(1, place(*n)).end == Ending::Busy)
            .collect();
        assert_eq!(busy, [10, 11, 12, 13, 14]);
        let delays = (0..30).map(|n| faults.plan(1, place(n)).hold);
        assert!(delays.into_iter().all(|d| d == Duration::from_millis(1)));
    }
}
