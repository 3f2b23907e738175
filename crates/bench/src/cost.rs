//! What a workload costs: all in S3, all in Redis, or in a tier that keeps young objects hot.
//!
//! Pure but for [`command`]: a [`Workload`] and [`Prices`] in, [`Statement`]s and [`Advice`] out.
//!
//! The workload is a steady one: in each period `over`, so many objects are written evenly, and
//! each is kept for `kept`; so at any moment `objects * kept / over` of them are there. A statement
//! is the bill of one period. Nodes come whole and are rented for the period, or for the shortest
//! time that they are rented; S3 is paid by byte, second and request.
//!
//! Money is exact, see [`money`]. Left out: volume discounts and free tiers, replicas, DELETE
//! (free), the write of a demoted object that has several parts.

use std::time::Duration;

pub mod advice;
pub mod command;
mod metrics;
pub mod money;
pub mod prices;
mod print;
#[cfg(test)]
mod tests;

pub use advice::Advice;
pub use money::{Money, TooMuch};
pub use prices::Prices;

use crate::quantity::Share;
use money::Price;

/// What is stored and asked for in one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Objects written.
    pub objects: u64,
    /// Bytes of an object, in the mean; at least 1.
    pub size_bytes: u64,
    /// How long an object is kept, a second at least.
    pub kept: Duration,
    /// The period, a second at least.
    pub over: Duration,
    /// Requests that write; a multipart upload has several.
    pub puts: u64,
    /// Requests that read.
    pub gets: u64,
    /// Requests that list.
    pub lists: u64,
    /// Payload that reads bring.
    pub read_bytes: u64,
    /// Share of the bytes read that leaves the region.
    pub leaving: Share,
    /// Share of reads that come up to an age, by rising ages; between them it rises evenly, from
    /// nothing at age 0 to all of them when the object goes.
    pub reads_by_age: Vec<(Duration, Share)>,
    /// Share of objects that are deleted or overwritten while they are hot.
    pub short_lived: Share,
    /// Redis nodes; `None`: as many as hold the objects.
    pub redis_nodes: Option<u64>,
}

/// Where young objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hot {
    /// Forebay's own log, on a disk.
    Disk,
    /// S3 Express One Zone.
    Express,
    /// Redis.
    Redis,
}

impl Hot {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Disk, Self::Express, Self::Redis];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Express => "S3 Express",
            Self::Redis => "Redis",
        }
    }
}

/// The bill of one way to keep a workload, for one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The way.
    pub name: String,
    /// Requests, and bytes written or read where they cost.
    pub requests: Money,
    /// Bytes kept.
    pub storage: Money,
    /// Nodes rented: Redis, and the gateway's machine.
    pub nodes: Money,
    /// Bytes that leave the region.
    pub transfer: Money,
    /// Redis nodes among them.
    pub redis_nodes: u64,
}

impl Statement {
    /// All but the bytes that leave the region.
    pub fn total(&self) -> Money {
        self.requests + self.storage + self.nodes
    }

    /// All of it.
    pub fn total_with_transfer(&self) -> Money {
        self.total() + self.transfer
    }
}

impl Workload {
    /// The bill with everything in S3 Standard.
    pub fn in_s3(&self, prices: &Prices) -> Result<Statement, TooMuch> {
        let s3 = &prices.s3;
        let requests = [
            s3.put.of(self.puts.into())?,
            s3.get.of(self.gets.into())?,
            s3.list.of(self.lists.into())?,
        ];
        Ok(Statement {
            name: "all in S3".to_owned(),
            requests: requests.into_iter().sum(),
            storage: s3.storage.of(self.byte_seconds(self.kept)?)?,
            nodes: Money::ZERO,
            transfer: self.transfer(prices)?,
            redis_nodes: 0,
        })
    }

    /// The bill with everything in S3 Express One Zone.
    pub fn in_express(&self, prices: &Prices) -> Result<Statement, TooMuch> {
        let express = &prices.express;
        let written_bytes = u128::from(self.objects) * u128::from(self.size_bytes);
        let requests = [
            express.put.of(self.puts.into())?,
            express.get.of(self.gets.into())?,
            express.list.of(self.lists.into())?,
            express.upload.of(written_bytes)?,
            express.retrieval.of(self.read_bytes.into())?,
        ];
        Ok(Statement {
            name: "all in S3 Express".to_owned(),
            requests: requests.into_iter().sum(),
            storage: express.storage.of(self.byte_seconds(self.kept)?)?,
            nodes: Money::ZERO,
            transfer: self.transfer(prices)?,
            redis_nodes: 0,
        })
    }

    /// The bill with everything in Redis.
    pub fn in_redis(&self, prices: &Prices) -> Result<Statement, TooMuch> {
        let redis_nodes = match self.redis_nodes {
            Some(nodes) => nodes,
            None => self.nodes_for(self.kept, prices)?,
        };
        Ok(Statement {
            name: "all in Redis".to_owned(),
            requests: Money::ZERO,
            storage: Money::ZERO,
            nodes: self.rent(redis_nodes, prices)?,
            transfer: self.transfer(prices)?,
            redis_nodes,
        })
    }

