//! A workload from what a gateway counted.
//!
//! Reads the text of `/metrics`, whose names docs/metrics.md lists. An object is there once its
//! write was answered with 2xx; every request is charged but those that failed for the store's own
//! fault (5xx). Pure; `command` fetches the text.

use std::collections::BTreeMap;

/// What the counters of a gateway tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) objects: u64,
    pub(super) puts: u64,
    pub(super) gets: u64,
    pub(super) lists: u64,
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
}

/// Operations that end with a new object.
const WRITE_OBJECTS: [&str; 4] = [
    "PutObject",
    "PostObject",
    "CopyObject",
    "CompleteMultipartUpload",
];
/// Operations that S3 charges like these.
const WRITE_PARTS: [&str; 3] = ["CreateMultipartUpload", "UploadPart", "UploadPartCopy"];
/// Operations that S3 does not charge for.
const FREE: [&str; 4] = [
    "DeleteObject",
    "DeleteObjects",
    "AbortMultipartUpload",
    "DeleteBucket",
];

impl Counted {
    /// Reads the text; `None` when it has none of the gateway's counters.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut counted = Self::default();
        let mut is_ours = false;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, labels, value)) = sample(line) else {
                continue;
            };
            match name {
                "forebay_requests_total" => {
                    is_ours = true;
                    let label = |name| labels.get(name).copied().unwrap_or_default();
                    counted.add(label("operation"), label("status"), value);
                }
                "forebay_request_body_bytes_total" => counted.written_bytes += value,
                "forebay_response_body_bytes_total" => counted.read_bytes += value,
                _ => {}
            }
        }
        is_ours.then_some(counted)
    }

    fn add(&mut self, operation: &str, status: &str, count: u64) {
        if status == "5xx" {
            return;
        }
        if WRITE_OBJECTS.contains(&operation) {
            self.puts += count;
            if status == "2xx" {
                self.objects += count;
            }
        } else if WRITE_PARTS.contains(&operation) {
            self.puts += count;
        } else if operation.starts_with("List") {
            self.lists += count;
        } else if !FREE.contains(&operation) {
            self.gets += count;
        }
    }
}

/// `name{label="value",...} 12`, of which fractions are dropped: counters are whole.
fn sample(line: &str) -> Option<(&str, BTreeMap<&str, &str>, u64)> {
    let (series, value) = match line.split_once('}') {
        Some((series, rest)) => (series, rest),
        None => line.split_once(' ')?,
    };
    let value = value.split_whitespace().next()?;
    let whole = value.split_once('.').map_or(value, |(whole, _)| whole);
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let labels = labels
        .split("\",")
        .filter_map(|label| {
            let (name, value) = label.split_once("=\"")?;
            Some((name, value.trim_end_matches('"')))
        })
        .collect();
    Some((name.trim(), labels, whole.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateways_counters_become_a_workload() {
        let text = "# TYPE forebay_requests counter\n\
            forebay_requests_total{operation=\"PutObject\",status=\"2xx\"} 100\n\
            forebay_requests_total{operation=\"PutObject\",status=\"5xx\"} 7\n\
            forebay_requests_total{operation=\"PutObject\",status=\"4xx\"} 2\n\
            forebay_requests_total{operation=\"UploadPart\",status=\"2xx\"} 40\n\
            forebay_requests_total{operation=\"CompleteMultipartUpload\",status=\"2xx\"} 4\n\
            forebay_requests_total{operation=\"GetObject\",status=\"2xx\"} 1000\n\
            forebay_requests_total{operation=\"HeadObject\",status=\"2xx\"} 10\n\
            forebay_requests_total{operation=\"ListObjectsV2\",status=\"2xx\"} 3\n\
            forebay_requests_total{operation=\"DeleteObject\",status=\"2xx\"} 50\n\
            forebay_request_seconds_sum{operation=\"GetObject\"} 1.5\n\
            forebay_request_body_bytes_total 123456\n\
            forebay_response_body_bytes_total 789.0\n# EOF\n";
        let counted = Counted {
            objects: 104,
            puts: 146,
            gets: 1010,
            lists: 3,
            written_bytes: 123_456,
            read_bytes: 789,
        };
        assert_eq!(Counted::read(text), Some(counted));
    }

    #[test]
    fn somebody_elses_metrics_are_told_apart() {
        assert_eq!(Counted::read("nginx_requests_total 12\n# EOF\n"), None);
        assert_eq!(Counted::read("<html>not found</html>"), None);
    }
}
