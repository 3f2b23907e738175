//! Runs that look like real ones: log-normal latencies with a tail, rounds that differ, seconds
//! that waver. The same every time.

use std::collections::BTreeMap;

use forebay_bench::results::{
    Case, ClientCost, Endpoint, Load, Machine, Measurement, OriginTraffic, Run, Second, Warning,
    Workload,
};

pub(crate) const SIZES: [u64; 5] = [1024, 10_240, 102_400, 512_000, 1_048_576];
const SECONDS: u32 = 10;
const SAMPLES: u32 = 1500;

/// An endpoint as it behaves.
pub(crate) struct Behaviour {
    pub(crate) label: &'static str,
    /// Median latency at 1 KiB in µs, and what each further KiB adds.
    pub(crate) base_us: f64,
    pub(crate) us_per_kib: f64,
    /// Share of slow requests, and how many times slower they are.
    pub(crate) tail: (f64, f64),
    /// Share of bytes that come from the origin, if a relay counts them.
    pub(crate) origin_share: Option<f64>,
}

pub(crate) const ORIGIN: Behaviour = Behaviour {
    label: "origin",
    base_us: 2100.0,
    us_per_kib: 11.0,
    tail: (0.02, 6.0),
    origin_share: None,
};
pub(crate) const FOREBAY: Behaviour = Behaviour {
    label: "forebay",
    base_us: 480.0,
    us_per_kib: 2.3,
    tail: (0.01, 8.0),
    origin_share: Some(0.02),
};
pub(crate) const NGINX: Behaviour = Behaviour {
    label: "nginx",
    base_us: 520.0,
    us_per_kib: 3.1,
    tail: (0.03, 12.0),
    origin_share: Some(0.3),
};

pub(crate) fn empty_run(name: &str, labels: &[&str]) -> Run {
    let endpoints = labels
        .iter()
        .enumerate()
        .map(|(index, label)| {
            let mut endpoint = Endpoint::new(label, &format!("http://127.0.0.1:900{index}/"));
            endpoint.server = (*label == "nginx").then(|| "nginx/1.26.3".to_owned());
            endpoint
        })
        .collect();
    let parameters = [
        ("objects", "2500"),
        ("duration", "10s"),
        ("distribution", "uniform"),
    ];
    let workload = Workload {
        name: name.to_owned(),
        parameters: parameters
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    };
    let machine = Machine {
        cpu_model: "AMD EPYC 7571".to_owned(),
        cores: 2,
        memory_bytes: 4 << 30,
        kernel: "Linux 6.12.8".to_owned(),
    };
    let started = 1_795_260_600_000;
    let mut run = Run::new(
        "forebay 0.1.0".to_owned(),
        started,
        machine,
        workload,
        endpoints,
    );
    let command = format!("forebay bench run {name} --endpoint origin=http://127.0.0.1:9000/");
    run.command = command.split(' ').map(str::to_owned).collect();
    run
}

/// GET of all sizes, five rounds.
pub(crate) fn sizes(behaviours: &[&Behaviour], seed: u64) -> Run {
    let labels: Vec<&str> = behaviours.iter().map(|of| of.label).collect();
    let mut run = empty_run("get", &labels);
    run.rounds = 5;
    let mut random = fastrand::Rng::with_seed(seed);
    for size in SIZES {
        for round in 0..5 {
            for (endpoint, of) in behaviours.iter().enumerate() {
                let case = case("get", size, 50, BTreeMap::new());
                let kib = bytes_f64(size) / 1024.0;
                let median_us = of.base_us + kib * of.us_per_kib;
                let mut measurement = Measurement::new(endpoint, round, case);
                fill(&mut measurement, of, median_us, &mut random);
                run.measurements.push(measurement);
            }
        }
    }
    run
}

