//! Reads what the config only names: secrets, policy documents, the users file. From it all it
//! makes [`Users`], at the start and again on SIGHUP.
//!
//! Called by the binary. Blocks on the disk, so call it where that harms nobody. Either everything
//! can be used, or all faults come back and nothing has changed: a policy that does not compile
//! must not leave the others in force without it.

use std::{fs, io, path::Path, sync::Arc};

use forebay_s3::{
    policy::{POLICY_BYTES_MAX, Policy, PolicyKind},
    sigv4::SecretKey,
};
use forebay_store::Identity;

use crate::{
    config::{
        AccessConfig, BucketPolicyConfig, Fault, File, Outside, PolicySource, ROOT_USER,
        SecretSource, UserConfig, check_users_file, judge_users_file,
    },
    routes::BucketPattern,
    settings::{Authentication, Listener},
    users::{BucketPolicy, User, Users},
};

/// Most bytes of a file that holds one secret; keys of AWS have 40.
const SECRET_FILE_BYTES_MAX: u64 = 4096;
/// Most bytes of a users file: some ten thousand users.
const USERS_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What the root user may do.
const ROOT_POLICY: &str = r#"{"Version":"2012-10-17","Statement":[
    {"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#;

/// The key of the root user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootKey {
    /// Public half.
    pub access_key: String,
    /// Secret half.
    pub secret_key: SecretKey,
}

/// What users are made of beside the config.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The root user, where there is one.
    pub root: Option<&'a RootKey>,
    /// Finds a variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// Whether somebody must be called root: the config names nobody else, or a listener without
/// signatures makes everybody root.
pub fn needs_root(access: &AccessConfig, listeners: &[Listener]) -> bool {
    let is_named = access.users.iter().any(|user| user.name == ROOT_USER);
    let is_nobody_else = access.users.is_empty() && access.users_file.is_none();
    let is_everybody = identities_of(listeners).any(|name| name == ROOT_USER);
    !is_named && (is_nobody_else || is_everybody)
}

fn identities_of(listeners: &[Listener]) -> impl Iterator<Item = &str> {
    listeners
        .iter()
        .filter_map(|listener| match &listener.authentication {
            Authentication::Off {
                identity: Identity::User(name),
            } => Some(&**name),
            Authentication::Off {
                identity: Identity::Anonymous,
            }
            | Authentication::Required => None,
        })
}

