//! Lines of the access log, in both forms.
//!
//! AWS's form has 26 fields in a fixed order; `-` stands for what is not known. Keys are
//! URL-encoded and quotes in quoted fields are percent-encoded, so a client cannot forge a field
//! or a line. Fields of AWS that have no meaning here (bucket owner, ARN of an access point, ACL)
//! are `-`.
//!
//! Source: Amazon S3 User Guide, "Amazon S3 server access log format".

use std::{fmt::Write as _, time::Duration};

use forebay_s3::{
    time::{AmzDate, rfc3339_millis, unix_millis, unix_seconds},
    uri,
};
use forebay_store::Identity;
use http::{HeaderValue, Version};

use super::Record;
use crate::server::Security;

/// One JSON object and a line end.
pub(super) fn json(record: &Record) -> String {
    let mut line = Json(String::with_capacity(512));
    line.text("time", rfc3339_millis(unix_millis(record.time)).as_str());
    line.text("remote", &record.remote.to_string());
    line.text("requester", requester(record));
    line.text("request_id", &record.request_id.to_string());
    line.text("operation", record.operation);
    line.optional("bucket", record.bucket.as_ref().map(AsRef::as_ref));
    line.optional("key", record.key.as_ref().map(AsRef::as_ref));
    line.optional("version_id", record.version_id.as_deref());
    line.text("method", record.method.as_str());
    line.text("uri", &uri_of(record));
    line.number(
        "status",
        record.status.map(|status| u64::from(status.as_u16())),
    );
    line.optional(
        "error_code",
        record.error_code.map(forebay_s3::code::Code::as_str),
    );
    line.number("sent_bytes", Some(record.sent_bytes));
    line.number("object_bytes", record.object_bytes);
    line.number("total_us", Some(micros(record.total)));
    line.number("turn_around_us", record.turn_around.map(micros));
    line.optional(
        "user_agent",
        record.user_agent.as_ref().map(text).as_deref(),
    );
    line.optional("referer", record.referer.as_ref().map(text).as_deref());
    line.optional("host", record.host.as_ref().map(text).as_deref());
    let (cipher, version) = security(record.security);
    line.optional("cipher", cipher.as_deref());
    line.optional("tls_version", version);
    line.optional(
        "cache",
        record.cache.map(|cache| cache.to_string()).as_deref(),
    );
    line.finish()
}

/// One line of space-separated fields.
pub(super) fn aws(record: &Record) -> String {
    let mut line = String::with_capacity(512);
    let bucket = record.bucket.as_ref().map_or("-", |bucket| bucket.as_str());
    let encoded_key = record
        .key
        .as_ref()
        .map(|key| uri::encode_path(key.as_str()));
    let key = encoded_key.as_deref().unwrap_or("-");
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let status = number(record.status.map(|status| u64::from(status.as_u16())));
    let operation = match record.operation {
        "-" => "-".to_owned(),
        name => format!("REST.{}.{name}", record.method),
    };
    let error_code = record
        .error_code
        .map_or("-", forebay_s3::code::Code::as_str);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (cipher, version) = security(record.security);
    let sent = Some(record.sent_bytes).filter(|bytes| *bytes > 0);
    let signature_version = if record.signature == "-" {
        "-"
    } else {
        "SigV4"
    };
    let host_id = "-";
    let request_line = format!(
        "{} {} {}",
        record.method,
        uri_of(record),
        http_version(record.http_version)
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        "- {bucket} [{}] {} {} {} {operation} {key} {} {status} {error_code} {} {} {} {} {} {} {} \
         {host_id} {signature_version} {} {} {} {} - -",
        clf_time(unix_seconds(record.time)),
        record.remote.ip(),
        requester(record),
        record.request_id,
        quoted(Some(&request_line)),
        number(sent),
        number(record.object_bytes),
        millis(record.total),
        number(record.turn_around.map(millis)),
        quoted(record.referer.as_ref().map(text).as_deref()),
        quoted(record.user_agent.as_ref().map(text).as_deref()),
        record
            .version_id
            .as_deref()
            .map_or("-".into(), uri::encode_query),
        cipher.as_deref().unwrap_or("-"),
        record.signature,
        record
            .host
            .as_ref()
            .map(text)
            .map_or("-".to_owned(), |host| unspaced(&host)),
        version.unwrap_or("-"),
    );
    line
}

fn requester(record: &Record) -> &str {
    match &record.requester {
        Identity::Anonymous => "-",
        Identity::User(name) => name,
    }
}

/// Path and query, but for a signature: who reads the log must not be able to use it.
fn uri_of(record: &Record) -> String {
    let uri = &record.uri;
    let Some(query) = uri.query() else {
        return uri.path().to_owned();
    };
    let hidden = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name @ ("X-Amz-Signature" | "X-Amz-Security-Token"), _)) => format!("{name}=***"),
        _ => pair.to_owned(),
    });
    format!("{}?{}", uri.path(), hidden.collect::<Vec<_>>().join("&"))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn security(security: Security) -> (Option<String>, Option<&'static str>) {
    match security {
        Security::Plain => (None, None),
        Security::Tls { cipher, version } => {
            let cipher = cipher.as_str().map(str::to_owned);
            let version = match version {
                rustls::ProtocolVersion::TLSv1_2 => Some("TLSv1.2"),
                rustls::ProtocolVersion::TLSv1_3 => Some("TLSv1.3"),
                _ => None,
            };
            (cipher, version)
        }
    }
}

