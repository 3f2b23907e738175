//! Judges `[server]` and `[access_log]`: where and how clients are served.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    ops::RangeInclusive,
    path::PathBuf,
    time::Duration,
};

use forebay_store::{Identity, NAME_DEFAULT};

use super::{Form, Given, Rule, Section, Surroundings, Wrong};
use crate::{
    config::{
        ROOT_USER,
        raw::{RawAccessLog, RawLimits, RawListen, RawListener, RawServer, RawTls},
        section::quoted,
        value::KIB,
    },
    settings::{
        AccessLogFormat, AccessLogOutput, AccessLogSettings, Authentication, Limits, Listener,
        READ_BUFFER_BYTES, TlsPaths,
    },
};

const LISTEN_DEFAULT: &str = "127.0.0.1:9000";
const DATA_DIR_DEFAULT: &str = "./forebay-data";
/// What S3 calls its first region, and what clients sign for unless told otherwise.
pub(super) const REGION_DEFAULT: &str = "us-east-1";
/// More threads than this on one machine is a typing error.
const THREADS_MAX: u32 = 1024;

/// `[server]`, judged.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) data_dir: PathBuf,
    pub(super) listeners: Vec<Listener>,
    pub(super) domains: Vec<String>,
    pub(super) regions: Vec<String>,
    pub(super) threads: NonZeroUsize,
    pub(super) drain_timeout: Duration,
    pub(super) limits: Limits,
}

pub(super) fn check(
    section: &mut Section<'_, '_>,
    raw: Option<RawServer>,
    surroundings: &Surroundings,
) -> Server {
    let RawServer {
        name,
        listen,
        domains,
        regions,
        threads,
        data_dir,
        drain_timeout,
        limits,
    } = raw.unwrap_or_default();
    let listeners = check_listeners(section, listen);
    let domains = section.texts_or("domains", domains, &[]);
    for domain in &domains {
        check_domain(section, domain);
    }
    let home = surroundings.aws_region.as_deref().unwrap_or(REGION_DEFAULT);
    let regions = section.texts_or("regions", regions, &[home]);
    let cores = u32::try_from(surroundings.cores.get())
        .unwrap_or(THREADS_MAX)
        .min(THREADS_MAX);
    let threads = section.count(
        "threads",
        threads,
        Rule {
            default: cores,
            range: 1..=THREADS_MAX,
        },
    );
    Server {
        name: check_name(section, name),
        data_dir: section
            .text_or("data_dir", data_dir, DATA_DIR_DEFAULT)
            .into(),
        listeners,
        domains,
        regions,
        threads: NonZeroUsize::new(threads as usize).unwrap_or(NonZeroUsize::MIN),
        drain_timeout: section.span("drain_timeout", drain_timeout, seconds(30, 0..=3600)),
        limits: check_limits(&mut section.inner("limits"), limits),
    }
}

/// A rule for a time in whole seconds.
pub(super) fn seconds(default: u64, range: RangeInclusive<u64>) -> Rule<Duration> {
    let (start, end) = range.into_inner();
    Rule {
        default: Duration::from_secs(default),
        range: Duration::from_secs(start)..=Duration::from_secs(end),
    }
}

pub(super) const ADDRESS: Form<'static, SocketAddr> = Form {
    parse: |text| text.parse().ok(),
    allowed: "an IP address and a port, such as \"127.0.0.1:9000\" or \"[::]:9000\"",
    remedy: "write the address in numbers, \"0.0.0.0:PORT\" for every IPv4 address of the machine",
};

pub(super) fn check_access_log(
    section: &mut Section<'_, '_>,
    raw: Option<RawAccessLog>,
) -> Option<AccessLogSettings> {
    let RawAccessLog { path, format } = raw?;
    let formats = [
        ("json", AccessLogFormat::Json),
        ("aws", AccessLogFormat::Aws),
    ];
    let format = section.choice("format", format, &formats);
    let output = match &*section.text_or("path", path, "-") {
        "-" => AccessLogOutput::Stdout,
        path => AccessLogOutput::File(path.into()),
    };
    Some(AccessLogSettings { format, output })
}

