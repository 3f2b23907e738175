//! Whether shadows tell the truth.

use super::*;

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

const OBJECTS: u32 = 200_000;
const READS: u32 = 600_000;

/// Names read by popularity, zipf 0.8.
fn trace(seed: u64) -> Vec<u64> {
    let mut sum = 0.0;
    let steps: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            sum += f64::from(rank).powf(-0.8);
            sum
        })
        .collect();
    let mut random = Random(seed);
    let mut read = || {
        let at = f64::from(u32::try_from(random.next() >> 32).unwrap()) / 4_294_967_296.0;
        steps.partition_point(|step| *step <= at * sum) as u64
    };
    (0..READS).map(|_| read()).collect()
}

const WEIGHT: u64 = 1000;

/// What a cache of so many entries comes to with the reads that `counts` says are counted.
fn report(reads: &[u64], entries: u64, counts: impl Fn(u64) -> bool) -> ShadowReport {
    let mut outline = Outline::new(entries * WEIGHT, usize::MAX);
    let mut report = ShadowReport {
        size: "1",
        capacity_bytes: entries * WEIGHT,
        reads_count: reads.len() as u64,
        lookups_count: 0,
        hits_count: 0,
        lookup_bytes: 0,
        hit_bytes: 0,
    };
    for (at, name) in reads.iter().enumerate() {
        let hash = mix(*name + 1);
        if counts(hash) {
            let now_ms = i64::try_from(at).unwrap() * 2000;
            report.lookups_count += 1;
            report.hits_count += u64::from(outline.read(hash, WEIGHT, now_ms));
        }
    }
    report
}

/// Goal: a sample in a scaled cache tells the hit ratio of the whole, within a few points.
/// Method: zipf 0.8 at a tenth of its objects; the sample is 1/64, the whole is all.
#[test]
fn a_sample_tells_the_hit_ratio_of_the_whole() {
    for seed in 1..4 {
        let reads = trace(seed);
        let entries = u64::from(OBJECTS) / 10;
        let all = report(&reads, entries, |_| true);
        let whole = ratio(all.hits_count, all.lookups_count).unwrap();
        let sample = report(&reads, entries / SAMPLED, is_sampled);
        let told = sample.hit_ratio().unwrap();
        let difference = (whole - told).abs();
        assert!(difference < 0.05, "{whole}, told {told}, seed {seed}");
    }
}

#[test]
fn a_larger_shadow_is_never_much_worse() {
    let reads = trace(7);
    let mut before = 0.0;
    for entries in [150, 300, 600, 1200] {
        let ratio = report(&reads, entries, is_sampled).hit_ratio().unwrap();
        assert!(ratio > before - 0.01, "{ratio} with {entries}, {before}");
        before = ratio;
    }
    assert!(before > 0.3, "{before}");
}

#[test]
fn one_name_in_64_is_followed() {
    let count = (0..64_000).filter(|name| is_sampled(mix(*name))).count();
    assert!((900..1100).contains(&count), "{count}");
}

#[test]
fn entries_are_bounded_and_what_is_too_large_is_not_one() {
    let mut outline = Outline::new(10_000, 4);
    for name in 0..100 {
        assert!(!outline.read(mix(name), 10, 0));
    }
    assert_eq!(outline.used_bytes(), 40);
    assert!(!outline.read(mix(200), 10_001, 0));
    assert!(!outline.read(mix(200), 10_001, 0));
    assert!(outline.read(mix(99), 10, 0));
    outline.remove(mix(99));
    assert!(!outline.read(mix(99), 10, 0));
}
