//! `forebay admin origin …`.

use std::process::ExitCode;

use anyhow::Result;
use forebay_gateway::admin::messages::{
    EndpointChoice, EndpointStatus, JobStatus, OriginStatus, OriginsAnswer,
};

use super::{
    Admin,
    arguments::{EndpointArguments, OriginCommand},
    follow,
    names::encoded,
    show::{self, printable, table, whole},
};

impl Admin {
    pub(super) async fn origin(&self, command: &OriginCommand) -> Result<ExitCode> {
        match command {
            OriginCommand::Status { store } => {
                let path = match store {
                    None => "/origin/status".to_owned(),
                    Some(store) => format!("/origin/status?store={}", encoded(store)),
                };
                let answer: OriginsAnswer = self.get(&path).await?;
                self.print(&answer, status)
            }
            OriginCommand::Eject(endpoint) => self.endpoint("/origin/eject", endpoint).await,
            OriginCommand::Restore(endpoint) => self.endpoint("/origin/restore", endpoint).await,
            OriginCommand::Drain { endpoint, wait } => {
                let interrupts = follow::interrupts()?;
                let job: JobStatus = self.tell("/origin/drain", &choice(endpoint)).await?;
                if *wait {
                    return self.see_through(job, interrupts).await;
                }
                self.print(&job, show::detached)
            }
        }
    }

    async fn endpoint(&self, path: &str, endpoint: &EndpointArguments) -> Result<ExitCode> {
        let answer: OriginsAnswer = self.tell(path, &choice(endpoint)).await?;
        self.print(&answer, status)
    }
}

fn choice(arguments: &EndpointArguments) -> EndpointChoice {
    EndpointChoice {
        store: arguments.store.clone(),
        endpoint: arguments.endpoint.clone(),
    }
}

fn status(answer: &OriginsAnswer) -> String {
    if answer.origins.is_empty() {
        return "no store is of type s3\n".to_owned();
    }
    let origins: Vec<String> = answer.origins.iter().map(one_origin).collect();
    origins.join("\n")
}

fn one_origin(origin: &OriginStatus) -> String {
    let head = [
        "state",
        "in flight",
        "first byte",
        "requests",
        "failed",
        "endpoint",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(origin.endpoints.iter().map(endpoint_row));
    format!("store {}\n{}", origin.store, table(&rows))
}

fn endpoint_row(endpoint: &EndpointStatus) -> [String; 6] {
    let probe = endpoint.until_seconds;
    let probe = probe.map(|left| format!(" (probed in {} s)", whole(left)));
    let first_byte = endpoint.first_byte_seconds;
    let first_byte = first_byte.map(|seconds| format!("{:.1} ms", seconds * 1000.0));
    [
        format!("{}{}", endpoint.state, probe.unwrap_or_default()),
        format!("{} of {}", endpoint.in_flight, endpoint.requests_max_now),
        first_byte.unwrap_or_default(),
        endpoint.requests.to_string(),
        endpoint.failures.to_string(),
        printable(&endpoint.endpoint),
    ]
}
