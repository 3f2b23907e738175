//! Where an endpoint is, as `--endpoint` names it.

use std::fmt;

/// What an endpoint speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// S3 over plain HTTP/1.1.
    Http,
    /// S3 over HTTP/1.1 and TLS.
    Https,
    /// The protocol of Redis (RESP).
    Redis,
}

impl Scheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Redis => 6379,
        }
    }

    /// As it stands in a URL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Redis => "redis",
        }
    }
}

/// A scheme, a host and a port; for Redis, what opens a session as well.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// What is spoken there.
    pub scheme: Scheme,
    /// A name or an address, without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// The `Host` header: without the scheme's own port, as SDKs send it.
    pub authority: Box<str>,
    /// User (may be empty) and password; Redis only.
    pub login: Option<(Box<str>, Box<str>)>,
    /// Number of the database; Redis only.
    pub database: Option<u32>,
}

/// Why a text names no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No scheme that is spoken here.
    #[error("an endpoint is http://HOST[:PORT], https://HOST[:PORT] or redis://HOST[:PORT]")]
    Scheme,
    /// Nothing between the scheme and the port.
    #[error("the endpoint names no host")]
    NoHost,
    /// Not `1..=65535`.
    #[error("{0:?} is no port")]
    Port(String),
    /// A path, which S3's path style has no room for.
    #[error("an endpoint has no path: {0:?} is too much")]
    Path(String),
    /// User and password belong into the environment, where no process list shows them.
    #[error("credentials don't belong into the address: use AWS_ACCESS_KEY_ID or --access-key")]
    Login,
}

impl Address {
    /// Reads `scheme://host[:port]`.
    ///
    /// # Errors
    /// [`AddressError`], with what is wrong.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "redis" => Scheme::Redis,
            _ => return Err(AddressError::Scheme),
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match place.rsplit_once('@') {
            Some((login, place)) => (Some(login.split_once(':').unwrap_or(("", login))), place),
            None => (None, place),
        };
        if login.is_some() && scheme != Scheme::Redis {
            return Err(AddressError::Login);
        }
        let database = match path {
            "" => None,
            number if scheme == Scheme::Redis => {
                let parsed = number
                    .parse()
                    .map_err(|_| AddressError::Path(path.into()))?;
                Some(parsed)
            }
            _ => return Err(AddressError::Path(format!("/{path}"))),
        };
        let (host, port) = split_port(place)?;
        if host.is_empty() {
            return Err(AddressError::NoHost);
        }
        let port = port.unwrap_or(scheme.default_port());
        let mut authority = if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        if port != scheme.default_port() {
            authority = format!("{authority}:{port}");
        }
        Ok(Self {
            scheme,
            host: host.into(),
            port,
            authority: authority.into(),
            login: login.map(|(user, password)| (user.into(), password.into())),
            database,
        })
    }
}

fn split_port(place: &str) -> Result<(&str, Option<u16>), AddressError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(inner) => {
            let (host, rest) = inner.split_once(']').ok_or(AddressError::NoHost)?;
            (host, rest.strip_prefix(':'))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let parse = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(AddressError::Port(text.to_owned())),
    };
    Ok((host, port.map(parse).transpose()?))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.authority)?;
        match self.database {
            Some(number) => write!(f, "/{number}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed_without_secrets() {
        for (text, host, port, authority) in [
            ("http://localhost:9000", "localhost", 9000, "localhost:9000"),
            ("http://localhost/", "localhost", 80, "localhost"),
            (
                "HTTPS://s3.example.com",
                "s3.example.com",
                443,
                "s3.example.com",
            ),
            ("http://[::1]:81", "::1", 81, "[::1]:81"),
            ("https://[::1]", "::1", 443, "[::1]"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((&*address.host, address.port), (host, port), "{text}");
            assert_eq!(&*address.authority, authority, "{text}");
        }
        let redis = Address::parse("redis://me:hush@cache:1/2").unwrap();
        assert_eq!(redis.login, Some(("me".into(), "hush".into())));
        assert_eq!(
            format!("{redis} {redis:?}"),
            "redis://cache:1/2 redis://cache:1/2"
        );
        let redis = Address::parse("redis://hush@cache").unwrap();
        assert_eq!(redis.login, Some(("".into(), "hush".into())));
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        use AddressError::{Login, NoHost, Path, Port, Scheme};
        for (text, fault) in [
            ("localhost:9000", Scheme),
            ("ftp://localhost", Scheme),
            ("http://", NoHost),
            ("http://:80", NoHost),
            ("http://a:0", Port("0".into())),
            ("http://a:65536", Port("65536".into())),
            ("http://a:x", Port("x".into())),
            ("http://a/bucket", Path("/bucket".into())),
            ("http://me:hush@a", Login),
        ] {
            assert_eq!(Address::parse(text), Err(fault), "{text}");
        }
    }
}
