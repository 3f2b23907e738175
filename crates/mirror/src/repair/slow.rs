//! What repair does beside its turns, as it may take hours: it brings members back that are to be
//! compared as a whole, and tidies uploads.

use std::{sync::Arc, time::Duration};

use super::Repairer;
use crate::{
    journal::Standing,
    members::MemberId,
    uploads,
    verify::{CompareProgress, resync},
};

/// Time between two looks at uploads; none is in a hurry.
const UPLOADS_EVERY: Duration = Duration::from_mins(1);
/// Tries of a member's retry interval between two comparisons of which the first failed.
const AGAIN_AFTER: u32 = 10;

/// Does it for ever, while this gateway is the one that repairs.
pub(super) async fn run(repairer: &Repairer) {
    tokio::join!(bring_back(repairer), tidy(repairer));
}

async fn bring_back(repairer: &Repairer) {
    let shared = &repairer.shared;
    let interval = shared.settings.retry_interval;
    loop {
        tokio::time::sleep(interval).await;
        if !repairer.is_the_one().await {
            continue;
        }
        for member in shared.members.up().iter() {
            let is_known = matches!(shared.standing(member), Standing::Known);
            if !is_known && !compare(repairer, member).await {
                tokio::time::sleep(interval * AGAIN_AFTER).await;
            }
        }
    }
}

/// Compares a member as a whole; whether it is back.
async fn compare(repairer: &Repairer, member: MemberId) -> bool {
    let shared = &repairer.shared;
    let name = &shared.members.get(member).name;
    let progress = Arc::new(CompareProgress::default());
    tracing::info!(member = name, "a member is being compared as a whole");
    let back = resync(shared, member, &progress).await;
    let counts = progress.counts();
    match back {
        Ok(()) => {
            tracing::info!(
                member = name,
                keys = counts.keys,
                repaired = counts.repaired,
                bytes = counts.bytes,
                "a member is like the others"
            );
            true
        }
        Err(error) => {
            tracing::warn!(member = name, %error, "a member could not be compared as a whole");
            false
        }
    }
}

async fn tidy(repairer: &Repairer) {
    loop {
        tokio::time::sleep(UPLOADS_EVERY).await;
        if !repairer.is_the_one().await {
            continue;
        }
        if let Err(error) = uploads::turn(&repairer.shared).await {
            tracing::warn!(%error, "the mirror could not tidy uploads");
        }
    }
}
