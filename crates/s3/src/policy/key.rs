//! The condition keys: their names, their types, the actions they belong to, and their values.
//!
//! A key has a value only for the actions that AWS lists it for. Else a client could meet the
//! condition of a statement with a header or parameter that its request has no use for.
//!
//! Source: AWS Service Authorization Reference, "Amazon S3", "Condition keys"; IAM User Guide,
//! "AWS global condition context keys".

use std::{borrow::Cow, net::IpAddr};

use super::{AccessRequest, Carrier, SignatureVersion, Transport, actions::ActionSet};
use crate::{classify, operation::Action, time, uri};

/// Type of a key's value; it decides which operators fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Number,
    /// Unix seconds.
    Date,
    /// Unix seconds, for numeric operators as well.
    Epoch,
    Bool,
    Ip,
    Arn,
}

/// Value of a key in one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(Cow<'a, str>),
    /// A number or Unix seconds; `None` when the request has something that is neither.
    Number(Option<i64>),
    Bool(bool),
    Ip(IpAddr),
}

/// Where a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    UserName,
    UserId,
    PrincipalArn,
    ClientIp,
    SecureTransport,
    Now,
    AuthType,
    SignatureVersion,
    SignatureAge,
    VersionId,
    CopiedFrom,
    /// A parameter of the query.
    Query(&'static str),
    /// A header that every request may have.
    Header(&'static str),
}

/// A condition key that is supported.
#[derive(Debug)]
struct Row {
    name: &'static str,
    value_type: Type,
    source: Source,
    /// Actions that have the key; `None` means all.
    actions: Option<ActionSet>,
}

/// A supported condition key: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key(&'static Row);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Key {}

const LISTINGS: ActionSet = ActionSet::of(&[Action::ListBucket, Action::ListBucketVersions]);
const PUT: ActionSet = ActionSet::of(&[Action::PutObject]);
const RETENTION: ActionSet = ActionSet::of(&[Action::PutObject, Action::PutObjectRetention]);
const LEGAL_HOLD: ActionSet = ActionSet::of(&[Action::PutObject, Action::PutObjectLegalHold]);
const CREATE: ActionSet = ActionSet::of(&[Action::CreateBucket]);
const ACLS: ActionSet = ActionSet::of(&[
    Action::CreateBucket,
    Action::PutBucketAcl,
    Action::PutObject,
    Action::PutObjectAcl,
    Action::PutObjectVersionAcl,
]);
const VERSIONS: ActionSet = ActionSet::of(&[
    Action::DeleteObjectVersion,
    Action::DeleteObjectVersionTagging,
    Action::GetObjectVersion,
    Action::GetObjectVersionAcl,
    Action::GetObjectVersionAttributes,
    Action::GetObjectVersionTagging,
    Action::GetObjectVersionTorrent,
    Action::PutObjectVersionAcl,
    Action::PutObjectVersionTagging,
]);

const fn row(name: &'static str, value_type: Type, source: Source) -> Row {
    Row {
        name,
        value_type,
        source,
        actions: None,
    }
}

/// A key of the query that listings have.
const fn listing(name: &'static str, parameter: &'static str, value_type: Type) -> Row {
    Row {
        name,
        value_type,
        source: Source::Query(parameter),
        actions: Some(LISTINGS),
    }
}

/// A key that is a header of some actions.
const fn header(name: &'static str, header: &'static str, actions: ActionSet) -> Row {
    let source = Source::Header(header);
    Row {
        name,
        value_type: Type::Text,
        source,
        actions: Some(actions),
    }
}

static ROWS: &[Row] = &[
    row("aws:CurrentTime", Type::Date, Source::Now),
    row("aws:EpochTime", Type::Epoch, Source::Now),
    row("aws:PrincipalArn", Type::Arn, Source::PrincipalArn),
    row("aws:Referer", Type::Text, Source::Header("referer")),
    row("aws:SecureTransport", Type::Bool, Source::SecureTransport),
    row("aws:SourceIp", Type::Ip, Source::ClientIp),
    row("aws:UserAgent", Type::Text, Source::Header("user-agent")),
    row("aws:userid", Type::Text, Source::UserId),
    row("aws:username", Type::Text, Source::UserName),
    row("s3:authType", Type::Text, Source::AuthType),
    listing("s3:delimiter", "delimiter", Type::Text),
    header("s3:if-match", "if-match", PUT),
    header("s3:if-none-match", "if-none-match", PUT),
    listing("s3:max-keys", "max-keys", Type::Number),
    header(
        "s3:object-lock-legal-hold",
        "x-amz-object-lock-legal-hold",
        LEGAL_HOLD,
    ),
    header("s3:object-lock-mode", "x-amz-object-lock-mode", RETENTION),
    listing("s3:prefix", "prefix", Type::Text),
    row("s3:signatureAge", Type::Number, Source::SignatureAge),
    row("s3:signatureversion", Type::Text, Source::SignatureVersion),
    Row {
        name: "s3:VersionId",
        value_type: Type::Text,
        source: Source::VersionId,
        actions: Some(VERSIONS),
    },
    header("s3:x-amz-acl", "x-amz-acl", ACLS),
    row(
        "s3:x-amz-content-sha256",
        Type::Text,
        Source::Header("x-amz-content-sha256"),
    ),
    Row {
        name: "s3:x-amz-copy-source",
        value_type: Type::Text,
        source: Source::CopiedFrom,
        actions: Some(PUT),
    },
    header(
        "s3:x-amz-grant-full-control",
        "x-amz-grant-full-control",
        ACLS,
    ),
    header("s3:x-amz-grant-read", "x-amz-grant-read", ACLS),
    header("s3:x-amz-grant-read-acp", "x-amz-grant-read-acp", ACLS),
    header("s3:x-amz-grant-write", "x-amz-grant-write", ACLS),
    header("s3:x-amz-grant-write-acp", "x-amz-grant-write-acp", ACLS),
    header(
        "s3:x-amz-metadata-directive",
        "x-amz-metadata-directive",
        PUT,
    ),
    header(
        "s3:x-amz-object-ownership",
        "x-amz-object-ownership",
        CREATE,
    ),
    header(
        "s3:x-amz-server-side-encryption",
        "x-amz-server-side-encryption",
        PUT,
    ),
    header(
        "s3:x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-aws-kms-key-id",
        PUT,
    ),
    header(
        "s3:x-amz-server-side-encryption-customer-algorithm",
        "x-amz-server-side-encryption-customer-algorithm",
        PUT,
    ),
    header("s3:x-amz-storage-class", "x-amz-storage-class", PUT),
    header(
        "s3:x-amz-website-redirect-location",
        "x-amz-website-redirect-location",
        PUT,
    ),
];

impl Key {
    /// Finds a key; its case means nothing.
    ///
    /// # Errors
    /// Why the key cannot be judged here.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        if let Some(row) = ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(name)) {
            return Ok(Self(row));
        }
        let lower = name.to_ascii_lowercase();
        let of_tags = [
            "s3:existingobjecttag/",
            "s3:requestobjecttag",
            "aws:requesttag/",
        ];
        if of_tags.iter().any(|tags| lower.starts_with(tags)) {
            return Err(format!(
                "{name:?} is not supported: tags are not known when it is judged"
            ));
        }
        let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        Err(format!(
            "{name:?} is not supported; supported are {}",
            known.join(", ")
        ))
    }

    pub(super) fn value_type(self) -> Type {
        self.0.value_type
    }

    /// Whether its value is text, so that it may be a variable.
    pub(super) fn is_text(self) -> bool {
        self.0.value_type == Type::Text
    }

    /// Whether a pattern of this key may begin with a `/` that the value has not.
    pub(super) fn ignores_leading_slash(self) -> bool {
        self.0.source == Source::CopiedFrom
    }

    /// Its value, when it is text and the request has it.
    pub(super) fn text<'a>(self, request: &AccessRequest<'a>) -> Option<Cow<'a, str>> {
        match self.value(request) {
            Some(Value::Text(text)) => Some(text),
            Some(Value::Number(_) | Value::Bool(_) | Value::Ip(_)) | None => None,
        }
    }

    /// Its value; `None` when the request has none.
    pub(super) fn value<'a>(self, request: &AccessRequest<'a>) -> Option<Value<'a>> {
        if self
            .0
            .actions
            .is_some_and(|actions| !actions.contains(request.need.action))
        {
            return None;
        }
        let context = request.context;
        let text = |text: &'a str| Some(Value::Text(Cow::Borrowed(text)));
        match self.0.source {
            Source::UserName => text(context.user?),
            Source::UserId => text(context.user_id?),
            Source::PrincipalArn => Some(Value::Text(Cow::Owned(format!(
                "arn:aws:iam:::user/{}",
                context.user?
            )))),
            Source::ClientIp => Some(Value::Ip(context.source_ip.to_canonical())),
            Source::SecureTransport => Some(Value::Bool(context.transport == Transport::Tls)),
            Source::Now => Some(Value::Number(Some(context.now))),
            Source::AuthType => text(match context.signature?.carrier {
                Carrier::Header => "REST-HEADER",
                Carrier::Query => "REST-QUERY-STRING",
                Carrier::Form => "POST",
            }),
            Source::SignatureVersion => text(match context.signature?.version {
                SignatureVersion::V2 => "AWS",
                SignatureVersion::V4 => "AWS4-HMAC-SHA256",
            }),
            Source::SignatureAge => Some(Value::Number(Some(context.signature?.age_millis))),
            Source::VersionId => text(request.need.version.as_ref()?.as_str()),
            Source::CopiedFrom => copy_source(request).map(Value::Text),
            Source::Query(name) => {
                let mut pairs = uri::query_pairs(context.query);
                let (_, value) = pairs.find(|(known, _)| known == name)?;
                Some(match self.0.value_type {
                    Type::Number => Value::Number(parse_number(&value)),
                    _ => Value::Text(value),
                })
            }
            Source::Header(name) => header_value(request, name).map(Value::Text),
        }
    }
}

