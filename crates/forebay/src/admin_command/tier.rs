//! `forebay admin tier …` and `forebay admin log …`.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Result;
use forebay_gateway::admin::messages::{
    DirtyAnswer, DirtyObject, JobStatus, LogStats, LogsAnswer, SettledAnswer, Settling, TierStatus,
    TiersAnswer,
};

use super::{
    Admin,
    arguments::{DirtyArguments, LogCommand, ObjectArguments, TierCommand},
    client::{self, Method},
    faulty,
    names::{self, encoded},
    show::{self, bytes, list, objects, printable, table, whole},
};

impl Admin {
    pub(super) async fn tier(&self, command: &TierCommand) -> Result<ExitCode> {
        match command {
            TierCommand::Status => {
                let answer: TiersAnswer = self.get("/tier/status").await?;
                self.print(&answer, status)
            }
            TierCommand::List(arguments) => {
                let answer: DirtyAnswer = self.get(&list_path(arguments)).await?;
                self.print(&answer, dirty)
            }
            TierCommand::Conflicts(count) => {
                let path = format!("/tier/conflicts?n={}", count.count);
                let answer: DirtyAnswer = self.get(&path).await?;
                self.print(&answer, dirty)
            }
            TierCommand::Flush { wait: true } => self.follow("/tier/flush").await,
            TierCommand::Flush { wait: false } => {
                let job: JobStatus = self.order("/tier/flush").await?;
                self.print(&job, show::detached)
            }
            TierCommand::Drain => self.follow("/tier/drain").await,
            TierCommand::Resume => {
                let answer: TiersAnswer = self.order("/tier/resume").await?;
                self.print(&answer, status)
            }
            TierCommand::Retry(arguments) => self.settle("/tier/retry", arguments).await,
            TierCommand::Discard(arguments) if arguments.yes => {
                self.settle("/tier/discard", &arguments.objects).await
            }
            TierCommand::Discard(_) => {
                let remedy = "objects that are given up are lost: say --yes";
                Err(faulty("--yes", "(not set)", "--yes", remedy).into())
            }
        }
    }

    pub(super) async fn log(&self, command: &LogCommand) -> Result<ExitCode> {
        match command {
            LogCommand::Stats => {
                let answer: LogsAnswer = self.get("/log/stats").await?;
                self.print(&answer, logs)
            }
            LogCommand::Verify => self.follow("/log/verify").await,
            LogCommand::Compact => self.follow("/log/compact").await,
        }
    }

    async fn order<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = Some(b"{}".to_vec());
        client::read(&self.client.ask(Method::POST, path, body).await?)
    }

    async fn settle(&self, path: &str, arguments: &ObjectArguments) -> Result<ExitCode> {
        let change = names::change(&arguments.objects, arguments.list.as_deref())?;
        let settling = Settling {
            objects: change.objects,
        };
        let body = serde_json::to_vec(&settling)?;
        let answer = self.client.ask(Method::POST, path, Some(body)).await?;
        let answer: SettledAnswer = client::read(&answer)?;
        self.print(&answer, settled)?;
        Ok(if answer.not_in_conflict.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn list_path(arguments: &DirtyArguments) -> String {
    let mut path = format!("/tier/list?n={}", arguments.count.count);
    if let Some(place) = &arguments.place {
        let place = place.strip_prefix("s3://").unwrap_or(place);
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let (bucket, prefix) = (encoded(bucket), encoded(prefix));
        // Writing to a text can't fail.
        let _ = write!(path, "&bucket={bucket}&prefix={prefix}");
    }
    path
}

fn status(answer: &TiersAnswer) -> String {
    if answer.tiers.is_empty() {
        return "no route has a tier\n".to_owned();
    }
    let tiers: Vec<String> = answer.tiers.iter().map(one_tier).collect();
    tiers.join("\n")
}

fn one_tier(tier: &TierStatus) -> String {
    let oldest = tier.oldest_dirty_seconds;
    let oldest = oldest.map(|age| format!(", the oldest {} s old", whole(age)));
    let mut dirty = format!(
        "{}, {} of {} ({}){}",
        objects(tier.dirty_objects),
        bytes(tier.dirty_bytes),
        bytes(tier.dirty_bytes_max),
        tier.level,
        oldest.unwrap_or_default()
    );
    if tier.is_draining {
        dirty += ", draining";
    }
    let rows = [
        ("buckets", tier.buckets.join(", ")),
        ("durability", tier.durability.clone()),
        ("dirty", dirty),
        ("deletes", tier.tombstones.to_string()),
        ("conflicts", tier.conflicts.to_string()),
    ];
    let head = format!(
        "tier {}: store {} (space {}) before store {}\n",
        tier.tier, tier.hot, tier.space, tier.cold
    );
    head + &list(&rows)
}

fn dirty(answer: &DirtyAnswer) -> String {
    if answer.objects.is_empty() {
        return "nothing\n".to_owned();
    }
    let mut rows = vec![["kind", "age", "size", "object"].map(str::to_owned)];
    rows.extend(answer.objects.iter().map(dirty_row));
    table(&rows)
}

fn dirty_row(object: &DirtyObject) -> [String; 4] {
    let found = object.found.as_ref();
    let found = found.map(|found| format!("  (in its place: {found})"));
    [
        object.kind.clone(),
        format!("{} s", whole(object.age_seconds)),
        object.size_bytes.map(bytes).unwrap_or_default(),
        printable(&format!(
            "{}/{}{}",
            object.bucket,
            object.key,
            found.unwrap_or_default()
        )),
    ]
}

fn settled(answer: &SettledAnswer) -> String {
    let mut text = format!("{} settled\n", objects(answer.settled.len() as u64));
    for name in &answer.not_in_conflict {
        // Writing to a text can't fail.
        let _ = writeln!(text, "  {}: not in conflict", printable(name));
    }
    text
}

fn logs(answer: &LogsAnswer) -> String {
    if answer.logs.is_empty() {
        return "no store is a log\n".to_owned();
    }
    let logs: Vec<String> = answer.logs.iter().map(one_log).collect();
    logs.join("\n")
}

fn one_log(log: &LogStats) -> String {
    let segments = format!(
        "{}, {}: {} live, {} to be given back",
        log.segments,
        bytes(log.segments_bytes),
        bytes(log.live_bytes),
        bytes(log.garbage_bytes)
    );
    let mut rows = vec![
        ("segments", segments),
        ("large payloads", bytes(log.blobs_bytes)),
        (
            "index",
            format!("{} entries, {}", log.entries, bytes(log.index_bytes)),
        ),
    ];
    if let Some(why) = &log.poisoned {
        rows.push(("WRITES END", why.clone()));
    }
    for (name, what) in &log.damaged {
        rows.push(("damaged", printable(&format!("{name}: {what}"))));
    }
    if log.damaged_more > 0 {
        rows.push(("damaged", format!("{} more", log.damaged_more)));
    }
    format!("store {}\n{}", log.store, list(&rows))
}
