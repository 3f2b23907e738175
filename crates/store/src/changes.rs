//! What gateways tell each other: which objects changed, so that none serves what another replaced.

use async_trait::async_trait;
use forebay_s3::bucket::BucketName;

use crate::Error;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// One object.
    Object {
        /// Its bucket.
        bucket: BucketName,
        /// Its key.
        key: String,
    },
    /// Any object whose key begins so; the empty prefix is the whole bucket, itself included.
    Prefix {
        /// The bucket.
        bucket: BucketName,
        /// The prefix.
        prefix: String,
    },
}

/// What a listener is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Another gateway changed this.
    Changed(Changed),
    /// From now on changes may be missed: nothing kept is known to be current.
    Unverified,
    /// From now on every change is told again; what was kept before is not known to be current.
    Verified,
}

/// Tells other gateways of changes, and is told of theirs.
///
/// Contract:
/// - `tell` returns when every gateway that is [`Event::Verified`] has been sent the change; a
///   gateway that can't be reached has been, or is being, told [`Event::Unverified`] by its own
///   side no later than the implementation's stated time.
/// - A listener begins `Unverified`.
/// - A change may be told more than once: whoever tells it tries again what failed.
/// - No listener of the same gateway is told of it.
#[async_trait]
pub trait Changes: Send + Sync + 'static {
    /// Tells the other gateways.
    async fn tell(&self, changed: Changed) -> Result<(), Error>;

    /// Everything from now on, in order; what is dropped for want of room becomes
    /// [`Event::Unverified`] and then [`Event::Verified`].
    fn listen(&self) -> tokio::sync::mpsc::Receiver<Event>;
}
