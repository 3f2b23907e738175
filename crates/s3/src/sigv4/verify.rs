//! Judges a presented signature: first all that needs no key, then the signature itself.

use super::canonical::{AbsentHeader, CanonicalRequest, PathForm, RequestParts};
use super::error::{AuthError, Form, Mismatch, ScopeFault};
use super::presented::{Presented, pieces};
use super::{ALGORITHM, ChunkSigner, PayloadMode, SKEW_SECONDS_MAX, SigningKey, hex};
use super::{Signature, same_signature};

/// The regions that requests may be signed for.
#[derive(Clone, Copy, Debug)]
pub enum Regions<'a> {
    /// Any region will do: the gateway does not stand for one.
    Any,
    /// One of these; the first is the one that a refused client is told.
    OneOf(&'a [&'a str]),
}

/// The scope that requests must be signed for.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedScope<'a> {
    /// The regions.
    pub regions: Regions<'a>,
    /// The service; `s3`.
    pub service: &'a str,
}

impl ExpectedScope<'_> {
    /// S3 in any region.
    pub const ANY_REGION: Self = Self {
        regions: Regions::Any,
        service: "s3",
    };
}

/// A presented signature of which everything but the signature itself has been judged.
#[derive(Clone, Debug)]
pub struct Checked<'a>(Presented<'a>);

/// A request that the holder of the key has signed.
#[derive(Clone, Debug)]
pub struct Verified<'a> {
    presented: Presented<'a>,
    signature: Signature,
}

impl<'a> Presented<'a> {
    /// Judges scope, time and the set of signed headers, all that needs no key.
    ///
    /// # Errors
    /// The first fault found, scope before time before headers.
    pub fn check(
        self,
        parts: &RequestParts<'_>,
        expected: &ExpectedScope<'_>,
        now_unix_seconds: i64,
    ) -> Result<Checked<'a>, AuthError> {
        check_scope(&self, expected).map_err(|fault| AuthError::Scope {
            form: self.form,
            fault,
        })?;
        check_time(&self, now_unix_seconds)?;
        check_signed_headers(&self, parts)?;
        Ok(Checked(self))
    }
}

impl<'a> Checked<'a> {
    /// What the request presented.
    pub const fn presented(&self) -> &Presented<'a> {
        &self.0
    }

    /// Compares the signature with the one that `key` gives for this request. `key` must be
    /// derived for the scope that [`Presented`] names.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`, with the texts that this side signed; also when a signed header
    /// is absent.
    pub fn verify(
        self,
        parts: &RequestParts<'_>,
        key: &SigningKey,
    ) -> Result<Verified<'a>, AuthError> {
        let presented = self.0;
        let mut canonical = CanonicalRequest {
            parts,
            path_form: PathForm::Canonical,
            signed_headers: &presented.signed_headers,
            payload_hash: &presented.payload_hash,
        };
        for path_form in [PathForm::Canonical, PathForm::Verbatim] {
            canonical.path_form = path_form;
            match signature_of(&presented, &canonical, key) {
                Ok(signature) if same_signature(&signature, &presented.signature) => {
                    return Ok(Verified {
                        presented,
                        signature,
                    });
                }
                Ok(_) => {}
                Err(AbsentHeader) => break,
            }
        }
        canonical.path_form = PathForm::Canonical;
        Err(mismatch(&presented, &canonical))
    }
}

impl<'a> Verified<'a> {
    /// What the request presented, now believed.
    pub const fn presented(&self) -> &Presented<'a> {
        &self.presented
    }

    /// The key that signed.
    pub fn access_key_id(&self) -> &str {
        self.presented.access_key_id()
    }

    /// How the payload is framed and what vouches for it.
    pub const fn payload(&self) -> PayloadMode {
        self.presented.payload
    }

    /// What verifies the payload's chunks, starting from this request's signature. `key` is the
    /// one that verified the request.
    pub fn chunk_signer(&self, key: &SigningKey) -> ChunkSigner {
        let scope = self.presented.credential.scope();
        ChunkSigner::new(key.clone(), &self.presented.date, scope, self.signature)
    }
}

