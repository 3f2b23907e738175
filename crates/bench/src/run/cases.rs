//! What a run measures: its workload as a list of cases.
//!
//! Pure: takes the arguments, opens nothing but a trace that was read before.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::arguments::{BlockAccess, RunArguments, WorkloadName};
use crate::{
    results::{Case, Load},
    shown,
    workload::{Action, Choice, Layout, Objects, choice::Zipf},
};

const KIB: u64 = 1024;
const MIB: u64 = KIB * KIB;
/// The sizes of the published tables that this is compared with.
const GET_SIZES: [u64; 5] = [KIB, 10 * KIB, 100 * KIB, 500 * KIB, MIB];
const TIER_SIZES: [u64; 6] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
const COLD_SIZE: u64 = 64 * MIB;
const OBJECTS: u32 = 2500;
const COLD_OBJECTS: u32 = 10;
const CONCURRENCY: u32 = 16;
const DURATION: Duration = Duration::from_secs(10);
const WARM_UP_MAX: Duration = Duration::from_secs(5);

/// Cases that are measured together in a round, in order.
pub(crate) type Group = Vec<CasePlan>;

/// One case, before it is known on which endpoint.
#[derive(Debug, Clone)]
pub(crate) struct CasePlan {
    pub(crate) shown: Case,
    pub(crate) action: Action,
    pub(crate) order: Order,
    pub(crate) source: Source,
    pub(crate) before: Before,
    pub(crate) requests: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) warm_up: Duration,
}

/// How objects are chosen; a [`Choice`] that has not begun.
#[derive(Debug, Clone)]
pub(crate) enum Order {
    First,
    Uniform,
    Zipf(Arc<Zipf>),
    Trace(Arc<[u32]>),
    Round,
    Each,
}

impl Order {
    pub(crate) fn begin(&self) -> Choice {
        match self {
            Self::First => Choice::First,
            Self::Uniform => Choice::Uniform,
            Self::Zipf(zipf) => Choice::Zipf(Arc::clone(zipf)),
            Self::Trace(order) => Choice::trace(order.to_vec()),
            Self::Round => Choice::round(),
            Self::Each => Choice::each(),
        }
    }
}

/// Which objects.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The same for all endpoints and rounds.
    Common {
        objects: Arc<Objects>,
        folder: String,
    },
    /// Of each endpoint, or of each measurement, their own.
    Own {
        bucket: String,
        folder: String,
        size_bytes: u64,
        count: usize,
        per: Per,
    },
}

/// How far objects are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Per {
    Endpoint,
    Measurement,
}

/// What must be so before a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Whatever is, is fine.
    Anything,
    /// All objects are there; once is enough.
    Kept,
    /// All objects are there again.
    Refilled,
    /// None is there.
    Emptied,
    /// They were written by someone else: the endpoint has not seen them.
    WrittenElsewhere,
}

impl Source {
    /// The objects for one measurement, and the prefix that they have in common.
    pub(crate) fn objects(&self, label: &str, measurement: &str) -> (Arc<Objects>, String) {
        match self {
            Self::Common { objects, folder } => (Arc::clone(objects), format!("{folder}/")),
            Self::Own {
                bucket,
                folder,
                size_bytes,
                count,
                per,
            } => {
                let folder = match per {
                    Per::Endpoint => format!("{folder}/{label}"),
                    Per::Measurement => format!("{folder}/{label}-{measurement}"),
                };
                let layout = Layout {
                    bucket,
                    folder: &folder,
                    own_objects_of: 0,
                };
                let objects = Objects::numbered(&layout, *size_bytes, *count);
                (Arc::new(objects), format!("{folder}/"))
            }
        }
    }
}

/// What was read from a trace file.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub(crate) objects: Arc<Objects>,
    pub(crate) order: Arc<[u32]>,
}

impl Trace {
    /// Reads lines of `KEY` or `KEY<tab>SIZE`.
    ///
    /// # Errors
    /// Names the line that is neither.
    pub(crate) fn parse(bucket: &str, text: &str) -> Result<Self, String> {
        let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
        let (mut names, mut order) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() {
                continue;
            }
            let (key, size) = match line.split_once('\t') {
                Some((key, size)) => match size.trim().parse::<u64>() {
                    Ok(size) => (key, Some(size)),
                    Err(_) => return Err(format!("line {}: {size:?} is no size", index + 1)),
                },
                None => (line, None),
            };
            let next = u32::try_from(numbers.len()).map_err(|_| "too many keys".to_owned())?;
            let number = *numbers.entry(key).or_insert_with(|| {
                names.push((key.to_owned(), size));
                next
            });
            order.push(number);
        }
        if order.is_empty() {
            return Err("it holds no key".to_owned());
        }
        Ok(Self {
            objects: Arc::new(Objects::named(bucket, names)),
            order: order.into(),
        })
    }
}

