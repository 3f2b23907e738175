//! Entity tags and the lists of them in conditional requests.
//!
//! S3's own tags are strong. Clients send them with and without quotes, so both are read.
//! Source: RFC 9110 §8.8.3 (`ETag`), §13.1.1 (If-Match), §13.1.2 (If-None-Match).

use std::{fmt, sync::Arc};

/// Tags looked at in one `If-Match` or `If-None-Match`; a guess far above any use seen.
pub const ETAGS_IN_LIST_MAX: usize = 64;

/// An entity tag, without its quotes; cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ETag {
    value: Arc<str>,
    strength: Strength,
}

/// Whether equal tags promise equal bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strength {
    /// Equal tags mean equal bytes.
    Strong,
    /// Equal tags mean equal meaning (`W/"…"`).
    Weak,
}

/// The text is no entity tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the entity tag is not valid")]
pub struct InvalidETag;

impl ETag {
    /// Reads `"abc"`, `W/"abc"` or the bare `abc` that many S3 clients send.
    ///
    /// # Errors
    /// [`InvalidETag`] on an empty bare tag, a lone quote, or a byte that RFC 9110 forbids.
    pub fn parse(text: &str) -> Result<Self, InvalidETag> {
        let text = text.trim();
        let (strength, rest) = match text.strip_prefix("W/") {
            Some(rest) => (Strength::Weak, rest),
            None => (Strength::Strong, text),
        };
        let value = match rest.strip_prefix('"') {
            Some(inner) => inner.strip_suffix('"').ok_or(InvalidETag)?,
            None if rest.is_empty() => return Err(InvalidETag),
            None => rest,
        };
        if value.bytes().all(|b| b > b' ' && b != b'"' && b != 0x7f) {
            Ok(Self {
                value: value.into(),
                strength,
            })
        } else {
            Err(InvalidETag)
        }
    }

    /// A strong tag around `value`, which holds no quote and no control character.
    ///
    /// # Errors
    /// [`InvalidETag`] when it does.
    pub fn strong(value: &str) -> Result<Self, InvalidETag> {
        Self::parse(&format!("\"{value}\""))
    }

    /// The tag without quotes.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Whether the tag is strong or weak.
    pub fn strength(&self) -> Strength {
        self.strength
    }

    /// Strong comparison (RFC 9110 §8.8.3.2): both strong, and equal.
    pub fn matches_strongly(&self, other: &Self) -> bool {
        self.strength == Strength::Strong && self == other
    }

    /// Weak comparison (RFC 9110 §8.8.3.2): equal but for strength.
    pub fn matches_weakly(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl fmt::Display for ETag {
    /// Writes the tag as a header has it, with quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weak = if self.strength == Strength::Weak {
            "W/"
        } else {
            ""
        };
        write!(f, "{weak}\"{}\"", self.value)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What `If-Match` and `If-None-Match` list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ETagList {
    /// `*`: any current object.
    Any,
    /// One of these.
    Tags(Vec<ETag>),
}

impl ETagList {
    /// Reads `*` or a comma-separated list of `1..=64` tags.
    ///
    /// # Errors
    /// [`InvalidETag`] when a member is none, or there are none or too many.
    pub fn parse(text: &str) -> Result<Self, InvalidETag> {
        if text.trim() == "*" {
            return Ok(Self::Any);
        }
        let mut tags = Vec::new();
        // An opaque tag may hold a comma; split only outside quotes.
        let mut quoted = false;
        for part in text.split(|c: char| {
            quoted ^= c == '"';
            c == ',' && !quoted
        }) {
            if part.trim().is_empty() {
                continue;
            }
            if tags.len() == ETAGS_IN_LIST_MAX {
                return Err(InvalidETag);
            }
            tags.push(ETag::parse(part)?);
        }
        if tags.is_empty() {
            Err(InvalidETag)
        } else {
            Ok(Self::Tags(tags))
        }
    }

    /// Whether a tag of the list equals `etag` in strong comparison; `*` does.
    pub fn matches_strongly(&self, etag: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag.matches_strongly(etag)),
        }
    }

    /// Whether a tag of the list equals `etag` in weak comparison; `*` does.
    pub fn matches_weakly(&self, etag: &ETag) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag.matches_weakly(etag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_with_and_without_quotes_and_printed_with() {
        for (text, printed) in [
            ("\"abc\"", Some("\"abc\"")),
            ("abc", Some("\"abc\"")),
            (" W/\"abc\" ", Some("W/\"abc\"")),
            ("\"\"", Some("\"\"")),
            ("\"a,b\"", Some("\"a,b\"")),
            ("\"abc", None),
            ("", None),
            ("a\"b", None),
            ("a b", None),
        ] {
            let parsed = ETag::parse(text).ok().map(|tag| tag.to_string());
            assert_eq!(parsed.as_deref(), printed, "{text:?}");
        }
    }

    #[test]
    fn lists_split_outside_quotes_and_compare_by_strength() {
        let list = ETagList::parse("\"a,b\", W/\"c\",d").unwrap();
        let strong = |v: &str| ETag::strong(v).unwrap();
        assert!(list.matches_strongly(&strong("a,b")));
        assert!(!list.matches_strongly(&strong("c")));
        assert!(list.matches_weakly(&strong("c")));
        assert!(list.matches_strongly(&strong("d")));
        assert!(!list.matches_weakly(&strong("e")));
        assert_eq!(ETagList::parse("*").unwrap(), ETagList::Any);
        assert!(ETagList::parse(" , ").is_err());
        assert!(ETagList::parse(&"a,".repeat(65)).is_err());
    }
}
