//! Secrets, the keys derived from them, and signatures.
//!
//! A [`SigningKey`] keeps the two SHA-256 states that HMAC starts from, so that a request costs
//! no key schedule. None of these types shows its secret in `Debug`.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::TERMINAL;
use crate::time::{AmzDate, Text};

/// A secret access key; printed as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(Box<str>);

impl SecretKey {
    /// Wraps a secret.
    pub fn new(secret: impl Into<Box<str>>) -> Self {
        Self(secret.into())
    }

    /// Shows the secret to whoever has to store or derive from it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who signs: a key id, its secret and, for temporary credentials, their session token.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The public name of the key.
    pub access_key_id: Box<str>,
    /// The secret half.
    pub secret_access_key: SecretKey,
    /// The token that temporary credentials are sent with.
    pub session_token: Option<Box<str>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("access_key_id", &self.access_key_id)
            .field("secret_access_key", &self.secret_access_key)
            .field("session_token", &self.session_token.as_ref().map(|_| "***"))
            .finish()
    }
}

/// The lower-case hex of an HMAC-SHA256, as signatures travel.
pub type Signature = Text<64>;

/// A key derived for one secret, day, region and service. Cheap to clone, worth caching.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Derives the key of a scope; `date_stamp` is `yyyyMMdd`.
    pub fn derive(secret: &SecretKey, date_stamp: &str, region: &str, service: &str) -> Self {
        let start = ["AWS4", secret.expose()].concat();
        let mut mac = keyed(start.as_bytes());
        for step in [date_stamp, region, service, TERMINAL] {
            mac.update(step.as_bytes());
            mac = keyed(&mac.finalize().into_bytes());
        }
        Self(mac)
    }

    /// Signs the concatenation of `pieces`.
    pub fn sign(&self, pieces: &[&[u8]]) -> Signature {
        let mut mac = self.0.clone();
        for piece in pieces {
            mac.update(piece);
        }
        hex(&mac.finalize().into_bytes().into())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(***)")
    }
}

/// A signing key together with the scope that it is for, as a signer needs both.
#[derive(Clone, Debug)]
pub struct ScopedKey {
    key: SigningKey,
    scope: Box<str>,
}

impl ScopedKey {
    /// Derives the key for the day of `date`. Keep it until [`ScopedKey::covers`] says otherwise.
    pub fn derive(secret: &SecretKey, date: &AmzDate, region: &str, service: &str) -> Self {
        let stamp = date.date_stamp();
        Self {
            key: SigningKey::derive(secret, stamp, region, service),
            scope: format!("{stamp}/{region}/{service}/{TERMINAL}").into(),
        }
    }

    /// Whether requests of that moment are signed with this key: it is good for its day only.
    pub fn covers(&self, date: &AmzDate) -> bool {
        self.scope.starts_with(date.date_stamp())
    }

    /// The key itself.
    pub const fn key(&self) -> &SigningKey {
        &self.key
    }

    /// `date/region/service/aws4_request`.
    pub fn scope(&self) -> &str {
        &self.scope
    }
}

/// Whether the text that a client sent is this signature; takes the same time for any text of
/// the right length.
pub(crate) fn same_signature(ours: &Signature, theirs: &str) -> bool {
    let Ok(theirs) = <&[u8; 64]>::try_from(theirs.as_bytes()) else {
        return false;
    };
    let words = |text: &[u8; 64]| -> [u64; 8] {
        std::array::from_fn(|at| {
            u64::from_le_bytes(std::array::from_fn(|byte| text[at * 8 + byte]))
        })
    };
    bool::from(words(ours.as_bytes()).ct_eq(&words(theirs)))
}

/// Lower-case hex of a 32-byte digest.
pub(crate) fn hex(digest: &[u8; 32]) -> Text<64> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    Text::from_ascii(text)
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let credentials = Credentials {
            access_key_id: "AKID".into(),
            secret_access_key: SecretKey::new("hush"),
            session_token: Some("quiet".into()),
        };
        let key = ScopedKey::derive(
            &credentials.secret_access_key,
            &AmzDate::from_unix(0),
            "us-east-1",
            "s3",
        );
        let printed = format!("{credentials:?} {key:?}");
        assert!(printed.contains("AKID"), "{printed}");
        assert!(
            !printed.contains("hush") && !printed.contains("quiet"),
            "{printed}"
        );
    }

    #[test]
    fn a_scoped_key_is_good_for_its_day_only() {
        let noon = AmzDate::parse("20130524T120000Z").unwrap();
        let key = ScopedKey::derive(&SecretKey::new("s"), &noon, "us-east-1", "s3");
        assert!(key.covers(&AmzDate::parse("20130524T235959Z").unwrap()));
        assert!(!key.covers(&AmzDate::parse("20130525T000000Z").unwrap()));
        assert_eq!(key.scope(), "20130524/us-east-1/s3/aws4_request");
    }
}
