//! The tier layer: small objects are durable in a hot store in a millisecond, and later at home in
//! a cold one.
//!
//! [`TierLayer`] is a store around two. The hot one is a `HotStore`: one small record a key. The
//! cold one is any store. What a record allows is written in `ledger`, as a table and as pure
//! functions; everything else asks it.
//!
//! | module | step |
//! |---|---|
//! | `placement` | does an object belong in the hot store (pure) |
//! | `ledger` | what an operation does to a key, by what the hot store says of it (pure) |
//! | `read`, `write`, `many` | reads; writes of one object; deletes of many |
//! | `direct` | writes that pass by, to the cold store |
//! | `lists` | listings of both, merged |
//! | `view`, `request` | answers made of hot records; requests that may go out twice |
//! | `mover` | beside all requests: what is due goes from hot to cold |
//! | `cold`, `buckets` | what the tier itself asks the cold store |
//! | `operate` | what an operator asks and orders |
//!
//! What is promised to clients is in docs/semantics.md.

mod buckets;
mod cold;
mod direct;
mod layer;
mod ledger;
mod lists;
mod many;
mod mover;
mod operate;
mod placement;
mod read;
mod request;
mod settings;
mod tier;
mod view;
mod write;

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use forebay_s3::operation::ObjectId;
use forebay_store::Query;

pub use forebay_native::hot::{HotStore, IndexedHot, Parts, Space, Totals, stranded};
pub use layer::TierLayer;
pub use ledger::Conditions;
pub use mover::{Mover, Turn};
pub use operate::{Dirty, DirtyKind, NotReady, Selection, Status, TierOperator};
pub use settings::{OnStop, Rule, RulePlace, TierSettings};
pub use tier::{Level, TierParts};

/// Makes addresses at which a client reads the cold store itself.
#[async_trait]
pub trait Presigner: Send + Sync + 'static {
    /// A URL that reads this object, with these parameters of the client's query; `None` when
    /// there is none to give.
    async fn presign(&self, object: &ObjectId, query: &Query) -> Option<String>;
}
