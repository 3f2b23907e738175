//! The listings of several members, side by side in the order of keys.

use std::collections::{BTreeMap, VecDeque};

use forebay_s3::{
    bucket::BucketName,
    key::ObjectKey,
    operation::{Listing, Operation},
    uri,
    xml::{self, ListedObject},
};
use forebay_store::Error;
use futures_util::future;
use http::Method;

use crate::{
    members::{MemberId, MemberSet},
    mirror::Shared,
};

/// Objects asked for at once: with keys of 1 KiB, each byte of which takes three when encoded, they
/// stay below what `xml` reads.
const BATCH_OBJECTS: usize = 500;
/// Tries to get a batch; a comparison of hours should not end for one lost connection.
const ATTEMPTS_MAX: usize = 5;

/// A key, and what members list of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heads {
    pub(super) key: ObjectKey,
    pub(super) of: BTreeMap<MemberId, ListedObject>,
}

/// See the module.
pub(super) struct Listers<'a> {
    shared: &'a Shared,
    bucket: &'a BucketName,
    prefix: &'a str,
    of_members: Vec<Lister>,
}

struct Lister {
    member: MemberId,
    ready: VecDeque<ListedObject>,
    next: Next,
}

/// What asks for a member's next batch.
enum Next {
    First,
    Token(String),
    End,
}

impl<'a> Listers<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        members: MemberSet,
        (bucket, prefix): (&'a BucketName, &'a str),
    ) -> Self {
        let lister = |member| Lister {
            member,
            ready: VecDeque::new(),
            next: Next::First,
        };
        Self {
            shared,
            bucket,
            prefix,
            of_members: members.iter().map(lister).collect(),
        }
    }

    /// The next key that any of them lists.
    ///
    /// # Errors
    /// That of a member that can't be listed.
    pub(super) async fn next(&mut self) -> Result<Option<Heads>, Error> {
        let (shared, bucket, prefix) = (self.shared, self.bucket, self.prefix);
        let filled = self
            .of_members
            .iter_mut()
            .map(|lister| lister.fill(shared, (bucket, prefix)));
        for filled in future::join_all(filled).await {
            filled?;
        }
        let firsts = self
            .of_members
            .iter()
            .filter_map(|lister| lister.ready.front());
        let Some(key) = firsts.map(|object| &object.key).min().cloned() else {
            return Ok(None);
        };
        let mut of = BTreeMap::new();
        for lister in &mut self.of_members {
            if lister.ready.front().is_some_and(|object| object.key == key) {
                of.extend(
                    lister
                        .ready
                        .pop_front()
                        .map(|object| (lister.member, object)),
                );
            }
        }
        Ok(Some(Heads { key, of }))
    }
}

impl Lister {
    /// Gets a batch if none is ready.
    async fn fill(
        &mut self,
        shared: &Shared,
        (bucket, prefix): (&BucketName, &str),
    ) -> Result<(), Error> {
        while self.ready.is_empty() {
            let from = match &self.next {
                Next::First => String::new(),
                Next::Token(token) => format!("&continuation-token={}", uri::encode_query(token)),
                Next::End => return Ok(()),
            };
            let query = format!(
                "list-type=2&encoding-type=url&max-keys={BATCH_OBJECTS}&prefix={}{from}",
                uri::encode_query(prefix)
            );
            let batch = self.ask(shared, (bucket, prefix), &query).await?;
            self.ready = batch.objects.into();
            // A store that sorts otherwise would seem to lack what it has.
            self.ready
                .make_contiguous()
                .sort_by(|a, b| a.key.cmp(&b.key));
            self.next = batch.next.map_or(Next::End, Next::Token);
        }
        Ok(())
    }

    async fn ask(
        &self,
        shared: &Shared,
        (bucket, prefix): (&BucketName, &str),
        query: &str,
    ) -> Result<xml::ListedBatch, Error> {
        let asker = shared.copier.asker();
        let member = shared.members.get(self.member);
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let listing = Listing {
                bucket: bucket.clone(),
                prefix: prefix.to_owned(),
            };
            let operation = Operation::ListObjectsV2(listing);
            let request = asker.request(Method::GET, operation, query);
            match asker.ask(&*member.store, request).await {
                Ok((_, text)) => {
                    let unreadable = |error| Error::internal("read a listing of a member", error);
                    return xml::listed(&text).map_err(unreadable);
                }
                // It lacks all of it.
                Err(trouble) if trouble.is_no_bucket() => {
                    return Ok(xml::ListedBatch {
                        objects: Vec::new(),
                        next: None,
                    });
                }
                Err(trouble) if attempts_left == 0 => {
                    let reason = format!("member {} can't be listed: {trouble}", member.name);
                    return Err(Error::Unavailable {
                        reason: reason.into(),
                    });
                }
                Err(_) => tokio::time::sleep(shared.settings.retry_interval).await,
            }
        }
    }
}
