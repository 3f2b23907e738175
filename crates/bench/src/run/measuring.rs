//! Measures case by case, round by round, one endpoint after another.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};

use super::{
    arguments::RunArguments,
    cases::{Before, CasePlan, Group},
    endpoints::{Endpoint, Endpoints},
    progress::{Doing, Progress},
    tap_stats,
};
use crate::{
    load::{self, LoadSettings, Measured, Reads, Verify, cost},
    prepare::{self, Hands, PrepareError, Watch},
    results::{Case, ClientCost, Measurement, Run},
    wire::Scheme,
    workload::{Objects, Plan},
};

/// Connections that objects are uploaded from.
const FILL_CLIENTS: u32 = 16;
/// More bytes in flight than this bring no upload forward.
const FILL_CLIENTS_LARGE: u32 = 4;
const LARGE_BYTES: u64 = 16 * 1024 * 1024;

pub(super) struct Measuring<'a> {
    arguments: &'a RunArguments,
    endpoints: &'a Endpoints,
    progress: &'a Progress,
    /// What has been prepared in this run: places (by number) and prefixes.
    kept: Vec<(usize, String)>,
    /// Prefixes that were written for one measurement only.
    spent: Vec<(usize, String)>,
    /// What may have been written to Redis, which tells nobody what is below a prefix.
    in_redis: Vec<(usize, Arc<Objects>)>,
    /// What tells measurements of this run from those of any other.
    nonce: String,
}

impl<'a> Measuring<'a> {
    pub(super) fn new(
        arguments: &'a RunArguments,
        endpoints: &'a Endpoints,
        progress: &'a Progress,
    ) -> Self {
        Self {
            arguments,
            endpoints,
            progress,
            kept: Vec::new(),
            spent: Vec::new(),
            in_redis: Vec::new(),
            nonce: format!("{:08x}", fastrand::u32(..)),
        }
    }

