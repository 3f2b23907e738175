//! Names an answer by all that changes it: operation, bucket and canonical query.
//!
//! Pure. Callers may share answers: who may have one was decided at the edge, before any layer, and
//! the store below is asked with the gateway's own credentials.
//!
//! What goes past the cache, as `plan` has it for objects: a parameter that is not known here, an
//! `x-amz-*` header that is not known, `Origin`, a range or a condition. So does what is no UTF-8:
//! two such texts look alike once decoded.

use forebay_s3::{bucket::BucketName, operation::Operation, uri};
use forebay_store::Request;
use http::{HeaderMap, HeaderName, header};

use crate::plan::{self, Bypass};

/// Asks for elements that a listing has not by itself. `RestoreStatus`, the only one there is,
/// changes without a write.
const OPTIONAL_ATTRIBUTES: HeaderName = HeaderName::from_static("x-amz-optional-object-attributes");

/// Operations whose answers can be kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    ListBuckets,
    HeadBucket,
    ListObjects,
    ListObjectsV2,
    ListObjectVersions,
}

/// What an answer is to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub kind: Kind,
    /// `None` for all buckets.
    pub bucket: Option<BucketName>,
    /// What the keys of a listing begin with.
    pub prefix: Box<str>,
    /// All parameters, sorted, and the headers that count.
    query: Box<str>,
}

impl Kind {
    /// The kind of an operation; `None` when it is not for this cache.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        match operation {
            Operation::ListBuckets => Some(Self::ListBuckets),
            Operation::HeadBucket(_) => Some(Self::HeadBucket),
            Operation::ListObjects(_) => Some(Self::ListObjects),
            Operation::ListObjectsV2(_) => Some(Self::ListObjectsV2),
            Operation::ListObjectVersions(_) => Some(Self::ListObjectVersions),
            _ => None,
        }
    }

    /// As in the S3 API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ListBuckets => "ListBuckets",
            Self::HeadBucket => "HeadBucket",
            Self::ListObjects => "ListObjects",
            Self::ListObjectsV2 => "ListObjectsV2",
            Self::ListObjectVersions => "ListObjectVersions",
        }
    }

    /// Whether it lists keys, so that a write of a key may change its answers.
    pub(crate) fn lists_keys(self) -> bool {
        match self {
            Self::ListBuckets | Self::HeadBucket => false,
            Self::ListObjects | Self::ListObjectsV2 | Self::ListObjectVersions => true,
        }
    }

    /// Parameters that are known (Amazon S3 API Reference), but for `x-id`, which says nothing.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::ListBuckets => &[
                "bucket-region",
                "continuation-token",
                "max-buckets",
                "prefix",
            ],
            Self::HeadBucket => &[],
            Self::ListObjects => &["delimiter", "encoding-type", "marker", "max-keys", "prefix"],
            Self::ListObjectsV2 => &[
                "continuation-token",
                "delimiter",
                "encoding-type",
                "fetch-owner",
                "list-type",
                "max-keys",
                "prefix",
                "start-after",
            ],
            Self::ListObjectVersions => &[
                "delimiter",
                "encoding-type",
                "key-marker",
                "max-keys",
                "prefix",
                "version-id-marker",
                "versions",
            ],
        }
    }
}

impl Name {
    /// Names the answer to a request of this kind.
    ///
    /// # Errors
    /// [`Bypass`] when the cache is not for it.
    pub(crate) fn of(kind: Kind, request: &Request) -> Result<Self, Bypass> {
        let mut parameters = Vec::new();
        for (name, value) in uri::query_pairs(request.query.as_str()) {
            if name == "x-id" {
                continue;
            }
            let is_known = kind.parameters().iter().any(|known| *known == name);
            if !is_known || value.contains(char::REPLACEMENT_CHARACTER) {
                return Err(Bypass);
            }
            parameters.push(format!("{name}={}", uri::encode_query(&value)));
        }
        parameters.sort_unstable();
        let is_twice = |pair: &[String]| name_of(&pair[0]) == name_of(&pair[1]);
        if parameters.windows(2).any(is_twice) {
            return Err(Bypass);
        }
        parameters.extend(attributes(kind, &request.headers)?);
        Ok(Self {
            kind,
            bucket: request.operation.bucket().cloned(),
            prefix: prefix(&request.operation).into(),
            query: parameters.join("&").into(),
        })
    }

    /// Whether the answer changes by writes alone.
    pub(crate) fn is_still(&self) -> bool {
        !self.query.contains(OPTIONAL_ATTRIBUTES.as_str())
    }

