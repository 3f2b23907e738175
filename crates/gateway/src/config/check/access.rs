//! Judges `[users.NAME]` and `[[bucket_policies]]`: who may do what.
//!
//! Secrets and policies in files are read later, by `crate::access`; what stands in the config
//! itself is judged here.

use std::collections::BTreeMap;

use forebay_s3::{policy::PolicyKind, sigv4::SecretKey};

use super::{Findings, Section, Wrong};
use crate::config::{
    BucketPolicyConfig, Outside, PolicySource, SecretSource, UserConfig,
    raw::{RawBucketPolicy, RawPolicy, RawPolicyDocument, RawUser},
    section::{Given, quoted},
};

/// Ready-made policies of users.
const USER_POLICIES: [(&str, &str); 2] = [
    (
        "admin",
        r#"{"Version":"2012-10-17","Statement":[
            {"Effect":"Allow","Action":"s3:*","Resource":"*"}]}"#,
    ),
    (
        "readonly",
        r#"{"Version":"2012-10-17","Statement":[
            {"Effect":"Allow","Action":["s3:Get*","s3:List*"],"Resource":"*"}]}"#,
    ),
];

/// Ready-made policies of buckets; `BUCKET` stands for the pattern they belong to.
const BUCKET_POLICIES: [(&str, &str); 2] = [
    (
        "public-read",
        r#"{"Version":"2012-10-17","Statement":[
            {"Effect":"Allow","Principal":"*",
             "Action":["s3:GetObject","s3:ListBucket","s3:GetBucketLocation"],
             "Resource":["arn:aws:s3:::BUCKET","arn:aws:s3:::BUCKET/*"]}]}"#,
    ),
    (
        "public-read-write",
        r#"{"Version":"2012-10-17","Statement":[
            {"Effect":"Allow","Principal":"*",
             "Action":["s3:GetObject","s3:ListBucket","s3:GetBucketLocation",
                       "s3:PutObject","s3:DeleteObject","s3:AbortMultipartUpload",
                       "s3:ListMultipartUploadParts","s3:ListBucketMultipartUploads"],
             "Resource":["arn:aws:s3:::BUCKET","arn:aws:s3:::BUCKET/*"]}]}"#,
    ),
];

pub(super) fn check_users(
    section: &mut Section<'_, '_>,
    raw: Option<BTreeMap<String, RawUser>>,
) -> Vec<UserConfig> {
    let mut users: Vec<UserConfig> = Vec::new();
    for (name, raw) in raw.unwrap_or_default() {
        let mut table = section.inner(&name);
        let Some(user) = check_user(&mut table, &name, raw) else {
            continue;
        };
        if let Some(other) = users
            .iter()
            .find(|other| other.access_key == user.access_key)
        {
            let wrong = Wrong {
                value: quoted(&user.access_key),
                allowed: "a key that no other user has",
                remedy: &format!(
                    "user {} has it already; give one of them another",
                    other.name
                ),
            };
            table.fault("access_key", wrong);
        }
        users.push(user);
    }
    users
}

fn check_user(table: &mut Section<'_, '_>, name: &str, raw: RawUser) -> Option<UserConfig> {
    let RawUser {
        access_key,
        secret_key,
        secret_key_file,
        secret_key_env,
        policies,
    } = raw;
    let access_key = check_access_key(table, access_key);
    let secrets = Secrets {
        inline: secret_key,
        file: secret_key_file,
        variable: secret_key_env,
    };
    let secret_key = check_secret(table, secrets);
    let policies = check_policies(table, policies);
    Some(UserConfig {
        name: name.to_owned(),
        access_key: access_key?,
        secret_key: secret_key?,
        policies,
    })
}

/// Judges the id of a key: it travels in a header and a query, between slashes.
pub(super) fn check_access_key(table: &mut Section<'_, '_>, raw: Option<String>) -> Option<String> {
    let Some(key) = raw else {
        table.missing(
            "access_key",
            "write access_key = \"…\", the public half of the key",
        );
        return None;
    };
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b',' | b'=');
    if !(3..=128).contains(&key.len()) || !key.bytes().all(fits) {
        let wrong = Wrong {
            value: quoted(&key),
            allowed: "3 to 128 printable characters without blank, `/`, `,` or `=`",
            remedy: "choose letters and digits, as in AKIAEXAMPLE000000001",
        };
        table.fault("access_key", wrong);
        return None;
    }
    table.note("access_key", quoted(&key), Given::Yes);
    Some(key)
}

/// The three ways to give a secret; exactly one counts.
pub(super) struct Secrets {
    pub(super) inline: Option<String>,
    pub(super) file: Option<String>,
    pub(super) variable: Option<String>,
}

impl Secrets {
    pub(super) fn is_any_set(&self) -> bool {
        self.inline.is_some() || self.file.is_some() || self.variable.is_some()
    }
}

pub(super) fn check_secret(table: &mut Section<'_, '_>, raw: Secrets) -> Option<SecretSource> {
    let source = check_secret_source(table, raw)?;
    table.note_outside(Outside::Secret {
        key: table.path().to_owned(),
        source: source.clone(),
    });
    Some(source)
}

