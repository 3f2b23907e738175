//! What the headers of a write say about the object: system headers, user metadata, tags.
//!
//! A header that asks for something that is not done here (encryption, locks, public ACLs) is
//! refused: a promise not kept would be worse. Source: Amazon S3 API Reference, `PutObject`.

use std::collections::BTreeMap;

use forebay_s3::code::Code;
use forebay_store::Error;
use http::HeaderMap;

use crate::{record::Attributes, refuse, tags};

/// System headers that are kept as they are and come back with each read.
const KEPT: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
];
/// Storage classes that promise nothing which every store here does not keep.
const CLASSES: [&str; 6] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
];
/// Canned ACLs that give nobody but the owner anything.
const PRIVATE_ACLS: [&str; 3] = ["private", "bucket-owner-read", "bucket-owner-full-control"];
const USER_PREFIX: &str = "x-amz-meta-";
/// S3: "the user-defined metadata is limited to 2 KB in size".
const USER_BYTES_MAX: usize = 2048;

/// Reads the attributes of a new object.
///
/// # Errors
/// `MetadataTooLarge`, `InvalidStorageClass`, `InvalidTag`, `InvalidArgument` for bytes that are
/// no UTF-8, and whatever [`refuse_unsupported`] refuses.
pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Attributes, Error> {
    refuse_unsupported(headers)?;
    let mut kept = BTreeMap::new();
    for name in KEPT {
        if let Some(value) = joined(headers, name)? {
            kept.insert(name.to_owned(), value);
        }
    }
    match kept.get("x-amz-storage-class").map(String::as_str) {
        None => {}
        Some("STANDARD") => {
            kept.remove("x-amz-storage-class");
        }
        Some(class) if CLASSES.contains(&class) => {}
        Some(_) => return Err(Error::refused(Code::InvalidStorageClass)),
    }
    let tags = match joined(headers, "x-amz-tagging")? {
        Some(value) => tags::from_header(&value)?,
        None => Vec::new(),
    };
    Ok(Attributes {
        headers: kept,
        user: user_metadata(headers)?,
        tags,
    })
}

fn user_metadata(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Error> {
    let mut user = BTreeMap::new();
    let mut size_bytes = 0;
    for name in headers.keys() {
        let Some(suffix) = name.as_str().strip_prefix(USER_PREFIX) else {
            continue;
        };
        let value = joined(headers, name.as_str())?.unwrap_or_default();
        size_bytes += suffix.len() + value.len();
        user.insert(suffix.to_owned(), value);
    }
    if size_bytes > USER_BYTES_MAX {
        let mut error = Error::refused(Code::MetadataTooLarge);
        if let Error::Refused(refusal) = &mut error {
            refusal.details.push(("Size", size_bytes.to_string()));
            refusal
                .details
                .push(("MaxSizeAllowed", USER_BYTES_MAX.to_string()));
        }
        return Err(error);
    }
    Ok(user)
}

/// The values of a header as one text.
fn joined(headers: &HeaderMap, name: &str) -> Result<Option<String>, Error> {
    let mut text: Option<String> = None;
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes()).map_err(|_| {
            Error::refused_because(Code::InvalidArgument, "Header values must be UTF-8.")
        })?;
        text = Some(match text {
            None => value.to_owned(),
            Some(earlier) => format!("{earlier},{value}"),
        });
    }
    Ok(text)
}

/// Refuses headers that ask for what is not done here.
///
/// # Errors
/// `NotImplemented`; `AccessControlListNotSupported` for an ACL that is not private.
pub(crate) fn refuse_unsupported(headers: &HeaderMap) -> Result<(), Error> {
    for (name, value) in headers {
        let name = name.as_str();
        let asks = [
            "x-amz-server-side-encryption",
            "x-amz-object-lock-",
            "x-amz-grant-",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
            || name.starts_with("x-amz-copy-source-server-side-encryption")
            || matches!(
                name,
                "x-amz-write-offset-bytes" | "x-amz-bucket-object-lock-enabled"
            );
        let off = name == "x-amz-bucket-object-lock-enabled"
            && value.as_bytes().eq_ignore_ascii_case(b"false");
        if asks && !off {
            return Err(Error::refused(Code::NotImplemented));
        }
        if name == "x-amz-acl" && !PRIVATE_ACLS.iter().any(|acl| value == acl) {
            return Err(Error::refused(Code::AccessControlListNotSupported));
        }
    }
    Ok(())
}

/// What a copy takes from its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    /// What the source has.
    Copy,
    /// What the request says.
    Replace,
}

/// Reads `x-amz-metadata-directive` or `x-amz-tagging-directive`.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn directive(headers: &HeaderMap, name: &'static str) -> Result<Directive, Error> {
    match headers
        .get(name)
        .map(|value| value.to_str().unwrap_or_default())
    {
        None | Some("COPY") => Ok(Directive::Copy),
        Some("REPLACE") => Ok(Directive::Replace),
        Some(other) => Err(refuse::invalid_argument(name, other, "Unknown directive.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &[u8])]) -> Result<Attributes, Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = http::HeaderName::try_from(*name).unwrap();
            headers.append(name, http::HeaderValue::from_bytes(value).unwrap());
        }
        from_headers(&headers)
    }

    #[test]
    fn known_headers_are_kept_and_others_left() {
        let attributes = read(&[
            ("content-type", b"text/plain"),
            ("content-length", b"3"),
            ("x-amz-meta-a", b"1"),
            ("x-amz-meta-a", "värde".as_bytes()),
            ("x-amz-storage-class", b"STANDARD"),
            ("x-amz-tagging", b"k=v"),
            ("x-amz-acl", b"private"),
        ])
        .unwrap();
        assert_eq!(
            attributes.headers,
            [("content-type".into(), "text/plain".into())].into()
        );
        assert_eq!(attributes.user, [("a".into(), "1,värde".into())].into());
        assert_eq!(attributes.tags, [("k".into(), "v".into())]);
    }

    #[test]
    fn promises_that_cannot_be_kept_are_refused() {
        for (name, value) in [
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-grant-read", "id=1"),
            ("x-amz-acl", "public-read"),
            ("x-amz-storage-class", "DEEP_ARCHIVE"),
            ("x-amz-storage-class", "nonsense"),
        ] {
            assert!(read(&[(name, value.as_bytes())]).is_err(), "{name}");
        }
        assert!(read(&[("x-amz-meta-a", b"\xff")]).is_err());
        assert!(read(&[("x-amz-meta-ab", &[b'x'; 2046])]).is_ok());
        assert!(read(&[("x-amz-meta-ab", &[b'x'; 2047])]).is_err());
    }
}