    /// Measures everything.
    ///
    /// # Errors
    /// When it was stopped, or an endpoint can't be prepared; `run` holds what was measured.
    pub(super) fn all(&mut self, groups: &[Group], run: &mut Run) -> anyhow::Result<()> {
        let rounds = self.arguments.rounds();
        let per_case = u64::from(rounds) * self.endpoints.list.len() as u64;
        let cases: u64 = groups.iter().map(|group| group.len() as u64).sum();
        let expected = groups
            .iter()
            .flatten()
            .map(|case| case.warm_up + case.duration.unwrap_or_default());
        let each = u32::try_from(per_case).unwrap_or(u32::MAX);
        let expected: Duration = expected.sum();
        self.progress.plan(cases * per_case, expected * each);
        for group in groups {
            for round in 0..rounds {
                for case in group {
                    for index in 0..self.endpoints.list.len() {
                        self.one(case, round, index, run)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes what no later run can use, and everything when that was asked for.
    ///
    /// # Errors
    /// When the endpoint refuses.
    pub(super) fn clean_up(&mut self, arguments: &RunArguments) -> anyhow::Result<()> {
        for (index, prefix) in std::mem::take(&mut self.spent) {
            self.empty(index, &prefix)?;
        }
        if arguments.cleanup {
            let places = match &self.endpoints.prepare_at {
                Some(_) => 1,
                None => self.endpoints.list.len(),
            };
            for index in 0..places {
                if self.endpoints.fillable(index).address.scheme != Scheme::Redis {
                    self.empty(index, &format!("{}/", arguments.prefix))?;
                }
            }
            for (index, objects) in std::mem::take(&mut self.in_redis) {
                self.delete(index, &objects)?;
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        case: &CasePlan,
        round: u32,
        index: usize,
        run: &mut Run,
    ) -> anyhow::Result<()> {
        self.stopped()?;
        let endpoint = &self.endpoints.list[index];
        let measurement_name = format!("{}-{round}", self.nonce);
        let (objects, prefix) = case.source.objects(&endpoint.label, &measurement_name);
        if endpoint.address.scheme == Scheme::Redis {
            let is_known =
                |(at, known): &(usize, Arc<Objects>)| *at == index && Arc::ptr_eq(known, &objects);
            if !self.in_redis.iter().any(is_known) {
                self.in_redis.push((index, Arc::clone(&objects)));
            }
        }
        self.prepare(case, index, (&objects, &prefix))?;
        let before = tap_stats::read(self.arguments, endpoint)?;
        let measured = self.load(case, round, endpoint, &objects)?;
        let after = tap_stats::read(self.arguments, endpoint)?;
        let is_cut = measured.is_cut;
        let mut made = measurements(case, (index, round), measured);
        if let (Some(before), Some(after)) = (before, after)
            && let Some(first) = made.first_mut()
        {
            first.origin = Some(after.since(before));
        }
        run.measurements.extend(made);
        if is_cut {
            self.stopped()?;
        }
        Ok(())
    }

    fn stopped(&self) -> anyhow::Result<()> {
        if self.progress.is_stopped() {
            return Err(anyhow!("interrupted by a signal"));
        }
        Ok(())
    }

    fn load(
        &self,
        case: &CasePlan,
        round: u32,
        endpoint: &Endpoint,
        objects: &Arc<Objects>,
    ) -> anyhow::Result<Measured> {
        let arguments = self.arguments;
        let settings = LoadSettings {
            threads: arguments.threads(),
            clients: case.clients(),
            load: case.shown.load,
            warm_up: case.warm_up,
            duration: case.duration,
            verify: if arguments.verify {
                Verify::EachByte
            } else {
                Verify::LengthOnly
            },
            reads: if arguments.if_none_match {
                Reads::Changes
            } else {
                Reads::Anything
            },
        };
        // Each round chooses anew, and each endpoint the same in a round.
        let seed = arguments.seed.wrapping_add(u64::from(round) << 32);
        let choice = case.order.begin();
        let plan = Plan::new(case.action.clone(), objects, choice, (case.requests, seed));
        let doing = Doing {
            what: describe(&case.shown),
            label: endpoint.label.clone(),
            round,
            requests: case.expected_requests(objects),
            seconds: case.duration.map(|duration| duration + case.warm_up),
        };
        let live = self.progress.begin(doing);
        let stop = self.progress.stop_signal();
        let measured = load::measure(&endpoint.target, settings, &Arc::new(plan), &live, &stop)
            .context("start the load")?;
        self.progress.measured(measured.seconds);
        Ok(measured)
    }

    fn prepare(
        &mut self,
        case: &CasePlan,
        index: usize,
        (objects, prefix): (&Arc<Objects>, &str),
    ) -> anyhow::Result<()> {
        if self.arguments.no_prepare {
            return Ok(());
        }
        match case.before {
            Before::Anything => Ok(()),
            Before::Kept => {
                let place = if self.endpoints.prepare_at.is_some() {
                    0
                } else {
                    index
                };
                let kept = (place, prefix.to_owned());
                if !self.kept.contains(&kept) {
                    self.fill(self.endpoints.fillable(index), objects, prefix)?;
                    self.kept.push(kept);
                }
                Ok(())
            }
            Before::Refilled => self.fill(self.endpoints.fillable(index), objects, prefix),
            Before::Emptied => {
                if self.endpoints.list[index].address.scheme == Scheme::Redis {
                    return self.delete(index, objects);
                }
                self.empty(index, prefix)
            }
            Before::WrittenElsewhere => {
                let last = self.endpoints.list.len() - 1;
                self.spent.push((last, prefix.to_owned()));
                self.fill(self.endpoints.fillable(last), objects, prefix)
            }
        }
    }

    fn fill(
        &self,
        endpoint: &Endpoint,
        objects: &Arc<Objects>,
        prefix: &str,
    ) -> anyhow::Result<()> {
        let missing = prepare::missing(&endpoint.target, objects, prefix)
            .with_context(|| endpoint.named())?;
        if missing.is_empty() {
            return Ok(());
        }
        let missing = Arc::new(Objects::named(objects.bucket(), missing));
        self.with_hands(
            (endpoint, "uploading objects", &missing),
            |endpoint, hands, watch| prepare::upload(&endpoint.target, &missing, hands, watch),
        )
    }

    fn empty(&self, index: usize, prefix: &str) -> anyhow::Result<()> {
        let endpoint = self.endpoints.fillable(index);
        let none = Arc::new(Objects::named(&self.arguments.bucket, []));
        self.with_hands(
            (endpoint, "deleting objects", &none),
            |endpoint, hands, watch| {
                let place = (&*self.arguments.bucket, prefix);
                prepare::empty(&endpoint.target, place, hands, watch).map(|_| ())
            },
        )
    }

    fn delete(&self, index: usize, objects: &Arc<Objects>) -> anyhow::Result<()> {
        let endpoint = &self.endpoints.list[index];
        self.with_hands(
            (endpoint, "deleting objects", objects),
            |endpoint, hands, watch| prepare::delete(&endpoint.target, objects, hands, watch),
        )
    }

    fn with_hands(
        &self,
        (endpoint, what, objects): (&Endpoint, &str, &Arc<Objects>),
        act: impl FnOnce(&Endpoint, Hands, &Watch<'_>) -> Result<(), PrepareError>,
    ) -> anyhow::Result<()> {
        let shared = objects.shared();
        let largest = shared.iter().filter_map(|object| object.size_bytes).max();
        let is_large = largest.is_some_and(|bytes| bytes >= LARGE_BYTES);
        let hands = Hands {
            threads: self.arguments.threads(),
            clients: if is_large {
                FILL_CLIENTS_LARGE
            } else {
                FILL_CLIENTS
            },
        };
        let live = self.progress.begin(Doing {
            what: what.to_owned(),
            label: endpoint.label.clone(),
            round: 0,
            requests: Some(shared.len() as u64).filter(|count| *count > 0),
            seconds: None,
        });
        let stop = self.progress.stop_signal();
        let watch = Watch {
            live: &live,
            stop: &stop,
        };
        act(endpoint, hands, &watch).with_context(|| endpoint.named())
    }
}

impl CasePlan {
    /// Those that send; each may have several connections.
    fn clients(&self) -> u32 {
        match self.action {
            crate::workload::Action::Multipart { at_once, .. } => self.shown.clients / at_once,
            _ => self.shown.clients,
        }
    }

    fn expected_requests(&self, objects: &Objects) -> Option<u64> {
        let each = matches!(self.order, super::cases::Order::Each);
        let each = each.then(|| objects.shared_count() as u64);
        match (self.requests, each) {
            (Some(requests), Some(each)) => Some(requests.min(each)),
            (requests, each) => requests.or(each),
        }
    }
}

/// A case in a few words.
fn describe(case: &Case) -> String {
    let mut words = vec![case.operation.clone()];
    words.extend(case.object_bytes.map(crate::shown::object_size));
    words.push(case.load.to_string());
    words.extend(
        case.parameters
            .iter()
            .map(|(name, value)| format!("{name} {value}")),
    );
    words.join(", ")
}

/// What a run file says of what was measured: the whole, and what it consisted of, if of several.
fn measurements(
    case: &CasePlan,
    (index, round): (usize, u32),
    measured: Measured,
) -> Vec<Measurement> {
    let client = cost::client_cost(&measured.threads);
    let totals = measured.totals;
    let mut whole = Measurement::new(index, round, case.shown.clone());
    whole.seconds = measured.seconds;
    whole.series = totals.series;
    whole.client = client.clone();
    let mut pieces = Vec::new();
    let has_several = totals.operations.len() > 1;
    for (operation, counts) in totals.operations {
        if operation.is_whole() {
            whole.requests += counts.requests;
            whole.bytes += counts.bytes;
            whole.latency_ns.merge(&counts.latency);
            whole.first_byte_ns.merge(&counts.first_byte);
            for (name, count) in &counts.errors {
                *whole.errors.entry(name.to_string()).or_default() += count;
            }
        }
        if has_several && operation.name() != case.shown.operation {
            let mut piece = Measurement::new(index, round, case.shown.clone());
            operation.name().clone_into(&mut piece.case.operation);
            piece
                .case
                .parameters
                .insert("within".to_owned(), case.shown.operation.clone());
            piece.seconds = measured.seconds;
            piece.requests = counts.requests;
            piece.bytes = counts.bytes;
            piece.errors = counts
                .errors
                .into_iter()
                .map(|(n, c)| (n.into(), c))
                .collect();
            piece.latency_ns = counts.latency;
            piece.first_byte_ns = counts.first_byte;
            // The warning stands with the whole.
            piece.client = ClientCost {
                limited: None,
                ..client.clone()
            };
            pieces.push(piece);
        }
    }
    for (name, count) in totals.errors {
        *whole.errors.entry(name.into()).or_default() += count;
    }
    pieces.insert(0, whole);
    pieces
}
