//! Bucket names.
//!
//! Two rules exist. A name may be *addressed* when it follows S3's oldest rule (3–255 bytes of
//! letters, digits, `.`, `-`, `_`), because such buckets are still alive in `us-east-1` and in
//! other services. A new bucket must follow today's rule, [`BucketName::may_be_created`].
//!
//! Source: Amazon S3 User Guide, "General purpose bucket naming rules".

use std::{fmt, sync::Arc};

/// Fewest bytes in a bucket name.
pub const BUCKET_NAME_BYTES_MIN: usize = 3;
/// Most bytes in the name of a bucket made under the oldest rule.
pub const BUCKET_NAME_BYTES_MAX: usize = 255;
/// Most bytes in the name of a bucket made today.
pub const NEW_BUCKET_NAME_BYTES_MAX: usize = 63;

/// Name of a bucket that a request may address; cheap to clone.
///
/// Holds only letters, digits, `.`, `-` and `_`, begins with a letter or digit and has no `..`,
/// so it is a safe file name as it stands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketName(Arc<str>);

/// The text is no bucket name (S3: `InvalidBucketName`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the specified bucket is not valid")]
pub struct InvalidBucketName;

impl BucketName {
    /// Checks `name` against the oldest rule.
    ///
    /// # Errors
    /// [`InvalidBucketName`] when no service could hold such a bucket.
    pub fn parse(name: &str) -> Result<Self, InvalidBucketName> {
        let bytes = name.as_bytes();
        let known = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let fits = (BUCKET_NAME_BYTES_MIN..=BUCKET_NAME_BYTES_MAX).contains(&bytes.len());
        if fits
            && bytes.iter().all(known)
            && bytes[0].is_ascii_alphanumeric()
            && !bytes.windows(2).any(|pair| pair == b"..")
        {
            Ok(Self(name.into()))
        } else {
            Err(InvalidBucketName)
        }
    }

    /// Whether today's rule lets a bucket of this name be made.
    pub fn may_be_created(&self) -> bool {
        let name = &*self.0;
        let lower = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let bytes = name.as_bytes();
        let looks_like_ipv4 =
            name.split('.').count() == 4 && name.split('.').all(|part| part.parse::<u8>().is_ok());
        bytes.len() <= NEW_BUCKET_NAME_BYTES_MAX
            && bytes.iter().all(|b| lower(b) || matches!(b, b'.' | b'-'))
            && bytes.first().is_some_and(lower)
            && bytes.last().is_some_and(lower)
            && !looks_like_ipv4
            && !["xn--", "sthree-", "amzn-s3-demo-"]
                .iter()
                .any(|p| name.starts_with(p))
            && !["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"]
                .iter()
                .any(|s| name.ends_with(s))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for BucketName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addressable_and_creatable_differ() {
        for (name, addressed, created) in [
            ("abc", true, true),
            ("my.bucket-1", true, true),
            ("Legacy_Bucket", true, false),
            ("ab", false, false),
            ("a..b", false, false),
            ("..", false, false),
            (".abc", false, false),
            ("a/b", false, false),
            ("192.168.1.1", true, false),
            ("xn--abc", true, false),
            ("abc-s3alias", true, false),
            ("abc-", true, false),
            ("a\0bc", false, false),
            ("büc", false, false),
        ] {
            let parsed = BucketName::parse(name);
            assert_eq!(parsed.is_ok(), addressed, "{name:?} addressed");
            assert_eq!(
                parsed.is_ok_and(|b| b.may_be_created()),
                created,
                "{name:?} created"
            );
        }
        assert!(BucketName::parse(&"a".repeat(255)).is_ok());
        assert!(BucketName::parse(&"a".repeat(256)).is_err());
        assert!(!BucketName::parse(&"a".repeat(64)).unwrap().may_be_created());
    }
}
