//! One key that seems to differ: looked at under its lock, judged, and brought to one state.

use std::collections::BTreeMap;

use forebay_native::hot::HotKey;
use forebay_store::Error;
use futures_util::future;

use super::{
    Comparison, Depth, Difference, DifferenceKind, Remedy,
    judge::{Ground, Ruling, Sameness, Version, rule, sameness},
};
use crate::{
    copy::{Copied, CopyError, Described, Ends},
    journal::{Entry, Owed, Subject},
    locks::KeyLock,
    members::{MemberId, MemberSet},
    write,
};

/// What members have under a key.
type Seen = BTreeMap<MemberId, Option<Described>>;

/// Tries with a source that changes; somebody writes past the mirror then.
const ATTEMPTS_MAX: usize = 3;

impl Comparison<'_> {
    /// Looks at a key, and repairs it if that is ordered.
    pub(super) async fn one(&self, key: HotKey) {
        let name = format!("{}/{}", key.bucket, key.key);
        if let Err(error) = self.under_lock(&key).await {
            self.progress.failed(&name, &error);
        }
    }

    async fn under_lock(&self, key: &HotKey) -> Result<(), Error> {
        let subject = Subject::Object(key.clone());
        // Most keys that differ in listings are being written; those are not waited for.
        if self.parties.pupil.is_none() && self.shared.held(&subject).await?.is_some() {
            self.progress.count(|counts| counts.pending += 1);
            return Ok(());
        }
        let lock = self.shared.locks.lock(&subject).await?;
        let done = self.locked(key, &lock).await;
        lock.release().await;
        done
    }

    async fn locked(&self, key: &HotKey, lock: &KeyLock) -> Result<(), Error> {
        let subject = lock.subject();
        let held = write::settled(self.shared, subject).await?;
        let mut voters = self.parties.voters;
        match (&held, self.parties.pupil) {
            (None, _) => {}
            (Some(_), None) => {
                self.progress.count(|counts| counts.pending += 1);
                return Ok(());
            }
            (Some(held), Some(_)) => {
                // By the journal nobody else has it: the others get it when this one is back.
                if held.entry.current(self.shared.standings().known).is_empty() {
                    self.progress.count(|counts| counts.pending += 1);
                    return Ok(());
                }
                voters = held.entry.current(voters);
            }
        }
        let seen = self.look(key, voters).await?;
        let (versions, is_undecided) = self.versions(key, &seen).await?;
        if versions.len() == 1 && !is_undecided {
            return Ok(());
        }
        let is_missing = versions.iter().any(|version| version.object.is_none());
        self.progress.differs(Difference {
            bucket: key.bucket.clone(),
            key: key.key.as_str().to_owned(),
            kind: match (is_missing, is_undecided) {
                (true, _) => DifferenceKind::Missing,
                (false, true) => DifferenceKind::Undecided,
                (false, false) => DifferenceKind::Differing,
            },
            members: self.named(&told(&seen)),
        });
        if self.remedy == Remedy::Tell || (is_undecided && self.parties.pupil.is_none()) {
            return Ok(());
        }
        let remedy = match self.parties.pupil {
            // Whom it is compared with is right in everything.
            Some(_) => Remedy::DeleteByMajority,
            None => self.remedy,
        };
        let Some(ruling) = rule(&versions, voters, remedy) else {
            return Err(Error::Unavailable {
                reason: "no member that has the last state can be asked".into(),
            });
        };
        self.bring(key, lock, (&versions, ruling)).await
    }

    /// What the members have: all of them, or the pupil and a voter. That there is nothing is
    /// believed of voters when each that answers says so: what the pupil has is deleted then.
    async fn look(&self, key: &HotKey, voters: MemberSet) -> Result<Seen, Error> {
        let object = key.object();
        let shared = self.shared;
        let ask = async |member: MemberId| {
            let store = &*shared.members.get(member).store;
            let looked = shared.copier.look(store, &object).await;
            looked.map_err(|trouble| Error::Unavailable {
                reason: format!("member {}: {trouble}", shared.members.get(member).name).into(),
            })
        };
        let Some(pupil) = self.parties.pupil else {
            let all = self.parties.all.iter();
            let looks = all.map(|member| {
                let ask = &ask;
                async move { Ok((member, ask(member).await?)) }
            });
            return future::join_all(looks).await.into_iter().collect();
        };
        let mut seen = Seen::from([(pupil, ask(pupil).await?)]);
        let mut failed = None;
        let mut absent = None;
        for member in voters.iter() {
            match ask(member).await {
                Ok(None) => absent = Some(member),
                Ok(found) => {
                    seen.insert(member, found);
                    return Ok(seen);
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(member) = absent {
            seen.insert(member, None);
            return Ok(seen);
        }
        Err(failed.unwrap_or(Error::Unavailable {
            reason: "no member that has the last state can be asked".into(),
        }))
    }

    /// Who has the same; whether that can't be told of some.
    async fn versions(&self, key: &HotKey, seen: &Seen) -> Result<(Vec<Version>, bool), Error> {
        let mut versions: Vec<Version> = Vec::new();
        let mut is_undecided = false;
        'members: for (member, object) in seen {
            for version in &mut versions {
                let mut same = sameness(version.object.as_ref(), object.as_ref());
                let other = version.members.iter().next();
                if let (Sameness::Undecided, Depth::Full, Some(other)) = (same, self.depth, other) {
                    same = self.by_bytes(key, seen, (other, *member)).await?;
                }
                if let (Sameness::Same, Depth::Full, Some(other)) = (same, self.depth, other)
                    && !self.have_same_tags(key, seen, (other, *member)).await?
                {
                    same = Sameness::Other;
                }
                match same {
                    Sameness::Same => {
                        version.members = version.members.with(*member);
                        continue 'members;
                    }
                    Sameness::Other => {}
                    Sameness::Undecided => is_undecided = true,
                }
            }
            versions.push(Version {
                members: MemberSet::EMPTY.with(*member),
                object: object.clone(),
            });
        }
        Ok((versions, is_undecided))
    }

    async fn by_bytes(
        &self,
        key: &HotKey,
        seen: &Seen,
        (a, b): (MemberId, MemberId),
    ) -> Result<Sameness, Error> {
        let (Some(of_a), Some(of_b)) = (&seen[&a], &seen[&b]) else {
            return Ok(Sameness::Other);
        };
        let members = &self.shared.members;
        let (store_a, store_b) = (&*members.get(a).store, &*members.get(b).store);
        let (copier, object) = (&self.shared.copier, key.object());
        let compared = copier.have_same_bytes(&object, (store_a, of_a), (store_b, of_b));
        match compared.await {
            Ok(true) => Ok(Sameness::Same),
            Ok(false) => Ok(Sameness::Other),
            Err(error) => Err(of_copy(&error)),
        }
    }

    async fn have_same_tags(
        &self,
        key: &HotKey,
        seen: &Seen,
        (a, b): (MemberId, MemberId),
    ) -> Result<bool, Error> {
        let (Some(of_a), Some(of_b)) = (&seen[&a], &seen[&b]) else {
            return Ok(true);
        };
        let (object, copier) = (key.object(), &self.shared.copier);
        let store = |member: MemberId| &*self.shared.members.get(member).store;
        let of_a = copier.tagging(store(a), &object, of_a.tag_count).await;
        let of_b = copier.tagging(store(b), &object, of_b.tag_count).await;
        match (of_a, of_b) {
            (Ok(a), Ok(b)) => Ok(a == b),
            (Err(trouble), _) | (_, Err(trouble)) => Err(Error::Unavailable {
                reason: format!("tags can't be read: {trouble}").into(),
            }),
        }
    }

    /// Brings all members to what is right. Gives way to a client that waits for the key: the
    /// repair loop goes on with it.
    async fn bring(
        &self,
        key: &HotKey,
        lock: &KeyLock,
        (versions, ruling): (&[Version], Ruling),
    ) -> Result<(), Error> {
        let right = |version: &&Version| match ruling {
            Ruling::Has(member, _) => version.members.has(member),
            Ruling::Nothing => version.object.is_none(),
        };
        if let Ruling::Has(_, Ground::Latest) = ruling {
            self.progress.count(|counts| counts.conflicts += 1);
        }
        let having = versions.iter().find(right).map(|version| version.members);
        let targets = match self.parties.pupil {
            Some(pupil) => MemberSet::EMPTY.with(pupil),
            None => self.parties.all,
        };
        for target in targets.without(having.unwrap_or_default()).iter() {
            let brought = tokio::select! {
                biased;
                brought = self.bring_one(key, ruling, target) => brought,
                () = lock.wanted() => {
                    self.owe(lock.subject(), target).await;
                    self.progress.count(|counts| counts.pending += 1);
                    return Ok(());
                }
            };
            match brought {
                Ok(copied) => self.progress.count(|counts| match copied {
                    Copied::Nothing => {}
                    Copied::Written(bytes, _) => counts.bytes += bytes,
                    Copied::Deleted => counts.deleted += 1,
                }),
                Err(error) => {
                    self.owe(lock.subject(), target).await;
                    return Err(of_copy(&error));
                }
            }
        }
        self.progress.count(|counts| counts.repaired += 1);
        Ok(())
    }

    async fn bring_one(
        &self,
        key: &HotKey,
        ruling: Ruling,
        target: MemberId,
    ) -> Result<Copied, CopyError> {
        let (members, copier) = (&self.shared.members, &self.shared.copier);
        let target = &*members.get(target).store;
        let Ruling::Has(source, _) = ruling else {
            return copier.delete(key, target).await;
        };
        let ends = Ends {
            source: &*members.get(source).store,
            target,
        };
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            match copier.copy(key, ends).await {
                Err(CopyError::Changed) if attempts_left > 0 => {}
                other => return other,
            }
        }
    }

    /// Leaves a member to the repair loop, as what came of the copy is not known.
    async fn owe(&self, subject: &Subject, member: MemberId) {
        let owed = Owed {
            member,
            doubt_ms: self.shared.doubt_ms(),
        };
        let Ok(held) = self.shared.held(subject).await else {
            return;
        };
        let entry = match &held {
            Some(held) if held.entry.owing().has(member) => return,
            Some(held) => {
                let mut entry = held.entry.clone();
                entry.owed.push(owed);
                entry
            }
            None => Entry {
                at_ms: self.shared.now_ms(),
                intent: None,
                owed: vec![owed],
            },
        };
        // What can't be written down is found by the next comparison.
        drop(
            self.shared
                .change(subject, held.as_ref(), Some(entry))
                .await,
        );
        self.shared.wake.notify_one();
    }
}

fn told(seen: &Seen) -> BTreeMap<MemberId, Option<(String, u64)>> {
    let told = |object: &Option<Described>| {
        object
            .as_ref()
            .map(|object| (object.etag.clone(), object.size_bytes))
    };
    seen.iter()
        .map(|(member, object)| (*member, told(object)))
        .collect()
}

fn of_copy(error: &CopyError) -> Error {
    Error::Unavailable {
        reason: error.to_string().into(),
    }
}