    /// Memory of the text.
    pub(crate) fn length(&self) -> usize {
        let bucket = self.bucket.as_ref().map_or(0, |name| name.as_str().len());
        bucket + self.prefix.len() + self.query.len()
    }
}

fn name_of(parameter: &str) -> &str {
    parameter
        .split_once('=')
        .map_or(parameter, |(name, _)| name)
}

fn prefix(operation: &Operation) -> &str {
    match operation {
        Operation::ListObjects(listing)
        | Operation::ListObjectsV2(listing)
        | Operation::ListObjectVersions(listing) => &listing.prefix,
        _ => "",
    }
}

/// The header that changes a listing, as if it were a parameter.
fn attributes(kind: Kind, headers: &HeaderMap) -> Result<Vec<String>, Bypass> {
    let mut attributes = Vec::new();
    for (name, value) in headers {
        if *name == OPTIONAL_ATTRIBUTES && kind.lists_keys() {
            let value = value.to_str().map_err(|_| Bypass)?;
            attributes.push(format!("{name}={}", uri::encode_query(value)));
        } else if name.as_str().starts_with("x-amz-") && !plan::is_of_no_effect(name)
            || [header::ORIGIN, header::RANGE].contains(name)
            || plan::is_condition(name)
        {
            return Err(Bypass);
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use forebay_store::contract::requests::{self, Builder};

    use super::*;

    fn name(builder: Builder) -> Result<Name, Bypass> {
        let request = builder.build();
        Name::of(Kind::of(&request.operation).unwrap(), &request)
    }

    fn v2(parameters: &[(&str, &str)]) -> Result<Name, Bypass> {
        let listing = requests::list_v2("bucket");
        name(
            parameters
                .iter()
                .fold(listing, |listing, (name, value)| listing.query(name, value)),
        )
    }

    #[test]
    fn the_order_of_parameters_and_what_says_nothing_do_not_matter() {
        let one = v2(&[("prefix", "a/b c"), ("delimiter", "/"), ("max-keys", "7")]).unwrap();
        let other = [
            ("max-keys", "7"),
            ("x-id", "ListObjectsV2"),
            ("delimiter", "/"),
            ("prefix", "a/b c"),
        ];
        assert_eq!(one, v2(&other).unwrap());
        let agent = requests::list_v2("bucket").header("x-amz-user-agent", "x");
        assert_eq!(name(agent), v2(&[]));
    }

    #[test]
    fn whatever_changes_the_answer_makes_another_name() {
        let mut names = vec![
            v2(&[]).unwrap(),
            name(requests::list_v1("bucket")).unwrap(),
            name(requests::list_versions("bucket")).unwrap(),
            name(requests::list_v2("another")).unwrap(),
            name(requests::head_bucket("bucket")).unwrap(),
            name(requests::list_buckets()).unwrap(),
        ];
        for parameter in [
            ("prefix", "a"),
            ("prefix", "a&delimiter=b"),
            ("delimiter", "a"),
            ("start-after", "a"),
            ("continuation-token", "a"),
            ("max-keys", "1"),
            ("encoding-type", "url"),
            ("fetch-owner", "true"),
        ] {
            names.push(v2(&[parameter]).unwrap());
        }
        let restored =
            requests::list_v2("bucket").header("x-amz-optional-object-attributes", "RestoreStatus");
        names.push(name(restored).unwrap());
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name:?}");
            let stays = !name.query.contains("RestoreStatus");
            assert_eq!(name.is_still(), stays, "{name:?}");
        }
    }

    #[test]
    fn what_may_change_the_answer_in_unknown_ways_goes_past() {
        for parameter in [
            ("metadata", "true"),
            ("marker", "a"),
            ("versions", ""),
            ("prefix", "\u{fffd}"),
        ] {
            assert_eq!(v2(&[parameter]), Err(Bypass), "{parameter:?}");
        }
        assert_eq!(v2(&[("max-keys", "1"), ("max-keys", "2")]), Err(Bypass));
        for (header, value) in [
            ("x-amz-expected-bucket-owner", "1"),
            ("x-amz-request-payer", "requester"),
            ("origin", "https://example.com"),
            ("if-none-match", "*"),
            ("range", "bytes=0-1"),
        ] {
            let listing = requests::list_v2("bucket").header(header, value);
            assert_eq!(name(listing), Err(Bypass), "{header}");
        }
        let head = requests::head_bucket("bucket")
            .header("x-amz-optional-object-attributes", "RestoreStatus");
        assert_eq!(name(head), Err(Bypass));
    }
}