/// Reads everything and makes the users of it.
///
/// # Errors
/// All that is wrong, not only the first.
pub fn load(
    access: &AccessConfig,
    listeners: &[Listener],
    sources: Sources<'_>,
) -> Result<Users, Vec<Fault>> {
    let mut faults = Vec::new();
    let from_file = access
        .users_file
        .as_deref()
        .and_then(|path| read_users_file(path, &mut faults));
    let from_file = from_file.unwrap_or_default();
    let mut users: Vec<User> = Vec::new();
    let of_config = access.users.iter().map(|user| (String::new(), user));
    let of_file = from_file.users.iter().map(|user| {
        let file = access.users_file.as_deref().unwrap_or(Path::new(""));
        (format!("{}: ", file.display()), user)
    });
    for (place, user) in of_config.chain(of_file) {
        let key = format!("{place}users.{}", user.name);
        if let Some(other) = users
            .iter()
            .find(|other| *other.name == *user.name || *other.access_key_id == *user.access_key)
        {
            faults.push(twice(key.clone(), user, other));
        }
        users.extend(compile_user(&key, user, sources, &mut faults));
    }
    if let Some(root) = sources.root {
        match compile_root(root, &users) {
            Ok(root) => users.push(root),
            Err(fault) => faults.push(fault),
        }
    }
    let policies = access
        .bucket_policies
        .iter()
        .chain(&from_file.bucket_policies);
    let bucket_policies: Vec<BucketPolicy> = policies
        .filter_map(|policy| compile_bucket_policy(policy, &mut faults))
        .collect();
    for name in identities_of(listeners) {
        if !users.iter().any(|user| &*user.name == name) && faults.is_empty() {
            faults.push(Fault {
                key: "server.listen[*].user".to_owned(),
                value: format!("{name:?}"),
                allowed: "the name of a user".to_owned(),
                remedy: format!("add [users.{name}], or name another user"),
            });
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Users::new(users, bucket_policies).map_err(|duplicate| {
        vec![Fault {
            key: "users".to_owned(),
            value: duplicate.0.into(),
            allowed: "an access key that no other user has".to_owned(),
            remedy: "give one of the users another access key".to_owned(),
        }]
    })
}

fn twice(key: String, user: &UserConfig, other: &User) -> Fault {
    let what = if *other.name == *user.name {
        "name"
    } else {
        "access key"
    };
    Fault {
        key,
        value: format!("{:?}", user.access_key),
        allowed: format!("a {what} that no other user has"),
        remedy: format!(
            "user {} has this {what} already, here or in users_file",
            other.name
        ),
    }
}

/// Looks at all that a config names outside of itself, and keeps nothing of it: what is wrong with
/// it. For a config with faults too, which [`load`] can't be asked about.
pub fn faults_of(outside: &[Outside], variable: &dyn Fn(&str) -> Option<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for named in outside {
        match named {
            Outside::UsersFile(path) => {
                let Some(file) = open_users_file(path, &mut faults) else {
                    continue;
                };
                // A users file names no other, so this goes no deeper.
                let (access, outside) = judge_users_file(&file);
                faults.extend(access.err().into_iter().flatten());
                faults.extend(faults_of(&outside, variable));
            }
            Outside::Secret { key, source } => {
                faults.extend(read_secret(key, source, variable).err());
            }
            Outside::AdminToken(source) => faults.extend(read_token(source, variable).err()),
            Outside::Policy { source, kind } => {
                compile(source, *kind, &mut faults);
            }
        }
    }
    faults
}

fn read_users_file(path: &Path, faults: &mut Vec<Fault>) -> Option<AccessConfig> {
    let file = open_users_file(path, faults)?;
    check_users_file(&file)
        .map_err(|wrong| faults.extend(wrong))
        .ok()
}

fn open_users_file(path: &Path, faults: &mut Vec<Fault>) -> Option<File> {
    let text = read_bounded(path, USERS_FILE_BYTES_MAX)
        .map_err(|error| faults.push(unreadable("users_file".to_owned(), path, &error)))
        .ok()?;
    let path = path.display().to_string();
    Some(File { path, text })
}

fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<String> {
    if fs::metadata(path)?.len() > bytes_max {
        let text = format!("larger than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    fs::read_to_string(path)
}

fn unreadable(key: String, path: &Path, error: &io::Error) -> Fault {
    Fault {
        key,
        value: format!("{:?}", path.display().to_string()),
        allowed: "a file that can be read".to_owned(),
        remedy: format!("{error}; check the path, its owner and its mode"),
    }
}

fn compile_user(
    key: &str,
    user: &UserConfig,
    sources: Sources<'_>,
    faults: &mut Vec<Fault>,
) -> Option<User> {
    let secret_key = read_secret(key, &user.secret_key, sources.variable);
    let secret_key = secret_key.map_err(|fault| faults.push(fault)).ok();
    let policies: Vec<Arc<Policy>> = user
        .policies
        .iter()
        .filter_map(|source| compile(source, PolicyKind::Identity, faults))
        .collect();
    Some(User {
        name: user.name.as_str().into(),
        access_key_id: user.access_key.as_str().into(),
        secret_key: secret_key?,
        policies,
    })
}

fn compile_root(root: &RootKey, users: &[User]) -> Result<User, Fault> {
    let taken = users
        .iter()
        .find(|user| &*user.name == ROOT_USER || *user.access_key_id == *root.access_key);
    if let Some(other) = taken {
        return Err(Fault {
            key: "FOREBAY_ROOT_ACCESS_KEY".to_owned(),
            value: format!("{:?}", root.access_key),
            allowed: "a root user, or [users.root], with a key that no other user has".to_owned(),
            remedy: format!("user {} is in the way; remove one of the two", other.name),
        });
    }
    let policy = Policy::parse(ROOT_POLICY, PolicyKind::Identity)
        .expect("a constant, compiled by the tests");
    Ok(User {
        name: ROOT_USER.into(),
        access_key_id: root.access_key.as_str().into(),
        secret_key: root.secret_key.clone(),
        policies: vec![Arc::new(policy)],
    })
}

fn compile_bucket_policy(
    policy: &BucketPolicyConfig,
    faults: &mut Vec<Fault>,
) -> Option<BucketPolicy> {
    let compiled = compile(&policy.policy, PolicyKind::Bucket, faults)?;
    Some(BucketPolicy {
        buckets: BucketPattern::new(policy.bucket.as_str()),
        policy: compiled,
    })
}

fn compile(
    source: &PolicySource,
    kind: PolicyKind,
    faults: &mut Vec<Fault>,
) -> Option<Arc<Policy>> {
    let read;
    let (json, key, value) = match source {
        PolicySource::Json { json, key } => (json, key, "{ json = … }".to_owned()),
        PolicySource::File { path, key } => {
            read = read_bounded(path, POLICY_BYTES_MAX as u64)
                .map_err(|error| faults.push(unreadable(key.clone(), path, &error)))
                .ok()?;
            (&read, key, format!("{:?}", path.display().to_string()))
        }
    };
    match Policy::parse(json, kind) {
        Ok(policy) => Some(Arc::new(policy)),
        Err(error) => {
            faults.extend(error.faults.iter().map(|fault| {
                Fault {
                    key: key.clone(),
                    value: value.clone(),
                    allowed: match kind {
                        PolicyKind::Identity => "an AWS policy document of a user",
                        PolicyKind::Bucket => "an AWS policy document of a bucket",
                    }
                    .to_owned(),
                    remedy: fault.to_string(),
                }
            }));
            None
        }
    }
}

/// Reads a secret from where the config says it is.
///
/// # Errors
/// The fault that names `key`.
pub fn read_secret(
    key: &str,
    source: &SecretSource,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<SecretKey, Fault> {
    read_secret_at(&format!("{key}.secret_key"), source, variable)
}

/// Reads the token of the admin API.
///
/// # Errors
/// The fault that names its key.
pub fn read_token(
    source: &SecretSource,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<SecretKey, Fault> {
    read_secret_at("admin.token", source, variable)
}

fn read_secret_at(
    key: &str,
    source: &SecretSource,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<SecretKey, Fault> {
    match source {
        SecretSource::Inline(secret) => Ok(secret.clone()),
        SecretSource::File(path) => {
            let at = format!("{key}_file");
            let text = read_bounded(path, SECRET_FILE_BYTES_MAX)
                .map_err(|error| unreadable(at.clone(), path, &error))?;
            match text.trim() {
                "" => Err(unreadable(at, path, &io::Error::other("the file is empty"))),
                secret => Ok(SecretKey::new(secret)),
            }
        }
        SecretSource::Environment(name) => match variable(name) {
            Some(secret) if !secret.is_empty() => Ok(SecretKey::new(secret)),
            Some(_) | None => Err(Fault {
                key: format!("{key}_env"),
                value: format!("{name:?}"),
                allowed: "a variable that is set".to_owned(),
                remedy: format!("set {name} in the environment of the program"),
            }),
        },
    }
}

#[cfg(test)]
mod tests;
