//! Brings back a member of which the journal knows no longer what it lacks: compares all of it with
//! the others, while they serve and take writes.
//!
//! First the journal begins to keep again what the member misses. A write that began before that
//! and ends later is in no entry; so there are two passes at least, and the second finds it. A pass
//! costs the listings, and a look at what differs or was modified lately.

use std::{sync::Arc, time::Duration};

use forebay_store::Error;

use super::{CompareProgress, CompareScope, Comparison, Depth, Parties, Remedy};
use crate::{
    journal::Standing,
    members::{MemberId, MemberSet},
    mirror::Shared,
};

/// Time in which all gateways learn how a member stands: they look each second.
const TOLD_AFTER: Duration = Duration::from_secs(3);
/// Passes after which a member is taken for equal though each of them found differences: what is
/// written from its first on is in the journal.
const PASSES_MAX: usize = 5;
/// How far clocks of members may differ, and how long a write may have been under way: what was
/// modified so long before the member fell behind is looked at as well.
const MARGIN_MS: i64 = 10 * 60 * 1000;

/// Compares a member as a whole, and has it read from again.
///
/// # Errors
/// What keeps it from being compared: it stays out of reads then.
///
/// # Cancel safety
/// A dropped future leaves the member out of reads, to be compared again.
pub(crate) async fn resync(
    shared: &Arc<Shared>,
    member: MemberId,
    progress: &CompareProgress,
) -> Result<(), Error> {
    let suspect_since_ms = match shared.standing(member) {
        Standing::Known => return Ok(()),
        Standing::Whole(since_ms) => since_ms - MARGIN_MS,
        // When it fell behind is not known any more.
        Standing::Comparing(_) => i64::MIN,
    };
    let pupil = MemberSet::EMPTY.with(member);
    let comparing = Standing::Comparing(shared.now_ms());
    stand(shared, member, comparing).await?;
    tokio::time::sleep(TOLD_AFTER).await;
    let mut since_ms = suspect_since_ms;
    for pass in 1..=PASSES_MAX {
        let begun_ms = shared.now_ms();
        let voters = shared.readable().without(pupil);
        if voters.is_empty() {
            return Err(Error::Unavailable {
                reason: "no member that is current can be asked".into(),
            });
        }
        let (differed, failed) = pass_over(shared, member, (voters, since_ms), progress).await?;
        if failed > 0 {
            return Err(Error::Unavailable {
                reason: format!("{failed} keys could not be compared").into(),
            });
        }
        if pass > 1 && differed == 0 {
            break;
        }
        since_ms = begun_ms - MARGIN_MS;
    }
    if shared.standing(member) != comparing {
        return Err(Error::Unavailable {
            reason: "the member fell behind again meanwhile".into(),
        });
    }
    stand(shared, member, Standing::Known).await?;
    shared.wake.notify_one();
    Ok(())
}

/// One pass: how many keys differed, and how many could not be compared.
async fn pass_over(
    shared: &Arc<Shared>,
    member: MemberId,
    (voters, since_ms): (MemberSet, i64),
    progress: &CompareProgress,
) -> Result<(u64, u64), Error> {
    let before = progress.counts();
    let comparison = Comparison {
        shared,
        parties: Parties {
            // Each of the others may lack keys that the rest has, as the journal knows.
            all: voters.with(member),
            voters,
            pupil: Some(member),
        },
        remedy: Remedy::DeleteByMajority,
        depth: Depth::Listed,
        suspect_since_ms: Some(since_ms),
        progress,
    };
    comparison.run(&CompareScope::All).await?;
    let after = progress.counts();
    Ok((
        after.differ() - before.differ(),
        after.failed - before.failed,
    ))
}

async fn stand(shared: &Shared, member: MemberId, standing: Standing) -> Result<(), Error> {
    let written = shared.journal.set_standing(member, standing).await;
    written.map_err(|error| shared.journal_failed(error))?;
    shared.stands(member, standing);
    Ok(())
}