/// The cases of a run.
pub(crate) fn cases(arguments: &RunArguments, trace: Option<&Trace>) -> Vec<Group> {
    let maker = Maker { arguments, trace };
    match arguments.workload {
        WorkloadName::Clients => {
            let cases = arguments.clients.iter().flat_map(|clients| {
                let of = maker.simple(arguments.of, *clients);
                of.into_iter().map(|case| vec![case])
            });
            cases.collect()
        }
        WorkloadName::Blocks => maker.blocks(),
        WorkloadName::Tier => maker.tier(),
        name => {
            let clients = arguments.concurrency.unwrap_or(match name {
                WorkloadName::Cold => 1,
                _ => CONCURRENCY,
            });
            let cases = maker.simple(name, clients).into_iter();
            cases.map(|case| vec![case]).collect()
        }
    }
}

struct Maker<'a> {
    arguments: &'a RunArguments,
    trace: Option<&'a Trace>,
}

impl Maker<'_> {
    /// The workloads that have one operation and a case for each size.
    fn simple(&self, name: WorkloadName, clients: u32) -> Vec<CasePlan> {
        let sizes = self.sizes(match name {
            WorkloadName::Get | WorkloadName::Put => &GET_SIZES,
            WorkloadName::Cold => &[COLD_SIZE],
            WorkloadName::Multipart => std::slice::from_ref(&self.arguments.object_size),
            _ => &[KIB],
        });
        if let (Some(trace), WorkloadName::Get | WorkloadName::Head) = (self.trace, name) {
            return vec![self.traced(trace, name, clients)];
        }
        sizes
            .into_iter()
            .map(|size_bytes| self.one(name, clients, size_bytes))
            .collect()
    }

    fn traced(&self, trace: &Trace, name: WorkloadName, clients: u32) -> CasePlan {
        let source = Source::Common {
            objects: Arc::clone(&trace.objects),
            folder: String::new(),
        };
        let action = match name {
            WorkloadName::Head => Action::Head,
            _ => Action::Get,
        };
        let has_sizes = trace
            .objects
            .shared()
            .iter()
            .all(|object| object.size_bytes.is_some());
        let mut case = self.case((name.name(), None, clients), action, source);
        case.order = Order::Trace(Arc::clone(&trace.order));
        case.before = if has_sizes {
            Before::Kept
        } else {
            Before::Anything
        };
        case
    }

    fn one(&self, name: WorkloadName, clients: u32, size_bytes: u64) -> CasePlan {
        let arguments = self.arguments;
        let count = match (name, arguments.objects) {
            (WorkloadName::Hot, _) => 1,
            (WorkloadName::Cold, None) => COLD_OBJECTS,
            (_, None) => OBJECTS,
            (_, Some(count)) => count,
        };
        // One set of objects serves all that only read: runs of another workload find it there.
        let folder = match name {
            WorkloadName::Get | WorkloadName::Hot | WorkloadName::Head | WorkloadName::List => {
                "objects"
            }
            _ => name.name(),
        };
        let folder = self.folder(folder, size_bytes);
        let own_objects_of = if name == WorkloadName::Mixed {
            clients
        } else {
            0
        };
        let source = match name {
            WorkloadName::Delete => self.own((folder, size_bytes, count), Per::Endpoint),
            WorkloadName::Cold => self.own((folder, size_bytes, count), Per::Measurement),
            _ => self.common((folder, size_bytes, count), own_objects_of),
        };
        let action = match name {
            WorkloadName::Head => Action::Head,
            WorkloadName::Put => Action::Put,
            WorkloadName::Delete => Action::Delete,
            WorkloadName::List => Action::List,
            WorkloadName::Mixed => Action::Mixed(arguments.shares.clone()),
            WorkloadName::Multipart => Action::Multipart {
                part_bytes: arguments.part_size,
                at_once: arguments.parts_at_once,
            },
            _ => Action::Get,
        };
        let mut case = self.case((name.name(), Some(size_bytes), clients), action, source);
        (case.order, case.before) = match name {
            WorkloadName::Hot => (Order::First, Before::Kept),
            WorkloadName::Put | WorkloadName::Multipart => (Order::Round, Before::Anything),
            WorkloadName::Delete => (Order::Each, Before::Refilled),
            WorkloadName::Cold => (Order::Each, Before::WrittenElsewhere),
            _ => (self.random(count), Before::Kept),
        };
        if matches!(case.order, Order::Each) {
            case.warm_up = Duration::ZERO;
        }
        if name == WorkloadName::Multipart {
            let parameters = &mut case.shown.parameters;
            parameters.insert("part_size".into(), shown::object_size(arguments.part_size));
            parameters.insert("parts_at_once".into(), arguments.parts_at_once.to_string());
            case.shown.clients = clients * arguments.parts_at_once;
        }
        case
    }

    fn random(&self, count: u32) -> Order {
        match self.arguments.zipf {
            Some(exponent) => Order::Zipf(Arc::new(Zipf::new(count as usize, exponent))),
            None => Order::Uniform,
        }
    }

    /// A case of the default kind: objects chosen evenly, as long as the arguments say.
    fn case(
        &self,
        (operation, object_bytes, clients): (&str, Option<u64>, u32),
        action: Action,
        source: Source,
    ) -> CasePlan {
        let arguments = self.arguments;
        let load = match arguments.rate {
            Some(rate) => Load::Open { rate },
            None => Load::Closed {
                concurrency: clients,
            },
        };
        let duration = match (arguments.duration, arguments.requests) {
            (None, None) => Some(DURATION),
            (duration, _) => duration,
        };
        let warm_up = duration.map_or(Duration::ZERO, |duration| (duration / 10).min(WARM_UP_MAX));
        CasePlan {
            shown: Case {
                operation: operation.to_owned(),
                object_bytes,
                clients,
                load,
                parameters: BTreeMap::new(),
            },
            action,
            order: Order::Uniform,
            source,
            before: Before::Kept,
            requests: arguments.requests,
            duration,
            warm_up: arguments.warm_up.unwrap_or(warm_up),
        }
    }

    fn blocks(&self) -> Vec<Group> {
        let arguments = self.arguments;
        let cache_bytes = arguments.cache_size.unwrap_or(MIB);
        let mut groups = Vec::new();
        for multiple in &arguments.working_set {
            let set_bytes = multiple.of(cache_bytes).max(1);
            for block_bytes in &arguments.block_size {
                for clients in &arguments.in_flight {
                    for access in &arguments.block_access {
                        let mut case = match access {
                            BlockAccess::Read => {
                                self.block_reads(set_bytes, *block_bytes, *clients)
                            }
                            BlockAccess::Write => {
                                self.block_writes(set_bytes, *block_bytes, *clients)
                            }
                        };
                        let parameters = &mut case.shown.parameters;
                        parameters.insert("working_set".into(), multiple.to_string());
                        groups.push(vec![case]);
                    }
                }
            }
        }
        groups
    }

    fn block_reads(&self, set_bytes: u64, block_bytes: u64, clients: u32) -> CasePlan {
        let object_bytes = self.arguments.object_size.min(set_bytes).max(block_bytes);
        let count = u32::try_from(set_bytes / object_bytes)
            .unwrap_or(u32::MAX)
            .max(1);
        let folder = self.folder("blocks", object_bytes);
        let source = self.common((folder, object_bytes, count), 0);
        let action = Action::GetBlock { block_bytes };
        let mut case = self.case(("block-read", Some(block_bytes), clients), action, source);
        let blocks = u64::from(count) * (object_bytes / block_bytes);
        case.order = self.random(u32::try_from(blocks).unwrap_or(u32::MAX));
        case
    }

    fn block_writes(&self, set_bytes: u64, block_bytes: u64, clients: u32) -> CasePlan {
        /// Keys cost the client memory; a set of more has the same effect on a cache.
        const WRITTEN_MAX: u64 = 1_000_000;
        let count = (set_bytes / block_bytes).clamp(1, WRITTEN_MAX);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let folder = self.folder("block-writes", block_bytes);
        let source = self.common((folder, block_bytes, count), 0);
        let mut case = self.case(
            ("block-write", Some(block_bytes), clients),
            Action::Put,
            source,
        );
        case.before = Before::Anything;
        case
    }

    fn tier(&self) -> Vec<Group> {
        let clients = self.arguments.concurrency.unwrap_or(1);
        let group = |size_bytes: u64| {
            let folder = self.folder("tier", size_bytes);
            let source = self.own((folder, size_bytes, self.arguments.runs), Per::Endpoint);
            let case = |operation, action, before| {
                let mut case = self.case(
                    (operation, Some(size_bytes), clients),
                    action,
                    source.clone(),
                );
                case.order = Order::Each;
                case.before = before;
                case.duration = self.arguments.duration;
                case.warm_up = Duration::ZERO;
                case
            };
            vec![
                case("put", Action::Put, Before::Emptied),
                case("get", Action::Get, Before::Anything),
                case("delete", Action::Delete, Before::Anything),
            ]
        };
        self.sizes(&TIER_SIZES).into_iter().map(group).collect()
    }

    fn sizes(&self, default: &[u64]) -> Vec<u64> {
        if self.arguments.size.is_empty() {
            default.to_vec()
        } else {
            self.arguments.size.clone()
        }
    }

    fn folder(&self, name: &str, size_bytes: u64) -> String {
        format!("{}/{name}/{size_bytes}", self.arguments.prefix)
    }

    fn common(&self, (folder, size_bytes, count): (String, u64, u32), own: u32) -> Source {
        let layout = Layout {
            bucket: &self.arguments.bucket,
            folder: &folder,
            own_objects_of: own,
        };
        Source::Common {
            objects: Arc::new(Objects::numbered(&layout, size_bytes, count as usize)),
            folder,
        }
    }

    fn own(&self, (folder, size_bytes, count): (String, u64, u32), per: Per) -> Source {
        Source::Own {
            bucket: self.arguments.bucket.clone(),
            folder,
            size_bytes,
            count: count as usize,
            per,
        }
    }
}