fn signature_of(
    presented: &Presented<'_>,
    canonical: &CanonicalRequest<'_>,
    key: &SigningKey,
) -> Result<Signature, AbsentHeader> {
    let digest = hex(&canonical.digest()?);
    Ok(key.sign(&[
        ALGORITHM.as_bytes(),
        b"\n",
        presented.date.as_str().as_bytes(),
        b"\n",
        presented.credential.scope().as_bytes(),
        b"\n",
        digest.as_bytes(),
    ]))
}

#[cold]
fn mismatch(presented: &Presented<'_>, canonical: &CanonicalRequest<'_>) -> AuthError {
    let digest = canonical.digest().map_or_else(
        |AbsentHeader| String::new(),
        |digest| hex(&digest).to_string(),
    );
    AuthError::SignatureDoesNotMatch(Box::new(Mismatch {
        access_key_id: presented.access_key_id().to_owned(),
        signature_provided: presented.signature.clone().into_owned(),
        string_to_sign: format!(
            "{ALGORITHM}\n{}\n{}\n{digest}",
            presented.date,
            presented.credential.scope()
        ),
        canonical_request: canonical.text(),
    }))
}

pub(crate) fn check_scope(
    presented: &Presented<'_>,
    expected: &ExpectedScope<'_>,
) -> Result<(), ScopeFault> {
    let credential = &presented.credential;
    expected.check(credential.region(), credential.service())?;
    let (scope, request) = (credential.date_stamp(), presented.date.date_stamp());
    if scope != request {
        return Err(ScopeFault::DateMismatch {
            scope: scope.to_owned(),
            request: request.to_owned(),
        });
    }
    Ok(())
}

impl ExpectedScope<'_> {
    pub(crate) fn check(&self, region: &str, service: &str) -> Result<(), ScopeFault> {
        if service != self.service {
            return Err(ScopeFault::Service {
                given: service.to_owned(),
                expected: self.service.to_owned(),
            });
        }
        match self.regions {
            Regions::Any => Ok(()),
            Regions::OneOf(regions) if regions.contains(&region) => Ok(()),
            Regions::OneOf(regions) => Err(ScopeFault::Region {
                given: region.to_owned(),
                expected: regions.first().copied().unwrap_or_default().to_owned(),
            }),
        }
    }
}

fn check_time(presented: &Presented<'_>, now_unix_seconds: i64) -> Result<(), AuthError> {
    let signed = presented.date.unix_seconds();
    let Some(expires_seconds) = presented.expires_seconds else {
        if now_unix_seconds.abs_diff(signed) > SKEW_SECONDS_MAX.unsigned_abs() {
            return Err(AuthError::TimeTooSkewed {
                request: presented.date,
                server_unix_seconds: now_unix_seconds,
            });
        }
        return Ok(());
    };
    if signed > now_unix_seconds.saturating_add(SKEW_SECONDS_MAX) {
        return Err(AuthError::NotYetValid);
    }
    let expired_unix_seconds = signed + i64::from(expires_seconds);
    if now_unix_seconds > expired_unix_seconds {
        return Err(AuthError::Expired {
            expires_seconds,
            expired_unix_seconds,
            server_unix_seconds: now_unix_seconds,
        });
    }
    Ok(())
}

/// Demands that `host` and every `x-amz-*` header present are signed, so that whoever holds a
/// signed request can add nothing to what it means. In the query form S3 tolerates
/// `x-amz-content-sha256` unsigned: it names the body's framing, and the body is unsigned anyway.
fn check_signed_headers(
    presented: &Presented<'_>,
    parts: &RequestParts<'_>,
) -> Result<(), AuthError> {
    let is_signed =
        |name: &str| pieces(&presented.signed_headers, b';').any(|signed| signed == name);
    let is_exempt = |name: &str| match presented.form {
        Form::Query => name == "x-amz-content-sha256",
        Form::Header | Form::Post => false,
    };
    let mut unsigned = String::new();
    let amz = parts.headers.keys().map(http::HeaderName::as_str);
    for name in amz
        .filter(|name| name.starts_with("x-amz-"))
        .chain(["host"])
    {
        if !is_signed(name) && !is_exempt(name) {
            if !unsigned.is_empty() {
                unsigned.push_str(", ");
            }
            unsigned.push_str(name);
        }
    }
    if unsigned.is_empty() {
        Ok(())
    } else {
        Err(AuthError::HeadersNotSigned(unsigned))
    }
}
