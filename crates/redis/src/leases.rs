//! Leases: a key with a time to live beside a number that only grows, both in the route's shard.
//!
//! Time is the server's. A lease is as durable as a write when it is given, so a failover with
//! enough replicas keeps it; without them it may be given twice, which the fence then tells.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::{BufMut as _, Bytes, BytesMut};
use forebay_native::{
    index::Route,
    leases::{Fence, Lease, Leases},
};
use forebay_store::Error;
use redis::Value;

use crate::{
    fleet::Fleet,
    keys::{Keys, Shard},
    node::Lane,
    script::{ACQUIRE, RENEW},
    send::{Effect, Sending},
};

/// Leases, in Redis.
#[derive(Debug, Clone)]
pub struct RedisLeases {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) keys: Arc<Keys>,
}

/// What a lease that ends at once is prolonged to: Redis takes 0 for a mistake.
const TIME_MIN: Duration = Duration::from_millis(1);

impl RedisLeases {
    /// Doing any of it twice does no harm: a holder that asks again gets another fence, and a lease
    /// that was given back or lost is so the second time as well.
    fn sending(&self, shard: Shard) -> Sending<'_> {
        Sending {
            slot: self.keys.slot(shard),
            lane: Lane::Durable,
            effect: Effect::Repeatable,
            seconds: &self.fleet.metrics().seconds.lease,
        }
    }

    async fn renewed(&self, lease: &Lease, time: Bytes) -> Result<bool, Error> {
        let shard = Shard::of(&lease.route);
        let mut call = RENEW.call(vec![self.keys.lease(shard, &lease.route)]);
        let Fence(fence) = lease.fence;
        let mut kept = BytesMut::with_capacity(8 + lease.holder.len());
        kept.put_u64(fence);
        kept.put_slice(&lease.holder);
        call.arg(kept.freeze()).arg(time);
        match self.fleet.call(self.sending(shard), &call).await? {
            Value::Int(count) => Ok(count == 1),
            _ => Err(self.fleet.nonsense()),
        }
    }
}

fn millis(time: Duration) -> Bytes {
    time.max(TIME_MIN).as_millis().to_string().into()
}

#[async_trait]
impl Leases for RedisLeases {
    async fn acquire(
        &self,
        route: &Route,
        holder: &Bytes,
        time: Duration,
    ) -> Result<Option<Lease>, Error> {
        let shard = Shard::of(route);
        let keys = vec![self.keys.lease(shard, route), self.keys.fence(shard)];
        let mut call = ACQUIRE.call(keys);
        call.arg(holder.clone()).arg(millis(time));
        let fence = match self.fleet.call(self.sending(shard), &call).await? {
            Value::Nil => return Ok(None),
            Value::BulkString(fence) => fence.try_into().map_err(|_| self.fleet.nonsense())?,
            _ => return Err(self.fleet.nonsense()),
        };
        Ok(Some(Lease {
            route: route.clone(),
            holder: holder.clone(),
            fence: Fence(u64::from_be_bytes(fence)),
        }))
    }

    async fn renew(&self, lease: &Lease, time: Duration) -> Result<bool, Error> {
        self.renewed(lease, millis(time)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), Error> {
        self.renewed(&lease, Bytes::new()).await?;
        Ok(())
    }
}