/// The values of a header; more than one are joined, as HTTP allows any party to do.
fn header_value<'a>(request: &AccessRequest<'a>, name: &str) -> Option<Cow<'a, str>> {
    let mut values = request.context.headers.get_all(name).iter();
    let mut joined = String::from_utf8_lossy(values.next()?.as_bytes());
    for value in values {
        let joined = joined.to_mut();
        joined.push(',');
        joined.push_str(&String::from_utf8_lossy(value.as_bytes()));
    }
    Some(joined)
}

/// The source of a copy as `bucket/key`, decoded, whichever way it was written.
fn copy_source<'a>(request: &AccessRequest<'a>) -> Option<Cow<'a, str>> {
    let text = header_value(request, classify::COPY_SOURCE)?;
    Some(match classify::parse_source(&text) {
        Ok(source) => Cow::Owned(format!("{}/{}", source.bucket, source.key)),
        // Never reached by a request that was classified.
        Err(_) => text,
    })
}

/// A number as S3 reads `max-keys`; one too large for the type is the largest.
pub(super) fn parse_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let limit = if text.starts_with('-') {
        i64::MIN
    } else {
        i64::MAX
    };
    Some(text.parse().unwrap_or(limit))
}

/// A date as policies write it: RFC 3339, a day, or Unix seconds.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    let day = |text: &str| time::parse_rfc3339(&format!("{text}T00:00:00Z"));
    let millis = time::parse_rfc3339(text).or_else(|| day(text));
    millis
        .map(|millis| millis.div_euclid(1000))
        .or_else(|| parse_number(text))
}
