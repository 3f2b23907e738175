//! Where the origin is, and what a request's target is called there.
//!
//! What every request shares (scheme, authority, host, base path) is computed once.
//! Sources: RFC 9112 §3.2 (origin form); Amazon S3 user guide, "Methods for accessing a bucket".

use std::{fmt, net::IpAddr};

use forebay_s3::{code::Code, operation::Operation, uri};
use forebay_store::{Error, Query};
use http::{
    HeaderValue, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

use crate::settings::{Addressing, Protocol, SettingsError};

/// The endpoint, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    host_value: HeaderValue,
    /// Starts with `/` and does not end with it; empty for most.
    base_path: String,
    addressing: Addressing,
    protocol: Protocol,
}

/// What one request is sent to.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As hyper wants it: origin form for HTTP/1.1, whole for HTTP/2.
    pub uri: Uri,
    /// The `Host` header.
    pub host: HeaderValue,
}

impl Target {
    /// The host as text, for the signature.
    pub(crate) fn host_text(&self) -> &str {
        self.host.to_str().expect("an authority is ASCII")
    }
}

impl Address {
    /// Takes an endpoint apart.
    pub(crate) fn new(
        endpoint: &Uri,
        addressing: Addressing,
        protocol: Protocol,
    ) -> Result<Self, SettingsError> {
        let fault = |fault| SettingsError::Endpoint {
            endpoint: endpoint.to_string(),
            fault,
        };
        let scheme = match endpoint.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => scheme.clone(),
            Some(_) => return Err(fault("is neither http nor https")),
            None => return Err(fault("has no scheme")),
        };
        let given = endpoint.authority().ok_or_else(|| fault("has no host"))?;
        if given.as_str().contains('@') {
            return Err(fault("holds a user name, which belongs in the credentials"));
        }
        if endpoint.query().is_some() {
            return Err(fault("has a query"));
        }
        // A port that the scheme implies is left out of `Host`, as every client does; some
        // services compute the signature with the short form only.
        let authority = match given.port_u16() {
            Some(port) if port == default_port(&scheme) => given.host(),
            _ => given.as_str(),
        };
        let authority = Authority::try_from(authority).map_err(|_| fault("has no valid host"))?;
        if addressing == Addressing::VirtualHost && ip_of(authority.host()).is_some() {
            return Err(fault(
                "is an IP address, before which no bucket can be named",
            ));
        }
        Ok(Self {
            host_value: value_of(&authority),
            scheme,
            authority,
            base_path: endpoint.path().trim_end_matches('/').to_owned(),
            addressing,
            protocol,
        })
    }

    /// `http` or `https`.
    pub(crate) fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Host name or address to connect to, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
    }

    /// Port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.authority
            .port_u16()
            .unwrap_or_else(|| default_port(&self.scheme))
    }

    /// Whether the origin is on this machine by its very address, so that no packet leaves it.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host().eq_ignore_ascii_case("localhost")
            || ip_of(self.host()).is_some_and(|ip| ip.is_loopback())
    }

    /// What a request for `operation` is sent to.
    pub(crate) fn target(&self, operation: &Operation, query: &Query) -> Result<Target, Error> {
        let (bucket, key) = (operation.bucket(), operation.key());
        let mut path = String::with_capacity(
            self.base_path.len()
                + bucket.map_or(0, |bucket| bucket.as_str().len() + 1)
                + key.map_or(0, |key| key.as_str().len() + 17)
                + query.as_str().len()
                + 1,
        );
        path.push_str(&self.base_path);
        let in_host = match (self.addressing, bucket) {
            (Addressing::VirtualHost, Some(bucket)) => Some(bucket),
            (Addressing::Path, Some(bucket)) => {
                path.push('/');
                path.push_str(bucket.as_str());
                None
            }
            (_, None) => None,
        };
        if let Some(key) = key {
            path.push('/');
            path.push_str(&uri::encode_path(key.as_str()));
        } else if path.is_empty() || in_host.is_some() {
            path.push('/');
        }
        if !query.is_empty() {
            path.push('?');
            path.push_str(query.as_str());
        }
        let path =
            PathAndQuery::from_maybe_shared(path).map_err(|_| Error::refused(Code::InvalidURI))?;
        let authority = match in_host {
            Some(bucket) => Some(
                Authority::try_from(format!("{}.{}", bucket.as_str(), self.authority))
                    .map_err(|_| Error::refused(Code::InvalidBucketName))?,
            ),
            None => None,
        };
        let host = authority
            .as_ref()
            .map_or_else(|| self.host_value.clone(), value_of);
        let uri = match self.protocol {
            Protocol::Http1 => Uri::from(path),
            Protocol::Http2 => Uri::builder()
                .scheme(self.scheme.clone())
                .authority(authority.unwrap_or_else(|| self.authority.clone()))
                .path_and_query(path)
                .build()
                .map_err(|_| Error::refused(Code::InvalidURI))?,
        };
        Ok(Target { uri, host })
    }
}

