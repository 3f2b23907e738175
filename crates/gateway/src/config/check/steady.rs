//! Judges what makes one steady origin of several endpoints: their addresses, choice, health,
//! limits, and reads that are sent twice.

use std::time::Duration;

use forebay_origin::{
    BalanceSettings, EndpointLimits, HealthSettings, HedgeSettings, OriginSettings,
};
use http::Uri;

use super::{Form, Rule, Section, Wrong, stores::between};
use crate::config::{
    raw::{RawBalance, RawEndpointLimits, RawHealth, RawHedge},
    section::{Given, quoted},
    value::{KIB, Share},
};

/// Endpoints of one store: each of their addresses is watched and probed by itself.
const ENDPOINTS_MAX: usize = 64;
/// What no network brings: 1 PiB.
const BYTES_MAX: u64 = 1 << 50;

const ENDPOINT: Form<'static, Uri> = Form {
    parse: |text| {
        let uri: Uri = text.parse().ok()?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        (is_http && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none())
            .then_some(uri)
    },
    allowed: "http:// or https://, a host and perhaps a port",
    remedy: "write it as in \"https://s3.eu-central-1.amazonaws.com\" or \"http://127.0.0.1:9002\"",
};

/// Judges `endpoint` or `endpoints`: one at least, if it is right.
pub(super) fn check_endpoints(
    table: &mut Section<'_, '_>,
    one: Option<String>,
    several: Option<Vec<String>>,
) -> Option<Vec<Uri>> {
    match (one, several) {
        (Some(text), None) => {
            let endpoint = table.parsed("endpoint", &text, Given::Yes, ENDPOINT)?;
            Some(vec![endpoint])
        }
        (None, Some(texts)) => check_several(table, texts),
        (None, None) => {
            let remedy = "write endpoint = \"https://HOST\", or endpoints = [\"https://ONE\", \
                          \"https://OTHER\"] where several share their data";
            table.missing("endpoint", remedy);
            None
        }
        (Some(text), Some(_)) => {
            let wrong = Wrong {
                value: quoted(&text),
                allowed: "one of endpoint and endpoints",
                remedy: "name it in endpoints as well, and remove this key",
            };
            table.fault("endpoint", wrong);
            None
        }
    }
}

fn check_several(table: &mut Section<'_, '_>, texts: Vec<String>) -> Option<Vec<Uri>> {
    let texts = table.texts_or("endpoints", Some(texts), &[]);
    if !(1..=ENDPOINTS_MAX).contains(&texts.len()) {
        let wrong = Wrong {
            value: format!("{} endpoints", texts.len()),
            allowed: &format!("1 to {ENDPOINTS_MAX}"),
            remedy: "name those that share their data; a name with many addresses is one endpoint",
        };
        table.fault("endpoints", wrong);
        return None;
    }
    let mut endpoints: Vec<Uri> = Vec::with_capacity(texts.len());
    let mut is_right = true;
    for (index, text) in texts.iter().enumerate() {
        let (allowed, remedy) = match (ENDPOINT.parse)(text) {
            None => (ENDPOINT.allowed, ENDPOINT.remedy),
            Some(uri) if endpoints.iter().any(|other| is_same(other, &uri)) => (
                "endpoints that differ",
                "remove it: it is in the list already",
            ),
            Some(uri)
                if endpoints
                    .first()
                    .is_some_and(|a| a.scheme() != uri.scheme()) =>
            {
                (
                    "endpoints of one scheme, http:// or https://",
                    "serve all of them with TLS, or none: a store promises one of the two",
                )
            }
            Some(uri) => {
                endpoints.push(uri);
                continue;
            }
        };
        is_right = false;
        let wrong = Wrong {
            value: quoted(text),
            allowed,
            remedy,
        };
        table.fault(&format!("endpoints[{index}]"), wrong);
    }
    is_right.then_some(endpoints)
}

/// Whether requests to both go to one place.
fn is_same(one: &Uri, other: &Uri) -> bool {
    let place = |uri: &Uri| {
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let path = uri.path().trim_end_matches('/').to_owned();
        (is_tls, host, port, path)
    };
    place(one) == place(other)
}

/// The tables that a set of endpoints has beside its list.
#[derive(Debug)]
pub(super) struct RawSteady {
    pub(super) balance: Option<RawBalance>,
    pub(super) health: Option<RawHealth>,
    pub(super) limits: Option<RawEndpointLimits>,
    pub(super) hedge: Option<RawHedge>,
}

/// Judges them, for so many endpoints and this `timeouts.idle`; gives what puts them in place.
pub(super) fn check_steady(
    table: &mut Section<'_, '_>,
    raw: RawSteady,
    around: (usize, Duration),
) -> impl FnOnce(OriginSettings) -> OriginSettings + use<> {
    let balance = check_balance(&mut table.inner("balance"), raw.balance);
    let health = check_health(&mut table.inner("health"), raw.health);
    let limits = check_limits(&mut table.inner("limits"), raw.limits);
    let hedge = check_hedge(&mut table.inner("hedge"), raw.hedge, around);
    move |settings| OriginSettings {
        balance,
        health,
        limits,
        hedge,
        ..settings
    }
}