fn check_secret_source(table: &mut Section<'_, '_>, raw: Secrets) -> Option<SecretSource> {
    const ONE: &str = "exactly one of secret_key, secret_key_file, secret_key_env";
    match raw {
        Secrets {
            inline: Some(secret),
            file: None,
            variable: None,
        } => {
            table.note("secret_key", "\"***\"", Given::Yes);
            if secret.is_empty() {
                let wrong = Wrong {
                    value: "\"\"".to_owned(),
                    allowed: "a secret of at least one character",
                    remedy: "write the secret, or name its file with secret_key_file",
                };
                table.fault("secret_key", wrong);
            }
            Some(SecretSource::Inline(SecretKey::new(secret)))
        }
        Secrets {
            inline: None,
            file: Some(file),
            variable: None,
        } => {
            table.note("secret_key_file", quoted(&file), Given::Yes);
            Some(SecretSource::File(file.into()))
        }
        Secrets {
            inline: None,
            file: None,
            variable: Some(name),
        } => {
            table.note("secret_key_env", quoted(&name), Given::Yes);
            Some(SecretSource::Environment(name))
        }
        Secrets {
            inline: None,
            file: None,
            variable: None,
        } => {
            table.missing("secret_key", &format!("set {ONE}"));
            None
        }
        Secrets { .. } => {
            let wrong = Wrong {
                value: "(several)".to_owned(),
                allowed: ONE,
                remedy: "keep the one that holds the secret and remove the others",
            };
            table.fault("secret_key", wrong);
            None
        }
    }
}

fn check_policies(table: &mut Section<'_, '_>, raw: Option<Vec<RawPolicy>>) -> Vec<PolicySource> {
    let Some(raw) = raw else {
        let text = format!(
            "{}: not set, so only bucket policies let it in",
            table.at("policies")
        );
        table.warn(text);
        return Vec::new();
    };
    let mut policies = Vec::with_capacity(raw.len());
    for (index, policy) in raw.into_iter().enumerate() {
        let key = format!("policies[{index}]");
        let ready_made = USER_POLICIES.map(|(name, json)| (name, json.to_owned()));
        policies.extend(check_policy(table, &key, policy, &ready_made));
    }
    for source in &policies {
        table.note_outside(Outside::Policy {
            source: source.clone(),
            kind: PolicyKind::Identity,
        });
    }
    policies
}

pub(super) fn check_bucket_policies(
    findings: &mut Findings<'_>,
    raw: Option<Vec<RawBucketPolicy>>,
) -> Vec<BucketPolicyConfig> {
    let mut policies = Vec::new();
    for (index, raw) in raw.unwrap_or_default().into_iter().enumerate() {
        let mut table = findings.section(format!("bucket_policies[{index}]"));
        let RawBucketPolicy { bucket, policy } = raw;
        if bucket.is_none() {
            table.missing(
                "bucket",
                "write bucket = \"NAME\", or a pattern such as \"public-*\"",
            );
        }
        // A ready-made policy needs a name to be of.
        let bucket = table
            .text("bucket", bucket)
            .unwrap_or_else(|| "*".to_owned());
        let Some(policy) = policy else {
            table.missing(
                "policy",
                "write policy = \"public-read\", or { file = \"…\" }",
            );
            continue;
        };
        let ready_made =
            BUCKET_POLICIES.map(|(name, json)| (name, json.replace("BUCKET", &bucket)));
        if let Some(policy) = check_policy(&mut table, "policy", policy, &ready_made) {
            table.note_outside(Outside::Policy {
                source: policy.clone(),
                kind: PolicyKind::Bucket,
            });
            policies.push(BucketPolicyConfig { bucket, policy });
        }
    }
    policies
}

fn check_policy(
    table: &mut Section<'_, '_>,
    key: &str,
    raw: RawPolicy,
    ready_made: &[(&str, String)],
) -> Option<PolicySource> {
    let at = table.at(key);
    let document = match raw {
        RawPolicy::Named(name) => {
            table.note(key, quoted(&name), Given::Yes);
            let found = ready_made.iter().find(|(known, _)| *known == name);
            if found.is_none() {
                let names: Vec<&str> = ready_made.iter().map(|(known, _)| *known).collect();
                let wrong = Wrong {
                    value: quoted(&name),
                    allowed: &format!("{}, {{ file = … }}, {{ json = … }}", names.join(", ")),
                    remedy: "choose a ready-made policy, or give an AWS policy document",
                };
                table.fault(key, wrong);
            }
            return found.map(|(_, json)| PolicySource::Json {
                json: json.clone(),
                key: at,
            });
        }
        RawPolicy::Document(document) => document,
    };
    match document {
        RawPolicyDocument {
            json: Some(json),
            file: None,
        } => {
            table.note(key, "{ json = … }", Given::Yes);
            Some(PolicySource::Json { json, key: at })
        }
        RawPolicyDocument {
            json: None,
            file: Some(file),
        } => {
            table.note(key, format!("{{ file = {} }}", quoted(&file)), Given::Yes);
            Some(PolicySource::File {
                path: file.into(),
                key: at,
            })
        }
        RawPolicyDocument {
            json: None,
            file: None,
        }
        | RawPolicyDocument {
            json: Some(_),
            file: Some(_),
        } => {
            let wrong = Wrong {
                value: "{ … }".to_owned(),
                allowed: "exactly one of json and file",
                remedy: "write { file = \"…\" } or { json = '…' }",
            };
            table.fault(key, wrong);
            None
        }
    }
}
