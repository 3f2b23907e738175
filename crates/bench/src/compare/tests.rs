//! What may be said of rounds, and what may not.

use super::*;

fn samples(values: &[f64]) -> Vec<Sample> {
    let sample = |&value: &f64| Sample {
        value,
        failed_share: 0.0,
    };
    values.iter().map(sample).collect()
}

fn compared(metric: Metric, a: &[f64], b: &[f64]) -> Comparison {
    let pairs: Vec<_> = samples(a).into_iter().zip(samples(b)).collect();
    compare_pairs(metric, &pairs).unwrap()
}

#[test]
fn a_difference_that_every_round_shows_is_said() {
    // Both slow down in the third round; the ratio does not.
    let a = [210.0, 200.0, 105.0, 190.0, 230.0];
    let b = [100.0, 100.0, 50.0, 100.0, 100.0];
    let comparison = compared(Metric::RequestRate, &a, &b);
    assert_eq!(comparison.verdict, Verdict::Higher);
    assert_eq!(comparison.is_better(), Some(true));
    assert_eq!(comparison.sentence("A", "B"), "A is 2.10x B (1.90–2.30)");
    let latency = compared(Metric::P99, &b, &a);
    assert_eq!(
        (latency.verdict, latency.is_better()),
        (Verdict::Lower, Some(true))
    );
    assert_eq!(latency.sentence("B", "A"), "B is 0.48x A (0.43–0.53)");
}

#[test]
fn one_round_of_five_that_disagrees_is_no_difference_shown() {
    let comparison = compared(
        Metric::RequestRate,
        &[210.0, 200.0, 99.0, 190.0, 230.0],
        &[100.0; 5],
    );
    assert_eq!(comparison.verdict, Verdict::NoDifference);
    assert_eq!(comparison.is_better(), None);
    let sentence = comparison.sentence("A", "B");
    assert_eq!(sentence, "no difference shown, 2.00 (0.99–2.30)");
}

#[test]
fn one_round_of_nine_may_disagree() {
    let mut a = [200.0; 9];
    a[4] = 90.0;
    assert_eq!(
        compared(Metric::RequestRate, &a, &[100.0; 9]).verdict,
        Verdict::Higher
    );
    a[5] = 90.0;
    assert_eq!(
        compared(Metric::RequestRate, &a, &[100.0; 9]).verdict,
        Verdict::NoDifference
    );
}

#[test]
fn fewer_than_five_rounds_give_figures_and_no_verdict() {
    let comparison = compared(Metric::RequestRate, &[200.0; 4], &[100.0; 4]);
    assert_eq!(comparison.verdict, Verdict::TooFewRounds);
    let sentence = comparison.sentence("A", "B");
    assert_eq!(sentence, "2.00 (2.00–2.00), too few rounds for a verdict");
    assert_eq!(compared(Metric::P50, &[2.0], &[1.0]).figures(), "2.00");
    assert_eq!(compare_pairs(Metric::P50, &[]), None);
}

#[test]
fn what_is_within_a_bucket_is_no_difference() {
    let comparison = compared(Metric::P50, &[1.008; 5], &[1.0; 5]);
    assert_eq!(comparison.verdict, Verdict::NoDifference);
}

#[test]
fn failures_forbid_a_verdict() {
    let mut pairs: Vec<_> = samples(&[200.0; 5])
        .into_iter()
        .zip(samples(&[100.0; 5]))
        .collect();
    pairs[2].1.failed_share = 0.2;
    let comparison = compare_pairs(Metric::RequestRate, &pairs).unwrap();
    let sentence = comparison.sentence("A", "B");
    assert_eq!(sentence, "not compared: 4.00 % of requests failed");
}

/// Goal: two runs are told apart only when their rounds hardly overlap.
#[test]
fn runs_of_different_times_are_compared_round_against_every_round() {
    let before = samples(&[100.0, 102.0, 104.0, 106.0, 108.0]);
    let after = samples(&[120.0, 122.0, 124.0, 126.0, 128.0]);
    let comparison = between(Metric::RequestRate, &after, &before).unwrap();
    assert_eq!(comparison.verdict, Verdict::Higher);
    assert!((comparison.ratio - 1.19).abs() < 0.01, "{comparison:?}");
    assert_eq!(comparison.spread, (120.0 / 108.0, 128.0 / 100.0));
    let overlapping = samples(&[99.0, 101.0, 107.0, 112.0, 130.0]);
    let comparison = between(Metric::RequestRate, &overlapping, &before).unwrap();
    assert_eq!(comparison.verdict, Verdict::NoDifference);
    let three = between(Metric::RequestRate, &after[..3], &before[..3]).unwrap();
    assert_eq!(three.verdict, Verdict::TooFewRounds);
}
