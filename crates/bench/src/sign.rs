//! Heads of requests, signed ahead where the request allows it.
//!
//! A signature covers the method, the path, the query, the `x-amz-*` headers and the time, and S3
//! takes it for fifteen minutes. `Range` and `Content-Length` are not covered, nor is a body that
//! is sent as `UNSIGNED-PAYLOAD`. So each request for an object is signed once, with the first use,
//! and its signature is used again for [`REUSE`]; only then is the time moved on. Requests
//! that are made once only (each part of an upload, each page of a listing) are signed each.
//!
//! Signing is done before the clock of a request starts, and its processor time is in the client's
//! figures. This is what a client may do that asks for the same again; servers verify each one.
//!
//! Source: "Authenticating Requests (AWS Signature Version 4)", S3 API reference.

use std::{io::Write as _, time::Duration};

use forebay_s3::{
    sigv4::{Credentials, PayloadMode, ScopedKey, Signature, Signer, Target},
    time::AmzDate,
};
use forebay_store::Clock;
use http::{HeaderMap, Method, header::AUTHORIZATION};
use tokio::time::Instant;

use crate::wire::Body;

/// How long a signature is used: far less than the fifteen minutes that S3 takes it for, since the
/// clocks of the two may differ by nearly as much.
pub(crate) const REUSE: Duration = Duration::from_mins(4);

/// Signatures kept by a thread for each operation: 20 MB. Objects beyond are signed each time.
const SLOTS_MAX: usize = 256 * 1024;

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Access {
    /// Nobody: requests carry no signature.
    Anonymous,
    /// These credentials, in this region.
    Signed {
        /// The keys.
        credentials: Credentials,
        /// Such as `us-east-1`.
        region: Box<str>,
    },
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) verb: Verb,
    /// As on the wire: percent-encoded, with bucket and key.
    pub(crate) path: &'a str,
    /// As on the wire, without the `?`.
    pub(crate) query: Option<&'a str>,
    /// First and last byte.
    pub(crate) range: Option<(u64, u64)>,
    /// Where its signature is kept, if it will be asked again: a number of the object.
    pub(crate) slot: Option<u32>,
}

/// The methods in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Head,
    Put,
    Delete,
    Post,
}

const VERBS: usize = 5;

impl Verb {
    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Head => Method::HEAD,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
            Self::Post => Method::POST,
        }
    }

    fn has_body(self) -> bool {
        matches!(self, Self::Put | Self::Post)
    }
}

/// Writes the heads of one thread's requests to one endpoint.
#[derive(Debug)]
pub(crate) struct HeadWriter {
    host: Box<str>,
    access: Access,
    clock: Clock,
    moment: Option<Moment>,
    /// Of [`Verb`]s, by their order: the signature of each object, and of which moment it is.
    slots: [Vec<Option<Slot>>; VERBS],
}

/// The time that signatures carry at present.
#[derive(Debug)]
struct Moment {
    date: AmzDate,
    key: ScopedKey,
    until: Instant,
    number: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    moment: u32,
    signature: Signature,
}

impl HeadWriter {
    pub(crate) fn new(host: &str, access: &Access, clock: Clock) -> Self {
        Self {
            host: host.into(),
            access: access.clone(),
            clock,
            moment: None,
            slots: Default::default(),
        }
    }

