//! What operators ask of tiers and logs, and order.

use std::{fmt::Write as _, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use forebay_native::hot::{HotDurability, HotKey};
use forebay_s3::{bucket::BucketName, key::ObjectKey};
use forebay_store::Query;
use forebay_tier::{Dirty, DirtyKind, Level, Selection, Status};
use http::{Method, StatusCode};
use http_body::Body as HttpBody;

use super::{Answer, Api, Failure, bad, json, read};
use crate::admin::{
    Log, Tier,
    jobs::Job,
    messages::{
        DirtyAnswer, DirtyObject, LogStats, LogsAnswer, SettledAnswer, Settling, TierStatus,
        TiersAnswer,
    },
};

/// Objects of a list unless it is told otherwise, and at most.
const LISTED_DEFAULT: usize = 100;
const LISTED_MAX: usize = 1000;
/// How long one look of a job at a flush takes, between which it can be cancelled.
const LOOK: Duration = Duration::from_secs(1);
/// Damaged names that the note of a verification has room for.
const NOTED_MAX: usize = 20;

/// How a conflict is settled.
#[derive(Debug, Clone, Copy)]
enum Settle {
    Retry,
    Discard,
}

impl Api {
    /// Answers what is about tiers and logs; `None` when the path is neither's.
    pub(super) async fn of_tiers<B>(
        &self,
        (method, path, query): (&Method, &str, &Query),
        body: B,
    ) -> Option<Answer>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        Some(match (method, path) {
            (&Method::GET, "/tier/status") => self.tiers_status().await,
            (&Method::GET, "/tier/list") => self.dirty(query).await,
            (&Method::GET, "/tier/conflicts") => self.conflicts(query).await,
            (&Method::POST, "/tier/flush") => self.flush_tiers().await,
            (&Method::POST, "/tier/drain") => self.drain_tiers().await,
            (&Method::POST, "/tier/resume") => {
                for tier in &self.operators.tiers.list {
                    tier.operator.resume();
                }
                self.tiers_status().await
            }
            (&Method::POST, "/tier/retry") => self.settle(Settle::Retry, body).await,
            (&Method::POST, "/tier/discard") => self.settle(Settle::Discard, body).await,
            (&Method::GET, "/log/stats") => {
                let logs = self.operators.tiers.logs.iter().map(log_stats).collect();
                Ok(json(StatusCode::OK, &LogsAnswer { logs }))
            }
            (&Method::POST, "/log/verify") => self.verify_logs().await,
            (&Method::POST, "/log/compact") => self.compact_logs().await,
            _ => return None,
        })
    }

    async fn tiers_status(&self) -> Answer {
        let mut tiers = Vec::new();
        for tier in &self.operators.tiers.list {
            let status = tier.operator.status().await.map_err(failed)?;
            tiers.push(tier_status(tier, status));
        }
        Ok(json(StatusCode::OK, &TiersAnswer { tiers }))
    }

    async fn dirty(&self, query: &Query) -> Answer {
        let (selection, count) = (selection(query)?, count(query)?);
        let mut objects = Vec::new();
        for tier in &self.operators.tiers.list {
            let left = count - objects.len();
            let found = tier.operator.list(&selection, left).await.map_err(failed)?;
            objects.extend(found.into_iter().map(|dirty| dirty_object(tier, dirty)));
        }
        Ok(json(StatusCode::OK, &DirtyAnswer { objects }))
    }

    async fn conflicts(&self, query: &Query) -> Answer {
        let count = count(query)?;
        let mut objects = Vec::new();
        for tier in &self.operators.tiers.list {
            let left = count - objects.len();
            let found = tier.operator.conflicts(left).await.map_err(failed)?;
            objects.extend(found.into_iter().map(|dirty| dirty_object(tier, dirty)));
        }
        Ok(json(StatusCode::OK, &DirtyAnswer { objects }))
    }

    /// Moves what is dirty now, as a job that ends when it is moved.
    async fn flush_tiers(&self) -> Answer {
        let tiers = self.operators.tiers.list.clone();
        self.work("tier flush", "what is dirty now", |job| async move {
            for tier in tiers {
                let before = dirty_count(&tier).await?;
                while !tier.operator.flush_and_wait(LOOK).await.map_err(shown)? {
                    note_moved(&job, before, &tier).await?;
                }
                note_moved(&job, before, &tier).await?;
            }
            Ok(None)
        })
        .await
    }

    /// The same, and takes nothing new, until `resume`.
    async fn drain_tiers(&self) -> Answer {
        let tiers = self.operators.tiers.list.clone();
        self.work("tier drain", "all that is dirty", |job| async move {
            for tier in tiers {
                let before = dirty_count(&tier).await?;
                while !tier.operator.drain(LOOK).await.map_err(shown)? {
                    note_moved(&job, before, &tier).await?;
                }
                note_moved(&job, before, &tier).await?;
            }
            let why = "writes go to the cold stores until `tier resume` or the next start";
            Ok(Some(why.to_owned()))
        })
        .await
    }

    async fn settle<B>(&self, how: Settle, body: B) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let Settling { objects } = read(body).await?;
        let (mut settled, mut not_in_conflict) = (Vec::new(), Vec::new());
        for name in objects {
            let key = key_of(&name)?;
            let mut is_settled = false;
            for tier in &self.operators.tiers.list {
                is_settled |= match how {
                    Settle::Retry => tier.operator.retry(&key).await,
                    Settle::Discard => tier.operator.discard(&key).await,
                }
                .map_err(failed)?;
            }
            if is_settled {
                tracing::info!(name, ?how, "conflict settled by operator");
                settled.push(name);
            } else {
                not_in_conflict.push(name);
            }
        }
        let answer = SettledAnswer {
            settled,
            not_in_conflict,
        };
        Ok(json(StatusCode::OK, &answer))
    }

    async fn verify_logs(&self) -> Answer {
        let logs = self.operators.tiers.logs.clone();
        self.work("log verify", "all logs", |job| async move {
            let (mut damaged, mut note) = (0, String::new());
            for log in logs {
                let found = log.parts.verify().await.map_err(shown)?;
                let whole = found.entries + found.blobs;
                job.done.fetch_add(whole, Ordering::Relaxed);
                damaged += found.damaged.len();
                for (name, what) in found.damaged.iter().take(NOTED_MAX) {
                    // Writing to a text can't fail.
                    let _ = write!(note, "{}: {what}; ", printable(name));
                }
            }
            match damaged {
                0 => Ok(None),
                count => Err(format!("{count} damaged: {note}")),
            }
        })
        .await
    }

    async fn compact_logs(&self) -> Answer {
        let logs = self.operators.tiers.logs.clone();
        self.work("log compact", "all logs", |job| async move {
            for log in logs {
                let before = log.parts.stats().segments_bytes;
                let after = log.parts.compact().await.map_err(shown)?.segments_bytes;
                let freed = before.saturating_sub(after);
                job.bytes.fetch_add(freed, Ordering::Relaxed);
            }
            Ok(None)
        })
        .await
    }
}

