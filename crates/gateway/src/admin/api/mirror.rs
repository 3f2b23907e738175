//! What operators ask of mirrors, and have compared and repaired.

use std::sync::Arc;

use bytes::Bytes;
use forebay_mirror::{CompareOrder, CompareProgress, CompareScope, Depth, Remedy};
use forebay_s3::bucket::BucketName;
use http::{Method, StatusCode};
use http_body::Body as HttpBody;

use super::{Answer, Api, Failure, bad, json, read};
use crate::admin::{
    Mirror,
    jobs::{Ended, Order},
    messages::{Comparing, MirrorsAnswer},
};

/// Differences that the note of a job names.
const NOTED_MAX: usize = 10;

/// What is done about differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Verify,
    Repair,
}

impl Api {
    /// Answers what is about mirrors; `None` when the path is not.
    pub(super) async fn of_mirrors<B>(
        &self,
        (method, path): (&Method, &str),
        body: B,
    ) -> Option<Answer>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        Some(match (method, path) {
            (&Method::GET, "/mirror/status") => self.mirrors_status().await,
            (&Method::POST, "/mirror/verify") => self.compare(Purpose::Verify, body).await,
            (&Method::POST, "/mirror/repair") => self.compare(Purpose::Repair, body).await,
            _ => return None,
        })
    }

    async fn mirrors_status(&self) -> Answer {
        let mut mirrors = Vec::new();
        for mirror in &self.operators.mirrors {
            let status = mirror.status().await.map_err(|error| {
                let why = format!("journal of {}: {error}", mirror.name);
                Failure(StatusCode::SERVICE_UNAVAILABLE, why)
            })?;
            mirrors.push(status);
        }
        Ok(json(StatusCode::OK, &MirrorsAnswer { mirrors }))
    }

    /// Compares members, as a job that fails when they differ and are not made equal.
    async fn compare<B>(&self, purpose: Purpose, body: B) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let comparing: Comparing = read(body).await?;
        let order = order_of(purpose, &comparing)?;
        let mirrors = self.chosen(comparing.store.as_deref())?;
        let what = what_of(&mirrors, &comparing);
        let parts: Vec<(Mirror, Arc<CompareProgress>)> = mirrors
            .into_iter()
            .map(|mirror| (mirror, Arc::default()))
            .collect();
        tracing::info!(?purpose, what, "members compared by operator");
        let job = Order {
            kind: match purpose {
                Purpose::Verify => "mirror verify",
                Purpose::Repair => "mirror repair",
            },
            what,
            warms: Vec::new(),
            compares: parts
                .iter()
                .map(|(_, progress)| Arc::clone(progress))
                .collect(),
        };
        let job = self.jobs.begin(job, |_| async move {
            for (mirror, progress) in &parts {
                let compared = mirror.operator.compare(order.clone(), progress).await;
                compared.map_err(|why| format!("{}: {why}", mirror.name))?;
            }
            end_of(&parts)
        });
        self.begun(job).await
    }

    fn chosen(&self, name: Option<&str>) -> Result<Vec<Mirror>, Failure> {
        let mirrors = self.operators.mirrors.iter();
        let chosen: Vec<Mirror> = match name {
            None => mirrors.cloned().collect(),
            Some(name) => mirrors
                .filter(|mirror| mirror.name == name)
                .cloned()
                .collect(),
        };
        if chosen.is_empty() {
            let why = match name {
                None => "no store is of type \"mirror\"".to_owned(),
                Some(name) => format!("no store of type \"mirror\" is called {name:?}"),
            };
            return Err(Failure(StatusCode::NOT_FOUND, why));
        }
        Ok(chosen)
    }
}

fn order_of(purpose: Purpose, comparing: &Comparing) -> Result<CompareOrder, Failure> {
    let bucket = comparing.bucket.as_deref().map(BucketName::parse);
    let bucket = bucket
        .transpose()
        .map_err(|fault| bad(format!("bucket: {fault}")))?;
    let scope = match (bucket, &comparing.prefix) {
        (None, None) => CompareScope::All,
        (None, Some(_)) => return Err(bad("prefix: name its bucket".to_owned())),
        (Some(bucket), None) => CompareScope::Bucket(bucket),
        (Some(bucket), Some(prefix)) => CompareScope::Prefix(bucket, prefix.clone()),
    };
    let remedy = match (purpose, comparing.delete) {
        (Purpose::Verify, false) => Remedy::Tell,
        (Purpose::Verify, true) => return Err(bad("delete: only a repair does".to_owned())),
        (Purpose::Repair, false) => Remedy::Restore,
        (Purpose::Repair, true) => Remedy::DeleteByMajority,
    };
    let depth = if comparing.full {
        Depth::Full
    } else {
        Depth::Listed
    };
    Ok(CompareOrder {
        scope,
        remedy,
        depth,
    })
}

fn what_of(mirrors: &[Mirror], comparing: &Comparing) -> String {
    let names: Vec<&str> = mirrors.iter().map(|mirror| &*mirror.name).collect();
    let names = names.join(", ");
    match (&comparing.bucket, &comparing.prefix) {
        (None, _) => names,
        (Some(bucket), None) => format!("{bucket} of {names}"),
        (Some(bucket), Some(prefix)) => format!("{bucket}/{prefix}* of {names}"),
    }
}

/// What is to be said of a comparison that went to its end.
fn end_of(parts: &[(Mirror, Arc<CompareProgress>)]) -> Ended {
    let (mut left, mut names) = (0, Vec::new());
    for (_, progress) in parts {
        let counts = progress.counts();
        left += counts.differ().saturating_sub(counts.repaired);
        names.extend(counts.differences.iter().map(|found| match &*found.key {
            "" => found.bucket.as_str().to_owned(),
            key => format!("{}/{key}", found.bucket.as_str()),
        }));
    }
    if left == 0 {
        return Ok(None);
    }
    names.truncate(NOTED_MAX);
    Err(format!("{left} differ: {}", names.join(", ")))
}
