//! AWS Signature Version 4 for S3: verify what a client presents, sign what an origin gets.
//!
//! Own and small because the published libraries only sign. Pure: the time is an argument, the
//! secret is looked up by the caller. The order of a verification:
//!
//! 1. [`Presented::from_request`] reads the `Authorization` header or the presigned query; `None`
//!    means an anonymous request.
//! 2. [`Presented::check`] judges everything that needs no key: scope, clock, and that `host` and
//!    every `x-amz-*` header present are signed. Do it before deriving or caching a key, so that
//!    a made-up region or date never fills a cache.
//! 3. [`Checked::verify`] computes the signature with the caller's [`SigningKey`] and compares it
//!    in constant time. [`Verified`] says how the payload is to be judged.
//!
//! [`Signer`] is the other direction: headers, presigned queries, and, through [`ChunkSigner`],
//! the chunks of a streamed payload (framed by [`crate::chunked`]).
//!
//! A request whose header form leaves out `x-amz-content-sha256` is refused, as S3 does. In the
//! presigned form that header may be present unsigned, which S3 tolerates as well; the payload is
//! then `UNSIGNED-PAYLOAD` for the signature, and the header still says how the body is framed.
//!
//! Not here: who owns a key id (`InvalidAccessKeyId` is the caller's answer), what the caller may
//! do ([`crate::policy`]), POST forms ([`crate::post_policy`]).
//!
//! Sources: "Authenticating Requests (AWS Signature Version 4)" of the S3 API reference: header,
//! query, streaming and streaming-trailer pages; error texts as S3 sends them.

mod canonical;
mod chunk;
mod error;
mod key;
mod payload;
mod presented;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

pub use canonical::RequestParts;
pub use chunk::ChunkSigner;
pub use error::{AuthError, ExpiresFault, Form, Mismatch, ScopeFault};
pub use key::{Credentials, ScopedKey, SecretKey, Signature, SigningKey};
pub use payload::PayloadMode;
pub use presented::Presented;
pub use sign::{SignError, Signer, Target};
pub use verify::{Checked, ExpectedScope, Regions, Verified};

pub(crate) use key::{hex, same_signature};
pub(crate) use presented::Credential;

/// The one algorithm that is spoken here, as headers and queries name it.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// How far the clocks of client and gateway may differ, either way: what S3 allows.
pub const SKEW_SECONDS_MAX: i64 = 15 * 60;

/// The longest life of a presigned request: seven days, S3's cap.
pub const EXPIRES_SECONDS_MAX: u32 = 7 * 24 * 60 * 60;

/// SHA-256 of nothing, in hex, which signed chunks and empty payloads carry.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What ends every credential scope.
pub(crate) const TERMINAL: &str = "aws4_request";
