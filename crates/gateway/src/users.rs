//! Who may ask, and what they are allowed: the part of the configuration that is exchanged whole
//! while the gateway runs.

use std::{collections::HashMap, sync::Arc};

use forebay_s3::{
    policy::Policy,
    sigv4::{SecretKey, SigningKey},
};

use crate::routes::BucketPattern;

/// Signing keys kept, about 300 bytes each: one a user, day and region of the last requests.
const SIGNING_KEYS_MAX: usize = 4096;

/// One access key, its owner and what that owner may do.
#[derive(Debug, Clone)]
pub struct User {
    /// Name of the owner; several keys may belong to one.
    pub name: Arc<str>,
    /// Public half of the key.
    pub access_key_id: Box<str>,
    /// Secret half.
    pub secret_key: SecretKey,
    /// Policies of the owner, without principals.
    pub policies: Vec<Arc<Policy>>,
}

/// A policy that belongs to buckets, with principals; the only way to allow anonymous requests.
#[derive(Debug, Clone)]
pub struct BucketPolicy {
    /// Buckets that it belongs to.
    pub buckets: BucketPattern,
    /// The policy.
    pub policy: Arc<Policy>,
}

/// Users and bucket policies of one moment, exchanged whole.
#[derive(Debug)]
pub struct Users {
    by_access_key: HashMap<Box<str>, Arc<User>>,
    by_name: HashMap<Arc<str>, Arc<User>>,
    bucket_policies: Vec<BucketPolicy>,
    /// Derived from the secrets above, so it is exchanged with them.
    signing_keys: quick_cache::sync::Cache<SigningScope, SigningKey>,
}

/// Two users with one access key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("access key {0} belongs to two users")]
pub struct DuplicateAccessKey(pub Box<str>);

/// What a signing key is derived for; the service is always `s3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SigningScope {
    access_key_id: Box<str>,
    date_stamp: Box<str>,
    region: Box<str>,
}

/// The same, borrowed from a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SigningScopeRef<'a> {
    pub(crate) access_key_id: &'a str,
    pub(crate) date_stamp: &'a str,
    pub(crate) region: &'a str,
}

impl quick_cache::Equivalent<SigningScope> for SigningScopeRef<'_> {
    fn equivalent(&self, key: &SigningScope) -> bool {
        self.access_key_id == &*key.access_key_id
            && self.date_stamp == &*key.date_stamp
            && self.region == &*key.region
    }
}

impl Users {
    /// Takes all users and bucket policies.
    ///
    /// # Errors
    /// [`DuplicateAccessKey`] when it would not be clear who signs.
    pub fn new(
        users: impl IntoIterator<Item = User>,
        bucket_policies: Vec<BucketPolicy>,
    ) -> Result<Self, DuplicateAccessKey> {
        let (mut by_access_key, mut by_name) = (HashMap::new(), HashMap::new());
        for user in users {
            let user = Arc::new(user);
            by_name.insert(Arc::clone(&user.name), Arc::clone(&user));
            if let Some(earlier) = by_access_key.insert(user.access_key_id.clone(), user) {
                return Err(DuplicateAccessKey(earlier.access_key_id.clone()));
            }
        }
        let signing_keys = quick_cache::sync::Cache::new(SIGNING_KEYS_MAX);
        Ok(Self {
            by_access_key,
            by_name,
            bucket_policies,
            signing_keys,
        })
    }

    /// The owner of an access key.
    pub(crate) fn by_access_key(&self, access_key_id: &str) -> Option<&Arc<User>> {
        self.by_access_key.get(access_key_id)
    }

    /// Somebody by name; any of their keys.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// All bucket policies.
    pub(crate) fn bucket_policies(&self) -> &[BucketPolicy] {
        &self.bucket_policies
    }

    /// The signing key of a user for a day and a region, derived once.
    ///
    /// Call it only for a scope that has been checked, so that made-up ones fill nothing.
    pub(crate) fn signing_key(&self, user: &User, scope: SigningScopeRef<'_>) -> SigningKey {
        if let Some(key) = self.signing_keys.get(&scope) {
            return key;
        }
        let key = SigningKey::derive(&user.secret_key, scope.date_stamp, scope.region, "s3");
        let owned = SigningScope {
            access_key_id: scope.access_key_id.into(),
            date_stamp: scope.date_stamp.into(),
            region: scope.region.into(),
        };
        self.signing_keys.insert(owned, key.clone());
        key
    }
}