fn check_listeners(section: &mut Section<'_, '_>, raw: Option<Vec<RawListen>>) -> Vec<Listener> {
    let Some(raw) = raw else {
        return vec![check_listener(
            section,
            "listen[0]",
            RawListen::Address(LISTEN_DEFAULT.into()),
            Given::No,
        )];
    };
    if raw.is_empty() {
        let wrong = Wrong {
            value: "[]".to_owned(),
            allowed: "at least one address",
            remedy: "name an address, or leave the key out for 127.0.0.1:9000",
        };
        section.fault("listen", wrong);
    }
    let mut listeners: Vec<Listener> = Vec::with_capacity(raw.len());
    for (index, listen) in raw.into_iter().enumerate() {
        let key = format!("listen[{index}]");
        let listener = check_listener(section, &key, listen, Given::Yes);
        let is_taken = listeners
            .iter()
            .any(|earlier| earlier.address == listener.address);
        if is_taken && listener.address.port() != 0 {
            let wrong = Wrong {
                value: quoted(&listener.address.to_string()),
                allowed: "an address that no other listener has",
                remedy: "remove one of the two, or give it another port",
            };
            section.fault(&key, wrong);
        }
        listeners.push(listener);
    }
    listeners
}

fn check_listener(
    section: &mut Section<'_, '_>,
    key: &str,
    raw: RawListen,
    given: Given,
) -> Listener {
    let RawListener {
        address,
        tls,
        authentication,
        user,
        allow_unauthenticated,
    } = match raw {
        RawListen::Address(address) => RawListener {
            address: Some(address),
            ..RawListener::default()
        },
        RawListen::Table(table) => table,
    };
    let mut table = section.inner(key);
    if address.is_none() {
        table.missing("address", "write address = \"127.0.0.1:9000\"");
    }
    let address = address.and_then(|text| table.parsed("address", &text, given, ADDRESS));
    let address = address.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0)));
    let tls = tls.and_then(|raw| check_tls(&mut table.inner("tls"), raw));
    let authentication = check_authentication(
        &mut table,
        Signing {
            authentication,
            user,
            allow_unauthenticated,
        },
        address.ip(),
    );
    Listener {
        address,
        tls,
        authentication,
    }
}

fn check_tls(section: &mut Section<'_, '_>, raw: RawTls) -> Option<TlsPaths> {
    let RawTls { certificate, key } = raw;
    let remedy = "name the PEM file; a TLS listener needs both certificate and key";
    if certificate.is_none() {
        section.missing("certificate", remedy);
    }
    if key.is_none() {
        section.missing("key", remedy);
    }
    let certificate = section.text("certificate", certificate);
    let key = section.text("key", key);
    Some(TlsPaths {
        certificate: certificate?.into(),
        key: key?.into(),
    })
}

/// The keys of a listener that decide who its clients are.
struct Signing {
    authentication: Option<String>,
    user: Option<String>,
    allow_unauthenticated: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Signatures {
    Required,
    Off,
}

fn check_authentication(table: &mut Section<'_, '_>, raw: Signing, ip: IpAddr) -> Authentication {
    let Signing {
        authentication,
        user,
        allow_unauthenticated,
    } = raw;
    let words = [("required", Signatures::Required), ("off", Signatures::Off)];
    if table.choice("authentication", authentication, &words) == Signatures::Required {
        for (key, is_set) in [
            ("user", user.is_some()),
            ("allow_unauthenticated", allow_unauthenticated.is_some()),
        ] {
            if is_set {
                let wrong = Wrong {
                    value: "…".to_owned(),
                    allowed: "only with authentication = \"off\"",
                    remedy: "remove the key: here a signature says who the client is",
                };
                table.fault(key, wrong);
            }
        }
        return Authentication::Required;
    }
    let user = table.text_or("user", user, ROOT_USER);
    let given = Given::from(allow_unauthenticated.is_some());
    let is_meant = allow_unauthenticated.unwrap_or(false);
    table.note("allow_unauthenticated", is_meant.to_string(), given);
    if !ip.is_loopback() {
        if is_meant {
            let text = format!(
                "{}: everybody who reaches {ip} is {user}, without a signature",
                table.at("authentication")
            );
            table.warn(text);
        } else {
            let wrong = Wrong {
                value: "\"off\"".to_owned(),
                allowed: "\"off\" only on a loopback address, or when it is said to be meant",
                remedy: "listen on 127.0.0.1, or on a closed network add \
                         allow_unauthenticated = true",
            };
            table.fault("authentication", wrong);
        }
    }
    Authentication::Off {
        identity: Identity::User(user.into()),
    }
}

/// Names of caches are tokens here (RFC 9211 §2 allows strings as well), so that they need no
/// quotes in headers and logs.
const NAME: Form<'static, String> = Form {
    parse: |text| is_token(text).then(|| text.to_owned()),
    allowed: "a letter, then up to 62 letters, digits and any of - _ . : /",
    remedy: "write it as in name = \"edge-1\"",
};

