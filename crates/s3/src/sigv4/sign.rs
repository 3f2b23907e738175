//! Signs requests: in the `Authorization` header, or in the query of a presigned URL.
//!
//! Signed are `host`, every `x-amz-*` header, `content-type` and `content-md5`: what gives the
//! request its meaning. Left out is what a proxy between here and the origin may rewrite.

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{HeaderMap, Method};

use super::canonical::{AbsentHeader, CanonicalRequest, PathForm, push_escaped};
use super::{
    ALGORITHM, ChunkSigner, Credentials, EXPIRES_SECONDS_MAX, PayloadMode, RequestParts, ScopedKey,
    Signature, hex,
};
use crate::time::AmzDate;

const AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path as it will be on the wire.
    pub path: &'a str,
    /// The query as it will be on the wire, without the `?`.
    pub query: Option<&'a str>,
    /// The `Host` header as it will be on the wire.
    pub host: &'a str,
}

/// Why a request could not be signed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key id or the session token holds bytes that no header can carry.
    #[error("the {0} holds characters that a header cannot carry")]
    NotAHeaderValue(&'static str),
    /// A presigned URL lives for one second to seven days.
    #[error("a presigned URL lives for 1 to {EXPIRES_SECONDS_MAX} seconds, not {0}")]
    Expires(u32),
}

/// Signs requests of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    /// Who signs.
    pub credentials: &'a Credentials,
    /// The key of the day of `now` ([`ScopedKey::covers`]).
    pub key: &'a ScopedKey,
    /// The moment.
    pub now: AmzDate,
}

impl Signer<'_> {
    /// Adds `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` where there is one, and
    /// `Authorization`, replacing any that are there. Gives the signature, from which
    /// [`Signer::chunk_signer`] goes on.
    ///
    /// # Errors
    /// [`SignError::NotAHeaderValue`]; the headers may then be half done.
    pub fn sign(
        &self,
        target: &Target<'_>,
        headers: &mut HeaderMap,
        payload: PayloadMode,
    ) -> Result<Signature, SignError> {
        debug_assert!(self.key.covers(&self.now), "the key is of another day");
        headers.remove(AUTHORIZATION);
        headers.remove(SECURITY_TOKEN);
        headers.insert(AMZ_DATE, value(self.now.as_str(), "date")?);
        let payload_hash = payload.value();
        headers.insert(
            CONTENT_SHA256,
            value(payload_hash.as_str(), "payload hash")?,
        );
        if let Some(token) = &self.credentials.session_token {
            let mut token = value(token, "session token")?;
            token.set_sensitive(true);
            headers.insert(SECURITY_TOKEN, token);
        }
        let signed_headers = signed_headers(headers);
        let parts = target.with(headers);
        let signature = self.signature(&parts, &signed_headers, payload_hash.as_str());
        let authorization = format!(
            "{ALGORITHM} Credential={}/{}, SignedHeaders={signed_headers}, Signature={signature}",
            self.credentials.access_key_id,
            self.key.scope(),
        );
        let mut authorization = value(&authorization, "key id")?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        Ok(signature)
    }

    /// Gives the query of a presigned URL: `target.query` and the signature's parameters. The
    /// request must be sent with `headers`, of which the signed ones are named in the query.
    ///
    /// # Errors
    /// [`SignError::Expires`] unless `expires_seconds` is in `1..=EXPIRES_SECONDS_MAX`.
    pub fn presign(
        &self,
        target: &Target<'_>,
        headers: &HeaderMap,
        expires_seconds: u32,
    ) -> Result<String, SignError> {
        debug_assert!(self.key.covers(&self.now), "the key is of another day");
        if !(1..=EXPIRES_SECONDS_MAX).contains(&expires_seconds) {
            return Err(SignError::Expires(expires_seconds));
        }
        let signed_headers = signed_headers(headers);
        let credential = format!("{}/{}", self.credentials.access_key_id, self.key.scope());
        let expires = expires_seconds.to_string();
        let token = self.credentials.session_token.as_deref();
        let parameters = [
            ("X-Amz-Algorithm", Some(ALGORITHM)),
            ("X-Amz-Credential", Some(&*credential)),
            ("X-Amz-Date", Some(self.now.as_str())),
            ("X-Amz-Expires", Some(&*expires)),
            ("X-Amz-Security-Token", token),
            ("X-Amz-SignedHeaders", Some(&*signed_headers)),
        ];
        let mut query = target.query.unwrap_or_default().to_owned();
        for (name, text) in parameters {
            let Some(text) = text else { continue };
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(name);
            query.push('=');
            push_escaped(&mut query, text);
        }
        let target = Target {
            query: Some(&query),
            ..*target
        };
        // Where the header is signed, whoever verifies takes the payload's hash from it.
        let payload_hash = headers
            .get(CONTENT_SHA256)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("UNSIGNED-PAYLOAD");
        let signature = self.signature(&target.with(headers), &signed_headers, payload_hash);
        query.push_str("&X-Amz-Signature=");
        query.push_str(signature.as_str());
        Ok(query)
    }

    /// What signs the chunks of the payload that follows a request with this signature.
    pub fn chunk_signer(&self, seed: Signature) -> ChunkSigner {
        ChunkSigner::new(self.key.key().clone(), &self.now, self.key.scope(), seed)
    }

    fn signature(
        &self,
        parts: &RequestParts<'_>,
        signed_headers: &str,
        payload_hash: &str,
    ) -> Signature {
        let canonical = CanonicalRequest {
            parts,
            path_form: PathForm::Canonical,
            signed_headers,
            payload_hash,
        };
        let digest = match canonical.digest() {
            Ok(digest) => hex(&digest),
            Err(AbsentHeader) => unreachable!("the names were taken from these headers"),
        };
        self.key.key().sign(&[
            ALGORITHM.as_bytes(),
            b"\n",
            self.now.as_str().as_bytes(),
            b"\n",
            self.key.scope().as_bytes(),
            b"\n",
            digest.as_bytes(),
        ])
    }
}

impl<'a> Target<'a> {
    fn with(&self, headers: &'a HeaderMap) -> RequestParts<'a> {
        let Self {
            method,
            path,
            query,
            host,
        } = *self;
        RequestParts {
            method,
            path,
            query,
            headers,
            host,
        }
    }
}

/// The names to sign, sorted and joined with `;`.
fn signed_headers(headers: &HeaderMap) -> String {
    let is_signed =
        |name: &&str| name.starts_with("x-amz-") || matches!(*name, "content-type" | "content-md5");
    let mut names: Vec<&str> = headers
        .keys()
        .map(HeaderName::as_str)
        .filter(is_signed)
        .chain(["host"])
        .collect();
    names.sort_unstable();
    names.join(";")
}

fn value(text: &str, what: &'static str) -> Result<HeaderValue, SignError> {
    HeaderValue::from_str(text).map_err(|_| SignError::NotAHeaderValue(what))
}
