//! Decides whether a request is allowed, before any layer sees it: so on cache hits as well.
//!
//! A request needs one or more actions ([`forebay_s3::policy::needs`]); each must be allowed by a
//! policy of its user or of the bucket and denied by none. What a body names (the keys of a
//! `DeleteObjects`) is asked by the step that reads the body.

use std::sync::Arc;

use forebay_s3::{
    bucket::BucketName,
    classify::Head,
    code::Code,
    operation::Operation,
    policy::{
        Access, AccessRequest, Context, Decision, Need, Needs, Policy, Transport, decide_all,
        delete_needs, needs,
    },
    xml::DeleteEntry,
};
use forebay_store::{Error, Identity};
use http::request::Parts;

use super::authenticate::Proof;
use crate::{
    server::{Connection, Security},
    users::Users,
};

/// Who asks, as policies see it.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    users: arc_swap::Guard<Arc<Users>>,
    policies: &'a [Arc<Policy>],
    context: Context<'a>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(connection: &Connection, head: &'a Parts, proof: &'a Proof) -> Self {
        let user = match &proof.identity {
            Identity::Anonymous => None,
            Identity::User(name) => Some(&**name),
        };
        let transport = match connection.security {
            Security::Plain => Transport::Plain,
            Security::Tls { .. } => Transport::Tls,
        };
        Self {
            users: connection.worker.shared.users.load(),
            policies: proof.user.as_ref().map_or(&[], |user| &user.policies),
            context: Context {
                user,
                user_id: user,
                source_ip: connection.remote.ip().to_canonical(),
                transport,
                now: proof.now_unix_seconds,
                signature: proof.signature,
                headers: &head.headers,
                query: head.uri.query().unwrap_or_default(),
            },
        }
    }

    /// Refuses unless all of these are allowed.
    pub(super) fn may(&self, needs: &Needs) -> Result<(), Error> {
        for need in needs.iter() {
            if self.decide(need) != Decision::Allow {
                return Err(Error::refused(Code::AccessDenied));
            }
        }
        Ok(())
    }

    fn decide(&self, need: &Need) -> Decision {
        let of_bucket = self
            .users
            .bucket_policies()
            .iter()
            .filter(|policy| {
                need.bucket
                    .as_ref()
                    .is_some_and(|b| policy.buckets.matches(b))
            })
            .map(|policy| &*policy.policy);
        let of_user = self.policies.iter().map(|policy| &**policy);
        decide_all(
            of_user.chain(of_bucket),
            &AccessRequest {
                need,
                context: &self.context,
            },
        )
    }
}

/// Decides a request whose head says all.
pub(super) fn request(
    connection: &Connection,
    head: &Parts,
    host: &str,
    operation: &Operation,
    proof: &Proof,
) -> Result<(), Error> {
    match needs(operation, &language_head(head, host)) {
        Access::Needs(needs) => Asker::new(connection, head, proof).may(&needs),
        Access::NamedInBody | Access::Free => Ok(()),
    }
}

/// Decides every entry of a `DeleteObjects`: one that is denied refuses the whole request.
pub(super) fn deletes(
    connection: &Connection,
    head: &Parts,
    proof: &Proof,
    bucket: &BucketName,
    entries: &[DeleteEntry],
) -> Result<(), Error> {
    let asker = Asker::new(connection, head, proof);
    entries
        .iter()
        .try_for_each(|entry| asker.may(&delete_needs(bucket, entry, &head.headers)))
}

/// The head as the language crate reads it.
pub(super) fn language_head<'a>(head: &'a Parts, host: &'a str) -> Head<'a> {
    Head {
        method: &head.method,
        host,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
    }
}