fn is_token(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.:/".contains(&b))
}

fn check_name(section: &mut Section<'_, '_>, raw: Option<String>) -> String {
    let given = Given::from(raw.is_some());
    let text = raw.unwrap_or_else(|| NAME_DEFAULT.to_owned());
    let name = section.parsed("name", &text, given, NAME);
    name.unwrap_or_else(|| NAME_DEFAULT.to_owned())
}

fn check_domain(section: &mut Section<'_, '_>, domain: &str) {
    let label_fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if domain.len() > 253 || !domain.split('.').all(label_fits) {
        let wrong = Wrong {
            value: quoted(domain),
            allowed: "a domain name in lower case, without a port",
            remedy: "write it as in domains = [\"s3.example.com\"]",
        };
        section.fault("domains", wrong);
    }
}

fn check_limits(section: &mut Section<'_, '_>, raw: Option<RawLimits>) -> Limits {
    let RawLimits {
        connections_max,
        streams_max,
        header_bytes_max,
        header_count_max,
        header_timeout,
        idle_timeout,
        stall_timeout,
        rate_min,
        request_timeout,
    } = raw.unwrap_or_default();
    let usual = Limits::default();
    let count = |default: usize, range| Rule {
        default: u32::try_from(default).unwrap_or(u32::MAX),
        range,
    };
    let time = |usual: Duration, most| seconds(usual.as_secs(), 1..=most);
    let size = |default, range| Rule { default, range };
    let header_bytes = section.size(
        "header_bytes_max",
        header_bytes_max,
        size(
            usual.header_bytes_max as u64,
            4 * KIB..=READ_BUFFER_BYTES as u64,
        ),
    );
    let connections = count(usual.connections_max, 1..=1_000_000);
    let streams = Rule {
        default: usual.streams_max,
        range: 1..=10_000,
    };
    let headers = count(usual.header_count_max, 16..=1000);
    let rate = size(usual.rate_bytes_min, 0..=1024 * KIB);
    let request_time = time(usual.request_timeout, 24 * 3600);
    Limits {
        connections_max: section.count("connections_max", connections_max, connections) as usize,
        streams_max: section.count("streams_max", streams_max, streams),
        header_bytes_max: usize::try_from(header_bytes).unwrap_or(usual.header_bytes_max),
        header_count_max: section.count("header_count_max", header_count_max, headers) as usize,
        header_timeout: section.span(
            "header_timeout",
            header_timeout,
            time(usual.header_timeout, 600),
        ),
        idle_timeout: section.span("idle_timeout", idle_timeout, time(usual.idle_timeout, 3600)),
        stall_timeout: section.span(
            "stall_timeout",
            stall_timeout,
            time(usual.stall_timeout, 3600),
        ),
        rate_bytes_min: section.size("rate_min", rate_min, rate),
        request_timeout: section.span("request_timeout", request_timeout, request_time),
        silence_max: usual.silence_max,
    }
}
