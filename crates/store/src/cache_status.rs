//! What a cache did with a request, in the words of RFC 9211.

use std::fmt;

/// The name of a gateway that was given none.
pub const NAME_DEFAULT: &str = "forebay";

/// How a cache handled one request; printed as a member of the `Cache-Status` header, under
/// [`NAME_DEFAULT`] or another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStatus {
    /// `None` is a hit; else why the request went forward.
    pub forward: Option<Forward>,
    /// `fwd-status`: status the origin answered, when it went forward.
    pub forward_status: Option<u16>,
    /// Freshness left in seconds; negative when stale.
    pub ttl_seconds: Option<i64>,
    /// Whether the answer was kept.
    pub stored: bool,
    /// Whether the request joined one already under way.
    pub collapsed: bool,
    /// `detail`: a token of Forebay's own.
    pub detail: Option<&'static str>,
}

/// Why a request went forward (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was configured not to handle this request.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// Nothing was stored under this key.
    UriMiss,
    /// Something was stored, but for other request headers.
    VaryMiss,
    /// There was no usable stored response, for a reason not told apart.
    Miss,
    /// The client's directives asked for it.
    Request,
    /// What was stored was stale.
    Stale,
    /// Only a part of what was asked for was stored.
    Partial,
}

impl CacheStatus {
    /// A hit with this much freshness left.
    pub fn hit(ttl_seconds: i64) -> Self {
        Self {
            ttl_seconds: Some(ttl_seconds),
            ..Self::EMPTY
        }
    }

    /// A request that went forward.
    pub fn forward(reason: Forward) -> Self {
        Self {
            forward: Some(reason),
            ..Self::EMPTY
        }
    }

    /// Printed for the cache of this name, an RFC 8941 token.
    pub fn named<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        Named(name, self)
    }

    const EMPTY: Self = Self {
        forward: None,
        forward_status: None,
        ttl_seconds: None,
        stored: false,
        collapsed: false,
        detail: None,
    };
}

impl Forward {
    /// The token of RFC 9211.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

impl fmt::Display for CacheStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Named(NAME_DEFAULT, self).fmt(f)
    }
}

/// A cache's name and what it did.
struct Named<'a>(&'a str, &'a CacheStatus);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, status) = self;
        f.write_str(name)?;
        match status.forward {
            None => f.write_str("; hit")?,
            Some(reason) => write!(f, "; fwd={}", reason.as_str())?,
        }
        if let Some(status) = status.forward_status {
            write!(f, "; fwd-status={status}")?;
        }
        if let Some(ttl) = status.ttl_seconds {
            f.write_str("; ttl=")?;
            write!(f, "{ttl}")?;
        }
        if status.stored {
            f.write_str("; stored")?;
        }
        if status.collapsed {
            f.write_str("; collapsed")?;
        }
        if let Some(detail) = status.detail {
            f.write_str("; detail=")?;
            f.write_str(detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_printed_as_rfc_9211_writes_them() {
        assert_eq!(CacheStatus::hit(-3).to_string(), "forebay; hit; ttl=-3");
        let named = CacheStatus::hit(0).named("edge/1").to_string();
        assert_eq!(named, "edge/1; hit; ttl=0");
        let status = CacheStatus {
            forward_status: Some(200),
            stored: true,
            collapsed: true,
            detail: Some("strict"),
            ..CacheStatus::forward(Forward::UriMiss)
        };
        let printed = "forebay; fwd=uri-miss; fwd-status=200; stored; collapsed; detail=strict";
        assert_eq!(status.to_string(), printed);
    }
}
