//! The mirrors of a gateway, by name, and how their members stand, as it is told.

use std::{fmt, sync::Arc};

use forebay_mirror::{
    Difference as FoundDifference, DifferenceKind, MemberState, MemberStatus as Found,
    MirrorOperator, Repairer,
};
use forebay_store::Error;

use super::messages::{Difference, DifferingMember, MemberStatus, MirrorStatus};

/// A mirror.
#[derive(Clone)]
pub struct Mirror {
    /// Name of the store.
    pub name: String,
    /// Name of the store that keeps its journal.
    pub journal: String,
    /// Where that is there.
    pub space: String,
    /// What is asked of it and ordered.
    pub operator: MirrorOperator,
    /// What repairs its members.
    pub repairer: Arc<Repairer>,
}

impl fmt::Debug for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mirror").field(&self.name).finish()
    }
}

impl Mirror {
    /// How it stands.
    pub(super) async fn status(&self) -> Result<MirrorStatus, Error> {
        let found = self.operator.status().await?;
        Ok(MirrorStatus {
            store: self.name.clone(),
            journal: self.journal.clone(),
            space: self.space.clone(),
            writes_min: found.writes_min as u64,
            journal_keys: found.journal_keys,
            members: found.members.into_iter().map(shown).collect(),
        })
    }

    /// Why it can't take writes, if it can't: too few members answer.
    pub(super) async fn lack(&self) -> Option<String> {
        // What can't be asked for its journal says so to each write.
        let found = self.operator.status().await.ok()?;
        let answering = found.members.iter();
        let answering = answering
            .filter(|member| member.state != MemberState::Down)
            .count();
        (answering < found.writes_min).then(|| {
            format!(
                "mirror {}: {answering} of {} members answer, and {} must have a write\n",
                self.name,
                found.members.len(),
                found.writes_min
            )
        })
    }
}

fn shown(found: Found) -> MemberStatus {
    MemberStatus {
        store: found.name,
        state: match found.state {
            MemberState::Up => "up",
            MemberState::Behind => "behind",
            MemberState::Comparing => "comparing",
            MemberState::Down => "down",
        }
        .to_owned(),
        pending_keys: found.pending_keys,
        oldest_pending_seconds: found.oldest_pending.map(|age| age.as_secs_f64()),
        requests: found.requests,
        failures: found.failures,
    }
}

/// A difference between members, as it is told.
pub(super) fn shown_difference(found: &FoundDifference) -> Difference {
    let members = found.members.iter().map(|(name, object)| DifferingMember {
        store: name.clone(),
        etag: object.as_ref().map(|(etag, _)| etag.clone()),
        size_bytes: object.as_ref().map(|(_, size_bytes)| *size_bytes),
    });
    Difference {
        bucket: found.bucket.as_str().to_owned(),
        key: found.key.clone(),
        kind: match found.kind {
            DifferenceKind::Bucket => "bucket",
            DifferenceKind::Missing => "missing",
            DifferenceKind::Differing => "differing",
            DifferenceKind::Undecided => "undecided",
        }
        .to_owned(),
        members: members.collect(),
    }
}
