//! Object keys and version ids.
//!
//! A key is any UTF-8 text of 1–1024 bytes: `..`, `//`, a trailing `/`, control characters and
//! NUL are all legal, and no two spellings are the same key. Nothing here normalises.
//!
//! Source: Amazon S3 User Guide, "Naming Amazon S3 objects".

use std::{fmt, sync::Arc};

/// Most bytes in a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Most bytes of a version id: AWS promises "at most 1,024 bytes long".
pub const VERSION_ID_BYTES_MAX: usize = 1024;

/// Key of an object, `1..=1024` bytes of UTF-8; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Arc<str>);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// S3: the request names a bucket, not an object.
    #[error("your key is empty")]
    Empty,
    /// S3: `KeyTooLongError`.
    #[error("your key is too long")]
    TooLong {
        /// Bytes in the key.
        size_bytes: usize,
    },
}

impl ObjectKey {
    /// Checks the length of `key`, already percent-decoded.
    ///
    /// # Errors
    /// [`InvalidKey`] when it has no byte or more than [`KEY_BYTES_MAX`].
    pub fn parse(key: &str) -> Result<Self, InvalidKey> {
        match key.len() {
            0 => Err(InvalidKey::Empty),
            1..=KEY_BYTES_MAX => Ok(Self(key.into())),
            size_bytes => Err(InvalidKey::TooLong { size_bytes }),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for ObjectKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Id of one version of an object, as a request names it; `null` is one like any other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionId(Arc<str>);

/// The text is no version id (S3: `InvalidArgument`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid version id specified")]
pub struct InvalidVersionId;

impl VersionId {
    /// Checks that `id` has `1..=1024` bytes.
    ///
    /// # Errors
    /// [`InvalidVersionId`] when it has not.
    pub fn parse(id: &str) -> Result<Self, InvalidVersionId> {
        if (1..=VERSION_ID_BYTES_MAX).contains(&id.len()) {
            Ok(Self(id.into()))
        } else {
            Err(InvalidVersionId)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_1_to_1024_bytes_and_is_kept_as_it_is() {
        assert_eq!(ObjectKey::parse(""), Err(InvalidKey::Empty));
        let longest = "é".repeat(512);
        assert_eq!(ObjectKey::parse(&longest).unwrap().as_str(), longest);
        let too_long = "a".repeat(1025);
        assert_eq!(
            ObjectKey::parse(&too_long),
            Err(InvalidKey::TooLong { size_bytes: 1025 })
        );
        for odd in ["..", "a//b", "a/", "\0", "e\u{301}", "é", "/a"] {
            assert_eq!(ObjectKey::parse(odd).unwrap().as_str(), odd);
        }
    }
}