async fn dirty_count(tier: &Tier) -> Result<u64, String> {
    let totals = tier.operator.status().await.map_err(shown)?.totals;
    Ok(totals.dirty_count + totals.tombstones_count)
}

/// Objects that are no longer dirty; what was written meanwhile hides some of them.
async fn note_moved(job: &Job, before: u64, tier: &Tier) -> Result<(), String> {
    let moved = before.saturating_sub(dirty_count(tier).await?);
    job.done.fetch_max(moved, Ordering::Relaxed);
    Ok(())
}

fn tier_status(tier: &Tier, status: Status) -> TierStatus {
    TierStatus {
        tier: tier.name.clone(),
        hot: tier.hot.clone(),
        space: tier.space.clone(),
        cold: tier.cold.clone(),
        buckets: tier.buckets.clone(),
        dirty_objects: status.totals.dirty_count,
        dirty_bytes: status.totals.dirty_bytes,
        dirty_bytes_max: status.dirty_bytes_max,
        level: match status.level {
            Level::Low => "low",
            Level::Half => "half",
            Level::Full => "full",
        }
        .to_owned(),
        tombstones: status.totals.tombstones_count,
        conflicts: status.totals.conflicts_count,
        oldest_dirty_seconds: status.oldest_dirty.map(|age| age.as_secs_f64()),
        is_draining: status.is_draining,
        durability: match status.durability {
            HotDurability::Volatile => "volatile",
            HotDurability::Local => "hot-local",
            HotDurability::Replicated => "hot-replicated",
        }
        .to_owned(),
    }
}