fn http_version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// `06/Feb/2019:00:00:38 +0000`.
fn clf_time(unix_seconds: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let date = AmzDate::from_unix(unix_seconds);
    let digits = date.as_str();
    let month = digits[4..6]
        .parse::<usize>()
        .ok()
        .and_then(|month| MONTHS.get(month - 1));
    format!(
        "{}/{}/{}:{}:{}:{} +0000",
        &digits[6..8],
        month.unwrap_or(&"???"),
        &digits[..4],
        &digits[9..11],
        &digits[11..13],
        &digits[13..15],
    )
}

/// A quoted field, in which quotes and control characters are percent-encoded.
fn quoted(text: Option<&str>) -> String {
    let Some(text) = text else {
        return "\"-\"".to_owned();
    };
    let mut field = String::with_capacity(text.len() + 2);
    field.push('"');
    for character in text.chars() {
        if character == '"' || character.is_control() {
            let _ = write!(field, "%{:02X}", u32::from(character));
        } else {
            field.push(character);
        }
    }
    field.push('"');
    field
}

/// A field without quotes, in which spaces would begin the next one.
fn unspaced(text: &str) -> String {
    text.replace(
        |c: char| c.is_whitespace() || c.is_control() || c == '"',
        "_",
    )
}

/// A JSON object being written.
struct Json(String);

impl Json {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        let _ = write!(self.0, "\"{name}\":");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push('"');
        for character in value.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                control if control.is_control() => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(control));
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    fn optional(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    fn number(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.name(name);
            let _ = write!(self.0, "{value}");
        }
    }

    fn finish(mut self) -> String {
        self.0.push_str("}\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use forebay_s3::{bucket::BucketName, code::Code, key::ObjectKey};
    use forebay_store::{CacheStatus, RequestId};
    use http::{Method, StatusCode};

    use super::*;

    fn record() -> Record {
        Record {
            time: UNIX_EPOCH + Duration::from_secs(1_549_411_238),
            remote: "192.0.2.3:4711".parse().unwrap(),
            requester: Identity::User("ann".into()),
            request_id: RequestId(0x3E57_4272_20F9_0000),
            operation: "GetObject",
            bucket: Some(BucketName::parse("photos").unwrap()),
            key: Some(ObjectKey::parse("a b\"\n/é").unwrap()),
            version_id: None,
            method: Method::GET,
            uri: "/photos/a?x=1&X-Amz-Signature=secret".parse().unwrap(),
            http_version: Version::HTTP_11,
            status: Some(StatusCode::NOT_FOUND),
            error_code: Some(Code::NoSuchKey),
            sent_bytes: 113,
            object_bytes: None,
            total: Duration::from_micros(70_499),
            turn_around: Some(Duration::from_micros(7_100)),
            referer: None,
            user_agent: Some(HeaderValue::from_static("curl \"7\"")),
            host: Some(HeaderValue::from_static("s3.example.com")),
            signature: "QueryString",
            security: Security::Tls {
                cipher: rustls::CipherSuite::TLS13_AES_256_GCM_SHA384,
                version: rustls::ProtocolVersion::TLSv1_3,
            },
            cache: Some(CacheStatus::hit(5)),
        }
    }

    #[test]
    fn aws_lines_have_their_fields_in_aws_order() {
        let expected = "- photos [06/Feb/2019:00:00:38 +0000] 192.0.2.3 ann 3E57427220F90000 \
            REST.GET.GetObject a%20b%22%0A/%C3%A9 \
            \"GET /photos/a?x=1&X-Amz-Signature=*** HTTP/1.1\" 404 NoSuchKey 113 - 70 7 \"-\" \
            \"curl %227%22\" - - SigV4 TLS13_AES_256_GCM_SHA384 QueryString s3.example.com \
            TLSv1.3 - -\n";
        assert_eq!(aws(&record()), expected);
    }

    #[test]
    fn json_lines_hold_one_object_whatever_the_client_sent() {
        let line = json(&record());
        for member in [
            "{\"time\":\"2019-02-06T00:00:38.000Z\"",
            "\"key\":\"a b\\\"\\u000a/é\"",
            "\"status\":404",
            "\"total_us\":70499",
            "\"user_agent\":\"curl \\\"7\\\"\"",
            "\"cache\":\"forebay; hit; ttl=5\"",
            "X-Amz-Signature=***",
        ] {
            assert!(line.contains(member), "{member} in {line}");
        }
        assert!(
            line.ends_with("}\n") && line.matches('\n').count() == 1,
            "{line}"
        );
    }
}
