//! The figures that are compared.

use crate::{
    results::{Histogram, Measurement, exact},
    shown,
};

/// A figure that a measurement gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Requests that succeeded, per second.
    RequestRate,
    /// Bytes of objects per second.
    ByteRate,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// Median time to the first byte.
    FirstByte,
    /// Processor time of the load generator per request.
    ClientCpu,
}

/// Which way a figure is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More of it.
    Higher,
    /// Less of it.
    Lower,
}

impl Metric {
    /// Every figure, in the order in which tables show them.
    pub const ALL: [Self; 6] = [
        Self::RequestRate,
        Self::ByteRate,
        Self::P50,
        Self::P99,
        Self::FirstByte,
        Self::ClientCpu,
    ];

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestRate => "requests/s",
            Self::ByteRate => "MiB/s",
            Self::P50 => "p50 latency",
            Self::P99 => "p99 latency",
            Self::FirstByte => "p50 first byte",
            Self::ClientCpu => "client CPU/request",
        }
    }

    /// Which way it is better.
    pub fn better(self) -> Better {
        match self {
            Self::RequestRate | Self::ByteRate => Better::Higher,
            Self::P50 | Self::P99 | Self::FirstByte | Self::ClientCpu => Better::Lower,
        }
    }

    /// The figure: per second for rates, nanoseconds for times. `None` when it wasn't measured.
    pub fn value(self, measurement: &Measurement) -> Option<f64> {
        let quantile = |of: &Histogram, quantile| of.quantile_ns(quantile).map(exact);
        match self {
            Self::RequestRate => Some(measurement.requests_per_second()),
            Self::ByteRate => Some(measurement.bytes_per_second()).filter(|rate| *rate > 0.0),
            Self::P50 => quantile(&measurement.latency_ns, 0.5),
            Self::P99 => quantile(&measurement.latency_ns, 0.99),
            Self::FirstByte => quantile(&measurement.first_byte_ns, 0.5),
            Self::ClientCpu => measurement
                .client_cpu_seconds_per_request()
                .map(|s| s * 1e9),
        }
    }

    /// A value of this figure, with its unit where the name has none.
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::RequestRate => shown::count(value),
            Self::ByteRate => shown::mebibytes(value),
            Self::P50 | Self::P99 | Self::FirstByte | Self::ClientCpu => shown::duration(value),
        }
    }
}