    /// Replaces `out` by the head of a request.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, asked: &Asked<'_>, body: &Body<'_>) {
        out.clear();
        let method = asked.verb.method();
        let query_mark = if asked.query.is_some() { "?" } else { "" };
        put(
            out,
            &[
                method.as_str(),
                " ",
                asked.path,
                query_mark,
                asked.query.unwrap_or_default(),
                " HTTP/1.1\r\nhost: ",
                &self.host,
                "\r\n",
            ],
        );
        if asked.verb.has_body() {
            // Writing to a vector can't fail.
            let _ = write!(out, "content-length: {}\r\n", body.len_bytes());
        }
        if let Some((first, last)) = asked.range {
            let _ = write!(out, "range: bytes={first}-{last}\r\n");
        }
        self.write_signature(out, asked, &method, payload_mode(body));
        out.extend_from_slice(b"\r\n");
    }

    fn write_signature(
        &mut self,
        out: &mut Vec<u8>,
        asked: &Asked<'_>,
        method: &Method,
        payload: PayloadMode,
    ) {
        let Access::Signed {
            credentials,
            region,
        } = &self.access
        else {
            return;
        };
        let now = Instant::now();
        if self
            .moment
            .as_ref()
            .is_none_or(|moment| now >= moment.until)
        {
            let number = self.moment.as_ref().map_or(0, |moment| moment.number + 1);
            self.moment = Some(Moment::new(credentials, region, &self.clock, (now, number)));
        }
        let moment = self.moment.as_ref().expect("made above");
        let slots = &mut self.slots[asked.verb as usize];
        let place = asked
            .slot
            .map(|slot| slot as usize)
            .filter(|slot| *slot < SLOTS_MAX);
        let kept = place
            .and_then(|place| slots.get(place).copied().flatten())
            .filter(|slot| slot.moment == moment.number);
        let signature = if let Some(kept) = kept {
            kept.signature
        } else {
            let target = Target {
                method,
                path: asked.path,
                query: asked.query,
                host: &self.host,
            };
            let signature = moment.sign(credentials, &target, payload);
            if let Some(place) = place {
                if slots.len() <= place {
                    slots.resize(place + 1, None);
                }
                slots[place] = Some(Slot {
                    moment: moment.number,
                    signature,
                });
            }
            signature
        };
        moment.write(out, credentials, payload, &signature);
    }
}

impl Moment {
    fn new(
        credentials: &Credentials,
        region: &str,
        clock: &Clock,
        (now, number): (Instant, u32),
    ) -> Self {
        let date = AmzDate::from_unix(clock.unix_seconds());
        let secret = &credentials.secret_access_key;
        Self {
            date,
            key: ScopedKey::derive(secret, &date, region, "s3"),
            until: now + REUSE,
            number,
        }
    }

    fn sign(
        &self,
        credentials: &Credentials,
        target: &Target<'_>,
        payload: PayloadMode,
    ) -> Signature {
        let signer = Signer {
            credentials,
            key: &self.key,
            now: self.date,
        };
        let mut headers = HeaderMap::new();
        let signature = signer
            .sign(target, &mut headers, payload)
            .expect("the credentials were tried when the run began");
        debug_assert!(
            headers.len() == 3 + usize::from(credentials.session_token.is_some())
                && headers.contains_key(AUTHORIZATION),
            "the headers are those that `write` writes"
        );
        signature
    }

    fn write(
        &self,
        out: &mut Vec<u8>,
        credentials: &Credentials,
        payload: PayloadMode,
        signature: &Signature,
    ) {
        let payload_hash = payload.value();
        put(
            out,
            &[
                "x-amz-date: ",
                self.date.as_str(),
                "\r\nx-amz-content-sha256: ",
                payload_hash.as_str(),
                "\r\nauthorization: AWS4-HMAC-SHA256 Credential=",
                &credentials.access_key_id,
                "/",
                self.key.scope(),
                ", SignedHeaders=host;x-amz-content-sha256;x-amz-date",
            ],
        );
        let token = credentials.session_token.as_deref();
        if token.is_some() {
            put(out, &[";x-amz-security-token"]);
        }
        put(out, &[", Signature=", signature.as_str(), "\r\n"]);
        if let Some(token) = token {
            put(out, &["x-amz-security-token: ", token, "\r\n"]);
        }
    }
}

impl Access {
    /// Whether the credentials can be sent at all.
    ///
    /// # Errors
    /// Names what holds characters that no header can carry.
    pub(crate) fn check(&self) -> Result<(), forebay_s3::sigv4::SignError> {
        let Self::Signed {
            credentials,
            region,
        } = self
        else {
            return Ok(());
        };
        let date = AmzDate::from_unix(0);
        let key = ScopedKey::derive(&credentials.secret_access_key, &date, region, "s3");
        let signer = Signer {
            credentials,
            key: &key,
            now: date,
        };
        let target = Target {
            method: &Method::GET,
            path: "/",
            query: None,
            host: "localhost",
        };
        signer
            .sign(&target, &mut HeaderMap::new(), PayloadMode::Unsigned)
            .map(|_| ())
    }
}

/// What a body is signed as: documents by their digest, objects not at all.
fn payload_mode(body: &Body<'_>) -> PayloadMode {
    use sha2::{Digest as _, Sha256};
    match body {
        Body::None => PayloadMode::Sha256(EMPTY_DIGEST),
        Body::Bytes(bytes) => PayloadMode::Sha256(Sha256::digest(bytes).into()),
        Body::Content { .. } => PayloadMode::Unsigned,
    }
}

