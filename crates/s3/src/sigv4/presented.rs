//! Reads what a request presents as its signature, in either form, judging only its syntax.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, DATE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::canonical::decode_query;
use super::error::{AuthError, ExpiresFault, Form, ScopeFault};
use super::{ALGORITHM, EXPIRES_SECONDS_MAX, PayloadMode, RequestParts, TERMINAL};
use crate::time::{AmzDate, parse_http_date};

pub(super) const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub(super) const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// A signature as a request brought it. Nothing of it is believed yet: see [`Presented::check`].
#[derive(Clone, Debug)]
pub struct Presented<'a> {
    pub(super) form: Form,
    pub(super) credential: Credential<'a>,
    pub(super) signed_headers: Cow<'a, str>,
    pub(super) signature: Cow<'a, str>,
    pub(super) date: AmzDate,
    /// Only in the query form.
    pub(super) expires_seconds: Option<u32>,
    pub(super) payload: PayloadMode,
    /// The last line of the canonical request, which is not always the payload's own mode.
    pub(super) payload_hash: Cow<'a, str>,
    pub(super) session_token: Option<Cow<'a, str>>,
}

impl<'a> Presented<'a> {
    /// Reads the signature of a request; `None` when it is anonymous.
    ///
    /// # Errors
    /// Two signatures, an unknown kind of signature, or one that is malformed.
    pub fn from_request(parts: &RequestParts<'a>) -> Result<Option<Self>, AuthError> {
        let query = parts.query.map_or(Ok(None), QueryParameters::read)?;
        match (parts.headers.get(AUTHORIZATION), query) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(AuthError::TwoMechanisms),
            (Some(value), None) => {
                let value = ascii(value).ok_or(AuthError::UnsupportedType)?;
                Self::from_header(value, parts.headers).map(Some)
            }
            (None, Some(query)) => Self::from_query(query, parts.headers).map(Some),
        }
    }

    /// The key that the request names.
    pub fn access_key_id(&self) -> &str {
        self.credential.access_key_id()
    }

    /// The day of the credential scope, `yyyyMMdd`.
    pub fn date_stamp(&self) -> &str {
        self.credential.date_stamp()
    }

    /// The region of the credential scope.
    pub fn region(&self) -> &str {
        self.credential.region()
    }

    /// The service of the credential scope.
    pub fn service(&self) -> &str {
        self.credential.service()
    }

    /// The token of temporary credentials.
    pub fn session_token(&self) -> Option<&str> {
        self.session_token.as_deref()
    }

    /// Whether the signature stood in the header or in the query.
    pub const fn form(&self) -> Form {
        self.form
    }

    /// How the payload is framed.
    pub const fn payload(&self) -> PayloadMode {
        self.payload
    }

    /// When the request says it was signed.
    pub const fn date(&self) -> AmzDate {
        self.date
    }

    fn from_header(value: &'a str, headers: &'a HeaderMap) -> Result<Self, AuthError> {
        let value = value.trim_ascii();
        let (scheme, rest) = split_once(value, b' ').unwrap_or((value, ""));
        if scheme != ALGORITHM {
            let is_aws = scheme == "AWS" || scheme.starts_with("AWS4-");
            return Err(if is_aws {
                AuthError::UnsupportedMechanism
            } else {
                AuthError::UnsupportedType
            });
        }
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for component in pieces(rest, b',')
            .map(str::trim_ascii)
            .filter(|text| !text.is_empty())
        {
            let malformed = || AuthError::HeaderComponent(component.to_owned());
            let (name, value) = split_once(component, b'=').ok_or_else(malformed)?;
            match name {
                "Credential" => credential = Some(value),
                "SignedHeaders" => signed_headers = Some(value),
                "Signature" => signature = Some(value),
                _ => return Err(malformed()),
            }
        }
        let (Some(credential), Some(signed_headers), Some(signature)) =
            (credential, signed_headers, signature)
        else {
            return Err(AuthError::HeaderComponentMissing);
        };
        let credential =
            Credential::parse(credential.into()).map_err(|fault| AuthError::Scope {
                form: Form::Header,
                fault,
            })?;
        let content_sha256 =
            header(headers, &CONTENT_SHA256).ok_or(AuthError::ContentSha256Missing)?;
        Ok(Self {
            form: Form::Header,
            credential,
            signed_headers: signed_headers.into(),
            signature: signature.into(),
            date: request_date(headers).ok_or(AuthError::DateMissing)?,
            expires_seconds: None,
            payload: parse_payload(content_sha256)?,
            payload_hash: content_sha256.into(),
            session_token: header(headers, &SECURITY_TOKEN).map(Cow::from),
        })
    }

    fn from_query(query: QueryParameters<'a>, headers: &'a HeaderMap) -> Result<Self, AuthError> {
        let missing = AuthError::QueryParameterMissing;
        match query.algorithm.as_deref() {
            Some(ALGORITHM) => {}
            Some("AWS4-ECDSA-P256-SHA256") => return Err(AuthError::UnsupportedMechanism),
            Some(_) => return Err(AuthError::QueryAlgorithm),
            None => return Err(missing),
        }
        let (Some(credential), Some(date), Some(expires), Some(signed_headers), Some(signature)) = (
            query.credential,
            query.date,
            query.expires,
            query.signed_headers,
            query.signature,
        ) else {
            return Err(missing);
        };
        let credential = Credential::parse(credential).map_err(|fault| AuthError::Scope {
            form: Form::Query,
            fault,
        })?;
        let sent = header(headers, &CONTENT_SHA256);
        let is_signed = signed_headers
            .split(';')
            .any(|name| name == CONTENT_SHA256.as_str());
        let payload_hash = query
            .content_sha256
            .or(sent.filter(|_| is_signed).map(Cow::from))
            .unwrap_or(UNSIGNED_PAYLOAD.into());
        Ok(Self {
            form: Form::Query,
            credential,
            signature,
            date: AmzDate::parse(&date).ok_or(AuthError::QueryDate)?,
            expires_seconds: Some(parse_expires(&expires).map_err(AuthError::QueryExpires)?),
            payload: parse_payload(sent.unwrap_or(&payload_hash))?,
            payload_hash,
            session_token: query.session_token,
            signed_headers,
        })
    }
}

