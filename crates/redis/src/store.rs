//! S3's semantics over Redis.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_native::{Indexed, Native, Settings};
use forebay_store::{Clock, Error, Request, Response, Store};
use forebay_telemetry::redis::RedisMetrics;
use tokio::runtime::Handle;

use crate::{OpenError, RedisBlobs, RedisEngine, RedisIndex, RedisSettings};

/// Redis as a store of objects; what it is made of is there for others too.
#[derive(Debug)]
pub struct RedisStore {
    native: Native<Indexed<RedisIndex, RedisBlobs>>,
    engine: RedisEngine,
}

impl RedisStore {
    /// See [`RedisEngine::open`].
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        settings: &RedisSettings,
        native: Settings,
        clock: Clock,
        metrics: &Arc<RedisMetrics>,
        runtime: Handle,
    ) -> Result<Self, OpenError> {
        let engine = RedisEngine::open(settings, clock.clone(), metrics, runtime).await?;
        Ok(Self::over(engine, native, clock))
    }

    /// A store over what is open already.
    pub fn over(engine: RedisEngine, native: Settings, clock: Clock) -> Self {
        let index = RedisIndex::clone(engine.index());
        let blobs = RedisBlobs::clone(engine.blobs());
        let indexed = Indexed::new(index, blobs, clock.clone());
        Self {
            native: Native::new(indexed, clock, native),
            engine,
        }
    }

    /// Index, blobs, leases and changes.
    pub fn engine(&self) -> &RedisEngine {
        &self.engine
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        self.native.call(request).await
    }
}
