//! Decides whether an object belongs in the hot store: size, rules, and what the client asks.
//!
//! Pure. What the bucket and the state of the store say comes after (`write`).

use forebay_s3::{operation::ObjectId, wildcard};
use http::{HeaderMap, header};

use crate::settings::{RulePlace, TierSettings};

/// The header with which a client asks for the cold store.
pub(crate) const TIER_HEADER: &str = "x-forebay-tier";

/// Where an object belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the hot store.
    Hot,
    /// In the cold one.
    Cold(Why),
}

/// Why an object belongs in the cold store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is too large.
    Size,
    /// Its size is not known before its end.
    UnknownSize,
    /// The client asked for it.
    Client,
    /// A rule says so.
    Rule,
    /// It asks for what only the cold store can do: encryption, ACLs, classes, locks.
    Headers,
}

/// Bytes that an object may have to be hot; zero where a rule says cold.
fn object_bytes_max(object: &ObjectId, settings: &TierSettings) -> Result<u64, Why> {
    let text = format!("{}/{}", object.bucket, object.key);
    let mut rules = settings.rules.iter();
    match rules
        .find(|rule| wildcard::matches(&rule.pattern, &text))
        .map(|rule| rule.place)
    {
        Some(RulePlace::Cold) => Err(Why::Rule),
        Some(RulePlace::Hot { object_bytes_max }) => Ok(object_bytes_max),
        None => Ok(settings.object_bytes_max),
    }
}

/// Whether a header asks for what only the cold store can do.
fn asks_for_cold(name: &str, value: &[u8]) -> bool {
    match name {
        "x-amz-storage-class" => value != b"STANDARD",
        "x-amz-acl" => value != b"private",
        "x-amz-website-redirect-location" | "x-amz-write-offset-bytes" | "x-amz-request-payer" => {
            true
        }
        name => [
            "x-amz-server-side-encryption",
            "x-amz-copy-source-server-side-encryption",
            "x-amz-object-lock-",
            "x-amz-grant-",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix)),
    }
}

/// Where an object of this size belongs that is written with these headers.
pub(crate) fn place(
    object: &ObjectId,
    headers: &HeaderMap,
    size_bytes: Option<u64>,
    settings: &TierSettings,
) -> Placement {
    if headers
        .get(TIER_HEADER)
        .is_some_and(|value| value == "cold")
    {
        return Placement::Cold(Why::Client);
    }
    let mut pairs = headers.iter();
    if pairs.any(|(name, value)| asks_for_cold(name.as_str(), value.as_bytes())) {
        return Placement::Cold(Why::Headers);
    }
    match (object_bytes_max(object, settings), size_bytes) {
        (Err(why), _) => Placement::Cold(why),
        (Ok(0), _) => Placement::Cold(Why::Size),
        (Ok(_), None) => Placement::Cold(Why::UnknownSize),
        (Ok(max), Some(size)) if size > max => Placement::Cold(Why::Size),
        (Ok(_), Some(_)) => Placement::Hot,
    }
}

/// The size of a payload, from its header or from the body itself.
pub(crate) fn size_of(headers: &HeaderMap, body: &forebay_store::Body) -> Option<u64> {
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    declared.or_else(|| body.length())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Rule;
    use forebay_s3::{bucket::BucketName, key::ObjectKey};

    #[test]
    fn objects_are_placed_by_client_headers_rule_and_size() {
        use Placement::{Cold, Hot};
        let rule = |pattern: &str, place| Rule {
            pattern: pattern.to_owned(),
            place,
        };
        let settings = TierSettings {
            object_bytes_max: 100,
            rules: vec![
                rule("logs/*", RulePlace::Cold),
                rule(
                    "*.big",
                    RulePlace::Hot {
                        object_bytes_max: 1000,
                    },
                ),
            ],
            ..TierSettings::default()
        };
        for (path, header, size, expected) in [
            ("data/k", None, Some(100), Hot),
            ("data/k", None, Some(0), Hot),
            ("data/k", None, Some(101), Cold(Why::Size)),
            ("data/k", None, None, Cold(Why::UnknownSize)),
            ("data/k.big", None, Some(1000), Hot),
            ("logs/k.big", None, Some(1), Cold(Why::Rule)),
            (
                "data/k",
                Some(("x-forebay-tier", "cold")),
                Some(1),
                Cold(Why::Client),
            ),
            (
                "logs/k",
                Some(("x-forebay-tier", "hot")),
                Some(1),
                Cold(Why::Rule),
            ),
            (
                "data/k",
                Some(("x-amz-storage-class", "STANDARD")),
                Some(1),
                Hot,
            ),
            (
                "data/k",
                Some(("x-amz-storage-class", "GLACIER")),
                Some(1),
                Cold(Why::Headers),
            ),
            ("data/k", Some(("x-amz-acl", "private")), Some(1), Hot),
            (
                "data/k",
                Some(("x-amz-acl", "public-read")),
                Some(1),
                Cold(Why::Headers),
            ),
            (
                "data/k",
                Some(("x-amz-object-lock-mode", "GOVERNANCE")),
                Some(1),
                Cold(Why::Headers),
            ),
            (
                "data/k",
                Some(("x-amz-grant-read", "id=1")),
                Some(1),
                Cold(Why::Headers),
            ),
            (
                "data/k",
                Some(("x-amz-server-side-encryption-customer-algorithm", "AES256")),
                Some(1),
                Cold(Why::Headers),
            ),
            ("data/k", Some(("x-amz-meta-a", "b")), Some(1), Hot),
        ] {
            let (bucket, key) = path.split_once('/').unwrap();
            let object = ObjectId {
                bucket: BucketName::parse(bucket).unwrap(),
                key: ObjectKey::parse(key).unwrap(),
                version: None,
            };
            let pair = |(name, value): (&'static str, &'static str)| {
                (name.parse().unwrap(), value.parse().unwrap())
            };
            let headers: HeaderMap = header.map(pair).into_iter().collect();
            let placed = place(&object, &headers, size, &settings);
            assert_eq!(placed, expected, "{path} {header:?} {size:?}");
        }
    }
}