/// `key/yyyyMMdd/region/service/aws4_request`, taken apart from its end: some servers' key ids
/// contain a `/`.
#[derive(Clone, Debug)]
pub(crate) struct Credential<'a> {
    text: Cow<'a, str>,
    date_at: usize,
    region_at: usize,
    service_at: usize,
    terminal_at: usize,
}

impl<'a> Credential<'a> {
    pub(crate) fn parse(text: Cow<'a, str>) -> Result<Self, ScopeFault> {
        let before = |end: usize| memchr::memrchr(b'/', &text.as_bytes()[..end]).map(|at| at + 1);
        let starts = || {
            let terminal_at = before(text.len())?;
            let service_at = before(terminal_at - 1)?;
            let region_at = before(service_at - 1)?;
            let date_at = before(region_at - 1)?;
            (date_at > 1).then_some((date_at, region_at, service_at, terminal_at))
        };
        let (date_at, region_at, service_at, terminal_at) =
            starts().ok_or(ScopeFault::Malformed)?;
        let credential = Self {
            text,
            date_at,
            region_at,
            service_at,
            terminal_at,
        };
        let terminal = &credential.text[terminal_at..];
        if terminal != TERMINAL {
            return Err(ScopeFault::Terminal(terminal.to_owned()));
        }
        let date = credential.date_stamp();
        if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ScopeFault::Date(date.to_owned()));
        }
        Ok(credential)
    }

    pub(crate) fn access_key_id(&self) -> &str {
        &self.text[..self.date_at - 1]
    }

    pub(crate) fn date_stamp(&self) -> &str {
        &self.text[self.date_at..self.region_at - 1]
    }

    pub(crate) fn region(&self) -> &str {
        &self.text[self.region_at..self.service_at - 1]
    }

    pub(crate) fn service(&self) -> &str {
        &self.text[self.service_at..self.terminal_at - 1]
    }

    /// Everything after the key id.
    pub(crate) fn scope(&self) -> &str {
        &self.text[self.date_at..]
    }
}

