//! Reads what `forebay tap` has counted between an endpoint and its origin.

use std::{fs, sync::Arc, time::Duration};

use anyhow::Context as _;
use serde::Deserialize;

use super::{arguments::RunArguments, endpoints::Endpoint};
use crate::{
    load::Target,
    prepare,
    results::OriginTraffic,
    sign::Access,
    wire::{
        Address, Connector,
        connect::{Timeouts, Trust},
    },
};

/// A tap is on this machine or near it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The counters of a tap; they only grow.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Counters {
    requests: u64,
    bytes_to_client: u64,
}

impl Counters {
    pub(super) fn since(self, before: Self) -> OriginTraffic {
        OriginTraffic {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes_to_client.saturating_sub(before.bytes_to_client),
        }
    }
}

/// The counters behind an endpoint, where it has a tap.
///
/// # Errors
/// When there should be one and it can't be read: figures without it would mislead.
pub(super) fn read(
    arguments: &RunArguments,
    endpoint: &Endpoint,
) -> anyhow::Result<Option<Counters>> {
    let own = |label: &Option<String>| label.as_ref().is_none_or(|label| *label == endpoint.label);
    let Some(tap) = arguments.tap_stats.iter().find(|tap| own(&tap.label)) else {
        return Ok(None);
    };
    let text = match tap.place.split_once("://") {
        None => fs::read(&tap.place).with_context(|| format!("read {}", tap.place))?,
        Some(_) => fetch(&tap.place).with_context(|| format!("ask the tap at {}", tap.place))?,
    };
    let counters = serde_json::from_slice(&text);
    Ok(Some(counters.with_context(|| {
        format!("the counters at {}", tap.place)
    })?))
}

fn fetch(url: &str) -> anyhow::Result<Vec<u8>> {
    let (scheme, rest) = url.split_once("://").context("no scheme")?;
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = Address::parse(&format!("{scheme}://{place}"))?;
    let timeouts = Timeouts {
        connect: TIMEOUT,
        silence: TIMEOUT,
    };
    let connector = Connector::new(&address, Trust::Machine, timeouts)?;
    let target = Target {
        connector: Arc::new(connector),
        host: address.authority.clone(),
        access: Access::Anonymous,
    };
    Ok(prepare::fetch(&target, &format!("/{path}"))?)
}
