//! Proves who asks: Signature Version 4 in the header or the query.
//!
//! What needs no key (scope, clock, signed headers) is judged before a key is looked up or
//! derived, so that made-up scopes cost nothing and fill nothing. A request without a signature
//! is anonymous; only a policy may allow it anything.
//!
//! The signature of a form is in its body: [`super::post_object`]. How the payload is vouched for
//! is decided here and carried out in [`super::upload`].

use std::sync::Arc;

use forebay_s3::{
    code::Code,
    policy::{Carrier, Signature, SignatureVersion},
    post_policy::PostError,
    sigv4::{
        AuthError, ChunkSigner, ExpectedScope, Form, PayloadMode, Presented, Regions, RequestParts,
        SigningKey,
    },
};
use forebay_store::{Error, Identity, PayloadProof};
use http::{HeaderName, request::Parts};

use crate::{
    server::Connection,
    settings::Authentication,
    users::{SigningScopeRef, User, Users},
};

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// Who asks, and what vouches for the payload.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) identity: Identity,
    /// The user of the identity, whose policies count; `None` for an anonymous request.
    pub(super) user: Option<Arc<User>>,
    /// How the request was signed.
    pub(super) signature: Option<Signature>,
    /// How the payload is framed.
    pub(super) payload: PayloadMode,
    /// What verifies the payload's chunks, where they are signed.
    pub(super) chunk_signer: Option<Box<ChunkSigner>>,
    /// When it was proved, Unix seconds.
    pub(super) now_unix_seconds: i64,
}

impl Proof {
    /// What the client signed of the payload.
    pub(super) fn payload_proof(&self) -> PayloadProof {
        match self.payload {
            PayloadMode::Sha256(digest) => PayloadProof::Sha256(digest),
            PayloadMode::StreamingSigned | PayloadMode::StreamingSignedTrailer => {
                PayloadProof::Chunks
            }
            PayloadMode::Unsigned | PayloadMode::StreamingUnsignedTrailer => PayloadProof::None,
        }
    }
}

/// Proves who sends a request.
pub(super) fn prove(connection: &Connection, head: &Parts, host: &str) -> Result<Proof, Error> {
    let shared = &connection.worker.shared;
    let users = shared.users.load();
    let now_unix_seconds = shared.clock.unix_seconds();
    if let Authentication::Off { identity } = &*connection.authentication {
        return unchecked(&users, identity, head, now_unix_seconds);
    }
    let parts = RequestParts {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        host,
    };
    let Some(presented) = Presented::from_request(&parts).map_err(|error| refuse(&error))? else {
        return unchecked(&users, &Identity::Anonymous, head, now_unix_seconds);
    };
    let regions: Vec<&str> = shared.settings.regions.iter().map(String::as_str).collect();
    let expected = expected_scope(&regions);
    let checked = presented
        .check(&parts, &expected, now_unix_seconds)
        .map_err(|error| refuse(&error))?;
    let presented = checked.presented();
    let scope = SigningScopeRef {
        access_key_id: presented.access_key_id(),
        date_stamp: presented.date_stamp(),
        region: presented.region(),
    };
    let (user, key) = find(&users, scope)?;
    let signed_unix_seconds = presented.date().unix_seconds();
    refuse_token(presented.session_token().is_some())?;
    let verified = checked
        .verify(&parts, &key)
        .map_err(|error| refuse(&error))?;
    let payload = verified.payload();
    let chunk_signer = match payload {
        PayloadMode::StreamingSigned | PayloadMode::StreamingSignedTrailer => {
            Some(Box::new(verified.chunk_signer(&key)))
        }
        PayloadMode::Sha256(_) | PayloadMode::Unsigned | PayloadMode::StreamingUnsignedTrailer => {
            None
        }
    };
    let carrier = match verified.presented().form() {
        Form::Header => Carrier::Header,
        Form::Query => Carrier::Query,
        Form::Post => Carrier::Form,
    };
    Ok(Proof {
        identity: Identity::User(Arc::clone(&user.name)),
        user: Some(user),
        signature: Some(Signature {
            carrier,
            version: SignatureVersion::V4,
            age_millis: (now_unix_seconds - signed_unix_seconds) * 1000,
        }),
        payload,
        chunk_signer,
        now_unix_seconds,
    })
}

/// The scope that requests must be signed for.
pub(super) fn expected_scope<'a>(regions: &'a [&'a str]) -> ExpectedScope<'a> {
    match regions {
        [] => ExpectedScope::ANY_REGION,
        regions => ExpectedScope {
            regions: Regions::OneOf(regions),
            service: "s3",
        },
    }
}

/// The user of an access key and the key that their requests are signed with.
pub(super) fn find(
    users: &Users,
    scope: SigningScopeRef<'_>,
) -> Result<(Arc<User>, SigningKey), Error> {
    let Some(user) = users.by_access_key(scope.access_key_id) else {
        let mut error = Error::refused(Code::InvalidAccessKeyId);
        if let Error::Refused(refusal) = &mut error {
            refusal
                .details
                .push(("AWSAccessKeyId", scope.access_key_id.to_owned()));
        }
        return Err(error);
    };
    Ok((Arc::clone(user), users.signing_key(user, scope)))
}

/// Users have lasting keys here: a session token belongs to credentials of somewhere else.
pub(super) fn refuse_token(is_present: bool) -> Result<(), Error> {
    if is_present {
        Err(Error::refused(Code::InvalidToken))
    } else {
        Ok(())
    }
}

/// A request whose signature is not there, or not looked at.
fn unchecked(
    users: &Users,
    identity: &Identity,
    head: &Parts,
    now_unix_seconds: i64,
) -> Result<Proof, Error> {
    let payload = match head.headers.get(&CONTENT_SHA256) {
        None => PayloadMode::Unsigned,
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            PayloadMode::parse(text)
                .ok_or_else(|| refuse(&AuthError::ContentSha256Invalid(text.to_owned())))?
        }
    };
    let user = match identity {
        Identity::Anonymous => None,
        Identity::User(name) => users.by_name(name).cloned(),
    };
    Ok(Proof {
        identity: identity.clone(),
        user,
        signature: None,
        payload,
        chunk_signer: None,
        now_unix_seconds,
    })
}

/// The S3 error of a refused signature.
pub(super) fn refuse(error: &AuthError) -> Error {
    super::respond::refusal(error.code(), error.to_string(), error.extras())
}

/// The S3 error of a refused form.
pub(super) fn refuse_form(error: &PostError) -> Error {
    super::respond::refusal(error.code(), error.to_string(), error.extras())
}