/// The parameters of a presigned query, decoded.
#[derive(Default)]
struct QueryParameters<'a> {
    algorithm: Option<Cow<'a, str>>,
    credential: Option<Cow<'a, str>>,
    date: Option<Cow<'a, str>>,
    expires: Option<Cow<'a, str>>,
    signed_headers: Option<Cow<'a, str>>,
    signature: Option<Cow<'a, str>>,
    session_token: Option<Cow<'a, str>>,
    content_sha256: Option<Cow<'a, str>>,
}

impl<'a> QueryParameters<'a> {
    /// Finds the parameters; `None` when the query holds no signature.
    fn read(query: &'a str) -> Result<Option<Self>, AuthError> {
        let mut found = Self::default();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let slot = match name {
                "X-Amz-Algorithm" => &mut found.algorithm,
                "X-Amz-Credential" => &mut found.credential,
                "X-Amz-Date" => &mut found.date,
                "X-Amz-Expires" => &mut found.expires,
                "X-Amz-SignedHeaders" => &mut found.signed_headers,
                "X-Amz-Signature" => &mut found.signature,
                "X-Amz-Security-Token" => &mut found.session_token,
                "X-Amz-Content-Sha256" => &mut found.content_sha256,
                "AWSAccessKeyId" | "Signature" => return Err(AuthError::UnsupportedMechanism),
                _ => continue,
            };
            if slot.is_none() {
                *slot = Some(decode_query(value).ok_or(AuthError::QueryParameterMissing)?);
            }
        }
        let is_signed =
            found.algorithm.is_some() || found.credential.is_some() || found.signature.is_some();
        Ok(is_signed.then_some(found))
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    ascii(headers.get(name)?)
}

/// The text of a value, if it is ASCII: `HeaderValue::to_str`, which looks at each byte by itself.
fn ascii(value: &HeaderValue) -> Option<&str> {
    let bytes = value.as_bytes();
    if bytes.is_ascii() {
        std::str::from_utf8(bytes).ok()
    } else {
        None
    }
}

/// `str::split` at an ASCII byte.
pub(super) fn pieces(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (piece, after) = match split_once(text, separator) {
            Some((piece, after)) => (piece, Some(after)),
            None => (text, None),
        };
        rest = after;
        Some(piece)
    })
}

/// `str::split_once` at an ASCII byte.
fn split_once(text: &str, separator: u8) -> Option<(&str, &str)> {
    let at = memchr::memchr(separator, text.as_bytes())?;
    Some((&text[..at], &text[at + 1..]))
}

/// When the request was signed: `x-amz-date`, or `Date` in either form where there is none.
fn request_date(headers: &HeaderMap) -> Option<AmzDate> {
    if let Some(value) = headers.get(AMZ_DATE) {
        return AmzDate::parse(ascii(value)?);
    }
    let value = ascii(headers.get(DATE)?)?;
    AmzDate::parse(value).or_else(|| parse_http_date(value).map(AmzDate::from_unix))
}

fn parse_payload(value: &str) -> Result<PayloadMode, AuthError> {
    PayloadMode::parse(value).ok_or_else(|| AuthError::ContentSha256Invalid(value.to_owned()))
}

fn parse_expires(text: &str) -> Result<u32, ExpiresFault> {
    let seconds: i64 = text.parse().map_err(|_| ExpiresFault::NotANumber)?;
    if seconds < 1 {
        return Err(ExpiresFault::NotPositive);
    }
    u32::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds <= EXPIRES_SECONDS_MAX)
        .ok_or(ExpiresFault::TooLong)
}