fn dirty_object(tier: &Tier, dirty: Dirty) -> DirtyObject {
    let (kind, size_bytes, etag, found) = match dirty.kind {
        DirtyKind::Object { size_bytes } => ("object", Some(size_bytes), None, None),
        DirtyKind::Tombstone => ("delete", None, None, None),
        DirtyKind::Conflict {
            size_bytes,
            etag,
            found,
        } => ("conflict", Some(size_bytes), Some(etag), Some(found)),
    };
    DirtyObject {
        tier: tier.name.clone(),
        bucket: dirty.key.bucket.to_string(),
        key: dirty.key.key.as_str().to_owned(),
        kind: kind.to_owned(),
        age_seconds: dirty.age.as_secs_f64(),
        size_bytes,
        etag,
        found,
    }
}

fn log_stats(log: &Log) -> LogStats {
    let stats = log.parts.stats();
    let damaged = stats.quarantined.iter();
    LogStats {
        store: log.name.clone(),
        segments: stats.segments,
        segments_bytes: stats.segments_bytes,
        live_bytes: stats.live_bytes,
        garbage_bytes: stats.garbage_bytes,
        blobs_bytes: stats.blobs_bytes,
        entries: stats.entries,
        index_bytes: stats.index_bytes,
        poisoned: stats.poisoned,
        damaged: damaged
            .map(|(name, what)| (printable(name), what.clone()))
            .collect(),
        damaged_more: stats.quarantined_more,
    }
}

/// A name of the index, which has zero bytes between its parts.
fn printable(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn selection(query: &Query) -> Result<Selection, Failure> {
    let Some(bucket) = query.get("bucket") else {
        return Ok(Selection::All);
    };
    let bucket = BucketName::parse(&bucket).map_err(|fault| bad(format!("bucket: {fault}")))?;
    Ok(match query.get("prefix") {
        Some(prefix) => Selection::Prefix(bucket, prefix.into_owned()),
        None => Selection::Bucket(bucket),
    })
}

fn count(query: &Query) -> Result<usize, Failure> {
    match query.get("n").map(|text| text.parse()) {
        None => Ok(LISTED_DEFAULT),
        Some(Ok(count @ 1..=LISTED_MAX)) => Ok(count),
        Some(_) => Err(bad(format!("n: 1 to {LISTED_MAX}"))),
    }
}

fn key_of(name: &str) -> Result<HotKey, Failure> {
    let wrong = || bad(format!("objects: {name:?} is no BUCKET/KEY"));
    let (bucket, key) = name.split_once('/').ok_or_else(wrong)?;
    Ok(HotKey {
        bucket: BucketName::parse(bucket).map_err(|_| wrong())?,
        key: ObjectKey::parse(key).map_err(|_| wrong())?,
    })
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn shown(error: forebay_store::Error) -> String {
    error.to_string()
}

fn failed(error: forebay_store::Error) -> Failure {
    Failure(StatusCode::SERVICE_UNAVAILABLE, shown(error))
}