/// SHA-256 of nothing.
const EMPTY_DIGEST: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

fn put(out: &mut Vec<u8>, pieces: &[&str]) {
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use forebay_s3::sigv4::{
        ExpectedScope, Presented, Regions, RequestParts, SecretKey, SigningKey,
    };
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::content::Content;

    const AT: i64 = 1_795_260_000;

    fn access(token: Option<&str>) -> Access {
        Access::Signed {
            credentials: Credentials {
                access_key_id: "AKID".into(),
                secret_access_key: SecretKey::new("hush"),
                session_token: token.map(Into::into),
            },
            region: "eu-north-1".into(),
        }
    }

    fn clock() -> Clock {
        Clock::manual(UNIX_EPOCH + Duration::from_secs(AT.unsigned_abs()))
    }

    /// Reads a head as a server does, and verifies its signature.
    fn verified(head: &[u8]) -> (Method, String, HeaderMap) {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        assert!(request.parse(head).unwrap().is_complete());
        let method: Method = request.method.unwrap().parse().unwrap();
        let uri = request.path.unwrap().to_owned();
        let mut map = HeaderMap::new();
        for header in request.headers {
            let name: HeaderName = header.name.parse().unwrap();
            map.insert(name, HeaderValue::from_bytes(header.value).unwrap());
        }
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (&*uri, None),
        };
        let parts = RequestParts {
            method: &method,
            path,
            query,
            headers: &map,
            host: map["host"].to_str().unwrap(),
        };
        let presented = Presented::from_request(&parts).unwrap().unwrap();
        let scope = ExpectedScope {
            regions: Regions::Any,
            service: "s3",
        };
        let checked = presented.check(&parts, &scope, AT).unwrap();
        let secret = SecretKey::new("hush");
        let key = SigningKey::derive(
            &secret,
            &AmzDate::from_unix(AT).as_str()[..8],
            "eu-north-1",
            "s3",
        );
        checked.verify(&parts, &key).unwrap();
        (method, uri, map)
    }

    #[test]
    fn every_head_verifies_the_second_time_too() {
        for token in [None, Some("quiet")] {
            let mut writer = HeadWriter::new("localhost:9000", &access(token), clock());
            let object = Body::Content {
                content: Content::of("k"),
                start: 0,
                len_bytes: 7,
            };
            for (verb, query, body) in [
                (Verb::Get, None, Body::None),
                (Verb::Head, None, Body::None),
                (Verb::Put, None, object),
                (Verb::Put, Some("partNumber=1&uploadId=u"), object),
                (Verb::Post, Some("uploads="), Body::None),
                (Verb::Post, Some("uploadId=u"), Body::Bytes(b"<x/>")),
                (Verb::Delete, None, Body::None),
            ] {
                for range in [None, Some((3, 9))] {
                    let asked = Asked {
                        verb,
                        path: "/bucket/a%20b",
                        query,
                        range,
                        slot: query.is_none().then_some(5),
                    };
                    let mut head = Vec::new();
                    writer.write(&mut head, &asked, &body);
                    let (method, uri, headers) = verified(&head);
                    assert_eq!(method, verb.method());
                    let suffix = query.map_or(String::new(), |query| format!("?{query}"));
                    assert_eq!(uri, format!("/bucket/a%20b{suffix}"));
                    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
                    assert_eq!(text("range"), range.map(|_| "bytes=3-9"));
                    let length = body.len_bytes().to_string();
                    assert_eq!(text("content-length"), verb.has_body().then_some(&*length));
                    assert_eq!(text("x-amz-security-token"), token);
                }
            }
        }
    }

    #[test]
    fn an_anonymous_head_is_short() {
        let mut writer = HeadWriter::new("h", &Access::Anonymous, clock());
        let asked = Asked {
            verb: Verb::Get,
            path: "/b/k",
            query: None,
            range: None,
            slot: Some(0),
        };
        let mut head = b"left over".to_vec();
        writer.write(&mut head, &asked, &Body::None);
        assert_eq!(head, b"GET /b/k HTTP/1.1\r\nhost: h\r\n\r\n");
    }
}
