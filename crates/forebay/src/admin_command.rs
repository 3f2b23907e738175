//! `forebay admin …`: asks a running gateway, over its admin listener.
//!
//! What is printed for people may change; `--json` prints what the API answers (docs/admin.md).

mod arguments;
mod client;
mod follow;
mod mirror;
mod names;
mod origin;
mod show;
mod tier;

use std::process::ExitCode;

use anyhow::Result;
use forebay_bench::fault::{Fault, FaultyInput};
use forebay_gateway::admin::messages::{
    Change, JobState, JobStatus, JobsAnswer, LookupAnswer, StatsAnswer, TopAnswer,
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::signal::unix::Signal;

use crate::print_out;
pub(crate) use arguments::AdminArguments;
use arguments::{AdminCommand, CacheCommand, JobsArguments, TopOrder};
use client::{Client, Method};
use names::encoded;

/// Runs one of the commands.
pub(crate) fn run(arguments: &AdminArguments) -> Result<ExitCode> {
    let client = Client::new(&arguments.server)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let admin = Admin {
        client,
        form: if arguments.server.json {
            Form::Json
        } else {
            Form::People
        },
    };
    runtime.block_on(admin.run(&arguments.command))
}

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    People,
    Json,
}

struct Admin {
    client: Client,
    form: Form,
}

impl Admin {
    async fn run(&self, command: &AdminCommand) -> Result<ExitCode> {
        match command {
            AdminCommand::Cache { command } => self.cache(command).await,
            AdminCommand::Tier { command } => self.tier(command).await,
            AdminCommand::Log { command } => self.log(command).await,
            AdminCommand::Origin { command } => self.origin(command).await,
            AdminCommand::Mirror { command } => self.mirror(command).await,
            AdminCommand::Jobs(arguments) => self.jobs(arguments).await,
        }
    }

    async fn cache(&self, command: &CacheCommand) -> Result<ExitCode> {
        match command {
            CacheCommand::Stats => {
                let answer: StatsAnswer = self.get("/cache/stats").await?;
                self.print(&answer, show::stats)
            }
            CacheCommand::Top(top) => {
                let by = match top.by {
                    TopOrder::Hits => "hits",
                    TopOrder::Bytes => "bytes",
                };
                let path = format!("/cache/top?n={}&by={by}", top.count);
                let answer: TopAnswer = self.get(&path).await?;
                self.print(&answer, show::top)
            }
            CacheCommand::Lookup { object } => {
                let (bucket, key) = names::object(object)?;
                let (bucket, key) = (encoded(bucket), encoded(key));
                let path = format!("/cache/lookup?bucket={bucket}&key={key}");
                let answer: LookupAnswer = self.get(&path).await?;
                self.print(&answer, show::lookup)?;
                Ok(match answer.stored {
                    Some(_) => ExitCode::SUCCESS,
                    None => ExitCode::FAILURE,
                })
            }
            CacheCommand::Purge(selection) => self.change("purge", selection.change()?).await,
            CacheCommand::Pin(selection) => self.change("pin", selection.change()?).await,
            CacheCommand::Unpin(selection) => self.change("unpin", selection.change()?).await,
            CacheCommand::Flush { yes: false } => Err(unsure().into()),
            CacheCommand::Flush { yes: true } => {
                let all = Change {
                    all: true,
                    ..Change::default()
                };
                self.change("flush", all).await
            }
            CacheCommand::Warm(warm) => {
                let change = Change {
                    concurrency: warm.concurrency,
                    ..warm.selection.change()?
                };
                if warm.detach {
                    let job: JobStatus = self.post("/cache/warm", &change).await?;
                    self.print(&job, show::detached)
                } else {
                    self.change("warm", change).await
                }
            }
        }
    }

    async fn jobs(&self, arguments: &JobsArguments) -> Result<ExitCode> {
        let Some(id) = arguments.id else {
            let answer: JobsAnswer = self.get("/jobs").await?;
            return self.print(&answer, show::jobs);
        };
        let method = if arguments.cancel {
            Method::DELETE
        } else {
            Method::GET
        };
        let body = self
            .client
            .ask(method, &format!("/jobs/{id}"), None)
            .await?;
        let job: JobStatus = client::read(&body)?;
        self.print(&job, show::job)
    }

    /// Orders a change and waits for its end.
    async fn change(&self, kind: &str, change: Change) -> Result<ExitCode> {
        let interrupts = follow::interrupts()?;
        let job = self.post(&format!("/cache/{kind}"), &change).await?;
        self.see_through(job, interrupts).await
    }

    /// Orders what needs no words, and waits for its end.
    async fn follow(&self, path: &str) -> Result<ExitCode> {
        let interrupts = follow::interrupts()?;
        let job = self.post(path, &Change::default()).await?;
        self.see_through(job, interrupts).await
    }

    async fn see_through(&self, job: JobStatus, interrupts: Signal) -> Result<ExitCode> {
        let job = follow::to_the_end(&self.client, job, interrupts).await?;
        self.print(&job, show::job)?;
        Ok(match (job.state, job.failed) {
            (JobState::Done, 0) => ExitCode::SUCCESS,
            (JobState::Done | JobState::Running | JobState::Failed | JobState::Cancelled, _) => {
                ExitCode::FAILURE
            }
        })
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        client::read(&self.client.ask(Method::GET, path, None).await?)
    }

    async fn post(&self, path: &str, change: &Change) -> Result<JobStatus> {
        self.tell(path, change).await
    }

    /// Posts a message; the answer.
    async fn tell<T: DeserializeOwned>(&self, path: &str, message: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(message)?;
        client::read(&self.client.ask(Method::POST, path, Some(body)).await?)
    }

    fn print<T: Serialize>(&self, answer: &T, for_people: fn(&T) -> String) -> Result<ExitCode> {
        let text = match self.form {
            Form::People => for_people(answer),
            Form::Json => format!("{}\n", serde_json::to_string(answer)?),
        };
        print_out(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn unsure() -> FaultyInput {
    faulty(
        "--yes",
        "(not set)",
        "--yes",
        "a flush makes every cache empty, and every read goes to the origin: say --yes",
    )
}

/// A fault of the command line.
fn faulty(key: &str, value: &str, allowed: &str, remedy: &str) -> FaultyInput {
    FaultyInput {
        input: "the command line".to_owned(),
        faults: vec![Fault {
            key: key.to_owned(),
            value: value.to_owned(),
            allowed: allowed.to_owned(),
            remedy: remedy.to_owned(),
        }],
    }
}
