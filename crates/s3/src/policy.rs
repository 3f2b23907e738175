//! AWS policy documents: compiled once, asked often.
//!
//! Authorization asks [`needs`] what a request needs to be allowed, and [`decide_all`] each need
//! of the policies of the user and of the bucket. An explicit deny wins over every allow, and
//! what nothing allows is not allowed. A decision allocates nothing but where a condition compares
//! a value that is spread over headers or encoded in the query.
//!
//! What a policy says and nothing here can judge is an error of [`Policy::parse`], with its place:
//! an unknown operator, key, element or kind of principal. So no statement is silently weaker
//! than it reads. Two rules for what shows only with a request: an allow whose variable has no
//! value (`${aws:username}` of an anonymous request) does not apply; a deny whose condition meets
//! a value that cannot be read as a number or date does apply.
//!
//! Users are one account: the account in an ARN of a user is not compared.
//!
//! Sources: IAM User Guide, "IAM JSON policy elements" (each by name), "Policy evaluation logic",
//! "Variables and tags"; Amazon S3 User Guide, "Bucket policy examples using condition keys".

use std::{fmt, net::IpAddr};

use http::HeaderMap;

use crate::{
    bucket::BucketName,
    key::{ObjectKey, VersionId},
    operation::Action,
};

mod actions;
mod compile;
mod condition;
mod json;
mod key;
mod needs;
mod pattern;
mod principal;
mod statement;

pub use needs::{Access, Needs, delete_needs, needs};
use statement::Statement;

/// Most bytes of a policy document: AWS's own limit for a bucket policy.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;

/// Whom a policy belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// A user: every statement is about that user, and none names a principal.
    Identity,
    /// A bucket: every statement names principals.
    Bucket,
}

/// What one statement does when it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Effect {
    Allow,
    Deny,
}

/// What a policy says of one need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// A statement allows it and none denies it.
    Allow,
    /// A statement denies it; no other policy can allow it.
    Deny,
    /// No statement is about it.
    NoMatch,
}

/// A compiled policy document.
#[derive(Debug, Clone)]
pub struct Policy {
    statements: Vec<Statement>,
    warnings: Vec<Fault>,
}

/// One thing that is wrong in a document, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// As in `Statement[1].Condition.StringEquals`.
    pub place: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

/// All faults of a document, at least one (S3: `MalformedPolicy`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyError {
    /// In the order of the document.
    pub faults: Vec<Fault>,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}

/// One action on one resource, which a request needs to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The action.
    pub action: Action,
    /// Bucket of the resource; `None` for the service.
    pub bucket: Option<BucketName>,
    /// Key of the resource; `None` for the bucket itself.
    pub key: Option<ObjectKey>,
    /// The version asked for.
    pub version: Option<VersionId>,
}

/// How a request was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature {
    /// Where the signature was.
    pub carrier: Carrier,
    /// How it was made.
    pub version: SignatureVersion,
    /// Time since it was made, in milliseconds; negative when the client's clock is ahead.
    pub age_millis: i64,
}

/// Where a signature was (`s3:authType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The `Authorization` header.
    Header,
    /// The query of a presigned URL.
    Query,
    /// A field of a form.
    Form,
}

/// How a signature was made (`s3:signatureversion`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureVersion {
    /// Signature Version 2.
    V2,
    /// Signature Version 4.
    V4,
}

/// What conditions may ask about a request; read only when one asks.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Name of the user; `None` for an anonymous request.
    pub user: Option<&'a str>,
    /// Id of the user, `aws:userid`.
    pub user_id: Option<&'a str>,
    /// Address of the client.
    pub source_ip: IpAddr,
    /// Whether the request came over TLS.
    pub transport: Transport,
    /// Unix seconds.
    pub now: i64,
    /// How it was signed; `None` for an anonymous request.
    pub signature: Option<Signature>,
    /// Headers as sent.
    pub headers: &'a HeaderMap,
    /// Query as sent, still encoded.
    pub query: &'a str,
}

/// How a request came (`aws:SecureTransport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In clear.
    Plain,
    /// Over TLS.
    Tls,
}

/// One need in its context: what a policy decides.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// What must be allowed.
    pub need: &'a Need,
    /// The request that needs it.
    pub context: &'a Context<'a>,
}

impl Policy {
    /// Compiles a document.
    ///
    /// # Errors
    /// [`PolicyError`] with all its faults.
    pub fn parse(json: &str, kind: PolicyKind) -> Result<Self, PolicyError> {
        compile::compile(json, kind)
    }

    /// What is allowed in a policy but surely not meant: an action that no request ever needs.
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }

    /// What this policy says of `request`.
    pub fn decide(&self, request: &AccessRequest<'_>) -> Decision {
        let mut decision = Decision::NoMatch;
        for statement in &self.statements {
            // Once something allows, only a deny can still matter.
            let matters = decision == Decision::NoMatch || statement.effect == Effect::Deny;
            if matters && statement.applies(request) {
                match statement.effect {
                    Effect::Deny => return Decision::Deny,
                    Effect::Allow => decision = Decision::Allow,
                }
            }
        }
        decision
    }
}

/// What all `policies` together say of `request`: a deny in any of them wins.
pub fn decide_all<'p>(
    policies: impl IntoIterator<Item = &'p Policy>,
    request: &AccessRequest<'_>,
) -> Decision {
    let mut decision = Decision::NoMatch;
    for policy in policies {
        match policy.decide(request) {
            Decision::Deny => return Decision::Deny,
            Decision::Allow => decision = Decision::Allow,
            Decision::NoMatch => {}
        }
    }
    decision
}

#[cfg(test)]
mod tests;
