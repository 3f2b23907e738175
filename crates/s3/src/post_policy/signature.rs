//! The signature of a POST form: of its policy, as the base64 that the form holds.

use super::{FormFields, PostError};
use crate::sigv4::{
    ALGORITHM, AuthError, Credential, ExpectedScope, Form, Mismatch, ScopeFault, SigningKey,
    same_signature,
};
use crate::time::AmzDate;

/// What a form presents as its signature. Nothing of it is believed before
/// [`PostSignature::verify`].
#[derive(Clone, Debug)]
pub struct PostSignature<'a> {
    policy: &'a str,
    credential: Credential<'a>,
    signature: &'a str,
    date: AmzDate,
    session_token: Option<&'a str>,
}

impl FormFields {
    /// Reads the signature; `None` for a form that has none, which is anonymous whatever policy
    /// it brings.
    ///
    /// # Errors
    /// A field that is missing or malformed, or a signature of another version.
    pub fn signature(&self) -> Result<Option<PostSignature<'_>>, PostError> {
        let has = |name: &&str| self.get(name).is_some();
        if ["signature", "awsaccesskeyid"].iter().any(has) {
            return Err(AuthError::UnsupportedMechanism.into());
        }
        let names = [
            "x-amz-algorithm",
            "x-amz-credential",
            "x-amz-date",
            "x-amz-signature",
        ];
        if !names.iter().any(has) {
            return Ok(None);
        }
        let field = |name: &str, shown| self.get(name).ok_or(PostError::FieldMissing(shown));
        let policy = field("policy", "Policy")?;
        if field("x-amz-algorithm", "X-Amz-Algorithm")? != ALGORITHM {
            return Err(AuthError::UnsupportedMechanism.into());
        }
        let credential = field("x-amz-credential", "X-Amz-Credential")?;
        let date = field("x-amz-date", "X-Amz-Date")?;
        Ok(Some(PostSignature {
            policy,
            credential: Credential::parse(credential.into()).map_err(scope_error)?,
            signature: field("x-amz-signature", "X-Amz-Signature")?,
            date: AmzDate::parse(date).ok_or(AuthError::DateMissing)?,
            session_token: self.get("x-amz-security-token"),
        }))
    }
}

impl<'a> PostSignature<'a> {
    /// The key that the form names.
    pub fn access_key_id(&self) -> &str {
        self.credential.access_key_id()
    }

    /// The day of the credential scope, `yyyyMMdd`.
    pub fn date_stamp(&self) -> &str {
        self.credential.date_stamp()
    }

    /// The region of the credential scope.
    pub fn region(&self) -> &str {
        self.credential.region()
    }

    /// The service of the credential scope.
    pub fn service(&self) -> &str {
        self.credential.service()
    }

    /// The token of temporary credentials.
    pub const fn session_token(&self) -> Option<&'a str> {
        self.session_token
    }

    /// The policy as the form holds it, for [`super::PostPolicy::parse`].
    pub const fn policy(&self) -> &'a str {
        self.policy
    }

    /// Judges the scope, which needs no key: do it before deriving one. How long the form is good
    /// for is the policy's matter.
    ///
    /// # Errors
    /// A scope for somewhere else, or of another day than the form's date.
    pub fn check(&self, expected: &ExpectedScope<'_>) -> Result<(), PostError> {
        expected
            .check(self.region(), self.service())
            .map_err(scope_error)?;
        let (scope, request) = (self.date_stamp(), self.date.date_stamp());
        if scope != request {
            return Err(scope_error(ScopeFault::DateMismatch {
                scope: scope.to_owned(),
                request: request.to_owned(),
            }));
        }
        Ok(())
    }

    /// Compares the signature with the one that `key`, derived for this scope, gives.
    ///
    /// # Errors
    /// `SignatureDoesNotMatch`.
    pub fn verify(&self, key: &SigningKey) -> Result<(), PostError> {
        let signature = key.sign(&[self.policy.as_bytes()]);
        if same_signature(&signature, self.signature) {
            return Ok(());
        }
        let mismatch = Mismatch {
            access_key_id: self.access_key_id().to_owned(),
            signature_provided: self.signature.to_owned(),
            string_to_sign: self.policy.to_owned(),
            canonical_request: String::new(),
        };
        Err(AuthError::SignatureDoesNotMatch(Box::new(mismatch)).into())
    }
}

fn scope_error(fault: ScopeFault) -> PostError {
    AuthError::Scope {
        form: Form::Post,
        fault,
    }
    .into()
}