fn counts(default: usize, most: u32) -> Rule<u32> {
    Rule {
        default: u32::try_from(default).unwrap_or(most),
        range: 1..=most,
    }
}

fn check_balance(table: &mut Section<'_, '_>, raw: Option<RawBalance>) -> BalanceSettings {
    let RawBalance {
        slow_start,
        resolve_interval,
        addresses_max,
    } = raw.unwrap_or_default();
    let usual = BalanceSettings::default();
    let addresses = counts(usual.addresses_max, 256);
    BalanceSettings {
        slow_start: table.span(
            "slow_start",
            slow_start,
            between(usual.slow_start, 0..=600_000),
        ),
        resolve_interval: table.span(
            "resolve_interval",
            resolve_interval,
            between(usual.resolve_interval, 100..=3_600_000),
        ),
        addresses_max: table.count("addresses_max", addresses_max, addresses) as usize,
    }
}

fn check_health(table: &mut Section<'_, '_>, raw: Option<RawHealth>) -> HealthSettings {
    let RawHealth {
        failures_max,
        ejection,
        ejection_max,
        probe_timeout,
    } = raw.unwrap_or_default();
    let usual = HealthSettings::default();
    let times = |default| between(default, 10..=600_000);
    let failures = counts(usual.failures_max as usize, 1000);
    let settings = HealthSettings {
        failures_max: table.count("failures_max", failures_max, failures),
        ejection: table.span("ejection", ejection, times(usual.ejection)),
        ejection_max: table.span("ejection_max", ejection_max, times(usual.ejection_max)),
        probe_timeout: table.span("probe_timeout", probe_timeout, times(usual.probe_timeout)),
    };
    if settings.ejection_max < settings.ejection {
        let wrong = Wrong {
            value: format!("{:?}", settings.ejection_max),
            allowed: "at least as long as health.ejection",
            remedy: "make it longer, or the first ejection shorter",
        };
        table.fault("ejection_max", wrong);
    }
    settings
}

fn check_limits(table: &mut Section<'_, '_>, raw: Option<RawEndpointLimits>) -> EndpointLimits {
    let RawEndpointLimits {
        requests_max,
        bytes_per_second_max,
    } = raw.unwrap_or_default();
    let usual = EndpointLimits::default();
    let requests = counts(usual.requests_max, 65_536);
    let bytes = 64 * KIB..=BYTES_MAX;
    EndpointLimits {
        requests_max: table.count("requests_max", requests_max, requests) as usize,
        bytes_per_second_max: table.bound("bytes_per_second_max", bytes_per_second_max, bytes),
    }
}

/// Judges `hedge`; `None` where no read is sent twice.
fn check_hedge(
    table: &mut Section<'_, '_>,
    raw: Option<RawHedge>,
    (endpoints_count, idle): (usize, Duration),
) -> Option<HedgeSettings> {
    let is_mentioned = raw.is_some();
    let RawHedge {
        enabled,
        share,
        control_share,
        delay_min,
        samples_min,
        failures_share_max,
        slowdown_max,
        stall,
    } = raw.unwrap_or_default();
    let usual = HedgeSettings::default();
    let is_enabled = enabled.unwrap_or(endpoints_count > 1);
    table.note(
        "enabled",
        is_enabled.to_string(),
        Given::from(enabled.is_some()),
    );
    if is_mentioned && enabled.is_none() && !is_enabled {
        let key = table.at("enabled");
        table.warn(format!(
            "{key}: with one endpoint no read is sent twice; set it to true if it has many \
             addresses"
        ));
    }
    let shares = |default: f64, least: u16, most: u16| Rule {
        default: Share::nearest(default),
        range: Share(least)..=Share(most),
    };
    let stall_given = stall.is_some();
    let samples = Rule {
        default: usual.samples_min,
        range: 20..=1_000_000,
    };
    let slowdown = Rule {
        default: whole(usual.slowdown_max),
        range: 2..=1000,
    };
    let settings = HedgeSettings {
        share: table.share("share", share, shares(usual.share, 1, 4999)),
        control_share: table.share(
            "control_share",
            control_share,
            shares(usual.control_share, 0, 5000),
        ),
        delay_min: table.span("delay_min", delay_min, between(usual.delay_min, 0..=60_000)),
        samples_min: table.count("samples_min", samples_min, samples),
        failures_share_max: table.share(
            "failures_share_max",
            failures_share_max,
            shares(usual.failures_share_max, 1, 10_000),
        ),
        slowdown_max: f64::from(table.count("slowdown_max", slowdown_max, slowdown)),
        stall: table.span("stall", stall, between(usual.stall, 10..=3_600_000)),
    };
    if stall_given && settings.stall > idle {
        let wrong = Wrong {
            value: format!("{:?}", settings.stall),
            allowed: "no longer than timeouts.idle",
            remedy: "make it shorter: after timeouts.idle the body is given up",
        };
        table.fault("stall", wrong);
    }
    is_enabled.then_some(settings)
}

/// A default that is a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small whole number, see the settings' defaults"
)]
fn whole(number: f64) -> u32 {
    number as u32
}