/// One size at 10, 100 and 1000 clients, a single round; the client is the limit at 1000.
pub(crate) fn clients(seed: u64) -> Run {
    let mut run = empty_run("clients", &["origin", "forebay"]);
    run.rounds = 1;
    let mut random = fastrand::Rng::with_seed(seed);
    for clients in [10_u32, 100, 1000] {
        for (endpoint, of) in [ORIGIN, FOREBAY].iter().enumerate() {
            let case = case("get", 1024, clients, BTreeMap::new());
            let mut measurement = Measurement::new(endpoint, 0, case);
            let median_us = of.base_us * f64::from(clients) / 50.0;
            fill(&mut measurement, of, median_us, &mut random);
            if clients == 1000 && endpoint == 1 {
                measurement.client.limited = Some(Warning {
                    fact: "the load generator used 1.94 of 2 cores".to_owned(),
                    cause: "it was most likely the limit, not the endpoint".to_owned(),
                    remedy: "give it more cores with --threads or another machine".to_owned(),
                });
                measurement.errors.insert("SlowDown".to_owned(), 12);
            }
            run.measurements.push(measurement);
        }
    }
    run
}

/// Reads and writes of blocks, the working set a multiple of the cache.
pub(crate) fn blocks(seed: u64) -> Run {
    let mut run = empty_run("blocks", &["origin", "forebay"]);
    run.rounds = 5;
    let mut random = fastrand::Rng::with_seed(seed);
    for (operation, factor) in [("get", 1.0), ("put", 1.7)] {
        for (multiple, slower) in [("1/2x", 1.0), ("2x", 2.4), ("8x", 3.9), ("64x", 4.4)] {
            for round in 0..5 {
                for (endpoint, of) in [ORIGIN, FOREBAY].iter().enumerate() {
                    let working_set = ("working_set".to_owned(), multiple.to_owned());
                    let case = case(operation, 16_384, 16, BTreeMap::from([working_set]));
                    let slower = if endpoint == 0 { 4.0 } else { slower };
                    let mut measurement = Measurement::new(endpoint, round, case);
                    let median_us = FOREBAY.base_us * factor * slower;
                    fill(&mut measurement, of, median_us, &mut random);
                    run.measurements.push(measurement);
                }
            }
        }
    }
    run
}

fn case(operation: &str, size: u64, clients: u32, parameters: BTreeMap<String, String>) -> Case {
    Case {
        operation: operation.to_owned(),
        object_bytes: Some(size),
        clients,
        load: Load::Closed {
            concurrency: clients,
        },
        parameters,
    }
}

/// Fills a measurement with requests of about `median_us`.
fn fill(m: &mut Measurement, of: &Behaviour, median_us: f64, random: &mut fastrand::Rng) {
    let concurrency = f64::from(m.case.clients);
    let size = m.case.object_bytes.unwrap_or(0);
    let round_factor = 1.0 + 0.05 * normal(random);
    let mut sum_us = 0.0;
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let mut us = median_us * round_factor * (0.35 * normal(random)).exp();
        if random.f64() < of.tail.0 {
            us *= of.tail.1 * (0.6 * normal(random)).exp().max(0.4);
        }
        sum_us += us;
        samples.push(us);
    }
    let rate = concurrency / (sum_us / f64::from(SAMPLES) / 1e6);
    m.seconds = f64::from(SECONDS);
    for _ in 0..SECONDS {
        let waver = (1.0 + 0.04 * normal(random)).max(0.1);
        let requests = whole(rate * waver);
        m.series.push(Second {
            requests,
            bytes: requests * size,
            errors: 0,
            p50_ns: Some(whole(median_us * 1e3 / waver)),
            p99_ns: Some(whole(median_us * 3e3 / waver.powi(5))),
            max_ns: Some(whole(median_us * 2e4)),
        });
    }
    m.requests = m.series.iter().map(|second| second.requests).sum();
    m.bytes = m.requests * size;
    let weight = m.requests / u64::from(SAMPLES);
    for (index, us) in samples.iter().enumerate() {
        let more = u64::from(bytes_f64(index as u64) < bytes_f64(m.requests % u64::from(SAMPLES)));
        m.latency_ns.record_many_ns(whole(us * 1e3), weight + more);
        m.first_byte_ns
            .record_many_ns(whole(us * 0.7e3), weight + more);
    }
    m.client = ClientCost {
        cpu_seconds: bytes_f64(m.requests) * 14e-6,
        threads: 2,
        limited: None,
    };
    m.origin = of.origin_share.map(|share| OriginTraffic {
        requests: whole(bytes_f64(m.requests) * share),
        bytes: whole(bytes_f64(m.bytes) * share),
    });
}

/// Of a normal distribution, by Box and Muller.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn bytes_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive and small"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}
