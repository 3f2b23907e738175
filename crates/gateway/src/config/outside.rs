//! What a config only names: the files and variables that hold a part of it.
//!
//! The check opens none of them, but notes them all, those of a table with a fault too, so that
//! [`crate::access::faults_of`] finds what is wrong with them in the same run.

use std::path::PathBuf;

use forebay_s3::policy::PolicyKind;

use super::{PolicySource, SecretSource};

/// A part of a config that lies outside of it, or has a language of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A file with more users and bucket policies.
    UsersFile(PathBuf),
    /// A secret.
    Secret {
        /// The key of the table it belongs to, for faults.
        key: String,
        /// Where it is.
        source: SecretSource,
    },
    /// The token of the admin API.
    AdminToken(SecretSource),
    /// A policy.
    Policy {
        /// Where it is.
        source: PolicySource,
        /// What it may say.
        kind: PolicyKind,
    },
}

impl Outside {
    /// The key that faults will name, where it is not fixed.
    pub(super) fn key_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::UsersFile(_) | Self::AdminToken(_) => None,
            Self::Secret { key, .. } => Some(key),
            Self::Policy { source, .. } => Some(source.key_mut()),
        }
    }
}

impl PolicySource {
    /// The key that faults will name.
    pub(super) fn key_mut(&mut self) -> &mut String {
        match self {
            Self::Json { key, .. } | Self::File { key, .. } => key,
        }
    }
}
