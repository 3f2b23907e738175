//! The bytes in which gateways tell each other what changed; in docs/formats.md as a table.
//!
//! A message is text: the version of this format, the gateway that tells, `object` or `prefix`, the
//! bucket, and to the end the key or prefix; a line feed between them. Keys may hold anything, line
//! feeds too, so the key is last.

use forebay_s3::bucket::BucketName;
use forebay_store::changes::Changed;
use redis::Value;

/// Changes when a gateway could misread what another one says. A message of another version counts
/// as a change that may have been missed.
const VERSION: &str = "1";

pub(crate) fn write(gateway: &str, changed: &Changed) -> String {
    let (kind, bucket, key) = match changed {
        Changed::Object { bucket, key } => ("object", bucket, key),
        Changed::Prefix { bucket, prefix } => ("prefix", bucket, prefix),
    };
    format!("{VERSION}\n{gateway}\n{kind}\n{}\n{key}", bucket.as_str())
}

/// Who told, and what.
pub(crate) fn read(message: &Value) -> Option<(String, Changed)> {
    let Value::BulkString(bytes) = message else {
        return None;
    };
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.splitn(5, '\n');
    if parts.next()? != VERSION {
        return None;
    }
    let (gateway, kind) = (parts.next()?, parts.next()?);
    let bucket = BucketName::parse(parts.next()?).ok()?;
    let key = parts.next()?.to_owned();
    let changed = match kind {
        "object" => Changed::Object { bucket, key },
        "prefix" => Changed::Prefix {
            bucket,
            prefix: key,
        },
        _ => return None,
    };
    Some((gateway.to_owned(), changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let bucket = BucketName::parse("photos").unwrap();
        for changed in [
            Changed::Object {
                bucket: bucket.clone(),
                key: "a\nb\u{0}c/ü".to_owned(),
            },
            Changed::Prefix {
                bucket,
                prefix: String::new(),
            },
        ] {
            let message = Value::BulkString(write("gateway", &changed).into_bytes());
            assert_eq!(read(&message), Some(("gateway".to_owned(), changed)));
        }
    }

    #[test]
    fn what_another_version_tells_is_no_message() {
        for text in [
            "",
            "1\ng\nobject\nphotos",
            "2\ng\nobject\nphotos\nkey",
            "1\ng\nx\nphotos\nk",
        ] {
            assert_eq!(read(&Value::BulkString(text.into())), None, "{text:?}");
        }
    }
}
