//! What passed, counted.
//!
//! Counters only grow. Bytes are counted when a socket has taken them, so that a count never
//! tells of bytes that a peer can't have got; requests when their head is read, answers when
//! theirs is.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::{Deserialize, Serialize};

use super::framing::Method;

/// Statuses are counted one by one in this range; what lies outside counts as its end.
const STATUS_MIN: u16 = 100;
const STATUS_COUNT: usize = 500;

/// The counters of a tap.
#[derive(Debug)]
pub(super) struct Counters {
    requests: [AtomicU64; Method::ALL.len()],
    answers: Box<[AtomicU64]>,
    pub(super) bytes_to_client: AtomicU64,
    pub(super) bytes_to_server: AtomicU64,
    pub(super) body_bytes_to_client: AtomicU64,
    pub(super) body_bytes_to_server: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) connections_open: AtomicU64,
    pub(super) connections_opaque: AtomicU64,
    pub(super) connections_waited: AtomicU64,
    pub(super) connect_errors: AtomicU64,
    pub(super) faults: FaultCounters,
}

/// The counters of faults.
#[derive(Debug, Default)]
pub(super) struct FaultCounters {
    pub(super) slow: AtomicU64,
    pub(super) stall: AtomicU64,
    pub(super) busy: AtomicU64,
    pub(super) reset_request: AtomicU64,
    pub(super) reset_answer: AtomicU64,
    pub(super) reset_body: AtomicU64,
}

/// What the counters stood at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests read from clients, those included that a fault kept from the server.
    pub requests: u64,
    /// The same by method; `other` for those not counted apart.
    pub requests_by_method: BTreeMap<String, u64>,
    /// Answers by status, interim ones (1xx) and the tap's own 503 included.
    pub responses: BTreeMap<u16, u64>,
    /// All bytes that clients got.
    pub bytes_to_client: u64,
    /// All bytes that the server got.
    pub bytes_to_server: u64,
    /// Payload among them: bodies without heads and chunk framing. 0 for opaque connections.
    pub body_bytes_to_client: u64,
    /// Payload that the server got.
    pub body_bytes_to_server: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now: the one number that also falls.
    pub connections_open: u64,
    /// Connections that are, or became, something else than HTTP/1.1: only bytes are counted.
    pub connections_opaque: u64,
    /// Connections that had to wait as `connections_max` were open.
    pub connections_waited: u64,
    /// Connections for which the server could not be reached.
    pub connect_errors: u64,
    /// Faults that struck.
    pub faults: FaultCounts,
}

/// Faults that struck, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Answers that came late.
    pub slow: u64,
    /// Answers that stopped in mid-body.
    pub stall: u64,
    /// Requests answered with 503 by the tap.
    pub busy: u64,
    /// Connections reset before the server saw the request.
    pub reset_request: u64,
    /// Connections reset when the server had answered.
    pub reset_answer: u64,
    /// Connections reset in the middle of a body.
    pub reset_body: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            answers: (0..STATUS_COUNT).map(|_| AtomicU64::new(0)).collect(),
            bytes_to_client: AtomicU64::default(),
            bytes_to_server: AtomicU64::default(),
            body_bytes_to_client: AtomicU64::default(),
            body_bytes_to_server: AtomicU64::default(),
            connections: AtomicU64::default(),
            connections_open: AtomicU64::default(),
            connections_opaque: AtomicU64::default(),
            connections_waited: AtomicU64::default(),
            connect_errors: AtomicU64::default(),
            faults: FaultCounters::default(),
        }
    }
}

impl Counters {
    pub(super) fn request(&self, method: Method) {
        add(&self.requests[method as usize], 1);
    }

    pub(super) fn answer(&self, status: u16) {
        let index = usize::from(status.saturating_sub(STATUS_MIN)).min(STATUS_COUNT - 1);
        add(&self.answers[index], 1);
    }

    pub(super) fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let requests = Method::ALL.iter().zip(&self.requests);
        let requests_by_method: BTreeMap<_, _> = requests
            .map(|((_, name), counter)| ((*name).to_owned(), of(counter)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let answers = (STATUS_MIN..).zip(&self.answers);
        Counts {
            requests: requests_by_method.values().sum(),
            requests_by_method,
            responses: answers
                .map(|(status, counter)| (status, of(counter)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            bytes_to_client: of(&self.bytes_to_client),
            bytes_to_server: of(&self.bytes_to_server),
            body_bytes_to_client: of(&self.body_bytes_to_client),
            body_bytes_to_server: of(&self.body_bytes_to_server),
            connections: of(&self.connections),
            connections_open: of(&self.connections_open),
            connections_opaque: of(&self.connections_opaque),
            connections_waited: of(&self.connections_waited),
            connect_errors: of(&self.connect_errors),
            faults: FaultCounts {
                slow: of(&self.faults.slow),
                stall: of(&self.faults.stall),
                busy: of(&self.faults.busy),
                reset_request: of(&self.faults.reset_request),
                reset_answer: of(&self.faults.reset_answer),
                reset_body: of(&self.faults.reset_body),
            },
        }
    }
}

/// Adds to a counter; counters are read one by one, so no order between them is promised.
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}