    /// The bill of a tier: hot for `demote_after`, then in S3. With no time at all it is the bill
    /// of S3 and a gateway.
    pub fn in_tier(
        &self,
        hot: Hot,
        demote_after: Duration,
        prices: &Prices,
    ) -> Result<Statement, TooMuch> {
        let use_ = self.tier_use(demote_after)?;
        let gateway = prices.gateway_node.of(self.over.as_secs().into())?;
        let s3 = &prices.s3;
        let cold_storage = s3.storage.of(use_.cold_byte_seconds)?;
        let mut statement = Statement {
            name: format!("Forebay, hot on {}", hot.name()),
            requests: [
                s3.put.of(use_.cold_puts.into())?,
                s3.get.of(use_.cold_gets.into())?,
                s3.list.of(self.lists.into())?,
            ]
            .into_iter()
            .sum(),
            storage: cold_storage,
            nodes: gateway,
            transfer: self.transfer(prices)?,
            redis_nodes: 0,
        };
        if demote_after.is_zero() {
            return Ok(statement);
        }
        match hot {
            Hot::Disk => {
                let disk = prices.disk_storage.of(use_.hot_byte_seconds)?;
                statement.storage = cold_storage + disk;
            }
            Hot::Express => {
                let express = prices.express.storage.of(use_.hot_byte_seconds)?;
                statement.storage = cold_storage + express;
                statement.requests = statement.requests + self.express_requests(&use_, prices)?;
            }
            Hot::Redis => {
                statement.redis_nodes = self.nodes_for(demote_after, prices)?;
                statement.nodes = gateway + self.rent(statement.redis_nodes, prices)?;
            }
        }
        Ok(statement)
    }

    /// What a tier does with the workload.
    fn tier_use(&self, demote_after: Duration) -> Result<TierUse, TooMuch> {
        let hot_for = demote_after.min(self.kept);
        if hot_for.is_zero() {
            return Ok(TierUse {
                cold_puts: self.puts,
                cold_gets: self.gets,
                cold_byte_seconds: self.byte_seconds(self.kept)?,
                ..TierUse::default()
            });
        }
        let hot_gets = part_of(self.gets, self.reads_until(hot_for));
        // An object that was deleted while hot never costs a write to S3, nor does one that goes
        // before it would be demoted.
        let demoted = if hot_for == self.kept {
            0
        } else {
            self.objects - part_of(self.objects, self.short_lived)
        };
        let all = self.byte_seconds(self.kept)?;
        let hot = self.byte_seconds(hot_for)?;
        Ok(TierUse {
            hot_puts: self.objects,
            hot_gets,
            demoted,
            cold_puts: demoted,
            cold_gets: self.gets - hot_gets,
            hot_byte_seconds: hot,
            cold_byte_seconds: all - hot,
        })
    }

    fn express_requests(&self, use_: &TierUse, prices: &Prices) -> Result<Money, TooMuch> {
        let express = &prices.express;
        let size = u128::from(self.size_bytes);
        let reads = u128::from(use_.hot_gets) + u128::from(use_.demoted);
        Ok([
            express.put.of(use_.hot_puts.into())?,
            express.get.of(reads)?,
            express.upload.of(size * u128::from(use_.hot_puts))?,
            express.retrieval.of(size * reads)?,
        ]
        .into_iter()
        .sum())
    }

    /// The share of reads that come up to this age.
    fn reads_until(&self, age: Duration) -> Share {
        let (mut before, mut share_before) = (Duration::ZERO, Share::NONE);
        let end = (self.kept, Share::WHOLE);
        for (at, share) in self.reads_by_age.iter().copied().chain([end]) {
            if age <= at && at > before {
                let step = age.saturating_sub(before).as_millis();
                let whole = at.saturating_sub(before).as_millis().max(1);
                return share_before.towards(share, step, whole);
            }
            (before, share_before) = (at, share);
        }
        Share::WHOLE
    }

    fn byte_seconds(&self, time: Duration) -> Result<u128, TooMuch> {
        u128::from(self.objects)
            .checked_mul(self.size_bytes.into())
            .and_then(|bytes| bytes.checked_mul(time.as_secs().into()))
            .ok_or(TooMuch)
    }

    /// Bytes that are there at any moment, of objects that stay for `time`.
    fn bytes_at_once(&self, time: Duration) -> Result<u128, TooMuch> {
        let period = u128::from(self.over.as_secs().max(1));
        Ok(self.byte_seconds(time)?.div_ceil(period))
    }

    fn nodes_for(&self, time: Duration, prices: &Prices) -> Result<u64, TooMuch> {
        let usable = u128::from(prices.redis.usable_bytes);
        let nodes = self.bytes_at_once(time)?.div_ceil(usable).max(1);
        u64::try_from(nodes).map_err(|_| TooMuch)
    }

    fn rent(&self, nodes: u64, prices: &Prices) -> Result<Money, TooMuch> {
        let rented = self.over.max(prices.redis.rented_min).as_secs();
        prices.redis.node.of(u128::from(nodes) * u128::from(rented))
    }

    fn transfer(&self, prices: &Prices) -> Result<Money, TooMuch> {
        prices
            .transfer_out
            .of(part_of(self.read_bytes, self.leaving).into())
    }
}

/// What a tier does with a workload, in one period.
#[derive(Debug, Clone, Copy, Default)]
struct TierUse {
    hot_puts: u64,
    hot_gets: u64,
    demoted: u64,
    cold_puts: u64,
    cold_gets: u64,
    hot_byte_seconds: u128,
    cold_byte_seconds: u128,
}

/// A share of a count, rounded to the nearest.
fn part_of(count: u64, share: Share) -> u64 {
    let product = u128::from(count) * u128::from(share.parts_per_million());
    u64::try_from((product + 500_000) / 1_000_000).unwrap_or(count)
}

/// What a byte costs in a hot store for a second, with its nodes full.
fn hot_storage(hot: Hot, prices: &Prices) -> Result<Price, TooMuch> {
    match hot {
        Hot::Disk => Ok(prices.disk_storage),
        Hot::Express => Ok(prices.express.storage),
        Hot::Redis => {
            let redis = &prices.redis;
            redis
                .node
                .divided_by(redis.usable_bytes.into())
                .ok_or(TooMuch)
        }
    }
}
