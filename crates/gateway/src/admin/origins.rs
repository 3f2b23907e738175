//! The S3 services of a gateway, by name, and how their endpoints stand, as it is told.

use std::fmt;

use forebay_origin::operator::{EndpointState, EndpointStatus as Found, OriginOperator};

use super::messages::{EndpointStatus, OriginStatus};

/// An S3 service.
#[derive(Clone)]
pub struct Origin {
    /// Name of the store.
    pub name: String,
    /// What is asked of it and ordered.
    pub operator: OriginOperator,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Origin").field(&self.name).finish()
    }
}

impl Origin {
    /// How its endpoints stand.
    pub(super) fn status(&self) -> OriginStatus {
        OriginStatus {
            store: self.name.clone(),
            endpoints: self.operator.status().into_iter().map(shown).collect(),
        }
    }

    /// Requests at an endpoint whose answers are not finished; none of one that is gone.
    pub(super) fn in_flight(&self, endpoint: &str) -> usize {
        let status = self.operator.status().into_iter();
        let of_endpoint = status.filter(|status| status.name == endpoint);
        of_endpoint.map(|status| status.in_flight).sum()
    }
}

fn shown(found: Found) -> EndpointStatus {
    let first_byte = found.first_byte;
    EndpointStatus {
        endpoint: found.name,
        state: match found.state {
            EndpointState::Up => "up",
            EndpointState::SlowStart => "slow-start",
            EndpointState::Ejected => "ejected",
            EndpointState::Probing => "probing",
            EndpointState::HeldOut => "held-out",
            EndpointState::Draining => "draining",
        }
        .to_owned(),
        until_seconds: found.until.map(|time| time.as_secs_f64()),
        in_flight: found.in_flight as u64,
        requests_max_now: found.requests_max_now as u64,
        first_byte_seconds: (!first_byte.is_zero()).then_some(first_byte.as_secs_f64()),
        requests: found.requests,
        failures: found.failures,
        failures_in_row: found.failures_in_row,
    }
}