impl fmt::Display for Address {
    /// Scheme, host, port unless the scheme implies it, base path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.base_path)
    }
}

fn default_port(scheme: &Scheme) -> u16 {
    if *scheme == Scheme::HTTPS { 443 } else { 80 }
}

fn ip_of(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

fn value_of(authority: &Authority) -> HeaderValue {
    HeaderValue::from_str(authority.as_str()).expect("an authority is visible ASCII")
}

#[cfg(test)]
mod tests {
    use forebay_s3::{
        bucket::BucketName,
        key::ObjectKey,
        operation::{ObjectId, ReadObject},
    };

    use super::*;

    fn address(endpoint: &str, addressing: Addressing, protocol: Protocol) -> Address {
        Address::new(&endpoint.parse().unwrap(), addressing, protocol).unwrap()
    }

    fn get(key: &str) -> Operation {
        Operation::GetObject(ReadObject {
            object: ObjectId {
                bucket: BucketName::parse("bucket").unwrap(),
                key: ObjectKey::parse(key).unwrap(),
                version: None,
            },
            range: None,
            part_number: None,
        })
    }

    #[test]
    fn a_target_names_bucket_and_key_as_the_style_wants() {
        let head = Operation::HeadBucket(BucketName::parse("bucket").unwrap());
        let none = Query::default();
        let rows = [
            (
                "http://h:9000",
                Addressing::Path,
                get("a b//../c+d"),
                "/bucket/a%20b//../c%2Bd",
                "h:9000",
            ),
            (
                "http://h:80/",
                Addressing::Path,
                head.clone(),
                "/bucket",
                "h",
            ),
            (
                "https://h:443/base/",
                Addressing::Path,
                head.clone(),
                "/base/bucket",
                "h",
            ),
            (
                "https://h/base",
                Addressing::Path,
                Operation::ListBuckets,
                "/base",
                "h",
            ),
            (
                "http://h",
                Addressing::Path,
                Operation::ListBuckets,
                "/",
                "h",
            ),
            (
                "http://h:81",
                Addressing::VirtualHost,
                get("k/"),
                "/k/",
                "bucket.h:81",
            ),
            ("https://h", Addressing::VirtualHost, head, "/", "bucket.h"),
            (
                "https://h",
                Addressing::VirtualHost,
                Operation::ListBuckets,
                "/",
                "h",
            ),
        ];
        for (endpoint, addressing, operation, path, host) in rows {
            let address = address(endpoint, addressing, Protocol::Http1);
            let target = address.target(&operation, &none).unwrap();
            assert_eq!(
                (target.uri.to_string().as_str(), target.host_text()),
                (path, host)
            );
        }
    }

    #[test]
    fn http2_carries_scheme_and_authority_and_the_query_is_kept_as_it_is() {
        let address = address("http://h:9000", Addressing::Path, Protocol::Http2);
        let query = Query::new("versionId=a%2fb&x+y&tagging");
        let target = address.target(&get("k"), &query).unwrap();
        assert_eq!(
            target.uri,
            "http://h:9000/bucket/k?versionId=a%2fb&x+y&tagging"
        );
    }

    #[test]
    fn addresses_are_taken_apart() {
        let v6 = address("http://[::1]:9000", Addressing::Path, Protocol::Http1);
        assert_eq!(
            (v6.host(), v6.port(), v6.is_loopback()),
            ("::1", 9000, true)
        );
        let far = address("https://s3.example.com", Addressing::Path, Protocol::Http1);
        assert_eq!(
            (far.port(), far.is_loopback(), far.is_tls()),
            (443, false, true)
        );
        assert!(address("http://127.8.0.1", Addressing::Path, Protocol::Http1).is_loopback());
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for (endpoint, addressing) in [
            ("ftp://h", Addressing::Path),
            ("h:9000", Addressing::Path),
            ("/path", Addressing::Path),
            ("http://user:secret@h", Addressing::Path),
            ("http://h/?q", Addressing::Path),
            ("http://10.0.0.1", Addressing::VirtualHost),
            ("http://[::1]:9", Addressing::VirtualHost),
        ] {
            let error = Address::new(&endpoint.parse().unwrap(), addressing, Protocol::Http1);
            assert!(
                matches!(error, Err(SettingsError::Endpoint { .. })),
                "{endpoint}"
            );
        }
    }
}
