//! Places in a listing that a layer makes of several, and the tokens that carry them: pure.
//!
//! A token names the last thing that was given, nothing else: what moves between two pages can't
//! be lost or doubled by it, and any gateway can go on.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// Tells our tokens from others'.
const TOKEN_KIND: &str = "fb1";
/// Most bytes of a key, so of what a store takes as a place.
const KEY_BYTES_MAX: usize = forebay_s3::key::KEY_BYTES_MAX;

/// A place between keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Position {
    /// Before all keys.
    #[default]
    Start,
    /// Just after this key.
    After(String),
    /// Just after all keys that begin so.
    Past(String),
}

impl Position {
    /// After what a client names as the last thing it has: a key, or a common prefix.
    pub fn after_marker(marker: &str, prefix: &str, delimiter: Option<&str>) -> Self {
        if marker.is_empty() {
            return Self::Start;
        }
        let is_common = delimiter.is_some_and(|delimiter| {
            let rest = marker.strip_prefix(prefix).unwrap_or_default();
            rest.find(delimiter)
                .is_some_and(|at| at + delimiter.len() == rest.len())
        });
        if is_common {
            Self::Past(marker.to_owned())
        } else {
            Self::After(marker.to_owned())
        }
    }

    /// A token for clients.
    pub fn to_token(&self) -> String {
        let text = match self {
            Self::Start => format!("{TOKEN_KIND}s"),
            Self::After(key) => format!("{TOKEN_KIND}a{key}"),
            Self::Past(prefix) => format!("{TOKEN_KIND}p{prefix}"),
        };
        URL_SAFE_NO_PAD.encode(text)
    }

    /// Reads a token; `None` when it is none of ours.
    pub fn from_token(token: &str) -> Option<Self> {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let rest = text.strip_prefix(TOKEN_KIND)?;
        match (rest.chars().next()?, rest.get(1..)?) {
            ('s', "") => Some(Self::Start),
            ('a', key) if !key.is_empty() => Some(Self::After(key.to_owned())),
            ('p', prefix) if !prefix.is_empty() => Some(Self::Past(prefix.to_owned())),
            _ => None,
        }
    }

    /// The first bytes that a key at or after the place may have.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Start => Vec::new(),
            Self::After(key) => [key.as_bytes(), &[0]].concat(),
            Self::Past(prefix) => [prefix.as_bytes(), &[0xff]].concat(),
        }
    }

    /// The key after which a store is asked; what it gives from before the place is left.
    pub fn marker(&self) -> String {
        match self {
            Self::Start => String::new(),
            Self::After(key) => key.clone(),
            // No key that anybody uses comes after this one and before the place.
            Self::Past(prefix) if prefix.len() + 4 <= KEY_BYTES_MAX => {
                format!("{prefix}{}", char::MAX)
            }
            Self::Past(prefix) => prefix.clone(),
        }
    }
}

/// The common prefix that a key is rolled up to.
pub fn rolled_up<'a>(key: &'a str, prefix: &str, delimiter: Option<&str>) -> Option<&'a str> {
    let delimiter = delimiter?;
    let rest = key.strip_prefix(prefix)?;
    let end = prefix.len() + rest.find(delimiter)? + delimiter.len();
    Some(&key[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_and_others_are_none() {
        for position in [
            Position::Start,
            Position::After("a\0é".into()),
            Position::Past("a/".into()),
        ] {
            assert_eq!(Position::from_token(&position.to_token()), Some(position));
        }
        for bad in ["", "garbage", "ZmIx", "ZmIxYQ", "YWJj"] {
            assert_eq!(Position::from_token(bad), None, "{bad}");
        }
    }

    #[test]
    fn markers_continue_after_what_they_name() {
        let after = |key: &str| Position::After(key.to_owned());
        let past = |prefix: &str| Position::Past(prefix.to_owned());
        for (marker, prefix, delimiter, expected) in [
            ("", "", Some("/"), Position::Start),
            ("a", "", None, after("a")),
            ("a/", "", None, after("a/")),
            ("a/", "", Some("/"), past("a/")),
            ("a/b", "", Some("/"), after("a/b")),
            ("a/b/", "a/", Some("/"), past("a/b/")),
            ("a/", "a/", Some("/"), after("a/")),
        ] {
            let position = Position::after_marker(marker, prefix, delimiter);
            assert_eq!(position, expected, "{marker} {prefix} {delimiter:?}");
        }
        assert!("a/zz" < past("a/").marker().as_str() && past("a/").marker().as_str() < "a0");
    }

    #[test]
    fn keys_are_rolled_up_behind_the_prefix() {
        assert_eq!(rolled_up("a/b/c", "a/", Some("/")), Some("a/b/"));
        assert_eq!(rolled_up("a/b", "a/", Some("/")), None);
        assert_eq!(rolled_up("a/b", "", None), None);
    }
}
