//! Which cold store a space of a hot store belongs to, so that two of them never mix in one.
//!
//! What a gateway's config calls its cold store means nothing to another gateway; so the space
//! itself says whose it is, and a tier asks before it begins.

use forebay_store::Error;

use super::{Parts, Space, indexed::IndexedHot};
use crate::index::{Applied, Batch, Change, Expect, Payload, Want};

/// Whose a space is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// The asking tier's: it was nobody's, or its cold store is the same.
    Ours,
    /// Another cold store's, and it holds what that one has not.
    Other {
        /// What that cold store is known by.
        cold: Vec<String>,
    },
}

/// Takes a space for a cold store that is known by the names `cold`: addresses of a service, or a
/// directory. It is the same one when they share a name, so that addresses can come and go. A
/// space without anything to be moved changes hands.
///
/// # Errors
/// The index's own; then the space may have been taken or not.
pub async fn take_home(parts: &Parts, space: &Space, cold: &[String]) -> Result<Home, Error> {
    let (name, route) = (space.home(), space.home_route());
    let fault = |error| Error::internal("read whose a space is", error);
    loop {
        let entry = parts.index.get(&route, &name, Want::Value).await?;
        let expect = match &entry {
            None => Expect::Absent,
            Some(entry) => {
                let known: Vec<String> = serde_json::from_slice(&entry.value).map_err(fault)?;
                if known == cold {
                    return Ok(Home::Ours);
                }
                let is_same = cold.iter().any(|name| known.contains(name));
                if !is_same && !is_empty(parts, space).await? {
                    return Ok(Home::Other { cold: known });
                }
                Expect::At(entry.sequence)
            }
        };
        let put = Change::Put {
            name: name.clone(),
            value: serde_json::to_vec(cold).map_err(fault)?.into(),
            payload: Payload::None,
        };
        let batch = Batch {
            expects: vec![(name.clone(), expect)],
            changes: vec![put],
        };
        // Who was overtaken by another gateway looks again.
        if let Applied::Done(_) = parts.index.apply(&route, batch).await? {
            return Ok(Home::Ours);
        }
    }
}

async fn is_empty(parts: &Parts, space: &Space) -> Result<bool, Error> {
    use super::HotStore as _;
    let totals = IndexedHot::new(parts.clone(), space.clone())
        .totals()
        .await?;
    Ok(totals.is_clean())
}
